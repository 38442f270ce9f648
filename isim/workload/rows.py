"""From the rows of a trace to requests: one order, one origin of time, and the part that was asked for.

The origin. Times of an Azure trace, and any file whose first time lies in the years 2000 to 2200, are times of day:
t = 0 is the first row, and that is said among the assumptions. Other times are times since the start of the run and
stay as they are. A file that mixes both is refused, and so is one whose times go back.

The part. `window` keeps the arrivals from its start up to but without its end, in the time that the origin gives,
and its start becomes t = 0. `limit` then keeps the first so many. `time_scale` last multiplies every arrival time,
rounded to the nearest nanosecond, half to even.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from isim.scenario.types import Ratio, Window
from isim.workload.errors import WorkloadError, complain
from isim.workload.fields import half_even
from isim.workload.request import MAX_TIME_NS, Request

Run = tuple[str, int, int]


class Extras(msgspec.Struct, frozen=True, kw_only=True):
    """What few rows say. `shared` spells the prompt's first tokens; the rest of it is the request's own."""

    shared: tuple[Run, ...] = ()
    quotable: bool = False
    session: str | None = None
    request_class: str | None = None
    client_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    quotes: tuple[str, ...] = ()
    """Requests whose output `shared` repeats."""


Row = tuple[int, int, int, int, str | None, int, Extras | None]
"""(line, time_ns, input_tokens, output_tokens, id or None, priority, extras or None)"""

YEAR_2000_NS = 946_684_800 * 1_000_000_000
YEAR_2200_NS = 7_258_118_400 * 1_000_000_000


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a trace is asked for, and how its errors name it."""

    where: str
    place: str
    """Names the column of the time in a complaint."""
    limit: int | None
    time_scale: Ratio
    window: Window | None


def place_requests(rows: Iterable[Row], part: Part, notes: list[str]) -> Iterator[Request]:
    """The requests of a trace in order of arrival; adds to `notes` what was assumed."""
    scale = part.time_scale
    start_ns, end_ns = (part.window.start_ns, part.window.end_ns) if part.window else (0, MAX_TIME_NS + 1)
    index = 0
    counted: list[Request] = []
    quotable: dict[str, None] = {}
    for line, time_ns, input_tokens, output_tokens, name, priority, extras in _since_origin(rows, part, notes):
        arrival_ns = time_ns - start_ns
        if arrival_ns < 0:
            continue
        if time_ns >= end_ns:
            break
        if scale.numerator != scale.denominator:
            arrival_ns = half_even(arrival_ns * scale.numerator, scale.denominator)
            if arrival_ns > MAX_TIME_NS:
                complain(part.where, line, part.place, f"at most {MAX_TIME_NS} ns after time_scale", arrival_ns)
        if name is None:
            name = f"r{index}"
        if extras is None:
            yield Request(index, name, arrival_ns, input_tokens, output_tokens, priority)
        else:
            prompt = prompt_runs(name, input_tokens, extras.shared)
            for quoted in extras.quotes:
                if quoted not in quotable:
                    expected = "outputs of quotable requests above, inside the part that is used"
                    complain(part.where, line, "prompt", expected, quoted)
            if extras.quotable:
                quotable[name] = None
            client_tokens = extras.client_input_tokens
            request = Request(
                index,
                name,
                arrival_ns,
                input_tokens,
                output_tokens,
                priority,
                prompt,
                extras.quotable,
                extras.session,
                extras.request_class,
                client_tokens,
                extras.reasoning_tokens,
            )
            if client_tokens is not None:
                counted.append(request)
            yield request
        index += 1
        if index == part.limit:
            break
    if index == 0:
        inside = f" inside the window from {start_ns} to {end_ns} ns" if part.window else ""
        raise WorkloadError(f"{part.where}: expected at least one request{inside}, found none")
    if counted:
        notes.append(_two_counts(counted))


def _two_counts(requests: list[Request]) -> str:
    server_tokens = sum(request.input_tokens for request in requests)
    client_tokens = sum(request.client_input_tokens or 0 for request in requests)
    return (
        f"server_input_tokens: the server's count is used for {len(requests)} requests, {server_tokens} prompt tokens "
        f"where the client counted {client_tokens}"
    )


def _since_origin(rows: Iterable[Row], part: Part, notes: list[str]) -> Iterator[Row]:
    """The same rows, their times counted from t = 0."""
    origin_ns = -1
    last_ns = 0
    of_day = False
    for row in rows:
        time_ns = row[1]
        if origin_ns < 0:
            of_day = YEAR_2000_NS <= time_ns < YEAR_2200_NS
            origin_ns = time_ns if of_day else 0
            if of_day:
                notes.append(f"rebased: the first row of the trace, {time_ns} ns after 1970, is t = 0")
        elif (YEAR_2000_NS <= time_ns < YEAR_2200_NS) is not of_day:
            kinds = ("a time since the start, as in the rows above", "a time of day, as in the rows above")
            complain(part.where, row[0], part.place, kinds[of_day] + " (one file, one kind)", time_ns)
        elif time_ns < last_ns:
            complain(part.where, row[0], part.place, f"no time before the row above, {last_ns} ns", time_ns)
        last_ns = time_ns
        time_ns -= origin_ns
        if time_ns > MAX_TIME_NS:
            expected = f"at most {MAX_TIME_NS} ns (104 days) since t = 0, or a time of day in the years 2000 to 2200"
            complain(part.where, row[0], part.place, expected, time_ns)
        yield (row[0], time_ns, *row[2:]) if origin_ns else row


def prompt_runs(name: str, input_tokens: int, shared: tuple[Run, ...]) -> tuple[Run, ...] | None:
    """A prompt that begins with the shared tokens and whose rest is the request's own; None for all its own."""
    own_tokens = input_tokens - sum([count for _, _, count in shared])
    if not shared:
        return None
    return (*shared, (f"p:{name}", 0, own_tokens)) if own_tokens else shared
