"""What may be fitted: numbers of the run file, by their paths, with the range in which each is plausible.

The range is narrower than what a run file
may say: a server whose memory efficiency seems to be 5 % has something that is not modelled, and a fit that hides it in
a factor would be wrong everywhere else. `start` is where a fit begins whose run file says 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import UNSET

from isim.record.errors import IsimError
from isim.scenario.types import Linear, Roofline, Scenario
from isim.scenario.units import Dimension, write_quantity, write_share

DIGITS = 3


class FactorError(IsimError):
    """A factor that cannot be fitted, and why."""


class Factor(msgspec.Struct, frozen=True, kw_only=True):
    """`field` is where a scenario holds the number; `unit` None is a share in parts per million.

    `cost` is the kind of cost model that has it, None where any does. Bounds and start are in the field's own unit.
    `outside` says that it stands for time outside the engine, which clients see in a time to first token and no step
    has.
    """

    path: str
    field: str
    cost: type[Roofline] | type[Linear] | None
    unit: Dimension | None
    low: int
    high: int
    start: int = 0
    outside: bool = False

    def of(self, scenario: Scenario) -> int | None:
        """Its value; None where this scenario has none."""
        if self.cost is not None and not isinstance(scenario.cost, self.cost):
            return None
        found: object = scenario
        for name in self.field.split("."):
            found = getattr(found, name)
        if found is UNSET:
            return 0
        assert found is None or isinstance(found, int)
        return found

    def put(self, scenario: Scenario, value: int) -> Scenario:
        """The scenario with this value, which is within the bounds."""
        changed: Scenario = _with(scenario, self.field.split("."), value)
        return changed

    def text(self, value: int) -> str:
        """As a run file says it."""
        return write_share(value) if self.unit is None else write_quantity(value, self.unit)

    def setting(self, value: int) -> str:
        return f"{self.path}={self.text(value)}"

    def rounded(self, value: int) -> int:
        """To three significant digits."""
        return significant(value, DIGITS)


def _with(struct: Any, field: Sequence[str], value: int) -> Any:
    """The struct with the value at a path of fields."""
    inner = _with(getattr(struct, field[0]), field[1:], value) if len(field) > 1 else value
    return msgspec.structs.replace(struct, **{field[0]: inner})


def significant(value: int, digits: int) -> int:
    """The nearest number of so many significant digits; of two the greater."""
    unit = 1
    while value // unit >= 10**digits:
        unit *= 10
    return (value + unit // 2) // unit * unit


_MS = 1_000_000
_US = 1_000

FACTORS = (
    Factor(path="cost.memory_efficiency", field="cost.memory_efficiency_ppm", cost=Roofline, unit=None,
           low=300_000, high=1_000_000),
    Factor(path="cost.base", field="cost.coefficients.base_ps", cost=Linear, unit=Dimension.PRICE,
           low=_US * _US, high=10_000 * _MS * _US, start=5 * _MS * _US),
    Factor(path="engine.request_overhead", field="engine.request_overhead_ns", cost=None, unit=Dimension.DURATION,
           low=100 * _US, high=100 * _MS, start=5 * _MS, outside=True),
    Factor(path="cost.compute_efficiency", field="cost.compute_efficiency_ppm", cost=Roofline, unit=None,
           low=200_000, high=1_000_000),
    Factor(path="cost.host_step", field="cost.host_step_ns", cost=Roofline, unit=Dimension.DURATION,
           low=100 * _US, high=100 * _MS, start=1_500 * _US),
    Factor(path="cost.kernel_gap", field="cost.kernel_gap_ns", cost=Roofline, unit=Dimension.DURATION,
           low=100, high=30 * _US, start=1_500),
    Factor(path="cost.allreduce_latency", field="cost.allreduce_latency_ns", cost=Roofline, unit=Dimension.DURATION,
           low=1 * _US, high=300 * _US, start=8 * _US),
    Factor(path="cost.per_token", field="cost.coefficients.per_token_ps", cost=Linear, unit=Dimension.PRICE,
           low=10 * _US, high=100 * _MS * _US, start=20 * _US * _US),
    Factor(path="cost.per_request", field="cost.coefficients.per_request_ps", cost=Linear, unit=Dimension.PRICE,
           low=10 * _US, high=100 * _MS * _US, start=50 * _US * _US),
    Factor(path="cost.per_context_token", field="cost.coefficients.per_context_token_ps", cost=Linear,
           unit=Dimension.PRICE, low=1_000, high=_MS * _US, start=50 * _US),
)  # fmt: skip
"""In the order in which a fit looks for those that the metrics tell.

What a request spends outside the engine comes before the compute rate: where one time to first token could be either,
too much overhead makes other prompts somewhat wrong, too low a rate takes throughput away that is there.
"""

BY_PATH = {factor.path: factor for factor in FACTORS}


def fittable(scenario: Scenario) -> list[Factor]:
    """Those that this scenario has a number for."""
    return [factor for factor in FACTORS if factor.of(scenario) is not None]


def chosen(scenario: Scenario, paths: list[str]) -> list[Factor]:
    """The factors of these paths. Raises FactorError for what cannot be fitted here, all of it at once."""
    found, faults = [], []
    known = [factor.path for factor in fittable(scenario)]
    for place, path in enumerate(paths):
        factor = BY_PATH.get(path)
        if factor is None:
            near = get_close_matches(path, list(BY_PATH), 1)
            hint = f"; did you mean {near[0]}?" if near else f": {', '.join(known)}"
            faults.append(f"--fit {ascii(path)[1:-1][:60]}: expected a factor that can be fitted{hint}")
        elif path not in known:
            faults.append(
                f"--fit {path}: expected a factor that this run file has, found none; it has {', '.join(known)}"
            )
        elif path in paths[:place]:
            faults.append(f"--fit {path}: expected once, found twice")
        else:
            found.append(factor)
    if faults:
        raise FactorError("\n".join(faults))
    return found
