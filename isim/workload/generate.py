"""Requests by rule: arrivals (`arrivals`), lengths (`lengths`), what prompts share, and mixtures of all that.

Everything draws from a stream of its own, a draw for each request by its index: to change one thing leaves all others
as they were. In a mixture the class of request i is drawn from the stream `class`, in proportion to the weights; what
else a class draws is named after it and counted by its own requests, so that classes do not disturb each other.

A shared prefix is the first `tokens` tokens of a prompt (or all of it, if that is shorter), the same for all requests
of one of `groups` groups, which are equally likely. A prompt pool of n prompts is gone through over and over: requests
i and i + n have the same prompt, its length and prefix included. Output lengths are drawn for each request in any case.
"""

from __future__ import annotations

from collections.abc import Iterator

from isim.draw.streams import Stream
from isim.scenario.types import Generated, LogNormal, Mixture, Poisson, Traffic
from isim.workload.arrivals import arrival_times
from isim.workload.lengths import length_of, lengths_of
from isim.workload.request import Request
from isim.workload.rows import prompt_runs


def generated_requests(workload: Generated | Mixture, seed: int) -> Iterator[Request]:
    """All requests of a generator; WorkloadError for arrivals beyond the clock and limits nothing falls into."""
    times = arrival_times(workload.arrivals, workload.requests, seed)
    if isinstance(workload, Mixture):
        return _mixed(workload, times, seed)
    traffic = workload.traffic
    if traffic.shared_prefix or traffic.prompt_pool or traffic.priority:
        maker = _Maker(traffic, "", seed)
        return (maker.request(index, time_ns, index, None) for index, time_ns in enumerate(times))
    count = workload.requests
    input_tokens = lengths_of(traffic.input_tokens, Stream(seed, "input_tokens"), count)
    output_tokens = lengths_of(traffic.output_tokens, Stream(seed, "output_tokens"), count)
    return map(Request, range(count), map("r{}".format, range(count)), times, input_tokens, output_tokens)


def generated_notes(workload: Generated | Mixture) -> list[str]:
    """What is assumed in generating these requests."""
    named = list(workload.classes) if isinstance(workload, Mixture) else [("", workload.traffic)]
    notes = []
    if not any(traffic.shared_prefix or traffic.prompt_pool for _, traffic in named):
        notes.append("generated requests: no request shares its prompt with another")
    if isinstance(workload.arrivals, Poisson):
        notes.append("Poisson arrivals: the first request arrives after the first gap, not at t = 0")
    for name, traffic in named:
        for key, spec in (("input_tokens", traffic.input_tokens), ("output_tokens", traffic.output_tokens)):
            if isinstance(spec, LogNormal):
                limits = f"{spec.min_tokens} to {spec.max_tokens}"
                whose = f"{name} {key}".strip()
                notes.append(f"{whose}: lognormal lengths outside {limits} are drawn again, which moves their median")
    return notes


class _Maker:
    """The requests of one kind of traffic; `name` is that of its class, or empty."""

    def __init__(self, traffic: Traffic, name: str, seed: int) -> None:
        self._traffic = traffic
        self._label = label = f"{name} " if name else ""
        suffix = f" {name}" if name else ""
        self._input_tokens = length_of(traffic.input_tokens, Stream(seed, f"input_tokens{suffix}"))
        self._output_tokens = length_of(traffic.output_tokens, Stream(seed, f"output_tokens{suffix}"))
        self._groups = Stream(seed, f"prefix{suffix}")
        self._own_group = f"{label}prompt "

    def request(self, index: int, arrival_ns: int, place: int, name: str | None) -> Request:
        """Request `index` of the run, number `place` of its traffic."""
        traffic = self._traffic
        pool = traffic.prompt_pool
        prompt_place = place % pool if pool else place
        request_id = f"r{index}"
        input_tokens = self._input_tokens(prompt_place)
        shared: list[tuple[str, int, int]] = []
        left = input_tokens
        if traffic.shared_prefix is not None:
            group = self._groups.below(traffic.shared_prefix.groups, prompt_place)
            tokens = min(left, traffic.shared_prefix.tokens)
            shared.append((f"{self._label}prefix {group}", 0, tokens))
            left -= tokens
        if pool and left:
            shared.append((f"{self._own_group}{prompt_place}", 0, left))
        prompt = prompt_runs(request_id, input_tokens, tuple(shared))
        output_tokens = self._output_tokens(place)
        return Request(
            index, request_id, arrival_ns, input_tokens, output_tokens, traffic.priority, prompt, request_class=name
        )


def _mixed(workload: Mixture, times: Iterator[int], seed: int) -> Iterator[Request]:
    names = [name for name, _ in workload.classes]
    makers = [_Maker(traffic, name, seed) for name, traffic in workload.classes]
    places = [0] * len(names)
    choose = Stream(seed, "class")
    weights = [traffic.weight for _, traffic in workload.classes]
    owner = [chosen for chosen, weight in enumerate(weights) for _ in range(weight)]
    for index, time_ns in enumerate(times):
        chosen = owner[choose.below(len(owner), index)]
        yield makers[chosen].request(index, time_ns, places[chosen], names[chosen])
        places[chosen] += 1
