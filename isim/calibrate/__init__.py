"""From what was measured to the declared factors with which a simulation tells the same."""
