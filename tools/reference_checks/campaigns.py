"""Campaigns of concurrent executions."""

from __future__ import annotations

from reference_checks.case import Check

CHECKS: tuple[Check, ...] = ()
