"""Frozen plans: types, validation, hazards, compilation, the artifact. Pure."""
