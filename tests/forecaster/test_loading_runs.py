"""A Forecaster of the folder of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tsattn
from tests.forecaster.toys import L, T, frame_of
from tsattn.errors import UserError


def run_of(path: Path, *words: str) -> str:
    """The folder of a run on this file."""
    from tsattn.cli import main

    sizes = [f"--data.context_length={L}", f"--data.prediction_length={T}", "--model.backbone.d_model=16"]
    small = ["--model.backbone.num_heads=2", "--trainer.max_epochs=1", "--trainer.accelerator=cpu"]
    run = str(path.with_suffix(".run"))
    assert main(["fit", "--data=CSVDataModule", f"--data.path={path}", *sizes, *small, *words, f"--run={run}"]) == 0
    assert main(["predict", f"--run={run}"]) == 0
    return run


def test_a_run_of_the_command_line_is_loaded(toy_csv: Path, toy_frame: pd.DataFrame, tmp_path: Path) -> None:
    from tsattn.cli import main

    sizes = ["--data.context_length=48", "--data.prediction_length=12", "--model.backbone.d_model=16"]
    small = ["--model.backbone.num_heads=2", "--trainer.max_epochs=1", "--trainer.accelerator=cpu"]
    run = str(tmp_path / "run")
    assert main(["fit", "--data=CSVDataModule", f"--data.path={toy_csv}", *sizes, *small, f"--run={run}"]) == 0
    assert main(["predict", f"--run={run}"]) == 0
    forecaster = tsattn.load(run)
    written = pd.read_csv(tmp_path / "run" / "forecast.csv")
    forecast = forecaster.predict(toy_frame.reset_index())
    np.testing.assert_allclose(forecast["predictions"], written["predictions"], rtol=1e-5)
    for call in (forecaster.predict, lambda: forecaster.plot(forecast)):
        with pytest.raises(UserError, match="give a frame"):
            call()


def test_a_run_knows_the_columns_that_it_was_told_of(tmp_path: Path) -> None:
    long = frame_of().set_axis(["shop", "hour", "sold"], axis=1).assign(note="text")
    long.to_csv(tmp_path / "long.csv", index=False)
    run = run_of(tmp_path / "long.csv", "--data.id_column=shop", "--data.time_column=hour", "--data.target=sold")
    forecaster = tsattn.load(run)
    forecast = forecaster.predict(long)
    assert forecast.columns[:2].tolist() == ["shop", "hour"]
    np.testing.assert_allclose(forecast["predictions"], pd.read_csv(f"{run}/forecast.csv")["predictions"], rtol=1e-5)
    assert forecaster.arguments["target"] == ("sold",)


def test_a_run_on_some_columns_of_a_wide_file_forecasts_these(toy_frame: pd.DataFrame, tmp_path: Path) -> None:
    wide = toy_frame.assign(note="text", other=1.0).rename_axis("when")
    wide.to_csv(tmp_path / "wide.csv")
    run = run_of(tmp_path / "wide.csv", "--data.time_column=when", "--data.target=[drift, wave]")
    forecast = tsattn.load(run).predict(wide.reset_index())
    assert forecast["unique_id"].unique().tolist() == ["drift", "wave"]
    np.testing.assert_allclose(forecast["predictions"], pd.read_csv(f"{run}/forecast.csv")["predictions"], rtol=1e-5)


def test_a_run_does_not_know_its_rows(toy_csv: Path, toy_frame: pd.DataFrame, tmp_path: Path) -> None:
    forecaster = tsattn.load(run_of(toy_csv))
    frame = toy_frame.reset_index()
    with pytest.warns(UserWarning, match="does not know which rows it was trained on: rows of the frame may be among"):
        scores = forecaster.evaluate(frame)
    assert scores["windows"].eq(600 - L - T + 1).all()
    forecaster.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["forecaster.json", "model.safetensors"]
    loaded = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.predict(frame), forecaster.predict(frame))
    with pytest.raises(UserError, match="give a frame"):
        loaded.predict()
