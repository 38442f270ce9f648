"""isim's own request files: CSV or JSON Lines, a row or object for each request, in order of arrival.

    arrival_s | arrival_ms | arrival_us | arrival_ns    a number of that unit, or
    arrival         a number with its unit: "1.25 s", "80 ms". A bare number here is refused: it could mean anything.
                    One of the five is there. Times since the start of the run, or all of them times of day as
                    numbers since 1970: then the first row is t = 0. Finer than 1 ns is rounded, half to even.
    input_tokens    tokens of the prompt, at least 1
    server_input_tokens
                    optional: tokens of the prompt as the server counted them. They are what is simulated, input_tokens
                    then is what the client counted; both are reported
    output_tokens   tokens to generate, at least 1
    id              optional: unique text of 1 to 256 printable characters, on every row or on none (then r0, r1, ...)
    priority        optional: a whole number, lower is more urgent; 0 where absent
    prefix_id, prefix_tokens
                    optional, both or none: the first `prefix_tokens` tokens of the prompt are the first ones of
                    whatever `prefix_id` names, the same for all requests that name it; what follows is the
                    request's own. Names that start with p: or o: are isim's.
    session         optional: text, the conversation the request belongs to
    class           optional: text, the kind of traffic; results are also told for each class apart,
                    of which there are at most 64
    reasoning_tokens
                    optional: how many of the output tokens, the first ones, are reasoning that nobody sees: from 0 to
                    output_tokens. The time to the first visible token is then told beside the TTFT
    quotable        optional: true if later prompts may repeat the output of this request, which then has an id
    prompt          optional, JSON Lines only, instead of prefix_id: a list of [group, start, count], the first tokens
                    of the prompt as tokens start to start + count - 1 of a group; what follows is the request's own.
                    The group o:ID is the output of the quotable request ID above

CSV has a header with these names in any order; cells are as they are (no spaces around them), a cell with a comma or
a double quote is quoted as RFC 4180 says, and an empty cell is an absent one. In JSON Lines numbers are numbers,
`arrival`, ids, `session` and `class` strings, `quotable` true or false,
and null is absent. Empty lines are skipped. UTF-8, gzip or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from isim.scenario.types import RequestFormat
from isim.workload.cells import Cells, Columns, Number, as_json, csv_cells, csv_header, json_cells
from isim.workload.errors import complain
from isim.workload.fields import UNITS_NS, time_ns, time_with_unit_ns, whole
from isim.workload.request import MAX_TOKENS
from isim.workload.rows import Extras, Row, Run

ARRIVALS = {"arrival": 0, **{f"arrival_{unit}": UNITS_NS[unit] for unit in ("s", "ms", "us", "ns")}}
"""Nanoseconds per unit of each column that may hold the arrival; 0: the unit is in the value."""

COLUMNS = (
    *ARRIVALS,
    "input_tokens",
    "output_tokens",
    "id",
    "priority",
    "prefix_id",
    "prefix_tokens",
    "server_input_tokens",
    "reasoning_tokens",
    "session",
    "class",
    "quotable",
    "prompt",
)
_COLUMNS = Columns(
    names=COLUMNS,
    texts=("id", "prefix_id", "session", "class"),
    units=("arrival",),
    flags=("quotable",),
    raw="prompt",
)
_EXTRAS = ("prefix_id", "prefix_tokens", "server_input_tokens", "reasoning_tokens", "session", "class", "quotable")
MAX_ID_CHARACTERS = 256
MAX_CLASSES = 64
MAX_PRIORITY = 1_000_000_000
MAX_PLACE = (1 << 53) - 1 - MAX_TOKENS
"""No token of a group has a greater number than this and a prompt's length."""

_ONE_ARRIVAL = "one of arrival, arrival_s, arrival_ms, arrival_us, arrival_ns"
_RUNS = "a list of [group, start, count], of at least one token each, adding up to no more than the prompt"
_TOKENS = f"a whole number of tokens from 1 to {MAX_TOKENS}"


def own_rows(
    lines: Iterable[tuple[int, str]], where: str, form: RequestFormat, notes: list[str]
) -> tuple[str, Iterator[Row]]:
    """(how a complaint names a field, the rows); the rows raise WorkloadError at the first bad one."""
    place = "column" if form is RequestFormat.CSV else "key"
    return place, _Reader(where, place, notes).rows(_cells(lines, where, form))


class _Reader:
    def __init__(self, where: str, place: str, notes: list[str]) -> None:
        self._where = where
        self._place = place
        self._notes = notes
        self._names: set[str] | None = None
        self._classes: set[str] = set()
        self._rounded = False

    def rows(self, cells: Iterator[Cells]) -> Iterator[Row]:
        first = True
        for line, fields, prompt in cells:
            if first:
                first = False
                self._names = set() if fields.get("id") else None
            arrival_ns = self._arrival_ns(line, fields)
            input_tokens = self._tokens(line, fields, "input_tokens", MAX_TOKENS)
            output_tokens = self._tokens(line, fields, "output_tokens", MAX_TOKENS)
            name = self._name(line, fields.get("id") or None)
            priority = self._priority(line, fields.get("priority") or "0")
            extras = None
            if prompt is not None or any(fields.get(key) for key in _EXTRAS):
                if fields.get("server_input_tokens"):
                    fields["client"] = str(input_tokens)
                    input_tokens = self._tokens(line, fields, "server_input_tokens", MAX_TOKENS)
                extras = self._extras(line, fields, input_tokens, prompt)
            yield line, arrival_ns, input_tokens, output_tokens, name, priority, extras

    def _extras(self, line: int, fields: dict[str, str], input_tokens: int, prompt: Any) -> Extras:
        for key in ("session", "class"):
            if not is_name(fields.get(key) or "-"):
                self._complain(line, key, f"1 to {MAX_ID_CHARACTERS} printable characters", fields[key])
        if fields.get("class"):
            self._classes.add(fields["class"])
            if len(self._classes) > MAX_CLASSES:
                self._complain(line, "class", f"at most {MAX_CLASSES} different classes", fields["class"])
        quotable = fields.get("quotable") or "false"
        if quotable not in ("true", "false") or (quotable == "true" and not fields.get("id")):
            self._complain(line, "quotable", "true or false, and an id where it is true", quotable)
        prefix = self._prefix(line, fields, input_tokens)
        if prompt is not None and prefix:
            self._complain(line, "prompt", "either a prompt or a prefix_id", "both")
        shared = prefix if prompt is None else self._runs(line, prompt, input_tokens)
        client_tokens = fields.get("client")
        return Extras(
            shared=shared,
            quotable=quotable == "true",
            session=fields.get("session") or None,
            request_class=fields.get("class") or None,
            client_input_tokens=None if client_tokens is None else int(client_tokens),
            reasoning_tokens=self._reasoning(line, fields),
            quotes=tuple([group[2:] for group, _, _ in shared if group.startswith("o:")]),
        )

    def _reasoning(self, line: int, fields: dict[str, str]) -> int | None:
        text, most = fields.get("reasoning_tokens"), fields["output_tokens"]
        if not text:
            return None
        value = whole(text)
        if value is None or value > int(most):
            self._complain(line, "reasoning_tokens", f"a whole number from 0 to output_tokens ({most})", text)
        return value

    def _runs(self, line: int, prompt: Any, input_tokens: int) -> tuple[Run, ...]:
        runs: list[Run] = []
        left = input_tokens
        for run in prompt if type(prompt) is list else [None]:
            if type(run) is not list or [type(part) for part in run] != [str, Number, Number]:
                self._complain(line, "prompt", _RUNS, as_json(prompt))
            group, start, count = run[0], whole(run[1]), whole(run[2])
            if start is None or start > MAX_PLACE or not count or count > left:
                self._complain(line, "prompt", f"{_RUNS}, {input_tokens} tokens", as_json(run))
            if not is_name(group) or group.startswith("p:"):
                expected = f"groups of 1 to {MAX_ID_CHARACTERS} printable characters that do not start with p:"
                self._complain(line, "prompt", expected, group)
            left -= count
            runs.append((group, start, count))
        return tuple(runs)

    def _complain(self, line: int, name: str, expected: str, found: str | None) -> NoReturn:
        complain(self._where, line, f"{self._place} {name}", expected, found)

    def _arrival_ns(self, line: int, fields: dict[str, str]) -> int:
        given = [name for name in ARRIVALS if fields.get(name)]
        if len(given) != 1:
            complain(self._where, line, "", _ONE_ARRIVAL, ", ".join(given) or None)
        name = given[0]
        text = fields[name]
        unit_ns = ARRIVALS[name]
        value = time_ns(text, unit_ns) if unit_ns else time_with_unit_ns(text)
        if value is None:
            bare = not unit_ns and time_ns(text, 1) is not None
            expected = 'a number with its unit, like "1.25 s" or "80 ms"' if not unit_ns else "a number, 0 or more"
            self._complain(line, name, expected, f"{text} (in which unit?)" if bare else text)
        if not value[1] and not self._rounded:
            self._rounded = True
            self._notes.append(f"arrival times finer than 1 ns are rounded, half to even (first on line {line})")
        return value[0]

    def _tokens(self, line: int, fields: dict[str, str], name: str, most: int) -> int:
        text = fields.get(name)
        value = whole(text) if text else None
        if value is None or not 1 <= value <= most:
            expected = _TOKENS if most == MAX_TOKENS else f"a whole number from 1 to input_tokens ({most})"
            self._complain(line, name, expected, text)
        return value

    def _name(self, line: int, name: str | None) -> str | None:
        names = self._names
        if (name is None) is not (names is None):
            self._complain(line, "id", "an id on every row or on none", name)
        if name is None or names is None:
            return None
        if not is_name(name):
            self._complain(line, "id", f"1 to {MAX_ID_CHARACTERS} printable characters", name)
        if name in names:
            self._complain(line, "id", "an id that no row above has", name)
        names.add(name)
        return name

    def _priority(self, line: int, text: str) -> int:
        value = whole(text.removeprefix("-"))
        if value is None or value > MAX_PRIORITY:
            expected = f"a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}"
            self._complain(line, "priority", expected, text)
        return -value if text.startswith("-") else value

    def _prefix(self, line: int, fields: dict[str, str], input_tokens: int) -> tuple[Run, ...]:
        prefix_id, tokens = fields.get("prefix_id"), fields.get("prefix_tokens")
        if not prefix_id and not tokens:
            return ()
        if not prefix_id:
            self._complain(line, "prefix_id", "a name, since prefix_tokens is given", None)
        if not is_group(prefix_id):
            expected = f"1 to {MAX_ID_CHARACTERS} printable characters that do not start with p: or o:"
            self._complain(line, "prefix_id", expected, prefix_id)
        return ((prefix_id, 0, self._tokens(line, fields, "prefix_tokens", input_tokens)),)


def is_name(text: str) -> bool:
    """May this be the id of a request?"""
    return 1 <= len(text) <= MAX_ID_CHARACTERS and text.isprintable()


def is_group(text: str) -> bool:
    """May this name a shared prefix? `p:` and `o:` begin the names of private prompts and of outputs."""
    return is_name(text) and not text.startswith(("p:", "o:"))


def _cells(lines: Iterable[tuple[int, str]], where: str, form: RequestFormat) -> Iterator[Cells]:
    if form is not RequestFormat.CSV:
        yield from json_cells(lines, where, _COLUMNS)
        return
    numbered = iter(lines)
    line, header, names = csv_header(numbered, where, _COLUMNS)
    if len([name for name in names if name in ARRIVALS]) != 1:
        complain(where, line, "header", _ONE_ARRIVAL, header)
    for name in ("input_tokens", "output_tokens"):
        if name not in names:
            complain(where, line, "header", f"a column {name}", header)
    yield from csv_cells(numbered, where, names)
