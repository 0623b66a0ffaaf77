"""The README promises nothing that does not run: its Python, its cost table, its results and its files."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tsattn.attention import KINDS, attention_arguments, attention_class
from tsattn.cli import main
from tsattn.cli.parsing import parse_command
from tsattn.cli.session import session
from tsattn.cli.words import prepare
from tsattn.tuning import HeldData, check_search, comparable, read_search

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "forecasting"
README = (ROOT / "README.md").read_text()


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_forecasters_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    date = pd.date_range("2024-01-01", periods=228, freq="D")
    rng = np.random.default_rng(0)
    tables = [
        pd.DataFrame({"shop": name, "date": date, "sales": rng.normal(9, 1, 228), "price": 2.5, "kind": kind})
        for name, kind in (("Harbour", "city"), ("Mill", "village"))
    ]
    table = pd.concat(tables, ignore_index=True)
    sales, plan = table[table["date"] < date[200]], table.loc[table["date"] >= date[200], ["shop", "date", "price"]]
    names: dict[str, Any] = {"sales": sales, "plan": plan}
    for block in blocks()[:2]:
        short = re.sub(r"max_steps=\d+", "max_steps=2", block)
        assert short != block
        exec(short, names)
    assert len(names["forecast"]) == 52
    assert list(names["forecast"].columns) == ["unique_id", "date", "predictions", "0.1", "0.5", "0.9"]
    assert (tmp_path / "co2.png").exists()
    assert len(set(names["scores"]["windows"])) == 1
    pd.testing.assert_frame_equal(names["again"], names["forecast"][:4], rtol=1e-6)
    assert len(names["plans"]) == 2 * 28
    assert len(names["checks"]) == 2 * 28 * 3


def test_the_attentions_run() -> None:
    names = {"x": torch.randn(2, 336, 512), "prompt": torch.randn(1, 9, 512), "next_token": torch.randn(1, 1, 512)}
    shapes = []
    for block in blocks()[2:4]:
        exec(block, names)
        shapes.append(tuple(names["y"].shape))
    assert shapes == [(2, 336, 512), (1, 1, 512)]


def test_the_search_file_is_one_that_tune_takes(tmp_path: Path) -> None:
    (search,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "search.yaml").write_text(search)
    rows = "date,a\n" + "".join(
        f"2020-01-{day + 1:02d} {hour:02d}:00,{hour}\n" for day in range(31) for hour in range(24)
    )
    (tmp_path / "toy.csv").write_text(rows)
    data = ["--data=CSVDataModule", f"--data.path={tmp_path / 'toy.csv'}", "--data.context_length=24"]
    words = [*data, "--data.prediction_length=4", "--model.backbone.d_model=64", "--trainer.accelerator=cpu"]
    with session():
        experiment, _ = parse_command("fit", prepare(["fit", *words, "--trainer.max_steps=1"])[1:])
        check_search(read_search(tmp_path / "search.yaml"), comparable(experiment).to_dict(), HeldData().check)


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
        assert set(named) <= set(attention_arguments(attention_class(kind))), kind


def test_every_file_it_shows_is_there() -> None:
    for path in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / path).exists(), path
    assert "@@" not in README
