"""What people expect of a forecaster, on real files: weekly influenza, atmospheric CO2, and electricity."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from lightning.pytorch.callbacks import Callback
from sklearn.base import clone

from tsattn import CO2DataModule, CSVDataModule, Forecaster, load
from tsattn.cli import main
from tsattn.data import FrameDataModule

TINY: dict[str, Any] = {"kind": "patchtst", "d_model": 8, "num_layers": 1, "num_heads": 2, "patch_len": 4, "stride": 4}
SIZES: dict[str, Any] = {"context_length": 36, "prediction_length": 12}
STEPS: dict[str, Any] = {"max_steps": 10, "accelerator": "cpu"}


@pytest.fixture(scope="module")
def co2() -> pd.DataFrame:
    return CO2DataModule().load_frame()


@pytest.fixture(scope="module")
def illness() -> pd.DataFrame:
    """Long: a row a week and column; weeks are those of the file."""
    table = pd.read_csv(Path(os.environ["TSATTN_DATA"]) / "national_illness.csv", parse_dates=["date"])
    return table.melt("date", var_name="unique_id", value_name="y").rename(columns={"date": "ds"})


@pytest.mark.real_data
@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "folder"])
def test_a_converted_file_is_fitted_scored_and_forecast_as_it_is(
    illness: pd.DataFrame, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    some = illness[illness["unique_id"].isin(["OT", "ILITOTAL"])].sample(frac=1, random_state=0)
    some["news"] = np.where(some["ds"].dt.month.isin([12, 1, 2]), "winter", "other")
    path = tmp_path / f"ili.{kind}"
    if kind == "csv":
        some.to_csv(path, index=False)
    elif kind == "parquet":
        some.to_parquet(path, index=False)
    elif kind == "arrow":
        some.to_feather(path)
    else:
        path.mkdir()
        for number, part in enumerate(np.array_split(np.arange(len(some)), 3)):
            some.iloc[part].to_parquet(path / f"{number}.parquet", index=False)
    words = ["datasets", "convert", str(path), str(tmp_path / "out"), "--past_covariates", "news"]
    assert main(words) == 0
    assert "1932 rows of 2 series, frequency W-TUE" in capsys.readouterr().out
    options = {**SIZES, **STEPS, "quantiles": [0.1, 0.5, 0.9]}
    ours = Forecaster(TINY, **options).fit(tmp_path / "out")
    theirs = Forecaster(TINY, **options, past_covariates=["news"]).fit(some)
    pd.testing.assert_frame_equal(ours.predict(), theirs.predict(), rtol=1e-4)
    folds = [one.cross_validate(table, windows=1) for one, table in ((ours, tmp_path / "out"), (theirs, some))]
    pd.testing.assert_frame_equal(*folds, rtol=1e-4)


@pytest.mark.real_data
def test_errors_by_series_origin_and_step_make_up_those_of_all(illness: pd.DataFrame) -> None:
    last = illness["ds"].max() - pd.Timedelta(60 * 7, "D")
    forecaster = Forecaster("ridge", **SIZES).fit(illness[illness["ds"] <= last])
    later = illness[illness["ds"] > last]
    whole = forecaster.evaluate(later)
    for by, rows in (("series", 7), ("origin", 49), ("step", 12)):
        parts = forecaster.evaluate(later, by=by)
        assert [*parts.columns] == [*whole.columns]
        for model in ("ridge", "persistence"):
            assert len(parts.loc[model]) == rows, by
            for score in ("MSE", "MAE"):
                np.testing.assert_allclose(parts.loc[model, score].mean(), whole.loc[model, score], rtol=1e-5)


@pytest.mark.real_data
def test_the_command_line_scores_by_series_and_looks_at_attention(tmp_path: Path) -> None:
    path = Path(os.environ["TSATTN_DATA"]) / "national_illness.csv"
    run = str(tmp_path / "run")
    words = ["--data=CSVDataModule", f"--data.path={path}", "--data.context_length=36", "--data.prediction_length=12"]
    network = ["--model.backbone.kind=patchtst", "--model.backbone.patch_len=4", "--model.backbone.stride=4"]
    network += ["--model.backbone.d_model=8", "--model.backbone.num_heads=2", "--model.backbone.num_layers=1"]
    trainer = ["--trainer.max_steps=5", "--trainer.accelerator=cpu", "--model.patience=2", "--trainer.logger=csv"]
    assert main(["fit", *words, *network, *trainer, "--attention=mlr", "--run", run]) == 0
    assert main(["test", "--run", run, "--by", "series", "--output", str(tmp_path / "by.csv")]) == 0
    by = pd.read_csv(tmp_path / "by.csv")
    assert {"OT", "ILITOTAL"} <= {*by.astype(str).to_numpy().ravel()}
    assert main(["attention", "--run", run, "--output", str(tmp_path / "maps.png")]) == 0
    assert (tmp_path / "maps.png").stat().st_size > 10_000


@pytest.mark.parametrize("transform", ["log", "log1p", "box_cox"])
def test_transforms_of_co2_come_back_exactly(co2: pd.DataFrame, transform: str) -> None:
    forecast, plain = (
        Forecaster("ridge", **SIZES, transform=chosen).fit(co2).predict()["predictions"] for chosen in (transform, None)
    )
    assert (forecast / plain).between(0.999, 1.001).all()
    levels = Forecaster(TINY, **SIZES, **STEPS, transform=transform, quantiles=[0.1, 0.5, 0.9]).fit(co2).predict()
    assert (levels[["0.1", "0.5", "0.9"]].diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
    assert levels["predictions"].between(300, 420).all()


@pytest.mark.parametrize("distribution", ["normal", "student_t"])
def test_distributions_of_co2_hold_their_shares(co2: pd.DataFrame, distribution: str) -> None:
    forecaster = Forecaster(TINY, **SIZES, max_steps=150, accelerator="cpu", distribution=distribution, seed=3)
    forecaster.fit(co2.loc[:"1995"])
    forecast = forecaster.predict()
    assert forecast["predictions"].between(340, 380).all()
    scores = forecaster.evaluate(co2.loc["1996":], step=13)
    assert 0.4 < scores["cover 80"].iloc[0] <= 1


def test_indexes_frames_and_parameters_of_co2(co2: pd.DataFrame, tmp_path: Path) -> None:
    expected = Forecaster("ridge", **SIZES).fit(co2).predict()
    periods = Forecaster("ridge", **SIZES).fit(co2.to_period("W-SAT")).predict()
    np.testing.assert_allclose(periods["predictions"], expected["predictions"])
    steps = Forecaster("ridge", **SIZES).fit(co2.reset_index(drop=True)).predict()
    np.testing.assert_allclose(steps["predictions"], expected["predictions"])
    co2.rename_axis("ds").reset_index().to_parquet(tmp_path / "co2.parquet", index=False)
    lazy = clone(Forecaster("ridge", **SIZES)).fit(pl.scan_parquet(tmp_path / "co2.parquet")).predict()
    np.testing.assert_allclose(lazy["predictions"].to_numpy(), expected["predictions"])


def test_weights_early_stops_callbacks_and_a_warm_start_on_co2(
    co2: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the logger writes

    class Count(Callback):
        steps = 0

        def on_train_batch_end(self, *_: Any) -> None:
            self.steps += 1

    counted = Count()
    weighted = co2.assign(w=np.where(co2.index < "1970", 0.0, 1.0))
    options = {
        **SIZES,
        "max_steps": 60,
        "accelerator": "cpu",
        "trainer": {"val_check_interval": 5},
        "patience": 1,
        "min_delta": 10.0,
    }
    forecaster = Forecaster(
        TINY, **options, weight_column="w", callbacks=[counted], checkpoints=tmp_path / "kept", logger="csv"
    ).fit(weighted)
    assert 0 < counted.steps < 60, "it stops where nothing becomes better by 10"
    assert [*(tmp_path / "kept").rglob("*.ckpt")]
    before = forecaster.predict()["predictions"]
    forecaster.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_allclose(again.predict()["predictions"], before, rtol=1e-6)
    again.fine_tune(weighted, max_steps=5)
    assert not np.allclose(again.predict()["predictions"], before, rtol=1e-7)


def test_co2_in_another_way_of_writing_and_as_a_frame(co2: pd.DataFrame, tmp_path: Path) -> None:
    table = co2.rename_axis("when").reset_index()
    table.assign(when=table["when"].dt.strftime("%d/%m/%Y")).to_csv(
        tmp_path / "co2.txt", index=False, sep=";", decimal=",", encoding="latin-1"
    )
    words = {"separator": ";", "decimal": ",", "encoding": "latin-1", "date_format": "%d/%m/%Y", "format": "csv"}
    file = CSVDataModule(str(tmp_path / "co2.txt"), **SIZES, time_column="when", **words)
    frame = FrameDataModule(co2, **SIZES)
    for data in (file, frame):
        data.setup("fit")
    assert file.panel is not None
    assert frame.panel is not None
    np.testing.assert_allclose(file.panel.values, frame.panel.values, rtol=1e-12)
    assert (np.asarray(file.panel.time) == np.asarray(frame.panel.time)).all()


def test_co2_goes_on(co2: pd.DataFrame) -> None:
    parts = []
    for rows in (co2.loc[:"1990"], co2.loc["1991":], co2):
        data = FrameDataModule(rows, **SIZES)
        data.setup("fit")
        assert data.panel is not None
        parts.append(data.panel)
    before, after, whole = parts
    joined = before.append(after)
    np.testing.assert_array_equal(joined.values, whole.values)
    assert joined.time.equals(whole.time)
