"""Frozen plans: what they are, whether they hold, how a workload becomes one, and the file that carries them. Pure."""
