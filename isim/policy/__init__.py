"""Decisions as values: what an engine's scheduler does next. Knows no clock, no process and no file."""
