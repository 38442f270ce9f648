"""`workload` and `slo` written back as in a run file, and the paths in a workload seen from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from isim.scenario.types import (
    Arrivals,
    Burst,
    ClosedLoop,
    Constant,
    Diurnal,
    Empirical,
    EmpiricalFile,
    FixedThink,
    Gamma,
    Generated,
    LengthSpec,
    LogNormal,
    Mixture,
    Ramp,
    Ratio,
    RequestFile,
    Sessions,
    Slo,
    Traffic,
    Uniform,
    Workload,
)
from isim.scenario.units import Dimension, write_quantity, write_ratio, write_share

Tree = dict[str, Any]


class Number(str):
    """A number's text, written without quotes."""

    __slots__ = ()


def workload_tree(workload: Workload) -> Tree:
    """The block `workload` with nothing left out."""
    if isinstance(workload, Mixture):
        classes = {name: {"weight": traffic.weight, **_traffic(traffic)} for name, traffic in workload.classes}
        return {**_generator(workload), "classes": classes}
    if isinstance(workload, Generated):
        return {**_generator(workload), **_traffic(workload.traffic)}
    if isinstance(workload, ClosedLoop | Sessions):
        return _reacting(workload)
    tree: Tree = {"kind": _tag(workload), "path": workload.path}
    if isinstance(workload, RequestFile):
        tree["format"] = workload.format.value
    tree["limit"] = workload.limit
    tree["time_scale"] = write_ratio(workload.time_scale)
    if workload.window is not None:
        window = workload.window
        times = {"start": window.start_ns, "end": window.end_ns}
        tree["window"] = {key: _time(value) for key, value in times.items()}
    return tree


def slo_tree(slo: Slo) -> Tree:
    """The block `slo`."""
    tree: Tree = {}
    for key in slo.__struct_fields__:
        targets = getattr(slo, key)
        given = {name.removesuffix("_ns"): getattr(targets, name) for name in targets.__struct_fields__}
        kept = {name: _time(time_ns) for name, time_ns in given.items() if time_ns is not None}
        if kept:
            tree[key] = kept
    return tree


def moved_workload(workload: Workload, move: Callable[[str], str]) -> Workload:
    """The same workload with every path put through `move`."""
    if isinstance(workload, Mixture):
        classes = tuple([(name, _moved(traffic, move)) for name, traffic in workload.classes])
        return msgspec.structs.replace(workload, classes=classes)
    if isinstance(workload, Generated):
        return _moved(workload, move)
    if isinstance(workload, ClosedLoop | Sessions):
        return msgspec.structs.replace(workload, traffic=_moved(workload.traffic, move))
    return msgspec.structs.replace(workload, path=move(workload.path))


Lengths = TypeVar("Lengths", Generated, Traffic)


def _moved(traffic: Lengths, move: Callable[[str], str]) -> Lengths:
    moved: dict[str, LengthSpec] = {}
    for key in ("input_tokens", "output_tokens"):
        length = getattr(traffic, key)
        if isinstance(length, EmpiricalFile):
            moved[key] = EmpiricalFile(path=move(length.path))
    return msgspec.structs.replace(traffic, **moved)


def _tag(value: msgspec.Struct) -> str:
    return str(value.__struct_config__.tag)


def _time(time_ns: int) -> str:
    return write_quantity(time_ns, Dimension.DURATION)


def _rate(rate: Ratio) -> str:
    return f"{write_ratio(rate)} per second"


def _generator(workload: Generated | Mixture) -> Tree:
    return {"kind": _tag(workload), "arrivals": _arrivals(workload.arrivals), "requests": workload.requests}


def _reacting(workload: ClosedLoop | Sessions) -> Tree:
    tree: Tree = {"kind": _tag(workload)}
    if isinstance(workload, ClosedLoop):
        tree |= {"clients": workload.clients, "requests": workload.requests}
    else:
        tree |= {"arrivals": _arrivals(workload.arrivals), "sessions": workload.sessions}
        tree["turns"] = _length(workload.turns)
    think = workload.think
    if isinstance(think, FixedThink):
        tree["think"] = {"kind": "fixed", "duration": _time(think.duration_ns)}
    else:
        tree["think"] = {"kind": "exponential", "mean": _time(think.mean_ns)}
    traffic = _traffic(workload.traffic)
    del traffic["prompt_pool"]
    return tree | traffic


def _arrivals(arrivals: Arrivals) -> Tree:
    tree: Tree = {"kind": _tag(arrivals)}
    match arrivals:
        case Ramp():
            tree |= {
                "from": _rate(arrivals.from_per_s),
                "to": _rate(arrivals.to_per_s),
                "over": _time(arrivals.over_ns),
            }
        case Diurnal():
            tree |= {"low": _rate(arrivals.low_per_s), "high": _rate(arrivals.high_per_s)}
            tree["period"] = _time(arrivals.period_ns)
        case Burst():
            tree |= {"base": _rate(arrivals.base_per_s), "burst": _rate(arrivals.burst_per_s)}
            tree |= {"period": _time(arrivals.period_ns), "length": _time(arrivals.burst_ns)}
        case _:
            tree["rate"] = _rate(arrivals.rate_per_s)
    if isinstance(arrivals, Gamma):
        tree["cv"] = Number(write_share(arrivals.cv_ppm))
    return tree


def _traffic(traffic: Traffic) -> Tree:
    tree: Tree = {
        "input_tokens": _length(traffic.input_tokens),
        "output_tokens": _length(traffic.output_tokens),
        "priority": traffic.priority,
    }
    if traffic.shared_prefix is not None:
        tree["shared_prefix"] = {"tokens": traffic.shared_prefix.tokens, "groups": traffic.shared_prefix.groups}
    tree["prompt_pool"] = traffic.prompt_pool
    return tree


def _length(length: LengthSpec) -> Any:
    match length:
        case Constant():
            return length.tokens
        case Uniform():
            return {"kind": "uniform", "low": length.low_tokens, "high": length.high_tokens}
        case EmpiricalFile():
            return {"kind": "empirical_file", "path": length.path}
        case Empirical():
            return {"kind": "empirical", "values": length.tokens, "weights": length.weights or None}
        case LogNormal():
            sigma = Number(write_share(length.sigma_ppm))
            limits = {"min": length.min_tokens, "max": length.max_tokens}
            return {"kind": "lognormal", "median": length.median_tokens, "sigma": sigma, **limits}
