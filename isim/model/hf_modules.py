"""Which modules of a checkpoint a list of names and patterns means.

Three ways to write one are in use: a run of whole names in the module's path (`mlp.gate`), the same with wildcards
(`model.layers.0*`), and a regular expression that matches from the path's start (`re:.*lm_head`). A regular expression
of a stranger can take for ever; so one may not repeat a group, and all patterns together may cost so many steps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

REGULAR = "re:"
MAX_STEPS = 1_000_000_000
"""Steps of the slowest matches that the patterns allow, over all modules that are looked at."""

_CHARACTERS, _NAMES = 64, 8
"""Of the path of a module, at most."""
_REPEATED_GROUP = re.compile(r"\)\s*[*+{]")
_REPEAT = re.compile(r"(?<!\\)[*+{]")
_OPTION = re.compile(r"(?<![\\(])\?")
_INNERMOST_GROUP = re.compile(r"\([^()]*\)")


class ModulesError(ValueError):
    """A pattern that cannot be followed; `str()` is what is supported."""

    def __init__(self, pattern: str, supported: str) -> None:
        super().__init__(supported)
        self.pattern = pattern


class Modules:
    """The modules that any of the patterns means: `path in modules`. `questions` is how often that will be asked."""

    def __init__(self, patterns: Sequence[str], questions: int) -> None:
        self._names = frozenset(patterns)
        self._expressions: list[re.Pattern[str]] = []
        steps = 0
        for pattern in dict.fromkeys(patterns):
            if pattern.startswith(REGULAR):
                steps += questions * _steps(pattern)
            elif "*" in pattern:
                steps += questions * _NAMES * _steps(pattern.rstrip("*"))
            else:
                continue
            if steps > MAX_STEPS:
                raise ModulesError(pattern, f"patterns that {questions} modules can be tried on in {MAX_STEPS} steps")
            self._expressions.append(_compiled(pattern))

    def __contains__(self, module: str) -> bool:
        names = module.split(".")
        runs = (".".join(names[start:end]) for end in range(1, len(names) + 1) for start in range(end))
        return any(run in self._names for run in runs) or any(each.search(module) for each in self._expressions)


def _compiled(pattern: str) -> re.Pattern[str]:
    if not pattern.startswith(REGULAR):
        inner = ".*".join(re.escape(piece) for piece in pattern.rstrip("*").split("*"))
        return re.compile(rf"(?:^|\.){inner}" if pattern.endswith("*") else rf"(?:^|\.){inner}(?:\.|$)")
    if _REPEATED_GROUP.search(pattern):
        raise ModulesError(pattern, "a regular expression that repeats no group")
    try:
        return re.compile(rf"\A(?:{pattern[len(REGULAR) :]})")
    except (re.error, RecursionError, OverflowError) as error:
        raise ModulesError(pattern, f"a regular expression ({error})") from None


def _steps(pattern: str) -> int:
    """At most so many steps a match may take: each repeat may end at any character after that of the one before."""
    steps = 1
    for number in range(1, len(_REPEAT.findall(pattern)) + 1):
        steps = steps * _CHARACTERS // number
    steps <<= len(_OPTION.findall(pattern))
    while group := _INNERMOST_GROUP.search(pattern):
        steps *= 1 + group[0].count("|")
        pattern = pattern[: group.start()] + pattern[group.end() :]
    return steps * (1 + pattern.count("|"))
