"""A Forecaster of the folder of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsattn
from tests.forecaster.toys import SMALL, L, T, frame_of
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster


def run_of(path: Path, *words: str) -> str:
    """The folder of a run on this file."""
    sizes = [f"--data.context_length={L}", f"--data.prediction_length={T}", "--model.backbone.d_model=16"]
    small = ["--model.backbone.num_heads=2", "--trainer.max_epochs=1", "--trainer.accelerator=cpu"]
    run = str(path.with_suffix(".run"))
    assert main(["fit", "--data=CSVDataModule", f"--data.path={path}", *sizes, *small, *words, f"--run={run}"]) == 0
    assert main(["predict", f"--run={run}"]) == 0
    return run


def test_a_run_does_not_know_its_rows(toy_csv: Path, toy_frame: pd.DataFrame, tmp_path: Path) -> None:
    forecaster = tsattn.load(run_of(toy_csv))
    frame = toy_frame.reset_index()
    with pytest.warns(UserWarning, match="does not know which rows it was trained on: rows of the frame may be among"):
        scores = forecaster.evaluate(frame)
    assert scores["windows"].eq(600 - L - T + 1).all()
    forecaster.save(tmp_path / "model")
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert names == ["SHA256SUMS", "forecaster.json", "model.safetensors"]
    loaded = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.predict(frame), forecaster.predict(frame))
    with pytest.raises(UserError, match="give a frame"):
        loaded.predict()


# of a run in Python, and of a Forecaster


def written(run: Path) -> pd.DataFrame:
    assert main(["predict", f"--run={run}", "--overwrite"]) == 0
    return pd.read_csv(run / "forecast.csv")


@pytest.mark.parametrize(
    ("backbone", "refit"),
    [(SMALL["backbone"], False), (SMALL["backbone"], True), ("ridge", True), ("persistence", False)],
    ids=["network", "refitted network", "refitted ridge", "naive"],
)
def test_the_result_of_a_run_forecasts_what_its_folder_does(backbone: Any, refit: bool, tmp_path: Path) -> None:
    frame = frame_of()
    frame.to_csv(tmp_path / "mine.csv", index=False)
    sizes = {"context_length": L, "prediction_length": T}
    content = {
        "data": {"class_path": "CSVDataModule", "init_args": {"path": str(tmp_path / "mine.csv"), **sizes}},
        "model": {"backbone": backbone, "learning_rate": 0.004},
        "trainer": {"max_steps": 4, "accelerator": "cpu", "gradient_clip_val": 0.5},
    }
    result = tsattn.run(content, tmp_path / "run", refit=refit)
    expected = written(tmp_path / "run")["predictions"]
    forecaster = Forecaster.of(result)
    np.testing.assert_allclose(forecaster.predict()["predictions"], expected, rtol=1e-5)
    loaded = tsattn.load(tmp_path / "run")
    for other in (forecaster, loaded):
        np.testing.assert_allclose(other.predict(frame)["predictions"], expected, rtol=1e-5)
        # fitted anew, it is trained as the run was
        assert other.arguments["learning_rate"] == 0.004
        assert other.arguments["max_steps"] == 4
        assert other.experiment.trainer["gradient_clip_val"] == 0.5
    scores = forecaster.evaluate(pd.concat([frame, frame_of(more=20)])) if refit else forecaster.evaluate(frame)
    if not refit:
        name = scores.index[0]
        assert scores["windows"].iloc[0] == result.scores["windows"].iloc[0]
        expected_mae = result.scores.loc[name, "mae_original_by_channel"]
        assert scores.loc[name, "MAE"] == pytest.approx(expected_mae, rel=1e-5)
    else:
        assert scores["windows"].eq(4 * (20 - T + 1)).all()


@pytest.fixture
def own_run(tmp_path: Path) -> tuple[Forecaster, Path]:
    """A Forecaster that was fitted into a folder, to a frame with names of its own."""
    names = {"id_column": "shop", "time_column": "hour", "target": "sold", "quantiles": (0.25, 0.5, 0.75)}
    forecaster = Forecaster(**{**SMALL, "max_steps": 4}, **names)
    return forecaster.fit(named(), folder=tmp_path / "run", refit=True), tmp_path / "run"


def named() -> pd.DataFrame:
    return frame_of().set_axis(["shop", "hour", "sold"], axis=1)


def test_a_folder_of_a_forecaster_is_loaded_with_its_columns(own_run: tuple[Forecaster, Path]) -> None:
    forecaster, run = own_run
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt", "refit.ckpt"}
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["refit"]
    loaded = tsattn.load(run)
    pd.testing.assert_frame_equal(loaded.predict(named()), forecaster.predict(), rtol=1e-5)
    same = ("id_column", "time_column", "quantiles", "max_steps", "scaling", "seed")
    assert {name: loaded.arguments[name] for name in same} == {name: forecaster.arguments[name] for name in same}
    assert loaded.arguments["data"]["eval_batch_size"] == forecaster.arguments["data"]["eval_batch_size"]


def test_a_folder_of_a_forecaster_forecasts_from_files(own_run: tuple[Forecaster, Path], tmp_path: Path) -> None:
    forecaster, run = own_run
    named().to_csv(tmp_path / "mine.csv", index=False)
    words = [f"--input={tmp_path / 'mine.csv'}", f"--output={tmp_path / 'out.csv'}"]
    assert main(["predict", f"--run={run}", *words]) == 0
    forecast = pd.read_csv(tmp_path / "out.csv", parse_dates=["hour"])
    pd.testing.assert_frame_equal(forecast, forecaster.predict(), rtol=1e-5, check_dtype=False)


@pytest.mark.parametrize("words", [["test"], ["validate"], ["predict"], ["fit", "--trainer.max_steps=9"]])
def test_what_needs_the_series_says_in_a_sentence_that_they_are_not_there(
    words: list[str], own_run: tuple[Forecaster, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, run = own_run
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main([*words, f"--{'resume' if words[0] == 'fit' else 'run'}={run}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the series of this run were given in Python and are not in its folder: ")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_folder_that_is_there_is_refused_before_anything_is_trained(own_run: tuple[Forecaster, Path]) -> None:
    forecaster, run = own_run
    with pytest.raises(UserError, match="exists already; nothing is overwritten"):
        forecaster.fit(named(), folder=run)
