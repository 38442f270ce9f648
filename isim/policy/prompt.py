"""What of a prompt others can have too: everything before the request's own group, `p:<id>`."""

from __future__ import annotations

Runs = tuple[tuple[str, int, int], ...]


def shareable(prompt: Runs, name: str) -> Runs:
    """The runs of a prompt that another request could have too: all before its own group `p:<id>`."""
    own = f"p:{name}"
    for place, (group, _, _) in enumerate(prompt):
        if group == own:
            return prompt[:place]
    return prompt


def shared_beginning(prompt: Runs | None, name: str) -> str | None:
    """The group of a prompt's first run, unless it is the request's own."""
    if not prompt or prompt[0][0] == f"p:{name}":
        return None
    return prompt[0][0]
