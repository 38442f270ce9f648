"""The event loop, the generators of random numbers, canonical JSON and fingerprints."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import UNSET

from isim.draw.reference import XorShift32, acceptance_unit, campaign_arrivals, route_experts
from isim.kernel import SAFE_MAX_NS, Kernel, Rank
from isim.record.canonical import canonical_json, fingerprint
from isim.record.errors import CausalityError
from reference_checks.case import Case, Check, Compared, Verdict
from reference_checks.topology import REFUSED, refused

_TOKENS = 8


# ---- the event loop


class EventLoop:
    """The reference's interface over the kernel: it only numbers and counts.

    Its handler, as the record shows, schedules `f` at 5 ns and `g` at the present when it meets `d`. A cancelled event
    counts as pending until its time is reached, and as skipped then; the clock stays at the last event.
    """

    def __init__(self, shuffle_seed: int | None = None) -> None:
        self.kernel = Kernel(shuffle_seed=shuffle_seed)
        self.log: list[dict[str, Any]] = []
        self._sequence = 0
        self._waiting: dict[int, int] = {}
        self._cancelled: list[int] = []

    def schedule_at(self, time_ns: int, payload: str) -> int:
        sequence = self._sequence
        number = self.kernel.call_at(time_ns, Rank.ARRIVAL, partial(self._handle, sequence, payload), key=(sequence,))
        self._sequence += 1
        self._waiting[number] = time_ns
        return number

    def cancel(self, number: int) -> bool:
        done = self.kernel.cancel(number)
        if done:
            self._cancelled.append(number)
        return done

    def _handle(self, sequence: int, payload: str) -> None:
        del self._waiting[sequence + 1]
        self.log.append({"id": sequence + 1, "t": self.kernel.now_ns, "seq": sequence, "p": payload})
        if payload == "d":
            self.schedule_at(5, "f")
            self.schedule_at(self.kernel.now_ns, "g")

    def run(self, until_ns: int | None = None) -> dict[str, int]:
        before = len(self.log)
        self.kernel.run(until_ns)
        end_ns = SAFE_MAX_NS if until_ns is None else until_ns
        reached = [number for number in self._cancelled if self._waiting.get(number, end_ns + 1) <= end_ns]
        for number in reached:
            del self._waiting[number]
        return {
            "processedEvents": len(self.log) - before,
            "skippedCancelledEvents": len(reached),
            "nowNs": self.kernel.now_ns,
            "pendingEvents": len(self._waiting),
        }


def _event_loop(case: Case) -> Verdict:
    asked, loop = case.input_json(), EventLoop()
    found: dict[str, Any] = {
        "ids": [loop.schedule_at(time_ns, payload) for time_ns, payload in asked["schedule"]],
        "cancels": [loop.cancel(number) for number in asked["cancel"]],
        "r1": loop.run(until_ns=4),
        "r2": loop.run(),
    }
    wrong: tuple[Any, ...] = (1, -1, 1.5, SAFE_MAX_NS + 1)
    refusals = [_is_refused(partial(loop.kernel.call_at, time_ns, Rank.ARRIVAL, print)) for time_ns in wrong]
    refusals.append(_is_refused(partial(loop.cancel, 0)))
    found |= {"log": loop.log, "errs": refusals}
    return Compared({**case.expected, "errs": [True for _ in case.expected["errs"]]}, found)


def _is_refused(attempt: partial[Any]) -> bool:
    try:
        attempt()
    except CausalityError:
        return True
    return False


# ---- random numbers


def _acceptance(case: Case) -> Verdict:
    """How many of eight drafted tokens are accepted in a row, at probabilities 0.9, 0.8, 0.7, 0.6, then 0.5."""
    asked = case.input_json()
    found = [
        {"seed": seed, "stream": stream, "accepted": [accepted(seed, stream, at) for at in asked["coords"]]}
        for seed in asked["seeds"]
        for stream in asked["streams"]
    ]
    return Compared(case.expected, found)


def accepted(seed: int, stream: str, coordinate: int) -> int:
    for position in range(_TOKENS):
        if acceptance_unit(seed, stream, coordinate, position) >= max(0.5, 0.9 - 0.1 * position):
            return position
    return _TOKENS


def _routing(case: Case) -> Verdict:
    """Three of the experts for each token. The case gives no weights; its routes agree with 1, 1.25, 1.5 and so on."""
    asked = case.input_json()
    experts = [(f"e{index}", 1 + index / 4) for index in range(asked["experts"])]
    generators = {seed: XorShift32(seed) for seed in asked["seeds"]}
    found = [
        {"seed": each["seed"], "routes": [route_experts(generators[each["seed"]], experts, 3) for _ in each["routes"]]}
        for each in case.expected
    ]
    return Compared(case.expected, found)


def _arrivals(case: Case) -> Verdict:
    asked = case.input_json()
    found = [
        {
            "seed": seed,
            "requests": [
                {"executionId": f"cpu-only:target-only:campaign:{index}", "arrivalNs": arrival, "admissionOrder": order}
                for order, (index, arrival) in enumerate(campaign_arrivals(asked["n"], asked["window"], seed))
            ],
        }
        for seed in asked["seeds"]
    ]
    return Compared(case.expected, found)


# ---- canonical JSON


def _vectors(case: Case) -> Verdict:
    values = case.input_json()["values"]
    found = [{"value": value, "text": canonical_json(value), "fp": fingerprint(value)} for value in values]
    return Compared(case.expected, found)


def _canonical_errors(case: Case) -> Verdict:
    """Each of the reference's refusals, on what is nearest to it in Python: refused or not, whatever is said."""
    cycle: dict[str, Any] = {}
    cycle["a"] = cycle
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    wrong: dict[str, Any] = {
        "nan": float("nan"),
        "inf": [float("inf")],
        "date": object(),
        "map": {1: 2},
        "fn": print,
        "undef": UNSET,
        "sparse": [UNSET, 1],
        "cyc": cycle,
        "deep": deep,
        "bigint": 10**400,
        "undefInArray": [UNSET],
    }
    found = {key: refused(partial(canonical_json, value)) for key, value in wrong.items()}
    return Compared(dict.fromkeys(case.expected, REFUSED), found)


def _artifact(case: Case) -> Verdict:
    """The fingerprints of input, output and envelope, and its text."""
    asked = case.input_json()
    parts = {
        "kind": case.expected["artifact"]["kind"],
        "revision": case.expected["artifact"]["revision"],
        **asked,
        "inputFingerprint": fingerprint(asked["input"]),
        "outputFingerprint": fingerprint(asked["output"]),
    }
    artifact = {**parts, "artifactFingerprint": fingerprint(parts)}
    expected = {key: case.expected[key] for key in ("artifact", "text")}
    return Compared(expected, {"artifact": artifact, "text": canonical_json(artifact)})


CHECKS = (
    Check("core-event-loop", "", _event_loop),
    Check("core-prng", "SpeculativeAcceptanceCursor", _acceptance),
    Check("core-prng", "ExpertCacheSimulator", _routing),
    Check("core-prng", "runSeededConcurrentPlanCampaign", _arrivals),
    Check("core-fingerprint", "canonicalJsonStringify", _vectors),
    Check("core-fingerprint", "canonicalJsonFingerprint", _canonical_errors),
    Check("core-fingerprint", "createSimulationResultArtifact", _artifact),
)
