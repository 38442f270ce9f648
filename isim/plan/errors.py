"""Why there is no plan, or none that may run."""

from __future__ import annotations

from isim.record.errors import IsimError


class CompileError(IsimError):
    """The workload cannot be compiled for the scenario: placements, degrees, buffers or paths are not what it needs."""
