"""Requests written down in isim's own format (see `own`), so that reading them back gives the same requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

import msgspec

from isim.scenario.types import RequestFormat
from isim.workload.errors import WorkloadError
from isim.workload.own import is_group, is_name
from isim.workload.request import Request

_CSV_COLUMNS = ("id", "arrival_ns", "input_tokens", "output_tokens", "priority", "prefix_id", "prefix_tokens")


def write_requests(requests: Iterable[Request], stream: IO[bytes], form: RequestFormat) -> int:
    """Write all of them, uncompressed, times in nanoseconds since t = 0; returns how many.

    Raises WorkloadError at the first request that the format cannot say: an id that is no id or was there before, a
    prompt that is more than one shared prefix and a rest, an index or a time out of order.
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
        fields = _fields(request)
        if as_csv:
            stream.write((",".join(_cell(fields.get(name)) for name in _CSV_COLUMNS) + "\n").encode())
        else:
            stream.write(msgspec.json.encode(fields) + b"\n")
        count += 1
    return count


def _refuse(request: Request, expected: str, found: str) -> None:
    raise WorkloadError(f"request {request.index}: cannot be written: expected {expected}, found {found}")


def _fields(request: Request) -> dict[str, str | int]:
    fields: dict[str, str | int] = {
        "id": request.id,
        "arrival_ns": request.arrival_ns,
        "input_tokens": request.input_tokens,
        "output_tokens": request.output_tokens,
    }
    if request.priority:
        fields["priority"] = request.priority
    if request.prompt is not None:
        fields["prefix_id"], fields["prefix_tokens"] = _prefix(request, request.prompt)
    return fields


def _prefix(request: Request, prompt: tuple[tuple[str, int, int], ...]) -> tuple[str, int]:
    group, start, count = prompt[0] if prompt else ("", 0, 0)
    rest = request.input_tokens - count
    own = ((f"p:{request.id}", 0, rest),) if rest else ()
    if start != 0 or count < 1 or rest < 0 or not is_group(group) or prompt[1:] != own:
        _refuse(request, "one shared prefix and a rest of its own", ascii(prompt)[:80])
    return group, count


def _cell(value: str | int | None) -> str:
    if value is None:
        return ""
    text = str(value)
    if '"' in text or "," in text:
        return '"' + text.replace('"', '""') + '"'
    return text
