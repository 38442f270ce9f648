"""The digest of a scenario: equal for scenarios whose runs cannot differ in any number.

Left out are the run's name, `max_events` and `max_stretch`, the sources of figures, and the path of a trace: what a
trace holds is told by the digest of the workload, and where it lies changes nothing.
"""

from __future__ import annotations

import hashlib

import msgspec

from isim.scenario.types import Scenario


def scenario_digest(scenario: Scenario) -> str:
    """SHA-256 of the canonical JSON of everything in the scenario that can change a result."""
    plain = msgspec.to_builtins(scenario)
    del plain["name"], plain["simulation"]["max_events"], plain["simulation"]["max_stretch"]
    del plain["hardware"]["gpu"]["sources"], plain["model"]["spec"]["sources"]
    plain["workload"].pop("path", None)
    return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()
