"""The digest of a scenario: equal for scenarios whose runs cannot differ in any number.

Left out are the run's name, `max_events` and `max_stretch`, the sources of figures and factors, and the paths of
files: what a trace holds is told by the digest of the workload, what a config holds by its figures, and where they lie
changes nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from isim.scenario.types import Scenario


def scenario_digest(scenario: Scenario) -> str:
    """SHA-256 of the canonical JSON of everything in the scenario that can change a result."""
    plain = msgspec.to_builtins(scenario)
    del plain["name"], plain["simulation"]["max_events"], plain["simulation"]["max_stretch"]
    del plain["hardware"]["gpu"]["sources"], plain["model"]["spec"]["sources"]
    plain["cost"].pop("fitted", None)
    plain["model"].pop("path", None)
    plain["model"]["spec"].pop("assumptions", None)
    _forget_paths(plain["workload"])
    return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()


def _forget_paths(plain: Any) -> None:
    """Remove `path` at every depth."""
    if isinstance(plain, dict):
        plain.pop("path", None)
    for inner in plain.values() if isinstance(plain, dict) else plain:
        if isinstance(inner, dict | list | tuple):
            _forget_paths(inner)
