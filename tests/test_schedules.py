"""Every covered schedule recorded from the real scheduler, played by the policy and by the engine actor."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"
CASES = Path(__file__).parents[1].parent / "shared" / "reference" / "vllm-schedules"


@pytest.mark.skipif(not CASES.is_dir(), reason="the recorded schedules (../shared) are not here")
def test_policy_and_actor_reproduce_the_recorded_schedules(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(TOOLS), *sys.path])
    import schedules

    assert schedules.main([str(CASES)]) == 0, capsys.readouterr().out
    agree, differ = capsys.readouterr().out.splitlines()[-1].split(", ")[:2]
    assert differ == "differ 0"
    assert int(agree.removeprefix("agree ")) > 300


def test_a_folder_without_cases_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(TOOLS), *sys.path])
    import schedules

    assert schedules.main([str(tmp_path)]) == 2
