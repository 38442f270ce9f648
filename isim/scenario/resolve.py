"""A Scenario written back as a run file with nothing left to decide.

It gives every engine value, and of a GPU or model the name and what differs from the preset of that name; loading it
gives an equal Scenario.
"""

from __future__ import annotations

import os
import re
from typing import Any

import msgspec
from msgspec import UNSET

from isim.model.catalogue import MODELS
from isim.record.errors import IsimError
from isim.scenario.fields import TEXT_MAX
from isim.scenario.figures import GPU_KEYS, MODEL_KEYS, RUN_FILE_SOURCE
from isim.scenario.nodes import printable
from isim.scenario.presets.gpus import GPUS
from isim.scenario.resolve_workload import Number, Tree, moved_workload, slo_tree, workload_tree
from isim.scenario.types import (
    Clients,
    Cost,
    Engine,
    Hardware,
    Linear,
    Model,
    Scenario,
    Simulation,
)
from isim.scenario.units import Dimension, write_quantity, write_share
from isim.scenario.warmup import write_warmup

_PLAIN = re.compile(r"[a-z][a-z0-9_.-]*")
_WORDS = ("true", "false", "null", "none")
_GPU_DIMENSIONS = {"memory": Dimension.BYTES, "memory_bandwidth": Dimension.BANDWIDTH}


class UnsayablePath(IsimError):  # noqa: N818 - it names a state of the path, as a person would say it
    """A path that a run file written elsewhere would have to name, and cannot."""


def resolved_yaml(scenario: Scenario) -> str:
    """The scenario as a run file, the same text for equal scenarios; loading it gives an equal one.

    A trace's relative path is written as it is, so the file belongs where the run file was; see `relocated`.
    """
    tree: Tree = {
        "schema_version": scenario.schema_version,
        "name": scenario.name,
        "hardware": _hardware(scenario.hardware),
        "model": _model(scenario.model),
        "engine": _engine(scenario.engine),
        "replicas": scenario.replicas,
        "clients": _clients(scenario.clients),
        "router": {"policy": scenario.router.policy.value, "ties": scenario.router.ties.value},
        "workload": workload_tree(scenario.workload),
        "cost": _cost(scenario.cost),
        "simulation": _simulation(scenario.simulation),
    }
    if scenario.slo is not None:
        tree["slo"] = slo_tree(scenario.slo)
    return "\n".join(_lines(tree, "")) + "\n"


def relocated(scenario: Scenario, from_dir: str | os.PathLike[str], to_dir: str | os.PathLike[str]) -> Scenario:
    """The scenario with the relative paths of traces and config as seen from `to_dir` instead of `from_dir`.

    Raises UnsayablePath.
    """
    moved = moved_workload(scenario.workload, lambda path: _seen_from(path, from_dir, to_dir))
    model = scenario.model
    if model.path:
        model = msgspec.structs.replace(model, path=_seen_from(model.path, from_dir, to_dir))
    return msgspec.structs.replace(scenario, workload=moved, model=model)


def _seen_from(path: str, from_dir: str | os.PathLike[str], to_dir: str | os.PathLike[str]) -> str:
    """A path with `..` leads elsewhere behind a link to a folder than its text says: then the links are followed."""
    if os.path.isabs(path):
        return path
    there = os.path.join(from_dir, path)
    seen = os.path.relpath(there, to_dir)
    if os.path.realpath(os.path.join(to_dir, seen)) != os.path.realpath(there):
        seen = os.path.relpath(os.path.realpath(there), os.path.realpath(to_dir))
    if len(seen) > TEXT_MAX or not seen.isprintable():
        raise UnsayablePath(
            f"{printable(os.fspath(to_dir))}: expected a folder from which {printable(path)} has a path that a run "
            f"file can say, of at most {TEXT_MAX} printable characters, found {printable(seen)}"
        )
    return seen


def _lines(tree: Tree, indent: str) -> list[str]:
    lines = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            lines.append(f"{indent}{key}:")
            lines += _lines(value, indent + "  ")
        else:
            lines.append(f"{indent}{key}: {_scalar(value)}")
    return lines


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if (
        isinstance(value, str)
        and not isinstance(value, Number)
        and not (_PLAIN.fullmatch(value) and value not in _WORDS)
    ):
        return msgspec.json.encode(value).decode()
    return str(value) if value != {} else "{}"


def _replaced(value: Any, keys: dict[str, str], preset: Any) -> Tree:
    """The figures that are not the preset's, by their keys, and their source."""
    found = {
        key: getattr(value, field)
        for key, field in keys.items()
        if preset is None or getattr(value, field) != getattr(preset, field)
    }
    if found:
        field = "*" if preset is None else keys[next(iter(found))]
        source = value.source_of(field)
        if source != RUN_FILE_SOURCE:
            found["source"] = source
    return found


def _hardware(hardware: Hardware) -> Tree:
    gpu = hardware.gpu
    preset = GPUS.get(gpu.name)
    figures = _replaced(gpu, GPU_KEYS, preset)
    for key, dimension in _GPU_DIMENSIONS.items():
        if key in figures:
            figures[key] = write_quantity(figures[key], dimension)
    if "dense_flops" in figures:
        rates = figures["dense_flops"]
        own = preset.dense_flops if preset else {}
        changed = [dtype for dtype in sorted(rates) if rates[dtype] != own.get(dtype)]
        figures["dense_flops"] = {dtype.value: write_quantity(rates[dtype], Dimension.FLOPS) for dtype in changed}
    tree: Tree = {"gpu": {"name": gpu.name, **figures}, "count": hardware.count}
    if gpu.link is not None and (preset is None or gpu.link != preset.link):
        bandwidth = write_quantity(gpu.link.bandwidth_bytes_per_s, Dimension.BANDWIDTH)
        tree["interconnect"] = {"kind": gpu.link.kind.value, "bandwidth": bandwidth}
    return tree


def _model(model: Model) -> Tree:
    if model.path:
        return {
            "name": model.path,
            "weight_dtype": model.weight_dtype.value,
            "activation_dtype": model.activation_dtype.value,
        }
    figures = _replaced(model.spec, MODEL_KEYS, MODELS.get(model.spec.name))
    if "published_dtype" in figures:
        figures["published_dtype"] = figures["published_dtype"].value
    dtypes = {"weight_dtype": model.weight_dtype.value, "activation_dtype": model.activation_dtype.value}
    return {"name": model.spec.name, **dtypes, **figures}


def _engine(engine: Engine) -> Tree:
    tree: Tree = msgspec.to_builtins(engine)
    tree["gpu_memory_utilization"] = Number(write_share(tree.pop("gpu_memory_utilization_ppm")))
    if reserved := tree.pop("reserved_memory", None):
        sizes = {key.removesuffix("_bytes"): write_quantity(size, Dimension.BYTES) for key, size in reserved.items()}
        tree["reserved_memory"] = sizes
    tree["request_overhead"] = write_quantity(tree.pop("request_overhead_ns", 0), Dimension.DURATION)
    return tree


def _cost(cost: Cost) -> Tree:
    if isinstance(cost, Linear):
        prices: dict[str, int] = msgspec.to_builtins(cost.coefficients)
        figures = {key.removesuffix("_ps"): write_quantity(value, Dimension.PRICE) for key, value in prices.items()}
        return {"kind": "linear", **figures, **_fitted(cost)}
    tree: Tree = {"kind": "roofline", "unpublished_rate": cost.unpublished_rate.value}
    shares = {"compute_efficiency": cost.compute_efficiency_ppm, "memory_efficiency": cost.memory_efficiency_ppm}
    times = {
        "kernel_gap": cost.kernel_gap_ns,
        "host_step": cost.host_step_ns,
        "allreduce_latency": cost.allreduce_latency_ns,
    }
    tree |= {key: Number(write_share(share)) for key, share in shares.items() if share is not None}
    tree |= {key: write_quantity(time, Dimension.DURATION) for key, time in times.items() if time is not None}
    return tree | _fitted(cost)


def _fitted(cost: Cost) -> Tree:
    return {} if cost.fitted is UNSET else {"fitted": msgspec.to_builtins(cost.fitted)}


def _clients(clients: Clients) -> Tree:
    timeout_ns = clients.timeout_ns
    return {"timeout": None if timeout_ns is None else write_quantity(timeout_ns, Dimension.DURATION)}


def _simulation(simulation: Simulation) -> Tree:
    warmup = None if simulation.warmup is None else write_warmup(simulation.warmup)
    return {
        "seed": simulation.seed,
        "max_events": simulation.max_events,
        "max_stretch": simulation.max_stretch,
        "warmup": warmup,
    }
