"""Where the two generations of the scheduler differ, as data."""

from __future__ import annotations

import msgspec

from isim.record.records import EngineVersion


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """One flag for each difference between the versions.

    unhashed_first      freed blocks without a hash go to the head of the free queue instead of its end
    threshold_alone     `long_prefill_token_threshold` holds even for the only request in the engine
    self_victim_ends    with `priority`, a request that preempts itself ends the running pass
    skip_after_victim   a victim that stood ahead and had no tokens this step makes the pass skip one request
    schedule_on_empty   with room in flight, a step without tokens does not make the engine wait for an output

    Where there are several KV groups:

    processed_only      windows and states pass only what tokens of processed steps leave behind
    whole_names         blocks of different lengths are named only up to a multiple of all lengths
    recompute_last      chunks that end on blocks end before the block that a look-up never finds
    split_shared        and where the prefix ends that full attention alone found
    """

    unhashed_first: bool
    threshold_alone: bool
    self_victim_ends: bool
    skip_after_victim: bool
    schedule_on_empty: bool
    processed_only: bool
    whole_names: bool
    recompute_last: bool
    split_shared: bool


RULES = {
    EngineVersion.V021: Rules(
        unhashed_first=False,
        threshold_alone=True,
        self_victim_ends=True,
        skip_after_victim=True,
        schedule_on_empty=False,
        processed_only=False,
        whole_names=False,
        recompute_last=False,
        split_shared=False,
    ),
    EngineVersion.V033: Rules(
        unhashed_first=True,
        threshold_alone=False,
        self_victim_ends=False,
        skip_after_victim=False,
        schedule_on_empty=True,
        processed_only=True,
        whole_names=True,
        recompute_last=True,
        split_shared=True,
    ),
}
