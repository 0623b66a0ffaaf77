"""Windows and batches of many series: each of one series, with its own covariates and categories."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.data.many_series import COLUMNS, LENGTHS, SIZES, L, T, long_frame, prepared
from tsattn.data import FrameDataModule
from tsattn.data.windows import Series, WindowDataset
from tsattn.errors import UserError


def test_windows_never_cross_series() -> None:
    compared = []

    @settings(max_examples=60, deadline=None, derandomize=True, database=None)
    @given(
        lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
        missing=st.booleans(),
        context=st.integers(1, 25),
        horizon=st.integers(1, 8),
        seed=st.integers(0, 5),
    )
    @example(lengths=[3, 2, 1], missing=False, context=25, horizon=1, seed=0)
    @example(lengths=[40, 1, 40], missing=True, context=4, horizon=8, seed=1)
    def check(lengths: list[int], missing: bool, context: int, horizon: int, seed: int) -> None:
        compared.append(compared_windows(lengths, missing, context, horizon, seed))

    check()
    assert sum(map(bool, compared)) > 40, "most drawn series have windows"


def compared_windows(lengths: list[int], missing: bool, context: int, horizon: int, seed: int) -> int:
    """How many windows are the slices cut one by one, in any order, padded where a series begins too late."""
    torch.manual_seed(seed)
    rows, S, length = sum(lengths), len(lengths), context + horizon
    starts = torch.tensor([0, *np.cumsum(lengths)])
    series = Series(
        values=1 + torch.rand(rows, 2),
        observed=torch.rand(rows, 2) > 0.2 if missing else None,
        time=torch.arange(rows) * 7 + 1000,
        starts=starts,
        mean=torch.zeros(S, 2),
        scale=torch.ones(S, 2),
        past_covariates=1 + torch.rand(rows, 1),
        future_covariates=1 + torch.rand(rows, 3),
        past_covariates_observed=torch.rand(rows, 1) > 0.2 if missing else None,
        future_covariates_observed=torch.rand(rows, 3) > 0.2 if missing else None,
        static=torch.arange(2 * S).view(S, 2),
    )
    ranges = [range(min(1 + n % 3, n), max(1, n - horizon + 1), 1 + n % 2) for n in lengths]
    wanted = [(number, origin) for number, origins in enumerate(ranges) for origin in origins]
    dataset = WindowDataset(series, ranges, context, horizon)
    assert len(dataset) == len(wanted)
    if not wanted:
        return 0
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
        for name in ("past_covariates", "future_covariates"):
            mask, whole = getattr(batch, f"{name}_observed"), getattr(series, f"{name}_observed")
            whole = torch.ones_like(getattr(series, name), dtype=torch.bool) if whole is None else whole
            expected = cut(whole)[: getattr(batch, name).shape[1]]
            assert (expected if mask is None else mask[place]).equal(expected), name
        assert len(values) == length
    return len(order)


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
    data.setup("predict")
    (batch,) = data.predict_dataloader()
    assert batch.static.tolist() == [[1, -1], [2, -1]]
