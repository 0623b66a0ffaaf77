"""A run remembers how its file is written; another way is named."""

from __future__ import annotations

from pathlib import Path

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
LENGTHS = {"b": 60, "a": 45, "c": 9, "d": 100}


def fit(path: Path, run: Path, *more: str) -> int:
    return main(["fit", *TINY, f"--data.path={path}", f"--run={run}", *more])


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
