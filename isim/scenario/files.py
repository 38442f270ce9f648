"""The bytes of an input file, as far as its format reads it."""

from __future__ import annotations

from isim.scenario.errors import Complaint, Place, ScenarioError
from isim.scenario.nodes import Limits


def read_bytes(file: str, limits: Limits) -> bytes:
    """What the file holds, up to one byte more than its format allows. Raises ScenarioError if it cannot be read."""
    try:
        with open(file, "rb") as stream:
            return stream.read(limits.file_bytes + 1)
    except (OSError, ValueError) as error:  # a ValueError for a NUL in the path
        reason = (error.strerror if isinstance(error, OSError) else None) or "it cannot be opened"
        complaint = Complaint(Place(0, 1, 1), "", f"expected {limits.noun}, found none: {reason}")
        raise ScenarioError(file, [complaint]) from None
