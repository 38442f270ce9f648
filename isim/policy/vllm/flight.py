"""A step under way: decided, its output not yet taken in."""

from __future__ import annotations

import msgspec

from isim.policy.vllm.sequence import Sequence


class Flight(msgspec.Struct, eq=False, gc=False):
    """One step under way: whose tokens of it need saying. `quiet` when nobody's do."""

    step: int
    quiet: bool = True
    first: tuple[Sequence, ...] = ()
    late: tuple[tuple[Sequence, int], ...] = ()
    ending: tuple[Sequence, ...] = ()

    def sort(self) -> None:
        """Outputs are processed in running order. In that first tokens come already, from those who prefill."""
        if len(self.ending) > 1:
            self.ending = tuple(sorted(self.ending, key=_order))
        if len(self.late) > 1:
            self.late = tuple(sorted(self.late, key=lambda late: late[0].order))


QUIET = Flight(0)
"""Every step that brings just one more token to those that had one the step before."""


def _order(sequence: Sequence) -> int:
    return sequence.order
