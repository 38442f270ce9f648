"""The Azure LLM inference traces of 2023 (github.com/Azure/AzurePublicDataset, CC-BY-4.0).

CSV with the columns TIMESTAMP, ContextTokens, GeneratedTokens. A timestamp is UTC, as in `2023-11-16
18:17:03.9799600`, with up to nine digits of a second's fraction. No request shares its prompt: the trace says
nothing about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from isim.workload.errors import WorkloadError, complain
from isim.workload.fields import whole
from isim.workload.request import MAX_TOKENS
from isim.workload.rows import Row

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_NS = 1_000_000_000
_POWERS: tuple[int, ...] = tuple(10**power for power in range(10))
_DAYS_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)


def azure_rows(lines: Iterable[tuple[int, str]], where: str) -> Iterator[Row]:
    """The rows of the trace; WorkloadError at the first that is not as described."""
    numbered = iter(lines)
    number, header = next(numbered, (1, None))
    if header is None or tuple(header.split(",")) != COLUMNS:
        complain(where, number, "header", f"{','.join(COLUMNS)!r}", header)
    stamps = _Stamps()
    for number, line in numbered:
        cells = line.split(",")
        if len(cells) != 3:
            raise WorkloadError(f"{where}:{number}: expected 3 columns ({', '.join(COLUMNS)}), found {len(cells)}")
        time_ns = stamps.since_1970_ns(cells[0])
        if time_ns is None:
            complain(where, number, "column TIMESTAMP", "a time like 2023-11-16 18:17:03.9799600", cells[0])
        context_tokens = whole(cells[1])
        if context_tokens is None or not 1 <= context_tokens <= MAX_TOKENS:
            complain(where, number, "column ContextTokens", f"a whole number from 1 to {MAX_TOKENS}", cells[1])
        generated_tokens = whole(cells[2])
        if generated_tokens is None or not 1 <= generated_tokens <= MAX_TOKENS:
            complain(where, number, "column GeneratedTokens", f"a whole number from 1 to {MAX_TOKENS}", cells[2])
        yield number, time_ns, context_tokens, generated_tokens, None, 0, None


class _Stamps:
    """Reads timestamps; remembers the minute, which the next row mostly shares."""

    def __init__(self) -> None:
        self._minute = ""
        self._minute_ns = 0

    def since_1970_ns(self, text: str) -> int | None:
        minute, second, fraction = text[:17], text[17:19], text[19:]
        if minute != self._minute:
            since_1970 = _minutes(minute)
            if since_1970 is None:
                return None
            self._minute, self._minute_ns = minute, since_1970 * 60 * _NS
        digits = fraction[1:]
        value = whole(second + digits)
        if value is None or len(second) != 2 or second >= "60" or len(digits) > 9:
            return None
        if fraction and (fraction[0] != "." or not digits):
            return None
        return self._minute_ns + value * _POWERS[9 - len(digits)]


def _minutes(text: str) -> int | None:
    """Minutes from 1970 to "YYYY-MM-DD hh:mm:" of the years 2000 to 2199, UTC."""
    numbers = [whole(text[start:end]) for start, end in ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16))]
    year, month, day, hour, minute = [-1 if number is None else number for number in numbers]
    if len(text) != 17 or text[4] + text[7] + text[10] + text[13] + text[16] != "-- ::":
        return None
    if not (2000 <= year < 2200 and 1 <= month <= 12 and 0 <= hour < 24 and 0 <= minute < 60):
        return None
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    before = _DAYS_BEFORE_MONTH
    if not 1 <= day <= before[month] - before[month - 1] + (leap and month == 2):
        return None
    past = year - 1
    days = 365 * (year - 1970) + (past // 4 - past // 100 + past // 400) - (1969 // 4 - 1969 // 100 + 1969 // 400)
    days += before[month - 1] + (leap and month > 2) + day - 1
    return (days * 24 + hour) * 60 + minute
