"""The graph of a plan's steps: an order in which they can happen, and which step waits for which.

Nodes are positions 0 to n - 1, and `before[i]` are the positions that i waits for. Neither the order nor `reaches`
recurses, and their cost is near linear for the graphs that compilers write. `reaches` answers questions (a, b): is
there a path from a to b? An edge answers at once. The others are answered by bit masks, `BLOCK` sources at a time,
swept over the stretch of the order that lies between the first of these sources and the last of their targets: where
a question spans few steps the sweep is short, and where many span the whole graph it costs n * questions / BLOCK
operations on masks of BLOCK bits, with memory for one mask a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

BLOCK = 1024

Edges = Sequence[Sequence[int]]


def topological_order(before: Edges) -> list[int] | None:
    """All positions, each after what it waits for, the smallest position first where that is already so; None if
    there is a cycle.
    """
    if all(earlier < position for position, those in enumerate(before) for earlier in those):
        return list(range(len(before)))
    after: list[list[int]] = [[] for _ in before]
    missing = [0] * len(before)
    for position, those in enumerate(before):
        missing[position] = len(those)
        for earlier in those:
            after[earlier].append(position)
    order = [position for position, count in enumerate(missing) if count == 0]
    for position in order:  # it grows while it is walked
        for later in after[position]:
            missing[later] -= 1
            if missing[later] == 0:
                order.append(later)
    return order if len(order) == len(before) else None


def a_cycle(before: Edges) -> list[int]:
    """The positions of one cycle, each waiting for the next and the last for the first; empty if there is none."""
    state = [0] * len(before)  # 0 unseen, 1 on the path, 2 done
    for start in range(len(before)):
        if state[start]:
            continue
        path, rest = [start], [iter(before[start])]
        state[start] = 1
        while path:
            earlier = next(rest[-1], None)
            if earlier is None:
                state[path.pop()] = 2
                rest.pop()
            elif state[earlier] == 1:
                return path[path.index(earlier) :]
            elif state[earlier] == 0:
                state[earlier] = 1
                path.append(earlier)
                rest.append(iter(before[earlier]))
    return []


def unreached(before: Edges, order: Sequence[int], questions: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those of the questions (a, b), each once and in their order, for which there is no path from a to b.

    `order` is a topological order of the graph. A position reaches itself.
    """
    asked = [
        (source, target)
        for source, target in dict.fromkeys(questions)
        if source != target and source not in before[target]
    ]
    if not asked:
        return []
    rank = [0] * len(order)
    for index, position in enumerate(order):
        rank[position] = index
    failed: set[tuple[int, int]] = set()
    targets: dict[int, list[int]] = {}
    for source, target in asked:
        if rank[source] > rank[target]:
            failed.add((source, target))
        else:
            targets.setdefault(source, []).append(target)
    sources = sorted(targets, key=rank.__getitem__)
    for first in range(0, len(sources), BLOCK):
        failed.update(
            _sweep(before, order, rank, {source: targets[source] for source in sources[first : first + BLOCK]})
        )
    return [question for question in asked if question in failed]


def _sweep(
    before: Edges, order: Sequence[int], rank: Sequence[int], targets: dict[int, list[int]]
) -> list[tuple[int, int]]:
    """The unanswered questions of these sources, which come in topological order."""
    bits = {source: 1 << index for index, source in enumerate(targets)}
    last = max(rank[target] for those in targets.values() for target in those)
    masks: dict[int, int] = {}
    for position in order[rank[next(iter(targets))] : last + 1]:
        mask = bits.get(position, 0)
        for earlier in before[position]:
            mask |= masks.get(earlier, 0)
        if mask:
            masks[position] = mask
    return [
        (source, target)
        for source, those in targets.items()
        for target in those
        if not masks.get(target, 0) & bits[source]
    ]
