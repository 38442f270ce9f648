"""From what was read of `workload` and `slo` to their values; the numbers that must agree are compared."""

from __future__ import annotations

from typing import Any

from isim.scenario.fields import Reading, Values
from isim.scenario.types import (
    Arrivals,
    AzureTrace,
    Burst,
    ClosedLoop,
    Constant,
    Diurnal,
    Empirical,
    EmpiricalFile,
    ExponentialThink,
    FixedRate,
    FixedThink,
    Gamma,
    Generated,
    LengthSpec,
    LogNormal,
    Mixture,
    MooncakeTrace,
    Poisson,
    Ramp,
    Ratio,
    RequestFile,
    Sessions,
    SharedPrefix,
    Slo,
    Targets,
    Traffic,
    Uniform,
    Window,
    Workload,
)


def build_workload(reading: Reading, values: Values) -> Workload | None:
    """The workload; None exactly when there are complaints about it."""
    if values.tag in ("generated", "mixture"):
        return _generator(reading, values)
    if values.tag in ("closed_loop", "sessions"):
        return _reacting(reading, values)
    get = values.values.get
    window_values = _inner(values, "window")
    window = None
    if window_values is not None and not window_values.broken:
        window = Window(start_ns=window_values.values["start"], end_ns=window_values.values["end"])
        if window.end_ns <= window.start_ns:
            cited = reading.cite(window_values, "start", f"{window.start_ns} ns")
            message = f"expected a time after the start, found {window.end_ns} ns; {cited}"
            reading.complain(window_values.where("end"), window_values.at("end"), message)
    if values.broken:
        return None
    kept: dict[str, Any] = {"path": get("path"), "limit": get("limit"), "window": window}
    kept["time_scale"] = get("time_scale") or Ratio(numerator=1)
    if values.tag == "request_file":
        return RequestFile(**kept, format=values.values["format"])
    return AzureTrace(**kept) if values.tag == "azure_trace" else MooncakeTrace(**kept)


def build_slo(reading: Reading, values: Values) -> Slo | None:
    """The targets; None where there are none, or after complaints."""
    given = {key: block for key in values.values if (block := _inner(values, key)) is not None}
    if not given and not values.broken:
        reading.complain(values.place, values.path, "expected a target for ttft, tpot, itl or e2e, found none")
    for key, block in given.items():
        if not block.broken and not any(block.values.values()):
            expected = "each, mean, p50, p90, p95, p99 or max with a time"
            reading.complain(values.where(key), values.at(key), f"expected {expected}, found none of them")
    if values.broken or any(block.broken for block in given.values()):
        return None
    return Slo(
        **{
            key: Targets(**{f"{name}_ns": time_ns for name, time_ns in block.values.items()})
            for key, block in given.items()
        }
    )


def _inner(values: Values, key: str) -> Values | None:
    found: Values | None = values.values.get(key)
    return found


def _generator(reading: Reading, values: Values) -> Workload | None:
    arrivals = _arrivals(reading, block) if (block := _inner(values, "arrivals")) else None
    requests = values.values.get("requests")
    if values.tag == "generated":
        traffic = _traffic(reading, values)
        if values.broken or arrivals is None or traffic is None:
            return None
        return Generated(arrivals=arrivals, requests=values.values["requests"], **traffic)
    named = _inner(values, "classes")
    classes = []
    for name, block in named.values.items() if named else []:
        traffic = _traffic(reading, block)
        if traffic is not None:
            classes.append((name, Traffic(**traffic, weight=block.values["weight"])))
    if values.broken or arrivals is None or named is None or len(classes) < len(named.values) or named.broken:
        return None
    return Mixture(arrivals=arrivals, requests=requests, classes=tuple(classes))  # type: ignore[arg-type] # not broken


def _reacting(reading: Reading, values: Values) -> Workload | None:
    traffic = _traffic(reading, values)
    think = _inner(values, "think")
    arrivals = _arrivals(reading, block) if (block := _inner(values, "arrivals")) else None
    turns = _length(reading, block) if (block := _inner(values, "turns")) else None
    if values.broken or traffic is None or think is None or think.broken:
        return None
    waits = FixedThink(duration_ns=think.values["duration"]) if think.tag == "fixed" else None
    waiting = {"think": waits or ExponentialThink(mean_ns=think.values["mean"]), "traffic": Traffic(**traffic)}
    get = values.values.get
    if values.tag == "closed_loop":
        return ClosedLoop(clients=get("clients"), requests=get("requests"), **waiting)  # type: ignore[arg-type] # not broken
    if arrivals is None or turns is None:
        return None
    return Sessions(arrivals=arrivals, sessions=get("sessions"), turns=turns, **waiting)  # type: ignore[arg-type] # not broken


def _traffic(reading: Reading, values: Values) -> dict[str, Any] | None:
    """The fields of a Traffic but for its weight."""
    inputs = _length(reading, block) if (block := _inner(values, "input_tokens")) else None
    outputs = _length(reading, block) if (block := _inner(values, "output_tokens")) else None
    prefix = _inner(values, "shared_prefix")
    if values.broken or inputs is None or outputs is None or (prefix is not None and prefix.broken):
        return None
    return {
        "input_tokens": inputs,
        "output_tokens": outputs,
        "priority": values.values["priority"],
        "shared_prefix": None if prefix is None else SharedPrefix(**prefix.values),
        "prompt_pool": values.values.get("prompt_pool"),
    }


def _arrivals(reading: Reading, values: Values) -> Arrivals | None:
    if values.broken:
        return None
    read = values.values
    match values.tag:
        case "fixed_rate":
            return FixedRate(rate_per_s=read["rate"])
        case "poisson":
            return Poisson(rate_per_s=read["rate"])
        case "gamma":
            return Gamma(rate_per_s=read["rate"], cv_ppm=read["cv"])
        case "ramp":
            return Ramp(from_per_s=read["from"], to_per_s=read["to"], over_ns=read["over"])
        case "diurnal":
            return Diurnal(low_per_s=read["low"], high_per_s=read["high"], period_ns=read["period"])
    if read["length"] >= read["period"]:
        cited = reading.cite(values, "period", f"{read['period']} ns")
        message = f"expected less than the period, found {read['length']} ns; {cited}"
        reading.complain(values.where("length"), values.at("length"), message)
    return Burst(base_per_s=read["base"], burst_per_s=read["burst"], period_ns=read["period"], burst_ns=read["length"])


def _length(reading: Reading, values: Values) -> LengthSpec | None:
    if values.broken:
        return None
    read = values.values
    if values.tag == "constant":
        return Constant(tokens=read["tokens"])
    if values.tag == "empirical_file":
        return EmpiricalFile(path=read["path"])
    if values.tag == "empirical":
        return _empirical(reading, values)
    low, high = ("low", "high") if values.tag == "uniform" else ("min", "max")
    _check_at_least(reading, values, high, low)
    if values.tag == "uniform":
        return Uniform(low_tokens=read[low], high_tokens=read[high])
    _check_at_least(reading, values, "median", low)
    _check_at_least(reading, values, high, "median")
    return LogNormal(median_tokens=read["median"], sigma_ppm=read["sigma"], min_tokens=read[low], max_tokens=read[high])


def _empirical(reading: Reading, values: Values) -> Empirical:
    lengths, weights = values.values["values"], values.values["weights"] or ()
    if weights and len(weights) != len(lengths):
        cited = reading.cite(values, "values", f"a list of {len(lengths)}")
        message = f"expected a weight for each of the values, found {len(weights)}; {cited}"
        reading.complain(values.where("weights"), values.at("weights"), message)
    return Empirical(tokens=lengths, weights=weights)


def _check_at_least(reading: Reading, values: Values, key: str, other: str) -> None:
    value, least = values.values[key], values.values[other]
    if value < least:
        cited = reading.cite(values, other, least)
        reading.complain(values.where(key), values.at(key), f"expected at least {other}, found {value}; {cited}")
