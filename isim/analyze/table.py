"""`requests.csv`: one row for each request that arrived, in order of arrival.

Columns: `request` (index), `id`, `status` (completed, rejected, unfinished, aborted), `reason` of a rejection,
`measured` (1 when the latencies of the result include it), `arrival_ns` (when its client sent it), `start_ns` (start of
the first step that schedules it), `first_token_ns`, `finish_ns`, `overhead_ns` (from there to the engine), `queue_ns`,
`prefill_ns`, `ttft_ns` (the sum of these three), `tpot_ns`, `e2e_ns`, `input_tokens`, `asked_tokens` (output tokens
asked for), `output_tokens` (delivered), `hit_tokens` (found in the prefix cache at its first admission), `preemptions`,
`class`, `session`, `client_input_tokens` (the client's count, where `input_tokens` is the server's),
`reasoning_tokens` (of the output, before the visible ones), `first_visible_ns` (when the first token after them came).
What is not defined is empty.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import IO

from isim.analyze.collect import NEVER, Status
from isim.analyze.latency import request_times
from isim.analyze.result import Analysis

COLUMNS = (
    "request",
    "id",
    "status",
    "reason",
    "measured",
    "arrival_ns",
    "start_ns",
    "first_token_ns",
    "finish_ns",
    "overhead_ns",
    "queue_ns",
    "prefill_ns",
    "ttft_ns",
    "tpot_ns",
    "e2e_ns",
    "input_tokens",
    "asked_tokens",
    "output_tokens",
    "hit_tokens",
    "preemptions",
    "class",
    "session",
    "client_input_tokens",
    "reasoning_tokens",
    "first_visible_ns",
)

_STATUS = {status.value: status.name.lower() for status in Status}

_NO_LABEL = (None, None, None, None)

Cell = int | str | None


def write_requests(analysis: Analysis, stream: IO[str]) -> None:
    """Write the table; the stream must be opened with `newline=""`."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_rows(analysis))


def _rows(analysis: Analysis) -> Iterator[tuple[Cell, ...]]:
    requests = analysis.collector.requests
    labels = analysis.labels
    overhead_ns = analysis.collector.header.request_overhead_ns
    for request, name in enumerate(requests.ids):
        status = requests.status[request]
        completed = status == Status.COMPLETED
        sent_ns = requests.sent_ns[request]
        tokens = analysis.output_tokens[request]
        start_ns = requests.start_ns[request]
        start = None if start_ns == NEVER else start_ns
        first = requests.first_ns[request] if tokens else None
        finish = requests.finish_ns[request] if completed else None
        ttft, tpot, e2e = request_times(requests, request, tokens)
        yield (
            request,
            name,
            _STATUS[status],
            requests.reasons.get(request),
            int(completed and request >= analysis.first_measured),
            sent_ns,
            start,
            first,
            finish,
            overhead_ns,
            None if start is None else start - sent_ns - overhead_ns,
            None if first is None or start is None else first - start,
            ttft,
            tpot,
            e2e,
            requests.input_tokens[request],
            requests.asked_tokens[request],
            tokens,
            requests.hit_tokens[request],
            requests.preemptions[request],
            *labels.get(request, _NO_LABEL),
            analysis.visible_ns.get(request),
        )
