"""Many series in one file, through the command line: what works, and what is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.toy_run import refusal
from tests.data.many_series import long_frame
from tsattn.cli import main

TINY = [
    "--data=CSVDataModule",
    "--data.context_length=12",
    "--data.prediction_length=4",
    "--model.backbone.d_model=8",
    "--model.backbone.num_heads=2",
    "--trainer.accelerator=cpu",
    "--trainer.max_steps=2",
    "--trainer.val_check_interval=2",
]
COVARIATES = ["--data.past_covariates=[rain]", "--data.future_covariates=[price]", "--data.static=[kind, town]"]
LENGTHS = {"b": 60, "a": 45, "c": 9, "d": 100}


def fit(path: Path, run: Path, *more: str) -> int:
    return main(["fit", *TINY, f"--data.path={path}", f"--run={run}", *more])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A long file with covariates of all kinds, known for four steps ahead, and a run on it."""
    folder = tmp_path_factory.mktemp("long")
    path = folder / "shops.csv"
    long_frame(LENGTHS, ahead=4).to_csv(path, index=False)
    assert fit(path, folder / "run", *COVARIATES) == 0
    return path, folder / "run"


def test_a_long_file_with_covariates_is_fitted_tested_and_forecast(
    trained: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = trained
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["data"] == "shops"
    # of b, a and d: the part after 80 percent; c is too short for a horizon
    assert metrics["test_windows"] == (12 - 3) + (10 - 3) + (20 - 3)
    assert {"patchtst_standard", "persistence"} < set(metrics["test"])
    assert main(["test", "--run", str(run)]) == 0
    assert "33 test windows, 4 series" in capsys.readouterr().out
    assert main(["predict", "--run", str(run), "--output", str(tmp_path / "own.csv")]) == 0
    frame = pd.read_csv(tmp_path / "own.csv", parse_dates=["ds"])
    assert list(frame.columns) == ["unique_id", "ds", "predictions"]
    assert frame.unique_id.tolist() == [name for name in sorted(LENGTHS) for _ in range(4)]
    ahead = pd.read_csv(path, parse_dates=["ds"])
    ahead = ahead[ahead.y.isna()]
    assert frame.ds.tolist() == ahead.sort_values(["unique_id", "ds"]).ds.tolist()
    assert np.isfinite(frame.predictions).all()


def test_a_run_remembers_how_its_file_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = long_frame(LENGTHS)[["unique_id", "ds", "y"]]
    paths = [tmp_path / "mine.csv", tmp_path / "new.csv"]
    for path, rows in zip(paths, (frame, frame[frame.unique_id != "c"]), strict=True):
        text = rows.assign(ds=rows.ds.dt.strftime("%d/%m/%y"))
        text.to_csv(path, sep=";", decimal=",", encoding="latin-1", index=False)
    run = tmp_path / "run"
    assert "separates its cells with ';', not with ','; give that as separator" in refusal(
        ["fit", *TINY, f"--data.path={paths[0]}", f"--run={run}"], capsys
    )
    written_so = ["--data.separator=;", "--data.decimal=,", "--data.encoding=latin-1", "--data.date_format=%d/%m/%y"]
    assert fit(paths[0], run, *written_so) == 0
    for words in ([], ["--input", str(paths[1])]):
        assert main(["predict", "--run", str(run), *words, "--output", str(tmp_path / "out.csv"), "--overwrite"]) == 0
        out = pd.read_csv(tmp_path / "out.csv", parse_dates=["ds"])
        last = frame.groupby("unique_id").ds.max()
        assert (out.groupby("unique_id").ds.min() == last[out.unique_id.unique()] + pd.Timedelta(1, "D")).all()
