"""Weights of rows and series: read, refused, and cut into the windows that they belong to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.forecaster.toys import frame_of
from tsattn.data import CSVDataModule, FrameDataModule, panel_from_frame
from tsattn.data.table_options import RowWeights
from tsattn.errors import UserError
from tsattn.training.losses import masked_loss

SIZES: dict[str, Any] = {"context_length": 12, "prediction_length": 4}


def long(seed: int = 0) -> pd.DataFrame:
    frame = frame_of({"b": 80, "a": 60})
    return frame.assign(w=np.random.default_rng(seed).integers(0, 4, len(frame)))


def test_column_series_and_rows_are_multiplied_whatever_the_order_of_rows() -> None:
    frame = long()
    stretch = "2024-01-01 05:00", "2024-01-01 08:00"
    weights = RowWeights.of({"a": 0.5}, [(*stretch, 3), ("2024-01-01 08:00", "2024-01-02 00:00", 0)])
    shuffled = frame.sample(frac=1, random_state=0)
    shuffled = shuffled[shuffled["ds"] != "2024-01-02 03:00"]  # a gap, which has no weight
    panel = panel_from_frame(shuffled, weight_column="w", weights=weights)
    assert panel.weights is not None
    expected = frame.sort_values(["unique_id", "ds"], ignore_index=True)
    value = expected["w"] * np.where(expected["unique_id"] == "a", 0.5, 1.0)
    value *= np.where(expected["ds"].between(*map(pd.Timestamp, stretch)), 3, 1)
    value *= np.where(expected["ds"].between(pd.Timestamp("2024-01-01 08:00"), pd.Timestamp("2024-01-02")), 0, 1)
    value[expected["ds"] == "2024-01-02 03:00"] = 0
    np.testing.assert_array_equal(panel.weights[:, 0], value)
    assert panel.channels == ("y",)
    np.testing.assert_array_equal(panel.take(np.array([1])).weights, panel.weights[60:])  # type: ignore[arg-type]


def test_columns_of_a_wide_table_are_series_and_the_weights_are_none(toy_frame: pd.DataFrame) -> None:
    frame = toy_frame.assign(w=2.0)
    panel = panel_from_frame(frame, weight_column="w", weights=RowWeights.of({"drift": 3}))
    assert panel.channels == ("wave", "drift")
    np.testing.assert_array_equal(panel.weights, np.full((600, 1), 2.0) * [1, 3])
    assert panel.channels_as_series().weights[:, 0].tolist() == [6.0] * 600 + [2.0] * 600
    zoned = frame.tz_localize("Europe/Vienna", nonexistent="shift_forward", ambiguous=True).iloc[:40]
    early = RowWeights.of(None, [("2020-01-01", "2020-01-01 03:00", 0)])
    assert (panel_from_frame(zoned, weight_column="w", weights=early).weights[:, 0] == 0).sum() == 4
    steps = frame.set_axis(range(5, 605), axis=0)
    panel = panel_from_frame(steps, weights=RowWeights.of(None, [(7, 9, 0)]))
    assert np.flatnonzero(panel.weights[:, 0] == 0).tolist() == [2, 3, 4]


def test_windows_have_the_weights_of_their_targets_and_only_ratios_matter() -> None:
    frame = long()
    made = {**SIZES, "val_rows": 8, "test_rows": 8}
    one, other, plain = (
        FrameDataModule(frame.assign(w=frame["w"] * by), **made, **more)
        for by, more in ((1, {"weight_column": "w"}), (0.001, {"weight_column": "w"}), (1, {"target": "y"}))
    )
    for data in (one, other, plain):
        data.setup("fit")
    batch, again = (data.windows("train").__getitems__([0, 70, 5]) for data in (one, other))
    torch.testing.assert_close(batch.target_weight, again.target_weight)
    assert len(one.windows("train")) == len(plain.windows("train"))
    rows = frame.sort_values(["unique_id", "ds"], ignore_index=True)["w"].to_numpy(float)
    train = np.r_[rows[: 60 - 16], rows[60 : 140 - 16]]
    mean = train[train > 0].mean()
    np.testing.assert_allclose(batch.target_weight[0, :, 0], rows[12:16] / mean, rtol=1e-6)
    np.testing.assert_allclose(batch.target_weight[2, :, 0], rows[17:21] / mean, rtol=1e-6)


def test_a_series_or_row_of_weight_0_takes_no_part() -> None:
    """Whatever its targets are: losses, and so gradients, see the weight alone."""
    frame = long().drop(columns="w")
    stretch = ["2024-01-01 20:00", "2024-01-01 22:00", 0]
    data = FrameDataModule(frame, **SIZES, series_weights={"a": 0}, row_weights=[stretch])
    data.setup("fit")
    batch = data.windows("train").__getitems__([*range(len(data.windows("train")))])
    assert batch.target_weight is not None
    assert batch.target is not None
    is_a = batch.series_id == data.panel.ids.index("a")  # type: ignore[union-attr]
    assert (batch.target_weight[is_a] == 0).all()
    stamps = pd.to_datetime(batch.time[~is_a, 12:].numpy().ravel(), unit="s")
    gone = torch.from_numpy((stamps >= stretch[0]) & (stamps <= stretch[1])).view(-1, 4)
    assert torch.equal(batch.target_weight[~is_a][..., 0] == 0, gone)
    assert 0 < gone.sum() < gone.numel()
    changed = torch.where(batch.target_weight == 0, 1e3, batch.target)
    losses = [masked_loss("mse", one * 0, one, None, (), batch.target_weight) for one in (batch.target, changed)]
    assert losses[0] == losses[1] > 0


def cell(frame: pd.DataFrame, value: Any) -> pd.DataFrame:
    return frame.assign(w=frame["w"].astype(object).where(np.arange(len(frame)) != 2, value))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: cell(frame, -1), "row 3: the weight in column w is -1; a number of at least 0 is needed"),
        (lambda frame: cell(frame, np.nan), "row 3: the weight in column w is missing"),
        (lambda frame: cell(frame, np.inf), "row 3: the value of w is infinite"),
        (lambda frame: cell(frame, "much"), "row 3: much in column w is not a number; a weight needs numbers"),
        (lambda frame: frame.rename(columns={"w": "v"}), "the frame has no weight column w; its columns are"),
        (lambda frame: frame.assign(w=0), "every target for training has weight 0"),
    ],
)
def test_weights_that_are_none_are_refused_by_row(change: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        FrameDataModule(change(long()), **SIZES, weight_column="w").setup("fit")
    frame = cell(long(), np.nan)
    frame.loc[2, "y"] = np.nan
    assert panel_from_frame(frame, weight_column="w").weights is not None, "a row without a target needs none"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"series_weights": {"a": -0.5}}, "the weight of series a must be a number of at least 0, not -0.5"),
        ({"series_weights": {"a": float("nan")}}, "the weight of series a must be a number of at least 0, not nan"),
        ({"series_weights": [1, 2]}, "series_weights must be weights by ids"),
        ({"series_weights": {"c": 1}}, "series_weights names c, which the frame has not got; valid are a, b"),
        ({"row_weights": [("2024-01-01", 0)]}, "row_weights must be a list of first and last time stamp and weight"),
        ({"row_weights": [("2024-01-01", "2024-01-02", True)]}, "the weight from 2024-01-01 to 2024-01-02 must be"),
        ({"row_weights": [("soon", "2024-01-02", 1)]}, "'soon' is not a date"),
        ({"row_weights": [("2023-01-01", "2023-01-02", 1)]}, "row_weights: the frame has no row from 2023-01-01 to"),
        ({"row_weights": [("2024-01-01 00:00+00:00", "2024-01-02", 1)]}, "no time zone, so row_weights must"),
        ({"weight_column": "y"}, "column y of the frame is named as target and as weight; a column has one role"),
        ({"weight_column": ["w"]}, "weight_column must be the name of a column"),
    ],
)
def test_arguments_that_are_none_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        FrameDataModule(long(), **SIZES, **given).setup("fit")


def test_what_is_forecast_from_needs_no_weights(tmp_path: Any) -> None:
    long().to_csv(tmp_path / "with.csv", index=False)
    long().drop(columns="w").to_csv(tmp_path / "without.csv", index=False)
    trained = CSVDataModule(str(tmp_path / "with.csv"), **SIZES, weight_column="w")
    trained.setup("fit")
    assert trained.series.weights is not None
    for name in ("with.csv", "without.csv"):
        data = CSVDataModule(str(tmp_path / "with.csv"), **SIZES, weight_column="w")
        data.task, data.scaler = trained.task, trained.scaler
        data.forecast_from(tmp_path / name)
        data.setup("predict")
        assert next(iter(data.predict_dataloader())).target_weight is None


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_date_alone_is_a_whole_day(zone: str | None) -> None:
    frame, day = long(), pd.Timestamp("2024-01-02")
    frame["ds"] = frame["ds"].dt.tz_localize(zone)
    for last, rows in (("2024-01-02", 24), (day.date(), 24), ("2024-01-02 00:00", 1), (day, 1)):
        panel = panel_from_frame(frame, weights=RowWeights.of(None, [("2024-01-02", last, 0)]))
        assert panel.weights is not None
        assert (panel.weights == 0).sum() == 2 * rows
