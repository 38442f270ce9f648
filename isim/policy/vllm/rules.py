"""Where the two generations of the scheduler differ, as data."""

from __future__ import annotations

import msgspec

from isim.record.records import EngineVersion


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """One flag for each difference between the versions that a single full-attention group can show.

    unhashed_first      freed blocks without a hash go to the head of the free queue instead of its end
    threshold_alone     `long_prefill_token_threshold` holds even for the only request in the engine
    self_victim_ends    with `priority`, a request that preempts itself ends the running pass
    skip_after_victim   a victim that stood ahead and had no tokens this step makes the pass skip one request
    schedule_on_empty   with room in flight, a step without tokens does not make the engine wait for an output
    """

    unhashed_first: bool
    threshold_alone: bool
    self_victim_ends: bool
    skip_after_victim: bool
    schedule_on_empty: bool


RULES = {
    EngineVersion.V021: Rules(
        unhashed_first=False,
        threshold_alone=True,
        self_victim_ends=True,
        skip_after_victim=True,
        schedule_on_empty=False,
    ),
    EngineVersion.V033: Rules(
        unhashed_first=True,
        threshold_alone=False,
        self_victim_ends=False,
        skip_after_victim=False,
        schedule_on_empty=True,
    ),
}
