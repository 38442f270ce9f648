"""What a plan is to do, before it is known where: units of work, one after another."""

from __future__ import annotations

import msgspec

from isim.plan.owners import ExpertPlacement

TARGET_ONLY = "target-only"


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """One pass of the target model over `width_tokens` tokens, of which `committed_tokens` become output.

    `routed` lists, for each of the tokens, the experts that it goes to; None for a dense model.
    """

    width_tokens: int
    committed_tokens: int
    routed: tuple[tuple[str, ...], ...] | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Units in their order; `experts` says who owns which expert where a unit is routed."""

    id: str
    units: tuple[Unit, ...]
    experts: ExpertPlacement | None = None

    @property
    def committed_tokens(self) -> int:
        """Tokens of output that all units bring."""
        return sum(unit.committed_tokens for unit in self.units)


def target_only_profile(tokens: int) -> Profile:
    """`tokens` tokens of output, one pass of the target for each."""
    return Profile(id=TARGET_ONLY, units=(Unit(width_tokens=1, committed_tokens=1),) * tokens)
