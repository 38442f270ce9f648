"""Something drawn with rich, as text for a terminal or a file."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, RenderableType

LEAST_WIDTH = 60
MOST_WIDTH = 120


def drawn(content: RenderableType, *, width: int, color: bool = False) -> str:
    """The content at most `width` columns wide; without `color` it has no escape sequence."""
    console = Console(
        file=StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
    )
    with console.capture() as capture:
        console.print(content)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    return "\n".join(lines) + "\n"


def fitting(width: int) -> int:
    """The width to draw at, where there are so many columns."""
    return max(LEAST_WIDTH, min(MOST_WIDTH, width))
