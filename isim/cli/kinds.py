"""What a file says it is: every format has a key at its top that tells it from the others.

This only looks for the keys, so that the right reader is called; it is the reader that judges.
"""

from __future__ import annotations

import json
import re
from enum import Enum

from isim.record.files import open_input


class FileKind(Enum):
    """A format, and the keys at the top of a file that tell it; the first of these formats that has one is taken."""

    PLAN = ("planContractRevision", "artifactFingerprint")
    TOPOLOGY = ("schemaVersion", "memoryDomains")
    WORKLOAD = ("target_only", "concurrent_campaign", "schema")
    RUN = ("schema_version",)


_BYTES_MAX = 256 << 20
_KEY = re.compile(r"""^(?:"(\w+)"|'(\w+)'|(\w+))[ \t]*:""", re.MULTILINE)
_FLOW_KEY = re.compile(r'"?(\w+)"?\s*:')


def kind_of(file: str) -> FileKind:
    """The format of a file; a run file where nothing tells, or where it cannot be read."""
    try:
        with open_input(file) as stream:
            text = stream.read(_BYTES_MAX).decode("utf-8-sig", "replace")
    except OSError:
        return FileKind.RUN
    keys = _keys(text)
    return next((kind for kind in FileKind if any(key in keys for key in kind.value)), FileKind.RUN)


def _keys(text: str) -> list[str]:
    """The keys at the top of a JSON object, or of a block of YAML; all keys of what is neither."""
    if not text.lstrip().startswith("{"):
        return [match[1] or match[2] or match[3] for match in _KEY.finditer(text)]
    try:
        return list(json.loads(text))
    except (ValueError, RecursionError):
        return _FLOW_KEY.findall(text)
