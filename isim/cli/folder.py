"""The folder `isim run --out` writes, and single files: they are either whole or not there.

Everything is written to a folder beside it, `DIR.unfinished`, which takes the name `DIR` when all of it is there. So a
run that is killed leaves nothing that looks like a result.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from isim.cli.output import say
from isim.record.errors import IsimError
from isim.record.files import reason_of

RESULT = "result.json"
REQUESTS = "requests.csv"
LOG = "log.jsonl.zst"
SCENARIO = "scenario.yaml"
UNFINISHED = ".unfinished"
_NAMES = (RESULT, REQUESTS, LOG, SCENARIO)


class OutputError(IsimError):
    """The output cannot be written there."""


class OutFolder:
    """Used as a context: `path(name)` is where to write; leaving it without an error gives the folder its name.

    With an error that the input is to blame for the unfinished folder is removed; otherwise it is kept.
    """

    def __init__(self, out: str) -> None:
        path = os.path.abspath(out)
        self.final = Path(os.path.realpath(path) if os.path.isdir(path) else path)
        self.unfinished = self.final.with_name(self.final.name + UNFINISHED) if self.final.name else self.final

    def path(self, name: str) -> Path:
        return self.unfinished / name

    def __enter__(self) -> OutFolder:
        final, unfinished = self.final, self.unfinished
        try:
            if os.path.lexists(final) and (not final.is_dir() or any(final.iterdir())):
                raise OutputError(
                    f"{final}: expected a new or empty folder, found something; remove it or name another"
                )
            final.parent.mkdir(parents=True, exist_ok=True)
            unfinished.mkdir()
        except FileExistsError as error:
            if error.filename != str(unfinished):
                raise OutputError(f"{error.filename}: expected a folder to write into, found a file") from None
            raise OutputError(
                f"{unfinished}: found what a run that was stopped, or still runs, has written; remove it first"
            ) from None
        except (OSError, ValueError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else "no folder can have this name"
            raise OutputError(f"{_printable(final)}: cannot be written: {reason}") from None
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
            raise OutputError(f"{self.unfinished}: cannot be written: {reason_of(error)}") from error
        elif isinstance(error, IsimError) and error.exit_code == OutputError.exit_code:
            self._remove()
        else:
            say(f"kept: {self.unfinished}, as far as it was written")

    def _remove(self) -> None:
        """As far as that is possible: what is left is still called unfinished."""
        with suppress(OSError):
            for name in _NAMES:
                self.path(name).unlink(missing_ok=True)
            self.unfinished.rmdir()


@contextmanager
def new_file(path: str) -> Iterator[str]:
    """The name to write a new file under: it gets its own once it is whole, and is gone if something goes wrong."""
    with _cannot_be_written(path):
        unfinished = _claimed(path)
        try:
            yield unfinished
            os.rename(unfinished, path)
        except BaseException:
            os.unlink(unfinished)
            raise


def check_new_file(path: str) -> None:
    """Raise OutputError where `new_file` would, before the work that takes long."""
    with _cannot_be_written(path):
        os.unlink(_claimed(path))


def _claimed(path: str) -> str:
    """The name to write under, with an empty file there."""
    if os.path.lexists(path):
        raise OutputError(f"{path}: expected a new file, found one; remove it or name another")
    if not os.path.basename(path):
        raise OutputError(
            f"{path or repr(path)}: expected the name of a new file, found {'a folder' if path else 'none'}"
        )
    unfinished = f"{path}.unfinished"
    with open(unfinished, "xb"):
        return unfinished


@contextmanager
def _cannot_be_written(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{error.filename or path}: cannot be written: {error.strerror}") from None


def _printable(path: Path) -> str:
    return str(path) if str(path).isprintable() else ascii(str(path))
