"""Running a small case as a person would: a run file, the command, and everything that comes of it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from readers import code_of

from isim.record.codec import read_log
from isim.record.records import AnyRecord, Turn

HEAD = """\
schema_version: 1
hardware: {{ gpu: {gpu} }}
model: {model}
engine: {{ {engine} }}
workload: {workload}
cost: {cost}
"""
LINEAR = "{ kind: linear, base: 1 ms, per_token: 1 us }"
NO_CACHE = "enable_prefix_caching: false"


class Ran(msgspec.Struct, frozen=True):
    """What came of a case: an exit code, what was printed and, where it ran, all it wrote."""

    code: int
    said: str
    report: str = ""
    result: dict[str, Any] = {}
    rows: list[dict[str, str]] = []
    records: list[AnyRecord] = []

    @property
    def counts(self) -> dict[str, Any]:
        return self.result["counts"]

    def conserves(self) -> bool:
        """What was injected is done, rejected, cancelled or left over."""
        counts = self.counts
        left = counts["completed"] + counts["rejected"] + counts["unfinished"] + counts["aborted"]
        return counts["arrived"] == left == len(self.rows)


class Cases:
    """Runs cases, each in a folder of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys, self._number = folder, capsys, 0

    def file(self, name: str, *rows: dict[str, Any]) -> str:
        """Request rows as JSON Lines; returns the workload that reads them."""
        (self.folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return f"{{ kind: request_file, format: jsonl, path: ../{name} }}"

    def run(self, *sets: str, workload: str, engine: str = NO_CACHE, cost: str = LINEAR, **words: str) -> Ran:
        self._number += 1
        folder = self.folder / f"case{self._number}"
        folder.mkdir()
        model, gpu, more = words.get("model", "llama-3.1-8b"), words.get("gpu", "h200"), words.get("more", "")
        text = HEAD.format(gpu=gpu, model=model, engine=engine, workload=workload, cost=cost) + more
        (folder / "run.yaml").write_text(text)
        options = [word for each in sets for word in ("--set", each)]
        code = code_of(["run", str(folder / "run.yaml"), "--out", str(folder / "out"), *options])
        printed = self._capsys.readouterr()
        out = folder / "out"
        if not out.exists():
            return Ran(code, printed.err, printed.out)
        return Ran(
            code,
            printed.err,
            printed.out,
            json.loads((out / "result.json").read_text()),
            list(csv.DictReader((out / "requests.csv").open())),
            [record for batch in read_log(out / "log.jsonl.zst") for record in batch],
        )


def generated(requests: int, brings: int, asks: int, rate: str = "1000 /s") -> str:
    """The workload of so many equal requests."""
    arrivals = f"{{ kind: fixed_rate, rate: {rate} }}"
    return (
        f"{{ kind: generated, arrivals: {arrivals}, requests: {requests}, input_tokens: {brings}, "
        f"output_tokens: {asks} }}"
    )


AT_ONCE = "think: { kind: fixed, duration: 0 s }"


def closed_loop(clients: int, requests: int, brings: int, asks: int) -> str:
    """Clients that send their next request when they are answered."""
    return (
        f"{{ kind: closed_loop, clients: {clients}, {AT_ONCE}, requests: {requests}, input_tokens: {brings}, "
        f"output_tokens: {asks} }}"
    )


def reasons(ran: Ran) -> dict[str, int]:
    """Why requests were rejected, and how many each."""
    return {reason: count for reason, count in ran.counts["rejected_by_reason"].items() if count}


def turns(ran: Ran) -> list[Turn]:
    return [record for record in ran.records if isinstance(record, Turn)]
