"""What reaches an engine from outside."""

from __future__ import annotations

import msgspec

from isim.workload.request import Request


class Cancel(msgspec.Struct, frozen=True):
    """A client has given up on a request it sent here."""

    request: int


Message = Request | Cancel
