"""The README promises nothing that does not run: its Python, its cost table, its results and its files."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.docs.blocks import blocks, shortened
from tests.leaderboard.invented import records
from tsattn.attention import KINDS, attention_arguments, attention_class
from tsattn.checksums import sha256
from tsattn.cli import main
from tsattn.cli.parsing import parse_command
from tsattn.cli.session import session
from tsattn.cli.words import prepare
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.report.readme_part import BEGIN, END, readme_part, with_part
from tsattn.leaderboard.standings import Standings
from tsattn.leaderboard.suite_file import read_suite
from tsattn.ops.native.library import set_in_use
from tsattn.pretrained.bolt_file import find_weights, read_model
from tsattn.tuning import HeldData, check_search, comparable, read_search

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "forecasting"
README = (ROOT / "README.md").read_text()


def section(title: str) -> str:
    """What stands under a heading."""
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def code(title: str, language: str = "python") -> list[str]:
    """The code under a heading."""
    return [block.code for block in blocks(section(title)) if block.language == language]


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
    for block in code("A frame in, a forecast out"):
        short = shortened(block)
        assert short != block or "Forecaster" not in block
        exec(short, names)
    assert set(names["found"]["kind"]) == {"missing"}
    assert names["steps"].index.tolist() == [*range(1, 53)]
    assert (tmp_path / "co2_residuals.png").exists()
    assert len(names["forecast"]) == 52
    assert list(names["forecast"].columns) == ["unique_id", "date", "predictions", "0.1", "0.5", "0.9"]
    assert (tmp_path / "co2.png").exists()
    assert len(set(names["scores"]["windows"])) == 1
    pd.testing.assert_frame_equal(names["again"], names["forecast"][:4], rtol=1e-6)
    assert len(names["plans"]) == 2 * 28
    assert len(names["checks"]) == 2 * 28 * 3
    assert list(names["paths"].columns) == ["shop", "date", "sample", "y"]
    assert len(names["totals"]) == 2 * 100
    assert names["paths"]["y"].min() > 0
    assert names["what_if"].groupby("scenario").size().to_dict() == {"as planned": 14, "dearer": 14}
    assert {"0.025", "0.1", "0.9", "0.975"} <= set(names["what_if"].columns)


def test_the_run_from_python_runs() -> None:
    (block,) = code("Every day")
    short = shortened(block)
    assert short != block
    names: dict[str, Any] = {}
    exec(short, names)
    assert names["result"].scores.index[0] == "transformer_swa"
    assert len(names["forecast"]) == 4


def test_the_attentions_run() -> None:
    names = {"x": torch.randn(2, 336, 512), "prompt": torch.randn(1, 9, 512), "next_token": torch.randn(1, 1, 512)}
    shapes = []
    for block in code("Switch attention"):
        exec(block, names)
        shapes.append(tuple(names["y"].shape))
    assert shapes == [(2, 336, 512), (1, 1, 512)]


def test_the_errors_of_a_run_are_read(toy_run: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = code("Scores")
    names: dict[str, Any] = {}
    exec(block.replace("runs/ETTh1/transformer_mlr/TIME", str(toy_run[1])), names)
    assert {"unique_id", "origin", "channel", "count", "squared_scaled"} <= set(names["frame"].columns)
    assert np.isfinite([float(score) for score in capsys.readouterr().out.split()]).all()


def test_the_suite_is_one_that_benchmark_takes(tmp_path: Path) -> None:
    (suite,) = code("Leaderboard", "yaml")
    (tmp_path / "suite.yaml").write_text(suite)
    read = read_suite(tmp_path / "suite.yaml")
    assert list(read.predictors) == ["ridge", "patchtst", "patchtst+ridge"]
    assert read.selection is not None


def test_the_search_file_is_one_that_tune_takes(toy_run: tuple[Path, Path], tmp_path: Path) -> None:
    (search,) = code("Tune", "yaml")
    (tmp_path / "search.yaml").write_text(search)
    data = [
        "--data=CSVDataModule",
        f"--data.path={toy_run[0]}",
        "--data.context_length=24",
        "--data.prediction_length=4",
    ]
    words = [*data, "--trainer.accelerator=cpu", "--trainer.max_steps=1"]
    with session():
        experiment, _ = parse_command("fit", prepare(["fit", *words])[1:])
        check_search(read_search(tmp_path / "search.yaml"), comparable(experiment).to_dict(), HeldData().check)


def test_the_pretrained_model_forecasts_as_it_says() -> None:
    names: dict[str, Any] = {}
    for block in code("A forecast without training"):
        exec(block, names)
    assert len(names["forecast"]) == 24
    assert np.isfinite(names["forecast"][["predictions", "0.1", "0.5", "0.9"]].to_numpy()).all()
    record = json.loads((ROOT / "benchmarks" / "results" / "chronos" / "chronos_tiny.json").read_text())
    ships = next(name for name, digest in record["weights"].items() if digest == record["shipped"])
    text = " ".join(section("A forecast without training").split())
    for kind, said in ((ships, "its MASE is {} on ETTh1 and {} on"), ("seasonal_naive", "seasonal naive {} and {};")):
        mase = {row["data"]: row["mase"] for row in record["rows"] if row["model"] == kind}
        assert said.format(*(f"{mase[name]:.3f}" for name in ("ETTh1", "vic_electricity"))) in text
    assert record["shipped"] == sha256(find_weights("chronos-tiny"))
    trained_on = read_model(find_weights("chronos-tiny")).trained_on
    assert trained_on == ("weather", "exchange_rate", "national_illness", "co2")


def test_the_cost_table_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    command = re.search(r"python -m tsattn (cost .*?)\n```", README, re.DOTALL)
    assert command
    assert main(shlex.split(command[1].replace("\\\n", " "))) == 0
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.strip().splitlines())
    if set_in_use() in ("avx512", "avx512_bf16"):
        assert printed in README
    # what is executed depends on the width of vectors, and on whether there is a compiler
    executed = r"(?<=flops executed on a CPU, with values) +[\d,]+"
    assert re.sub(executed, "", printed) in re.sub(executed, "", README)


def test_the_results_are_those_that_were_committed() -> None:
    rows = re.findall(r"^\| `(\w+)\.yaml` \| (.*) \| (\d+) \|$", README, re.MULTILINE)
    assert {name for name, *_ in rows} == {path.stem for path in RESULTS.glob("*.json")}
    for name, cells, windows in rows:
        record = json.loads((RESULTS / f"{name}.json").read_text())
        scores = record["metrics"]["test"].values()
        assert cells == " | ".join(f"{score['mse']:.3f} / {score['mae']:.3f}" for score in scores)
        assert int(windows) == record["metrics"]["test_windows"]
        assert record["versions"]["command"][-1] == f"{name}.yaml"


def test_the_leaderboard_is_that_of_the_records_that_were_committed() -> None:
    folders = sorted(
        path.parent for path in (ROOT / "benchmarks" / "results" / "leaderboard").glob("*/records.parquet")
    )
    if folders:
        part = readme_part(Analysis(Standings(Records.read(*folders))))
        assert with_part(README, part) == README, "python -m tsattn report RECORDS --readme README.md"
    else:
        assert f"{BEGIN}{END}" in README, "there are no records that a table could be of"


def test_records_are_compared_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    board = records(datasets=("ETTh1",), horizons=(24,), seeds=(1, 2), windows=300)
    board.write(tmp_path / "benchmarks" / "results" / "leaderboard" / "ett")
    (block,) = code("Report")
    names: dict[str, Any] = {}
    exec(block, names)
    assert {"difference", "low", "high", "p", "holm", "detectable", "verdict"} <= set(names["differences"].columns)


def test_the_speed_is_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    parts: Any = importlib.import_module("attention_speed.readme")
    results = importlib.import_module("attention_speed.results").Results(parts.FOLDER, parts.shown_machine(README))
    assert parts.with_section(README, results) == README, "python benchmarks/attention.py --readme"


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
