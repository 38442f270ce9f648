"""The folder `isim run --out` writes, and single files: they are either whole or not there.

Everything is written to a folder beside it, `DIR.unfinished`, which takes the name `DIR` when all of it is there. So a
run that is killed leaves nothing that looks like a result.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from isim.record.errors import IsimError

RESULT = "result.json"
REQUESTS = "requests.csv"
LOG = "log.jsonl.zst"
SCENARIO = "scenario.yaml"
_NAMES = (RESULT, REQUESTS, LOG, SCENARIO)


class OutputError(IsimError):
    """The output cannot be written there."""


class OutFolder:
    """Used as a context: `path(name)` is where to write; leaving it without an error gives the folder its name.

    With an error that the input is to blame for the unfinished folder is removed; otherwise it is kept.
    """

    def __init__(self, out: str) -> None:
        self.final = Path(os.path.abspath(out))
        self.unfinished = self.final.with_name(self.final.name + ".unfinished") if self.final.name else self.final

    def path(self, name: str) -> Path:
        return self.unfinished / name

    def __enter__(self) -> OutFolder:
        final, unfinished = self.final, self.unfinished
        try:
            if final.exists() and (not final.is_dir() or any(final.iterdir())):
                raise OutputError(
                    f"{final}: expected a new or empty folder, found something; remove it or name another"
                )
            final.parent.mkdir(parents=True, exist_ok=True)
            unfinished.mkdir()
        except FileExistsError:
            raise OutputError(
                f"{unfinished}: found what a run that was stopped, or still runs, has written; remove it first"
            ) from None
        except OSError as error:
            raise OutputError(f"{final}: cannot be written: {error.strerror}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                self.unfinished.rename(self.final)
            except OSError as problem:
                raise OutputError(f"{self.final}: {problem.strerror}; the result is in {self.unfinished}") from None
        elif isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            self._remove()
            raise OutputError(f"{self.unfinished}: cannot be written: {error.strerror}") from error
        elif isinstance(error, IsimError) and error.exit_code == OutputError.exit_code:
            self._remove()

    def _remove(self) -> None:
        for name in _NAMES:
            self.path(name).unlink(missing_ok=True)
        self.unfinished.rmdir()


@contextmanager
def new_file(path: str) -> Iterator[str]:
    """The name to write a new file under: it gets its own once it is whole, and is gone if something goes wrong."""
    if os.path.lexists(path):
        raise OutputError(f"{path}: expected a new file, found one; remove it or name another")
    unfinished = f"{path}.unfinished"
    try:
        with open(unfinished, "xb"):
            pass
        try:
            yield unfinished
        except BaseException:
            os.unlink(unfinished)
            raise
        os.rename(unfinished, path)
    except OSError as error:
        raise OutputError(f"{error.filename or path}: cannot be written: {error.strerror}") from None
