"""Requests written down in isim's own format (see `own`), so that reading them back gives the same requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

import msgspec

from isim.scenario.types import RequestFormat
from isim.workload.errors import WorkloadError
from isim.workload.own import MAX_PLACE, is_group, is_name
from isim.workload.request import Request
from isim.workload.rows import Run

_CSV_COLUMNS = (
    "id",
    "arrival_ns",
    "input_tokens",
    "output_tokens",
    "priority",
    "prefix_id",
    "prefix_tokens",
    "server_input_tokens",
    "reasoning_tokens",
    "session",
    "class",
    "quotable",
)


def write_requests(requests: Iterable[Request], stream: IO[bytes], form: RequestFormat) -> int:
    """Write all of them, uncompressed, times in nanoseconds since t = 0; returns how many.

    Raises WorkloadError at the first request that the format cannot say: an id that is no id or was there before, a
    prompt that does not add up, an index or a time out of order; in CSV, a prompt that is more than one shared prefix
    and a rest.
    """
    as_csv = form is RequestFormat.CSV
    if as_csv:
        stream.write(f"{','.join(_CSV_COLUMNS)}\n".encode())
    names: set[str] = set()
    last_ns = 0
    count = 0
    for request in requests:
        if request.index != count or request.arrival_ns < last_ns:
            _refuse(
                request, f"request {count}, not before {last_ns} ns", f"index {request.index}, {request.arrival_ns} ns"
            )
        if not is_name(request.id) or request.id in names:
            _refuse(request, "a unique id of printable characters", ascii(request.id))
        names.add(request.id)
        last_ns = request.arrival_ns
        fields = _fields(request, as_csv)
        if as_csv:
            stream.write((",".join(_cell(fields.get(name)) for name in _CSV_COLUMNS) + "\n").encode())
        else:
            stream.write(msgspec.json.encode(fields) + b"\n")
        count += 1
    return count


def _refuse(request: Request, expected: str, found: str) -> None:
    raise WorkloadError(f"request {request.index}: cannot be written: expected {expected}, found {found}")


Fields = dict[str, str | int | tuple[Run, ...]]


def _fields(request: Request, as_csv: bool) -> Fields:
    client_tokens = request.client_input_tokens
    fields: Fields = {
        "id": request.id,
        "arrival_ns": request.arrival_ns,
        "input_tokens": request.input_tokens if client_tokens is None else client_tokens,
        "output_tokens": request.output_tokens,
    }
    if request.priority:
        fields["priority"] = request.priority
    if client_tokens is not None:
        fields["server_input_tokens"] = request.input_tokens
    if request.reasoning_tokens is not None:
        fields["reasoning_tokens"] = request.reasoning_tokens
    for key, text in (("session", request.session), ("class", request.request_class)):
        if text is not None:
            fields[key] = text
    if request.quotable:
        fields["quotable"] = "true" if as_csv else True
    if request.prompt is not None:
        fields |= _prompt(request, request.prompt, as_csv)
    return fields


def _prompt(request: Request, prompt: tuple[Run, ...], as_csv: bool) -> Fields:
    """The prompt's shared tokens; the last run may be the request's own, which the format leaves out."""
    last = prompt[-1] if prompt else ("", 0, 0)
    shared = prompt[:-1] if last[:2] == (f"p:{request.id}", 0) else prompt
    if sum([count for _, _, count in prompt]) != request.input_tokens or not all(map(_can_be_told, shared)):
        _refuse(request, "runs of shared tokens that add up to the prompt with a rest of its own", ascii(prompt)[:80])
    if len(shared) == 1 and shared[0][1] == 0 and is_group(shared[0][0]):
        return {"prefix_id": shared[0][0], "prefix_tokens": shared[0][2]}
    if as_csv or not shared:
        _refuse(request, "one shared prefix and a rest of its own", ascii(prompt)[:80])
    return {"prompt": shared}


def _can_be_told(run: Run) -> bool:
    group, start, count = run
    return is_name(group) and not group.startswith("p:") and 0 <= start <= MAX_PLACE and count >= 1


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = str(value)
    if '"' in text or "," in text:
        return '"' + text.replace('"', '""') + '"'
    return text
