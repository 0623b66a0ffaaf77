"""Windows, scales, splits and forecasts of a mapped table are those of the same table in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch import Trainer

from tests.data.mapped.tables_to_map import (
    LONG,
    SIZES,
    assert_same_batches,
    builds,
    in_memory,
    long_frame,
    mapped,
    saved,
    wide_frame,
)
from tsattn.data import FrameDataModule, MappedDataModule
from tsattn.forecaster import future_frame
from tsattn.training import ForecastingModule

SPLITS: dict[str, dict[str, Any]] = {
    "default": {},
    "fractions": {"train_fraction": 0.5, "val_fraction": 0.2},
    "rows": {"val_rows": 20, "test_rows": 30},
    "dates": {"val_from": "2020-04-03 07:00", "test_from": "2020-04-05"},
}


# each pair of choices once
@pytest.mark.parametrize(
    ("split", "is_wide", "missing", "scaling"),
    [
        ("default", False, True, "series"),
        ("default", True, False, "global"),
        ("fractions", False, False, "global"),
        ("fractions", True, True, "series"),
        ("rows", False, True, "global"),
        ("rows", True, False, "series"),
        ("dates", False, False, "series"),
        ("dates", True, True, "global"),
    ],
)
def test_every_batch_is_that_of_a_frame(tmp_path: Path, split: str, is_wide: bool, missing: bool, scaling: str) -> None:
    frame = wide_frame(missing=missing) if is_wide else long_frame(missing=missing)
    options = {**(SIZES if is_wide else LONG), "scaling": scaling, **SPLITS[split]}
    theirs = in_memory(frame, **options)
    ours = mapped(saved(frame, tmp_path / "frame.parquet"), **options)
    assert (ours.series.observed is None) == (not missing)
    assert ours.splits == theirs.splits
    assert ours.task is not None
    assert theirs.task is not None
    for name in ("channels", "frequency", "season_length"):
        assert getattr(ours.task, name) == getattr(theirs.task, name), name
    for name in ("ids", "scaling"):
        assert getattr(ours.scaler, name) == getattr(theirs.scaler, name), name
    for name in ("mean", "scale", "series_mean", "series_scale"):
        np.testing.assert_allclose(getattr(ours.scaler, name), getattr(theirs.scaler, name), rtol=1e-12)
    for part in ("train", "val", "test"):
        assert_same_batches(ours.eval_dataloader(part), theirs.eval_dataloader(part), atol=1e-6)
    assert_same_batches(ours.predict_dataloader(), theirs.predict_dataloader(), atol=1e-6)
    # with the same scale they are the same to the last bit
    obeying = MappedDataModule(str(tmp_path / "frame.parquet"), **options)
    obeying.task, obeying.scaler = theirs.task, theirs.scaler
    obeying.setup("test")
    assert obeying.task is theirs.task
    assert obeying.scaler is theirs.scaler
    for part in ("train", "val", "test"):
        assert_same_batches(obeying.eval_dataloader(part), theirs.eval_dataloader(part), atol=0)


def test_time_zone_and_split_by_date_across_a_change_of_clocks(tmp_path: Path) -> None:
    frame = long_frame(missing=False, tz="Europe/Berlin")  # clocks changed on 2020-03-29
    options = {**LONG, "val_from": "2020-03-30 12:00", "test_from": "2020-04-02"}
    ours = mapped(saved(frame, tmp_path / "a.parquet"), **options)
    theirs = in_memory(frame, **options)
    assert ours.splits == theirs.splits
    assert_same_batches(ours.eval_dataloader("test"), theirs.eval_dataloader("test"), atol=1e-6)
    assert ours.panel is not None
    assert theirs.panel is not None
    for number in range(4):
        assert ours.panel.future_time(number, 6).equals(theirs.panel.future_time(number, 6))


def test_trains_and_forecasts_as_from_a_frame(path: Path) -> None:
    frame = long_frame(missing=True)
    forecasts = []
    for data in (MappedDataModule(str(path), **LONG), FrameDataModule(frame, **LONG)):
        torch.manual_seed(0)
        model = ForecastingModule({"kind": "patchtst", "d_model": 8, "num_layers": 1, "num_heads": 2})
        trainer = Trainer(
            max_steps=3,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, datamodule=data)
        predicted: Any = trainer.predict(model, data)
        assert model.task is not None
        assert data.panel is not None
        forecasts.append(future_frame(predicted, model.task, model.output, data.panel))
    pd.testing.assert_frame_equal(forecasts[0], forecasts[1], rtol=1e-4, check_dtype=False)


def test_scale_of_a_trained_model_is_obeyed(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame(missing=True)
    frame["y"] *= 3
    theirs = in_memory(frame[frame["unique_id"] != "s3"], **LONG)  # one series is new to the model
    fitted = mapped(path, **LONG)
    data = MappedDataModule(str(path), **LONG)
    data.task, data.scaler = theirs.task, theirs.scaler
    data.setup("test")
    expected = FrameDataModule(long_frame(missing=True), **LONG)
    expected.task, expected.scaler = theirs.task, theirs.scaler
    expected.setup("test")
    torch.testing.assert_close(data.series.values, expected.series.values, rtol=0, atol=1e-6)
    assert torch.equal(data.series.values[:700], expected.series.values[:700])
    again = mapped(path, **LONG)
    assert torch.equal(again.series.values, fitted.series.values)
    assert builds(caplog) == [
        "there is none",
        "it has the scale of another model",
        "it has the scale of a trained model",
    ]


def test_panel_is_the_last_row_of_each_series(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = mapped(path, **LONG)
    last = long_frame(missing=True).groupby("unique_id").tail(1)
    assert data.panel is not None
    np.testing.assert_allclose(data.panel.values, last[["y", "z"]], rtol=1e-5)
    np.testing.assert_array_equal(data.panel.time, last["ds"])
    caplog.clear()
    assert data.predict_dataloader()
    assert "fewer rows than context_length" not in caplog.text  # than the series have, not the panel


def test_forecasts_from_another_file(path: Path, tmp_path: Path) -> None:
    trained = mapped(path, **LONG)
    frame = long_frame(missing=False)
    data = MappedDataModule(str(path), **LONG)
    data.task, data.scaler = trained.task, trained.scaler
    data.forecast_from(saved(frame[:260], tmp_path / "other.parquet"))
    data.setup("predict")
    (batch,) = data.predict_dataloader()
    assert trained.task is not None
    np.testing.assert_allclose(
        batch.past[0].double() * trained.series.scale[0] + trained.series.mean[0], frame[["y", "z"]][236:260], atol=1e-5
    )
