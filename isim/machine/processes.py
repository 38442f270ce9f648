"""The executor made of processes, for detailed runs. Imports the kernel, and so SimPy; the closed form does not."""

from __future__ import annotations

from collections.abc import Sequence

from isim.kernel import Kernel
from isim.machine.coordinator import Coordinator
from isim.machine.journal import Journal
from isim.machine.requests import ExecutionRequest
from isim.machine.resources import Resources
from isim.record.execution_log import ExecutionLog


def run_processes(
    machine: Resources, requests: Sequence[ExecutionRequest], log: ExecutionLog, shuffle_seed: int | None = None
) -> int:
    """Run checked requests to their end; returns the time of the end in ns. `shuffle_seed` perturbs ties that may not
    matter."""
    kernel = Kernel(shuffle_seed=shuffle_seed)
    journal = Journal(log)
    Coordinator(kernel, machine, journal, requests)
    kernel.run()
    journal.flush()
    return kernel.now_ns
