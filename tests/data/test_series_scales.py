"""The scale of each of many series: of its training rows, saved with the model, never fitted again."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from tests.data.cases import logged
from tests.data.many_series import COLUMNS, LENGTHS, SIZES, long_frame, prepared
from tsattn.data import FrameDataModule, panel_from_frame
from tsattn.data.scaling import series_units
from tsattn.errors import UserError
from tsattn.scaler import Scaler


@pytest.mark.parametrize("scaling", ["global", "series"])
def test_scales_are_those_of_the_training_rows_and_travel_with_the_model(scaling: str) -> None:
    frame = long_frame(LENGTHS)
    data = prepared(frame, scaling=scaling, **COLUMNS)
    scaler = data.scaler
    train = [own.y.to_numpy()[: int(0.7 * len(own))] for _, own in frame.groupby("unique_id", sort=False)]
    joint = np.concatenate(train)
    np.testing.assert_allclose((scaler.mean, scaler.scale), ([joint.mean()], [joint.std()]), rtol=1e-9)
    if scaling == "series":
        assert scaler.ids == tuple(LENGTHS)
        np.testing.assert_allclose(np.ravel(scaler.series_mean), [part.mean() for part in train], rtol=1e-9)
        np.testing.assert_allclose(np.ravel(scaler.series_scale), [part.std() for part in train], rtol=1e-9)
    else:
        assert scaler.ids == scaler.series_mean == scaler.series_scale == ()
    first = np.concatenate(
        [own[["rain", "price"]].to_numpy()[: int(0.7 * len(own))] for _, own in frame.groupby("unique_id", sort=False)]
    )
    np.testing.assert_allclose(scaler.covariate_mean, first.mean(0), rtol=1e-9)
    np.testing.assert_allclose(scaler.covariate_scale, first.std(0), rtol=1e-9)
    assert Scaler.from_dict(json.loads(json.dumps(scaler.to_dict()))) == scaler


def test_known_ids_keep_their_scale_and_new_ones_take_their_own(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame(LENGTHS)[["unique_id", "ds", "y"]]
    scaler = prepared(frame).scaler
    other = frame.assign(y=3 * frame.y + 1)
    other["unique_id"] = other.unique_id.replace({"a": "new"})
    panel = panel_from_frame(other[::-1])  # and in another order
    caplog.clear()
    mean, scale = series_units(panel, scaler)
    assert logged(caplog) == ["1 of 4 series not trained on; each is scaled by the rows given of it"]
    for number, name in enumerate(panel.ids):
        saved = scaler.series_mean[scaler.ids.index(name)] if name in scaler.ids else None
        y = other[other.unique_id == name].y
        assert mean[number, 0] == pytest.approx(y.mean() if saved is None else saved[0])
        if name == "new":
            assert scale[number, 0] == pytest.approx(y.std(ddof=0))
    caplog.clear()
    series_units(panel_from_frame(frame), scaler)
    assert logged(caplog) == []


def test_new_series_are_scaled_by_their_training_rows_alone() -> None:
    frame = long_frame(LENGTHS)[["unique_id", "ds", "y"]]
    trained = prepared(frame)
    other = frame.assign(unique_id=frame.unique_id.replace({"a": "new"}))
    scaled = FrameDataModule(other, **SIZES)
    scaled.task, scaled.scaler = trained.task, trained.scaler
    scaled.setup("test")
    number = scaled.panel.ids.index("new")
    end = scaled.splits[number].train_end
    y = other[other.unique_id == "new"].y
    assert 0 < end < len(y)
    assert scaled.series.mean[number].item() == pytest.approx(y[:end].mean())
    assert scaled.series.scale[number].item() == pytest.approx(y[:end].std(ddof=0))


def test_a_series_without_a_training_value_takes_the_scale_of_all(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"a": 100, "b": 50, "c": 50})[["unique_id", "ds", "y"]]
    frame.loc[(frame.unique_id == "b") & (frame.groupby("unique_id").cumcount() < 40), "y"] = np.nan
    scaler = prepared(frame).scaler
    said = "1 of 3 series have no training value in some channel; these channels take the scale of all series"
    assert said in logged(caplog)
    assert (scaler.series_mean[1], scaler.series_scale[1]) == (scaler.mean, scaler.scale)
    assert scaler.series_mean[2] != scaler.mean


def test_missing_values_at_the_start_take_nothing_from_the_series_before() -> None:
    frame = long_frame({"a": 60, "b": 60})
    frame.loc[58:62, ["y", "rain"]] = np.nan
    data = prepared(frame, past_covariates=["rain"])
    assert (data.series.values[58:60] == data.series.values[57]).all()
    assert (data.series.values[60:63] == 0).all()
    assert (data.series.past_covariates[58:60] == data.series.past_covariates[57]).all()
    assert (data.series.past_covariates[60:63] == 0).all()


@pytest.mark.parametrize("name", [pd.Timestamp("2020-01-01"), b"shop"])
def test_ids_that_no_checkpoint_holds_are_refused(name: object) -> None:
    frame = long_frame({"a": 40, "b": 40})
    frame["unique_id"] = frame["unique_id"].astype(object).where(frame.unique_id == "a", name)
    with pytest.raises(
        UserError, match=f"the frame, row 41: .* is a {type(name).__name__}, not an id; valid are texts"
    ):
        panel_from_frame(frame)
