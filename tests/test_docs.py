"""The documents say what is so: reference pages are those of parser and schema, every command shown there runs."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mutants
import pages
import pytest

from isim.cli.main import main
from isim.model.spec import Dtype
from isim.scenario.errors import ScenarioError
from isim.scenario.json_schema import run_file_schema
from isim.scenario.load import read_scenario
from isim.scenario.schema import MODEL_FIGURES

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
REQUESTS = "requests: 24"


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_the_reference_pages_are_what_parser_and_schema_say() -> None:
    """`make pages` writes them."""
    assert [page.name for page in pages.stale()] == []


def keys(schema: dict[str, Any]) -> Iterator[str]:
    """Every key a run file may have, from its JSON Schema."""
    for key, child in schema.get("properties", {}).items():
        yield key
        yield from keys(child)
    for child in schema.get("anyOf", ()):
        yield from keys(child)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from keys(schema["additionalProperties"])


def test_every_key_of_the_run_file_has_a_row() -> None:
    rows = set(re.findall(r"^\| `([a-z0-9_]+)` \|", text_of("docs/run-file.md"), re.MULTILINE))
    assert len(rows) > 80
    assert set(keys(run_file_schema())) == rows


def test_every_verb_and_option_is_in_its_section() -> None:
    page = text_of("docs/cli.md")
    known = "|".join(sorted(pages.verbs(), key=len, reverse=True))
    sections = dict(
        re.findall(rf"^### `isim ({known})\b[^\n]*`\n(.*?)(?=^### |^<!-- end)", page, re.MULTILINE | re.DOTALL)
    )
    assert sorted(sections) == sorted(pages.verbs())
    for verb, parser in pages.verbs().items():
        offered = set(re.findall(r"(--[a-z-]+)", parser.format_help())) - {"--help"}
        assert set(re.findall(r"^\| `(--[a-z-]+)", sections[verb], re.MULTILINE)) >= offered - {"--set", "--out"}
        assert all(option in sections[verb] for option in offered)
    assert all(f"| `isim {verb}" in page for verb in sections), "each verb is in the overview too"


def test_figures_said_to_be_those_of_a_preset_are_asked_for_without_one() -> None:
    page = text_of("docs/run-file.md")
    said = set(re.findall(r"^\| `(\w+)` \|.*\| that of the named preset \|$", page, re.MULTILINE))
    run_file = text_of("scenarios/quickstart.yaml").replace("gpu: rtx-4090", "gpu: { name: mine, memory: 80 GiB }")
    run_file = run_file.replace("model: llama-3.1-8b", "model: { name: mine, num_hidden_layers: 2 }")
    with pytest.raises(ScenarioError) as raised:
        read_scenario(run_file.encode(), "x.yaml")
    asked = set(re.findall(r"(?:model|hardware\.gpu)\.(\w+): expected the figure", str(raised.value)))
    asked |= {"memory", "num_hidden_layers"}
    assert asked == {"memory", "memory_bandwidth", "dense_flops"} | {
        key for key, field in MODEL_FIGURES.items() if not field.rule
    }
    assert said - {dtype.value for dtype in Dtype} == asked - {"dense_flops"}


@pytest.mark.parametrize("page", PAGES)
def test_links_into_a_page_lead_to_a_heading(page: str) -> None:
    for link in re.findall(r"\]\(([^)#]*#[^)]+)\)", text_of(page)):
        name, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / name) if name else ROOT / page
        headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in [pages.slug(heading) for heading in headings], f"{page}: {link}"


def commands(page: str) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("isim ")]


def test_every_block_that_shows_a_command_is_run() -> None:
    for page in PAGES:
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)
        assert [block for kind, block in blocks if kind != "sh" and re.search("^isim ", block, re.MULTILINE)] == []


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_the_commands_of_a_page_run_one_after_the_other(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they stand, in a fresh folder, but with fewer requests, and a trace of three lines for the real one."""
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    quickstart = tmp_path / "scenarios" / "quickstart.yaml"
    few = quickstart.read_text().replace("requests: 240", REQUESTS)
    assert few.count(REQUESTS) == 1
    quickstart.write_text(few)
    rows = [f"2023-11-16 18:15:0{second}.0,300,4\n" for second in range(3)]
    trace = "".join(["TIMESTAMP,ContextTokens,GeneratedTokens\n", *rows])
    (tmp_path / "scenarios" / "AzureLLMInferenceTrace_code.csv").write_text(trace)
    monkeypatch.chdir(tmp_path)
    for command in commands(page):
        words = shlex.split(command, comments=True)[1:]
        if "scenarios/azure.yaml" in words:
            words += ["--set", "simulation.warmup=none"]
        assert main(words) == 0, f"{command}\n{capsys.readouterr().err}"


def functions_of(module: str) -> set[str]:
    """The functions of a file, and its methods with their class in front."""
    found = set()
    for node in ast.parse(text_of(module)).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{method.name}" for method in node.body if isinstance(method, ast.FunctionDef)}
    return found


def test_every_row_of_a_mutant_is_of_a_function_that_is_there() -> None:
    """What its line is, only `make mutants` can tell."""
    rows = mutants.answers()
    assert len(rows) > 200
    known = {module: functions_of(module) for module in {row.module for row in rows}}
    assert [row.row() for row in rows if row.function not in known[row.module]] == []
