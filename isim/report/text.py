"""Numbers as a person reads them: times, counts, bars and sparklines, in Unicode or plain ASCII."""

from __future__ import annotations

from collections.abc import Sequence

_TIME_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "us"))
_BYTE_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_SPARKS = " ▁▂▃▄▅▆▇█"
_ASCII_SPARKS = " .:-=+*#%@"


def time_text(time_ns: int | None) -> str:
    """A time with three significant digits and its unit; a dash when it is not defined."""
    if time_ns is None:
        return "-"
    for unit_ns, name in _TIME_UNITS:
        if abs(time_ns) >= unit_ns:
            return f"{_digits(time_ns / unit_ns)} {name}"
    return f"{time_ns} ns"


def bytes_text(amount: int) -> str:
    """An amount of memory with three significant digits and a binary unit."""
    for unit, name in _BYTE_UNITS:
        if abs(amount) >= unit:
            return f"{_digits(amount / unit)} {name}"
    return f"{amount} B"


def rate_text(rate: float | None) -> str:
    """A rate with three significant digits or all whole ones; a dash when it is not defined."""
    return "-" if rate is None else _digits(rate)


def share_text(share: float | None) -> str:
    """A share in percent with one decimal; a dash when it is not defined."""
    return "-" if share is None else f"{100 * share:.1f} %"


def change_text(change: float | None) -> str:
    """A relative change in percent with its sign and one decimal, tenfold and more as a factor; a dash for none."""
    if change is None:
        return "-"
    return f"x {1 + change:.3g}" if change >= 9 else f"{round(100 * change, 1) + 0.0:+.1f} %"


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """A count and its noun: `1 request`, `1,200 requests`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def plain(text: str) -> str:
    """The text without anything a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def bar(share: float | None, width: int, *, unicode: bool) -> str:
    """A bar filled to this share of its width."""
    full, empty = ("█", "░") if unicode else ("#", "-")
    filled = min(width, round((share or 0.0) * width))
    return full * filled + empty * (width - filled)


def sparkline(values: Sequence[int], width: int, *, unicode: bool) -> str:
    """Values as a line of at most `width` levels, the highest being the greatest value; any value above 0 shows."""
    if not values:
        return ""
    columns = min(width, len(values))
    means = []
    for column in range(columns):
        part = values[len(values) * column // columns : len(values) * (column + 1) // columns]
        means.append(sum(part) / len(part))
    top = max(means)
    levels = _SPARKS if unicode else _ASCII_SPARKS
    last = len(levels) - 1
    return "".join(levels[max(1, round(mean / top * last)) if mean else 0] for mean in means)


def _digits(value: float) -> str:
    size = abs(value)
    decimals = 2 if size < 10 else 1 if size < 100 else 0
    return f"{value:,.{decimals}f}"
