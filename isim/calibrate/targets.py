"""Which metrics a fit is made to, and why the others are only looked at.

Near saturation a wait is not a property of the step times that anybody could fit: 3 % of step time moves it twofold, so
whatever else is not modelled would be made good by factors that are wrong everywhere else. What waits are part of is
then no target, unless it is asked for by name.

A time to first token holds time outside the engine too (the API server, tokenising, the network). Where no factor
stands for that it is no target either: on published runs of an A100 the share of the compute rate then took the part,
and sent two of five other runs of that GPU into saturation that had none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

import msgspec

from isim.analyze.schema import LoadState
from isim.calibrate.pairs import BY_NAME, Pair, Sides
from isim.record.errors import IsimError

SATURATED = (LoadState.NEAR_SATURATION, LoadState.OVERLOADED)
WAITS = ("latency.ttft_ns.", "latency.queue_ns.", "latency.e2e_ns.")
"""Beginnings of the metrics that waits are part of."""

_SATURATED = "the load is {}: waits say how near the knee is, not how fast steps are"
_FIRST = "latency.ttft_ns."
_OUTSIDE = "it holds time outside the engine, which no factor that may be fitted stands for"
_NOT_MEAN = "only means are fitted to, unless asked for by --metric"
_NOT_ASKED = "not asked for"


class CalibrationError(IsimError):
    """Measurements and run file from which no factor can be had."""


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """Names of the metrics fitted to, and the reasons of all others."""

    names: tuple[str, ...]
    reasons: dict[str, str]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line and the input ask for.

    asked         metrics by name; empty leaves the choice
    all_figures   whether every figure is meant where nothing is asked for, or the means
    outside       whether a factor for time outside the engine may be fitted
    """

    asked: Sequence[str]
    all_figures: bool
    outside: bool


def targets(sides: Sides, wish: Wish, load: LoadState | None) -> Targets:
    """Those asked for; else what was measured, as far as load and factors allow.

    Raises CalibrationError where there is nothing to fit to, or what was asked for was not measured.
    """
    _check_asked(wish.asked, sides.pairs)
    reasons = {name: _reason(name, wish, load) for name in sides.pairs}
    names = tuple(name for name, reason in reasons.items() if not reason)
    undefined = [name for name in names if not sides.pairs[name].simulated]
    if undefined:
        raise CalibrationError("\n".join(f"{name}: measured, but {_nothing(sides.pairs[name])}" for name in undefined))
    if not names:
        lines = [f"{name}: no target: {reason}" for name, reason in reasons.items()]
        raise CalibrationError("\n".join(["nothing to fit to; --metric asks for one nevertheless", *lines]))
    return Targets(names=names, reasons={name: reason for name, reason in reasons.items() if reason})


def _nothing(pair: Pair) -> str:
    if pair.simulated is None:
        return "the run has no such number; --metric names those to fit to"
    return "it is 0 in the run, with which no ratio can be had; --set starts the factors elsewhere"


def _reason(name: str, wish: Wish, load: LoadState | None) -> str:
    """Why this metric is no target; empty where it is one."""
    if wish.asked:
        return "" if name in wish.asked else _NOT_ASKED
    if load in SATURATED and load is not None and name.startswith(WAITS):
        return _SATURATED.format(load.value.replace("_", " "))
    if not wish.outside and name.startswith(_FIRST):
        return _OUTSIDE
    return "" if wish.all_figures or name.endswith(".mean") else _NOT_MEAN


def _check_asked(asked: Sequence[str], pairs: Collection[str]) -> None:
    faults = []
    for place, name in enumerate(asked):
        shown = ascii(name)[1:-1][:60]
        if name in asked[:place]:
            faults.append(f"--metric {shown}: expected once, found twice")
        elif name not in pairs:
            near = get_close_matches(name, list(pairs), 1)
            hint = f"; did you mean {near[0]}?" if near else f": {', '.join(pairs)}"
            what = "a metric that was measured" if name in BY_NAME else "the name of a metric that was measured"
            faults.append(f"--metric {shown}: expected {what}{hint}")
    if faults:
        raise CalibrationError("\n".join(faults))


def waiting(names: Sequence[str]) -> list[str]:
    """Those that waits are part of."""
    return [name for name in names if name.startswith(WAITS)]


def first_tokens(names: Sequence[str]) -> list[str]:
    """Those that hold time outside the engine to a good part."""
    return [name for name in names if name.startswith(_FIRST)]


def values(pairs: dict[str, Pair], names: Sequence[str]) -> list[Pair]:
    """The pairs of these metrics. Raises CalibrationError where a run with other factors has no such number."""
    missing = [name for name in names if name not in pairs or not pairs[name].simulated]
    if missing:
        raise CalibrationError(f"{', '.join(missing)}: not defined in a run with other factors")
    return [pairs[name] for name in names]
