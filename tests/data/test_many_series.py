"""Many series of different lengths in one data set: splits, windows, scales, forecasts, each by its own id."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lightning.pytorch import Trainer

from tests.baseline_scores import baseline_scores
from tests.conftest import REAL_ROOT
from tsattn.batch import Batch
from tsattn.data import CSVDataModule, FrameDataModule, FutureWindows, Split, panel_from_frame
from tsattn.data.scaling import series_units
from tsattn.data.splits import all_origins
from tsattn.data.windows import Series, WindowDataset
from tsattn.errors import UserError
from tsattn.evaluation import ErrorTotals
from tsattn.forecaster import future_frame
from tsattn.scaler import Scaler, Units
from tsattn.task import Output, Task
from tsattn.training import ForecastingModule

L, T = 12, 4
SIZES: dict[str, Any] = {"context_length": L, "prediction_length": T, "eval_batch_size": 16}
LENGTHS = {"a": 60, "b": 45, "c": 9, "d": 100}
COLUMNS: dict[str, Any] = {"past_covariates": ["rain"], "future_covariates": ["price"], "static": ["kind", "town"]}


def long_frame(lengths: dict[Any, int], ahead: int = 0, frequency: str = "D") -> pd.DataFrame:
    """Series of these lengths and a scale of their own each, with covariates; the last rows `ahead` have no target."""
    rng, parts = np.random.default_rng(0), []
    for number, (name, rows) in enumerate(lengths.items()):
        stamps = pd.date_range("2020-01-01", periods=rows + ahead + number, freq=frequency)[number:]
        y = 100 * number + (number + 1) * rng.standard_normal(rows + ahead)
        y[rows:] = np.nan
        rain, price = rng.standard_normal((2, rows + ahead))
        columns = {"y": y, "rain": rain, "price": 5 + 2 * price, "kind": "xyz"[number % 3], "town": f"t{number}"}
        parts.append(
            pd.DataFrame({"unique_id": pd.Index([name] * len(y), tupleize_cols=False), "ds": stamps, **columns})
        )
    return pd.concat(parts, ignore_index=True)


def prepared(frame: pd.DataFrame, **options: Any) -> FrameDataModule:
    data = FrameDataModule(frame, **{**SIZES, **options})
    data.setup("fit")
    return data


def everything(batches: Sequence[Batch]) -> dict[str, torch.Tensor]:
    """Batches as one, by the names of their parts, with masks where one of them has a mask."""
    whole: dict[str, list[torch.Tensor]] = {}
    for batch in batches:
        for name, part in vars(batch).items():
            if part is None and name.endswith("_observed"):
                values = getattr(batch, name.removesuffix("_observed"))
                part = None if values is None else torch.ones_like(values, dtype=torch.bool)
            if part is not None:
                whole.setdefault(name, []).append(part)
    return {name: torch.cat(parts) for name, parts in whole.items()}


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tsattn"]


# --- splits


def test_each_series_is_split_by_the_same_shares() -> None:
    data = prepared(long_frame(LENGTHS)[["unique_id", "ds", "y"]])
    assert data.splits == [Split.by_fraction(rows, 0.7, 0.1) for rows in LENGTHS.values()]


def test_each_series_is_split_by_the_same_counts() -> None:
    data = prepared(long_frame(LENGTHS)[["unique_id", "ds", "y"]], val_rows=5, test_rows=8)
    assert data.splits == [Split(47, 52, 60), Split(32, 37, 45), Split(0, 1, 9), Split(87, 92, 100)]
    assert Split.by_count(6, 5, 8) == Split(0, 0, 6)


def test_each_series_is_split_at_the_same_dates() -> None:
    dates = {"val_from": "2020-02-10", "test_from": "2020-02-20 00:00"}
    frame = long_frame(LENGTHS)[["unique_id", "ds", "y"]]
    data = prepared(frame, **dates)
    for number, split in enumerate(data.splits):
        stamps = data.panel.time_of(number)
        assert (stamps[: split.train_end] < "2020-02-10").all()
        assert (stamps[split.train_end : split.val_end] >= "2020-02-10").all()
        assert (stamps[split.train_end : split.val_end] < "2020-02-20").all()
        assert (stamps[split.val_end :] >= "2020-02-20").all()
        assert split.test_end == len(stamps)
    zoned = prepared(frame.assign(ds=frame.ds.dt.tz_localize("Europe/Berlin")), **dates)
    assert zoned.splits == data.splits


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_fraction": 0.5, "val_rows": 3}, "split in one way: train_fraction and val_fraction, or val_rows"),
        ({"val_rows": 3, "test_rows": 3, "val_from": "2020"}, "in one way: val_rows and test_rows, or val_from"),
        ({"val_rows": 3}, "needs both val_rows and test_rows"),
        ({"test_from": "2020-02-01"}, "needs both val_from and test_from"),
        ({"val_rows": 0, "test_rows": 3}, "val_rows must be at least 1, not 0"),
        ({"val_from": "soon", "test_from": "2020-02-01"}, "'soon' is not a date; write it like 2016-07-01"),
        ({"val_from": "2020-02-02", "test_from": "2020-02-01"}, "validation part must start before the test part"),
        ({"val_from": "2020-02-02T00Z", "test_from": "2020-03-01"}, "the data have no time zone, so val_from"),
        ({"scaling": "none"}, "scaling must be one of global, series, not 'none'"),
        (
            {"prediction_length": 11},
            "no series is long enough.* prediction_length 11 .*validation part.*valid: 1 to 10",
        ),
        ({"context_length": 67}, "no series is long enough.*context_length 67 .* need 71 rows, .*training part has 70"),
        (
            {"context_length": 28, "val_from": "2020-02-01", "test_from": "2020-03-01"},
            "not even the longest: context_length 28 and prediction_length 4 need 32 rows.* has 31",
        ),
    ],
)
def test_what_cannot_be_split_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        prepared(long_frame(LENGTHS)[["unique_id", "ds", "y"]], **options)
    assert len(str(caught.value).splitlines()) == 1


def test_the_longest_series_may_be_too_new_to_train_on(caplog: pytest.LogCaptureFixture) -> None:
    old, new = long_frame({"old": 60}), long_frame({"new": 90})
    frame = pd.concat([old, new.assign(ds=new.ds + pd.Timedelta(50, "D"))], ignore_index=True)
    data = prepared(frame[["unique_id", "ds", "y"]], val_from="2020-02-10", test_from="2020-02-20")
    assert data.splits == [Split(0, 0, 90), Split(40, 50, 60)]
    assert messages(caplog)[:2] == [
        "1 of 2 series are too short for a training window",
        "1 of 2 series are too short for a validation window",
    ]
    assert [len(data.windows(part)) for part in ("train", "val", "test")] == [25, 7, 7 + 86]
    assert baseline_scores(data)["persistence"]["windows"] == 93


def test_short_series_are_padded_or_left_out_which_is_said(caplog: pytest.LogCaptureFixture) -> None:
    data = prepared(long_frame({"long": 100, "short": 20, "tiny": 5})[["unique_id", "ds", "y"]])
    rows = "context_length 12 + prediction_length 4"
    assert messages(caplog) == [
        "1 of 3 series are too short for a training window",
        "2 of 3 series are too short for a validation window",
        "1 of 3 series are too short for a test window",
        f"2 of 3 series have fewer training rows than {rows}; their contexts are padded",
    ]
    train = everything(list(data.eval_dataloader("train")))
    assert torch.bincount(train["series_id"]).tolist() == [70 - L - T + 1, 1]
    # 14 training rows: ten of context, the rest padded
    assert train["past_observed"][-1, :, 0].tolist() == [False] * 2 + [True] * 10
    assert train["target_observed"][-1].all()
    test = everything(list(data.eval_dataloader("test")))
    assert torch.bincount(test["series_id"]).tolist() == [17, 1]


@pytest.mark.parametrize("part", ["val", "test"])
def test_no_window_is_without_context(part: str) -> None:
    splits = [Split(40, 60, 80), Split(0, 30, 60), Split(0, 0, 50), Split(0, 3, 3)]
    for origins in all_origins(splits, part, 12, 4):
        assert not origins or origins[0] >= 1


# --- windows


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    gaps=st.booleans(),
    context=st.integers(1, 25),
    horizon=st.integers(1, 8),
    seed=st.integers(0, 5),
)
@example(lengths=[3, 2, 1], gaps=False, context=25, horizon=1, seed=0)
@example(lengths=[40, 1, 40], gaps=True, context=4, horizon=8, seed=1)
def test_windows_never_cross_series(lengths: list[int], gaps: bool, context: int, horizon: int, seed: int) -> None:
    """Against slices cut one by one, in any order, padded where a series begins too late."""
    torch.manual_seed(seed)
    rows, S, length = sum(lengths), len(lengths), context + horizon
    starts = torch.tensor([0, *np.cumsum(lengths)])
    series = Series(
        values=1 + torch.rand(rows, 2),
        observed=torch.rand(rows, 2) > 0.2 if gaps else None,
        time=torch.arange(rows) * 7 + 1000,
        starts=starts,
        mean=torch.zeros(S, 2),
        scale=torch.ones(S, 2),
        past_covariates=1 + torch.rand(rows, 1),
        future_covariates=1 + torch.rand(rows, 3),
        static=torch.arange(2 * S).view(S, 2),
    )
    ranges = [range(min(1 + n % 3, n), max(1, n - horizon + 1), 1 + n % 2) for n in lengths]
    wanted = [(number, origin) for number, origins in enumerate(ranges) for origin in origins]
    dataset = WindowDataset(series, ranges, context, horizon)
    assert len(dataset) == len(wanted)
    if not wanted:
        return
    order = torch.randperm(len(wanted)).tolist()
    batch = dataset.__getitems__(order)
    assert batch.series_id.tolist() == [wanted[index][0] for index in order]
    for place, index in enumerate(order):
        number, origin = wanted[index]
        own = slice(int(starts[number]), int(starts[number + 1]))
        here = slice(max(0, origin - context), origin + horizon)
        pad = max(0, context - origin)

        def cut(part: torch.Tensor, own: slice = own, here: slice = here, pad: int = pad) -> torch.Tensor:
            piece = part[own][here]
            return torch.cat([torch.zeros(pad, *piece.shape[1:], dtype=piece.dtype), piece])

        values, time = cut(series.values), cut(series.time)
        time[:pad] = series.time[own][0]
        known = torch.ones(rows, 2, dtype=torch.bool) if series.observed is None else series.observed
        assert torch.equal(torch.cat([batch.past[place], batch.target[place]]), values)
        assert torch.equal(batch.time[place], time)
        assert torch.equal(batch.past_covariates[place], cut(series.past_covariates)[:context])
        assert torch.equal(batch.future_covariates[place], cut(series.future_covariates))
        assert torch.equal(batch.static[place], series.static[number])
        if batch.past_observed is None:
            assert series.observed is None
            assert pad == 0
        else:
            assert torch.equal(torch.cat([batch.past_observed[place], batch.target_observed[place]]), cut(known))
        assert len(values) == length


def test_one_range_of_origins_for_each_series() -> None:
    data = prepared(long_frame(LENGTHS)[["unique_id", "ds", "y"]])
    with pytest.raises(UserError, match="2 ranges of origins were given for 4 series"):
        WindowDataset(data.series, [range(3, 5), range(3, 5)], L, T)


def test_batches_hold_the_rows_of_the_frame() -> None:
    """From the frame to the batch and back, covariates and categories included."""
    frame = long_frame(LENGTHS)
    data = prepared(frame, **COLUMNS)
    task, scaler, ids = data.task, data.scaler, list(LENGTHS)
    batch = next(iter(data.train_dataloader()))
    mean, scale = np.array(scaler.covariate_mean), np.array(scaler.covariate_scale)
    for place, number in enumerate(batch.series_id.tolist()):
        own = frame[frame.unique_id == ids[number]].set_index("ds")
        stamps = pd.to_datetime(batch.time[place].numpy(), unit="s")
        seen = slice(None) if batch.past_observed is None else batch.past_observed[place, :, 0].numpy()
        rows, past = own.loc[stamps], own.loc[stamps[:L]][seen]
        restored = batch.target[place, :, 0].double() * scaler.series_scale[number][0] + scaler.series_mean[number][0]
        np.testing.assert_allclose(restored, rows.y[L:], atol=1e-3)
        rain = batch.past_covariates[place, :, 0].double().numpy()[seen] * scale[0] + mean[0]
        np.testing.assert_allclose(rain, past.rain, atol=1e-4)
        price = batch.future_covariates[place, L:, 0].double() * scale[1] + mean[1]
        np.testing.assert_allclose(price, rows.price[L:], atol=1e-4)
        named = [task.categories[k][code] for k, code in enumerate(batch.static[place].tolist())]
        assert named == [own.kind.iloc[0], own.town.iloc[0]]


# --- scales


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
    assert messages(caplog) == ["1 of 4 series were not trained on; each is scaled by the rows given of it"]
    for number, name in enumerate(panel.ids):
        saved = scaler.series_mean[scaler.ids.index(name)] if name in scaler.ids else None
        y = other[other.unique_id == name].y
        assert mean[number, 0] == pytest.approx(y.mean() if saved is None else saved[0])
        if name == "new":
            assert scale[number, 0] == pytest.approx(y.std(ddof=0))
    caplog.clear()
    series_units(panel_from_frame(frame), scaler)
    assert messages(caplog) == []


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
    assert said in messages(caplog)
    assert (scaler.series_mean[1], scaler.series_scale[1]) == (scaler.mean, scaler.scale)
    assert scaler.series_mean[2] != scaler.mean


def test_a_gap_at_the_start_takes_nothing_from_the_series_before() -> None:
    frame = long_frame({"a": 60, "b": 60})
    frame.loc[58:62, ["y", "rain"]] = np.nan
    data = prepared(frame, past_covariates=["rain"])
    assert (data.series.values[58:60] == data.series.values[57]).all()
    assert (data.series.values[60:63] == 0).all()
    assert (data.series.past_covariates[58:60] == data.series.past_covariates[57]).all()
    assert (data.series.past_covariates[60:63] == 0).all()


def test_a_constant_series_is_centred_and_not_stretched() -> None:
    frame = long_frame({"a": 100, "b": 100})[["unique_id", "ds", "y"]]
    frame.loc[frame.unique_id == "b", "y"] = 0.1
    data = prepared(frame)
    assert data.scaler.series_scale[1] == (1.0,)
    assert data.scaler.series_mean[1] == pytest.approx((0.1,))
    assert data.series.values[100:].abs().max() < 1e-6


def test_errors_in_original_units_know_the_scale_of_each_series() -> None:
    data = prepared(long_frame(LENGTHS)[["unique_id", "ds", "y"]])
    units, errors, squares = Units(data.series.mean, data.series.scale), ErrorTotals(1), []
    for batch in data.eval_dataloader("test"):
        forecast = torch.zeros_like(batch.target)
        errors.update(forecast, batch.target, batch.target_observed, units.of(batch.series_id))
        original = units.restore(batch.target, batch.series_id) - units.restore(forecast, batch.series_id)
        squares.append(original.square())
    assert errors.scores()["mse_original"] == pytest.approx(torch.cat(squares).mean().item(), rel=1e-9)
    spread = [scale for (scale,) in data.scaler.series_scale]
    assert max(spread) > 2 * min(spread), "or the check would say nothing"


@pytest.mark.parametrize("name", [pd.Timestamp("2020-01-01"), b"shop"])
def test_ids_that_no_checkpoint_holds_are_refused(name: object) -> None:
    frame = long_frame({"a": 40, "b": 40})
    frame["unique_id"] = frame["unique_id"].astype(object).where(frame.unique_id == "a", name)
    with pytest.raises(
        UserError, match=f"the frame, row 41: .* is a {type(name).__name__}, not an id; valid are texts"
    ):
        panel_from_frame(frame)


# --- beyond the end


def module_for(data: FrameDataModule) -> ForecastingModule:
    torch.manual_seed(0)
    model = ForecastingModule({"kind": "transformer", "d_model": 16, "num_heads": 2})
    model.build(data.task, data.scaler)
    return model


def forecast(data: FrameDataModule, folder: Path) -> list[torch.Tensor]:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    batches = Trainer(default_root_dir=folder, accelerator="cpu", **quiet).predict(module_for(data), data)
    return list(batches)


def test_forecasts_come_back_in_the_units_of_each_series(tmp_path: Path) -> None:
    lengths = {f"s{number:02}": 40 for number in range(40)}  # more than a batch
    data = prepared(long_frame(lengths)[["unique_id", "ds", "y"]])
    frame = future_frame(forecast(data, tmp_path), data.task, Output(), data.panel)
    middle = frame.groupby("unique_id", sort=False).predictions.mean()
    assert list(middle.index) == list(lengths)
    spread = np.ravel(data.scaler.series_scale)
    assert (np.abs(middle - np.ravel(data.scaler.series_mean)) < 3 * spread).all()


def test_future_windows_hold_the_end_of_each_series_and_what_is_ahead() -> None:
    frame = long_frame(LENGTHS, ahead=T + 2)
    data = prepared(frame, **COLUMNS)
    windows = FutureWindows(data.panel, data.series, data.task, data.scaler)
    assert len(windows) == 4
    batch = everything([windows.__getitems__([3, 0]), windows.__getitems__([2])])
    assert "target" not in batch
    scaler = data.scaler
    for place, number in enumerate([3, 0, 2]):
        name, rows = list(LENGTHS.items())[number]
        own = frame[frame.unique_id == name].reset_index(drop=True)
        pad = max(0, L - rows)
        stamps = pd.to_datetime(batch["time"][place].numpy(), unit="s")
        assert stamps[pad:].tolist() == own.ds[rows - L + pad : rows + T].tolist()
        assert (batch["future_covariates"][place, :pad] == 0).all()
        price = (
            batch["future_covariates"][place, pad:, 0].double() * scaler.covariate_scale[1] + scaler.covariate_mean[1]
        )
        np.testing.assert_allclose(price, own.price[rows - L + pad : rows + T], atol=1e-4)
        y = batch["past"][place, pad:, 0].double() * scaler.series_scale[number][0] + scaler.series_mean[number][0]
        np.testing.assert_allclose(y, own.y[rows - L + pad : rows], atol=1e-3)
        assert batch["past_observed"][place, :, 0].tolist() == [False] * pad + [True] * (L - pad)


def test_a_future_covariate_that_stops_early_is_named_with_its_series() -> None:
    frame = long_frame(LENGTHS, ahead=T)
    frame = frame.drop(index=frame.index[frame.unique_id == "c"][-1])
    data = prepared(frame, **COLUMNS)
    with pytest.raises(UserError, match=f"price stops early: series c has no value at 2020-01-15.*step {T} of the {T}"):
        data.predict_dataloader()


def test_categories_are_numbered_as_in_training(tmp_path: Path) -> None:
    frame = long_frame({"a": 60, "b": 60, "c": 60}, ahead=T)
    trained = prepared(frame, **COLUMNS)
    part = frame[frame.unique_id != "a"]
    part.to_parquet(tmp_path / "part.parquet")
    data = FrameDataModule(None, **SIZES, **COLUMNS)
    data.task, data.scaler = trained.task, trained.scaler
    data.forecast_from(tmp_path / "part.parquet")
    data.setup("predict")
    (batch,) = data.predict_dataloader()
    assert trained.task.categories == (("x", "y", "z"), ("t0", "t1", "t2"))
    assert batch.static.tolist() == [[1, 1], [2, 2]]
    part.assign(town="t9").to_parquet(tmp_path / "part.parquet")
    data.forecast_from(tmp_path / "part.parquet")
    with pytest.raises(UserError, match="static column town: series b has category t9, which was not seen"):
        data.setup("predict")


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_forecast_names_ids_and_time_as_the_data_do(zone: str | None) -> None:
    frame = long_frame({7: 30, ("t", 1): 29, "x": 31}, frequency="h")[["unique_id", "ds", "y"]]
    frame["ds"] = frame.ds.dt.tz_localize(zone)
    frame = frame.set_axis(["shop", "hour", "sold"], axis=1).assign(back=frame.y)
    panel = panel_from_frame(frame, id_column="shop", time_column="hour", target=["sold", "back"])
    task = Task("toy", L, 3, ("sold", "back"), "h", 24)
    values = torch.arange(18.0).view(3, 3, 2)
    out = future_frame([values[:2], values[2:]], task, Output(), panel)
    assert list(out.columns) == ["shop", "hour", "target_name", "predictions"]
    assert out["shop"].tolist() == [7] * 6 + [("t", 1)] * 6 + ["x"] * 6
    assert out["target_name"].tolist() == (["sold"] * 3 + ["back"] * 3) * 3
    assert out["predictions"].tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11, 12, 14, 16, 13, 15, 17]
    last = frame.drop_duplicates("shop", keep="last").hour.tolist()
    expected = [stamp + pd.Timedelta(step, "h") for stamp in last for _ in range(2) for step in (1, 2, 3)]
    assert out["hour"].tolist() == expected
    assert str(out["hour"].dt.tz) == str(zone)
    single = future_frame([values[1:2, :, :1]], replace(task, channels=("sold",)), Output(), panel, first=1)
    assert list(single.columns) == ["shop", "hour", "predictions"]
    assert single["shop"].tolist() == [("t", 1)] * 3


def test_a_wide_forecast_is_one_of_each_channel() -> None:
    index = pd.date_range("2020-01-01", periods=30, freq="h", name="when")
    panel = panel_from_frame(pd.DataFrame({"p": 1.0, "q": 2.0}, index=index))
    task = Task("toy", L, 2, ("p", "q"), "h", 24)
    out = future_frame([torch.arange(4.0).view(1, 2, 2)], task, Output(), panel)
    assert out.columns.tolist() == ["unique_id", "when", "predictions"]
    assert out["unique_id"].tolist() == ["p", "p", "q", "q"]
    assert out["predictions"].tolist() == [0, 2, 1, 3]
    assert out["when"].tolist() == 2 * [index[-1] + pd.Timedelta(step, "h") for step in (1, 2)]


# --- real files, as anyone would read them


REAL = {"ETTh1": ("h", 7, 17420), "vic_electricity": ("30min", 2, 52608), "national_illness": ("W-TUE", 7, 966)}
REAL["exchange_rate"] = ("D", 8, 7588)  # its dates are invented (see its card), but regular


@pytest.mark.real_data
@pytest.mark.parametrize("name", REAL)
def test_a_real_file_is_one_s_own_data_too(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frequency, channels, rows = REAL[name]
    time_column = {"vic_electricity": "Time"}.get(name, "date")
    target = ["Demand", "Temperature"] if name == "vic_electricity" else None
    data = CSVDataModule(
        f"{REAL_ROOT}/{name}.csv", time_column=time_column, target=target, context_length=36, prediction_length=12
    )
    data.setup("fit")
    assert data.panel.is_wide
    assert data.panel.frequency == data.task.frequency == frequency
    assert data.panel.values.shape == (rows, channels)
    table = pd.read_csv(f"{REAL_ROOT}/{name}.csv")
    np.testing.assert_array_equal(data.panel.values, table[list(data.task.channels)])
    last = pd.Timestamp(table[time_column].iloc[-1])
    stamps = data.panel.future_time(0, 3)
    step = pd.tseries.frequencies.to_offset(frequency)
    assert stamps.tolist() == [last + step, last + 2 * step, last + 3 * step]
    assert [said for said in messages(caplog) if "not used" not in said] == []
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "limit_val_batches": 1}
    model = ForecastingModule({"kind": "transformer", "d_model": 8, "num_heads": 2, "num_layers": 1})
    trainer = Trainer(default_root_dir=tmp_path, accelerator="cpu", max_steps=2, **quiet)
    trainer.fit(model, data)
    (forecasts,) = trainer.predict(model, data)
    frame = future_frame([forecasts], model.task, model.output, data.panel)
    assert len(frame) == 12 * channels
    assert np.isfinite(frame.predictions).all()


@pytest.mark.parametrize(("frequency", "tz"), [("h", "Europe/Berlin"), ("MS", None), ("B", None)])
def test_the_future_of_many_series_is_that_of_each(frequency: str, tz: str | None) -> None:
    stamps = pd.date_range("2020-03-20", periods=40, freq=frequency, tz=tz)
    parts = [pd.DataFrame({"unique_id": n, "ds": stamps[:end]}) for n, end in enumerate([40, 12, 40, 3, 12])]
    panel = panel_from_frame(pd.concat(parts).assign(y=1.0), frequency=frequency)
    numbers = np.array([4, 0, 1, 3])
    times = panel.future_times(numbers, 5)
    assert times.tolist() == [stamp for number in numbers for stamp in panel.future_time(number, 5)]
    assert times.tz == panel.time.tz
