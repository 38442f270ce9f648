"""Seeded campaigns: many executions of one plan that arrive within a window, on one machine.

They keep the physical allocations of the plan: executions wait for each other's leases, and none has memory of its own.
A campaign is a stress of scheduler, communicators, lanes and leases, not a measure of request throughput.
"""

from __future__ import annotations

from isim.draw.reference import campaign_arrivals
from isim.machine.moment import SAFE_MAX_NS
from isim.machine.program import Program
from isim.machine.requests import ExecutionRequest, RequestError

SEED_MAX = (1 << 32) - 1
DEFAULT_EXECUTIONS = 32
DEFAULT_WINDOW_NS = 1_000_000


def campaign_requests(
    program: Program, execution: str, count: int, window_ns: int, seed: int
) -> list[ExecutionRequest]:
    """`count` executions in the order of admission; number n of the draw is named `<execution>:campaign:<n>`.

    Arrivals and the order of equals are those of the reference's generator. Raises RequestError for what is no count,
    window or 32-bit seed.
    """
    for what, value, least, most in (
        ("number of executions", count, 1, SAFE_MAX_NS),
        ("arrival window in ns", window_ns, 0, SAFE_MAX_NS),
        ("seed", seed, 0, SEED_MAX),
    ):
        if not least <= value <= most:
            raise RequestError(f"campaign: expected a {what} from {least} to {most}, found {value}")
    return [
        ExecutionRequest(program=program, execution=f"{execution}:campaign:{index}", arrival_ns=arrival_ns)
        for index, arrival_ns in campaign_arrivals(count, window_ns, seed)
    ]
