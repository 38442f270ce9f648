"""`isim export FILE --out REQUESTS`: the requests of a run file, or those a log says came, as a request file.

A run of the export (`kind: request_file, format: jsonl`) gives every request the same times as the run it is of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from isim.cli.folder import new_file
from isim.cli.output import say
from isim.record.records import Arrive, Header
from isim.scenario.load import load_scenario
from isim.scenario.types import RequestFormat
from isim.workload.open import open_workload
from isim.workload.request import Request
from isim.workload.write import write_requests

LOG_ENDING = ".zst"


def export(file: str, out: str, sets: Sequence[str]) -> int:
    """Write all requests to `out`, which must not be there; CSV where its name ends in .csv, JSON Lines otherwise."""
    form = RequestFormat.CSV if out.endswith(".csv") else RequestFormat.JSONL
    requests = _of_log(file) if file.endswith(LOG_ENDING) else _of_run_file(file, sets)
    with new_file(out) as unfinished, open(unfinished, "wb") as stream:
        count = write_requests(requests, stream, form)
    say(f"written: {out}, {count:,} requests")
    return 0


def _of_run_file(file: str, sets: Sequence[str]) -> Iterator[Request]:
    scenario = load_scenario(file, sets)
    return open_workload(scenario.workload, scenario.simulation.seed, Path(file).parent).requests()


def _of_log(file: str) -> Iterator[Request]:
    """What a log says of who was sent when; it knows no sessions and no classes."""
    from isim.record.codec import read_log

    overhead_ns = 0
    for records in read_log(file):
        for record in records:
            if isinstance(record, Header):
                overhead_ns = record.request_overhead_ns
            elif isinstance(record, Arrive):
                yield Request(
                    record.request,
                    record.id,
                    record.time_ns - overhead_ns,
                    record.prompt_tokens,
                    record.output_tokens,
                    record.priority,
                    None if record.prompt is None else tuple(record.prompt),
                    record.quotable,
                )
