"""Executes frozen plans on a topology: what is decided (pure), the closed form that runs it, and the processes."""
