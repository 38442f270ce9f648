"""The bytes of an input file, as far as its format reads it."""

from __future__ import annotations

from isim.record.files import open_input, reason_of
from isim.scenario.errors import Complaint, Place, ScenarioError
from isim.scenario.nodes import Limits


def read_bytes(file: str, limits: Limits) -> bytes:
    """What the file holds, up to one byte more than its format allows. Raises ScenarioError if it cannot be read."""
    try:
        with open_input(file) as stream:
            return stream.read(limits.file_bytes + 1)
    except OSError as error:
        complaint = Complaint(Place(0, 1, 1), "", f"expected {limits.noun}, found none: {reason_of(error)}")
        raise ScenarioError(file, [complaint]) from None
