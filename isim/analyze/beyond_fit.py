"""Where a run leaves the range that its cost factors were fitted in: said in the result, never corrected."""

from __future__ import annotations

from operator import add

from msgspec import UNSET

from isim.analyze.collect import Collector
from isim.scenario.factors import BY_PATH
from isim.scenario.types import Scenario


def beyond_fit(scenario: Scenario, collector: Collector) -> list[str]:
    """A sentence for each way in which the run is not like those that the factors are known for."""
    fitted = scenario.cost.fitted
    if fitted is UNSET:
        return []
    batch, tokens = largest_batch(collector), longest_request(collector)
    ranks = scenario.engine.tensor_parallel_size
    pairs = (
        (scenario.hardware.gpu.name != fitted.gpu, f"on {fitted.gpu}", f"is on {scenario.hardware.gpu.name}"),
        (scenario.model.spec.name != fitted.model, f"with {fitted.model}", f"serves {scenario.model.spec.name}"),
        (ranks != fitted.tensor_parallel_size, f"with TP {fitted.tensor_parallel_size}", f"has TP {ranks}"),
        (batch > fitted.batch, f"at batches of up to {fitted.batch:,}", f"has batches of up to {batch:,}"),
        (
            tokens > fitted.request_tokens,
            f"on requests of up to {fitted.request_tokens:,} tokens",
            f"has requests of up to {tokens:,}",
        ),
    )
    found = [f"The cost factors were fitted {there}; this run {here}." for beyond, there, here in pairs if beyond]
    for path, told in fitted.settings:
        factor = BY_PATH[path]
        value = factor.of(scenario)
        now = "its default" if value is None else factor.text(value)
        if now != told:
            found.append(f"{path} was fitted as {told}; this run has {now}.")
    return found


def largest_batch(collector: Collector) -> int:
    """The most requests running at once on one engine."""
    return max((steps.most_running for steps in collector.engines), default=0)


def longest_request(collector: Collector) -> int:
    """The most tokens of prompt and output that a request which started had."""
    requests = collector.requests
    tokens = list(map(add, requests.input_tokens, requests.asked_tokens))
    most = max((count for count, start_ns in zip(tokens, requests.start_ns, strict=True) if start_ns >= 0), default=0)
    return min(most, collector.header.engine.max_model_len)
