"""A GPU or a model from a name, from figures, or from a preset whose figures are partly replaced.

Figures given in the run file win; those left out are the preset's of that name. Where there is no such preset all
figures that have no default must be given. A figure that equals the preset's keeps the preset's source. A model's name
may also be the path of a config.json.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from isim.model.arithmetic import legal_tensor_parallel
from isim.model.catalogue import MODELS
from isim.model.spec import Confidence, Dtype, ModelError, ModelSpec, Source, precision_of, spec_complaints
from isim.scenario.fields import Reading, Values
from isim.scenario.presets.gpus import GPUS, GpuSpec, LinkSpec, gpu_complaints
from isim.scenario.schema import MODEL_FIGURES
from isim.scenario.types import Model

RUN_FILE_SOURCE = "the run file"
CONFIG_ENDING = ".json"
"""A model's name that ends so is the path of a Hugging Face config.json."""
GPU_KEYS = {
    "memory": "memory_bytes",
    "memory_bandwidth": "memory_bandwidth_bytes_per_s",
    "dense_flops": "dense_flops",
}
MODEL_KEYS = {key: key for key in MODEL_FIGURES} | {"published_dtype": "weight_dtype"}
_OUTSIDE_LAYERS = ("vocab_size", "max_position_embeddings", "weight_dtype", "tie_word_embeddings", "sorted_sampling")
_MODEL_REQUIRED = tuple(key for key, field in MODEL_FIGURES.items() if not field.rule)


def build_gpu(reading: Reading, values: Values, link: LinkSpec | None) -> GpuSpec | None:
    """The GPU of `hardware.gpu`, joined by `link` where one is given; None after complaints."""
    name = values.values.get("name")
    preset = GPUS.get(name) if name else None
    given: dict[str, Any] = {}
    for key, field in GPU_KEYS.items():
        value = values.values.get(key)
        if isinstance(value, Values):
            if value.broken:
                return None
            value = {**(preset.dense_flops if preset else {}), **_rates(value)}
        if value is not None:
            given[field] = value
    required = tuple(GPU_KEYS)
    what = _Preset(kind="GPU", verb="gpus", names=list(GPUS), keys=GPU_KEYS, required=required)
    if values.broken or name is None or not _complete(reading, values, what, preset is not None):
        return None
    if preset is None:
        gpu = GpuSpec(name=name, **given, link=link, sources=(_source(values, "*"),))
    else:
        changed = {field: value for field, value in given.items() if value != getattr(preset, field)}
        gpu = _replaced(preset, changed, _sources(values, preset.sources, list(changed)), link)
    for field, message in gpu_complaints(gpu):
        head, _, rest = field.partition(".")
        key = {field: key for key, field in GPU_KEYS.items()}.get(head, head)
        inner = values.values.get(key)
        place = inner.where(rest) if isinstance(inner, Values) else values.where(key)
        reading.complain(place, values.at(f"{key}.{rest}" if rest else key), message)
        return None
    return gpu


def _replaced(preset: GpuSpec, changed: dict[str, Any], sources: tuple[Source, ...], link: LinkSpec | None) -> GpuSpec:
    """The preset with the run file's figures: how good its size of the memory is says nothing of another size."""
    if link is not None and link != preset.link:
        kept = tuple(source for source in sources if source.figure != "link")
        changed["link"], sources = link, (*kept, Source(figure="link", text=RUN_FILE_SOURCE))
    if "memory_bytes" in changed:
        changed["memory_confidence"] = Confidence.BOUNDED
    return msgspec.structs.replace(preset, **changed, sources=sources) if changed else preset


def build_model(reading: Reading, values: Values) -> Model | None:
    """The model of the block `model`; None after complaints."""
    name = values.values.get("name")
    if name is not None and name.endswith(CONFIG_ENDING):
        return _imported(reading, values)
    preset = MODELS.get(name) if name else None
    given = {field: values.values[key] for key, field in MODEL_KEYS.items() if values.values.get(key) is not None}
    what = _Preset(kind="model", verb="models", names=list(MODELS), keys=MODEL_KEYS, required=_MODEL_REQUIRED)
    if values.broken or name is None or not _complete(reading, values, what, preset is not None):
        return None
    if preset is None:
        spec = ModelSpec(name=name, **given, sources=(_source(values, "*"),))
    else:
        changed = {field: value for field, value in given.items() if value != getattr(preset, field)}
        spec = preset
        if preset.layers and not _free_of_layers(reading, values, changed):
            return None
        if changed:
            spec = msgspec.structs.replace(preset, **changed, sources=_sources(values, preset.sources, list(changed)))
    found = spec_complaints(spec)
    for field, message in found:
        key = {field: key for key, field in MODEL_KEYS.items()}[field]
        reading.complain(values.where(key), values.at(key), message)
    if found:
        return None
    return _with_dtypes(spec, values, UNSET)


def _with_dtypes(spec: ModelSpec, values: Values, path: str | UnsetType) -> Model:
    weights, activations = values.values.get("weight_dtype"), values.values.get("activation_dtype")
    precision = precision_of(spec, weights=weights, activations=activations)
    return Model(spec=spec, weight_dtype=precision.weights, activation_dtype=precision.activations, path=path)


def _free_of_layers(reading: Reading, values: Values, changed: dict[str, Any]) -> bool:
    """Whether no figure is changed that the layers of a model with several kinds say themselves."""
    found = [field for field in changed if field not in _OUTSIDE_LAYERS]
    for field in found:
        key = {field: key for key, field in MODEL_KEYS.items()}[field]
        message = "expected nothing, as the layers of this model are not all alike and have figures of their own"
        reading.complain(values.where(key), values.at(key), f"{message}; edit its config.json and name that instead")
    return not found


def _imported(reading: Reading, values: Values) -> Model | None:
    """The model of a config.json, which is imported only here: a run of a built-in model does not load the import."""
    from isim.model.hf import import_config

    path: str = values.values["name"]
    for key in MODEL_KEYS:
        if values.values.get(key) is not None:
            message = "expected nothing beside a config.json, which says all figures; edit a copy of it instead"
            reading.complain(values.where(key), values.at(key), message)
    try:
        spec = import_config(os.path.join(os.path.dirname(reading.file), path))
    except ModelError as error:
        reading.complain(values.where("name"), values.at("name"), str(error))
        return None
    return None if values.broken else _with_dtypes(spec, values, path)


def with_rates(model: Model | None, gpu: GpuSpec | None, values: Values | None) -> Model | None:
    """The model as this GPU multiplies it: where it has no 4-bit float rate, 4-bit weights are widened.

    Engines have kernels for that, and the cost model says so. What the run file asks for is left as it is.
    """
    if model is None or gpu is None or values is None or values.values.get("activation_dtype") is not None:
        return model
    if model.activation_dtype is not Dtype.FLOAT4_E2M1 or Dtype.FLOAT4_E2M1 in gpu.dense_flops:
        return model
    return msgspec.structs.replace(model, activation_dtype=model.spec.weight_dtype)


def legal_splits(spec: ModelSpec) -> str:
    """The legal values of tensor_parallel_size, as a complaint lists them."""
    return ", ".join(str(ranks) for ranks in legal_tensor_parallel(spec))


class _Preset(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked up: its noun, the verb's argument that lists it, all names, its figures and those required."""

    kind: str
    verb: str
    names: list[str]
    keys: dict[str, str]
    required: tuple[str, ...]


def _complete(reading: Reading, values: Values, what: _Preset, known: bool) -> bool:
    """Whether every figure is known; complaints if not: of the name when only a name is given, else of each figure."""
    if known:
        return True
    name = values.values["name"]
    if not any(values.values.get(key) is not None for key in what.keys):
        near = reading.nearest(name, what.names)
        message = f'expected the name of a {what.kind} (`isim presets {what.verb}` lists them), found "{name}"{near}'
        reading.complain(values.where("name"), values.at("name"), message)
        return False
    missing = [key for key in what.required if values.values.get(key) is None]
    for key in missing:
        message = f'expected the figure, as "{name}" is no preset whose figure could be used, found nothing'
        reading.complain(values.place, values.at(key), message)
    return not missing


def _rates(values: Values) -> dict[Dtype, int]:
    return {Dtype(key): rate for key, rate in values.values.items() if rate is not None}


def _source(values: Values, figure: str) -> Source:
    return Source(figure=figure, text=values.values.get("source") or RUN_FILE_SOURCE)


def _sources(values: Values, sources: tuple[Source, ...], changed: list[str]) -> tuple[Source, ...]:
    kept = tuple(source for source in sources if source.figure not in changed)
    return kept + tuple(_source(values, figure) for figure in changed)
