"""One digest wherever a run happens: other hash seeds, other numpy versions, fewer vector instructions.

    python tools/digests.py [--numpy DIR ...] [--only NAME]

Every scenario in scenarios/ runs in processes with different surroundings: two values of PYTHONHASHSEED; without numpy,
as ordinary runs are, and beside a numpy that was imported before; with all its vector instructions and with those
disabled that it would choose at run time (AVX2, AVX-512). `--numpy` names a folder that another numpy was installed
to, which then takes the place of the installed one (`make digests` makes one). isim itself imports no numpy, and floats
of a run are plain Python; this shows that none of it can reach a log or a result. Prints a line for each surrounding;
exit code 1 if any has other digests.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from isim.report.text import count_text

ROOT = Path(__file__).resolve().parents[1]
HASH_SEEDS = ("0", "4242")
_WHOLE = "quickstart.yaml"
"""This one with replay and details; the others without, which is a third of the time."""

_FEATURES = """\
import json
try:
    from numpy._core import _multiarray_umath as core
except ImportError:
    from numpy.core import _multiarray_umath as core
print(json.dumps([name for name in core.__cpu_dispatch__ if core.__cpu_features__.get(name)]))
"""


class Surrounding(msgspec.Struct, frozen=True, kw_only=True):
    """What is around a run: `numpy` None for none imported, a folder for the one there, or empty for the installed."""

    hash_seed: str
    numpy: str | None = None
    disabled: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        found = {**os.environ, "PYTHONHASHSEED": self.hash_seed}
        if self.numpy:
            found["PYTHONPATH"] = self.numpy
        if self.disabled:
            found["NPY_DISABLE_CPU_FEATURES"] = " ".join(self.disabled)
        return found

    def said(self) -> str:
        return f"hash seed {self.hash_seed}" + (f", without {' '.join(self.disabled)}" if self.disabled else "")


def surroundings(folders: list[str]) -> list[Surrounding]:
    """No numpy, then each numpy there is with and without its vector instructions; the two hash seeds in turn."""
    found = [Surrounding(hash_seed=seed) for seed in HASH_SEEDS]
    for folder in ("", *folders):
        if folder and not Path(folder).is_dir():
            print(f"numpy of {folder}: left out, there is no such folder")
            continue
        features = subprocess.run(
            [sys.executable, "-c", _FEATURES],
            env=Surrounding(hash_seed="0", numpy=folder).environment(),
            capture_output=True,
            text=True,
        )
        if features.returncode:
            print(
                f"numpy {folder or 'as installed'}: left out, it cannot be imported: {features.stderr[-200:].strip()}"
            )
            continue
        disabled = tuple(json.loads(features.stdout))
        if not disabled:
            print(f"numpy {folder or 'as installed'}: chooses no vector instructions at run time on this machine")
        found += [
            Surrounding(hash_seed=seed, numpy=folder, disabled=names)
            for seed, names in zip(HASH_SEEDS, ((), disabled), strict=True)
        ]
    return found


def digests(only: str | None) -> dict[str, str]:
    """For each scenario the digest of its log, and SHA-256 of its result.json."""
    import gc

    from shuffle import scenarios

    from isim.cli.main import main as isim

    found = {}
    for subject in scenarios():
        if only not in (None, subject.name):
            continue
        sets = [word for each in subject.sets for word in ("--set", each)]
        if subject.name != _WHOLE:
            sets += ["--details", "never", "--no-replay"]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = isim(["run", str(subject.file), "--json", *sets])
        gc.enable()
        if code:
            raise SystemExit(f"{subject.name}: exit code {code}")
        log = json.loads(printed.getvalue())["digests"]["log"]
        found[subject.name] = f"{log} {hashlib.sha256(printed.getvalue().encode()).hexdigest()}"
    return found


def child(only: str | None, with_numpy: bool) -> int:
    """What a process in some surrounding does."""
    version = "none"
    if with_numpy:
        import numpy

        version = numpy.__version__
        assert (numpy.arange(1000) * 3).sum() == 1_498_500  # vector instructions were at work
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):  # what is said of traces that are not there
        found = digests(only)
    assert with_numpy or "numpy" not in sys.modules, "a run imports numpy"
    print(json.dumps({"numpy": version, "found": found}))
    return 0


def compare(folders: list[str], only: str | None) -> int:
    expected: dict[str, str] = {}
    failed = False
    for surrounding in surroundings(folders):
        command = [sys.executable, __file__, "--child", *(["--only", only] if only else [])]
        command += [] if surrounding.numpy is None else ["--import-numpy"]
        done = subprocess.run(command, env=surrounding.environment(), cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            print(f"{surrounding.said()}: {done.stderr.strip()}")
            return 1
        told = json.loads(done.stdout)
        expected = expected or told["found"]
        wrong = [name for name, digest in told["found"].items() if digest != expected.get(name)]
        verdict = f"other digests of {', '.join(wrong)}" if wrong else "the same digests"
        print(
            f"{count_text(len(told['found']), 'scenario')}, numpy {told['numpy']}, {surrounding.said()}: {verdict}",
            flush=True,
        )
        failed = failed or bool(wrong)
    if not expected:
        print(f"expected --only to name a file of scenarios/, found {only!r}", file=sys.stderr)
        return 2
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="The same digests whatever surrounds a run.")
    parser.add_argument("--numpy", action="append", default=[], metavar="DIR", help="a folder with another numpy")
    parser.add_argument("--only", metavar="NAME", help="this scenario alone, as quickstart.yaml")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--import-numpy", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        return child(asked.only, asked.import_numpy)
    return compare([str(Path(folder).resolve()) for folder in asked.numpy], asked.only)


if __name__ == "__main__":
    sys.exit(main())
