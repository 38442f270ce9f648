"""What is asked: run files, strictly read, as frozen values with every default resolved."""
