"""The README promises nothing that does not run: its Python, its cost table, its results and its files."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import torch

from tsattn.attention import KINDS, attention_arguments
from tsattn.cli import main

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "forecasting"
README = (ROOT / "README.md").read_text()


def test_the_python_runs() -> None:
    names = {"x": torch.randn(2, 336, 512), "prompt": torch.randn(1, 9, 512), "next_token": torch.randn(1, 1, 512)}
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    shapes = []
    for block in blocks:
        exec(block, names)
        shapes.append(tuple(names["y"].shape))
    assert shapes == [(2, 336, 512), (1, 1, 512)]


def test_the_cost_table_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    command = re.search(r"python -m tsattn (cost .*?)\n```", README, re.DOTALL)
    assert command
    assert main(shlex.split(command[1].replace("\\\n", " "))) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.strip().splitlines()]
    assert "\n".join(printed) in README


def test_the_results_are_those_that_were_committed() -> None:
    rows = re.findall(r"^\| `(\w+)\.yaml` \| (.*) \| (\d+) \|$", README, re.MULTILINE)
    assert {name for name, *_ in rows} == {path.stem for path in RESULTS.glob("*.json")}
    for name, cells, windows in rows:
        record = json.loads((RESULTS / f"{name}.json").read_text())
        scores = record["metrics"]["test"].values()
        assert cells == " | ".join(f"{score['mse']:.3f} / {score['mae']:.3f}" for score in scores)
        assert int(windows) == record["metrics"]["test_windows"]
        assert record["versions"]["command"][-1] == f"{name}.yaml"


def test_the_table_of_kinds_is_complete() -> None:
    table = README.split("| kind | bias |")[1].split("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \|[^\n]*?\|([^|\n]*)\|[^|\n]*\|[^|\n]*\|$", table, re.MULTILINE))
    assert list(rows) == list(KINDS)
    for kind, arguments in rows.items():
        named = re.findall(r"`(\w+)`", arguments)
        assert set(named) <= set(attention_arguments(KINDS[kind])), kind


def test_every_file_it_shows_is_there() -> None:
    for path in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / path).exists(), path
    assert "@@" not in README
