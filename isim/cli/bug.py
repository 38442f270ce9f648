"""A bug of ours: the traceback goes to a file, and a person is told what to report."""

from __future__ import annotations

import os
import platform
import tempfile
import traceback
from collections.abc import Sequence

from isim import __version__


def report_bug(error: BaseException, command: Sequence[str]) -> str:
    """Write the traceback to a new file here, or in the temporary folder; returns what to tell."""
    text = "\n".join(
        [
            f"isim {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"command: {list(command)}",
            "",
            "".join(traceback.format_exception(error)),
        ]
    )
    summary = f"isim: this is a bug of isim, not of your input: {type(error).__name__}: {error}"
    for folder in (".", tempfile.gettempdir()):
        try:
            descriptor, path = tempfile.mkstemp(prefix="isim-bug-", suffix=".txt", dir=folder, text=True)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError:
            continue
        return f"{summary}\nPlease report it with the run file and {path}, which holds the traceback."
    return f"{summary}\nNo file could be written for the traceback:\n{text}"
