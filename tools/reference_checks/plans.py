"""Compiled plans, their artifacts, runs and comparisons."""

from __future__ import annotations

from reference_checks.case import Check

CHECKS: tuple[Check, ...] = ()
