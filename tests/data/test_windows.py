from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from tests.wide_panels import wide_panel
from tsattn.data import Series, WindowDataset, panel_from_frame, scaled_series
from tsattn.scaler import Scaler

L, T, C = 12, 5, 3


def series_of(rows: int, missing: bool) -> Series:
    values = np.random.default_rng(1).standard_normal((rows, C))
    if missing:
        values[::7, 1] = np.nan
    frame = pd.DataFrame(values, index=pd.date_range("2020-01-01", periods=rows, freq="h"))
    return scaled_series(wide_panel(frame, "toy"), Scaler((0.0,) * C, (1.0,) * C))


def sliced(tensor: Tensor, starts: list[int], length: int) -> np.ndarray:
    return np.stack([tensor.numpy()[start : start + length] for start in starts])


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("indices", [[0], [28], [5, 3, 3, 17], list(range(29))])
def test_batch_equals_windows_sliced_one_by_one(missing: bool, indices: list[int]) -> None:
    series = series_of(50, missing)
    dataset = WindowDataset(series, range(15, 44), L, T)
    assert len(dataset) == 29
    origins = [15 + index for index in indices]
    pasts = [origin - L for origin in origins]
    batch = dataset.__getitems__(indices)
    assert len(batch) == len(indices)
    np.testing.assert_array_equal(batch.past, sliced(series.values, pasts, L))
    np.testing.assert_array_equal(batch.target, sliced(series.values, origins, T))
    np.testing.assert_array_equal(batch.time, sliced(series.time, pasts, L + T))
    if missing:
        np.testing.assert_array_equal(batch.past_observed, sliced(series.observed, pasts, L))
        np.testing.assert_array_equal(batch.target_observed, sliced(series.observed, origins, T))
    else:
        assert batch.past_observed is None
        assert batch.target_observed is None


def test_one_index_gives_a_batch_of_one() -> None:
    dataset = WindowDataset(series_of(50, False), range(L, 46), L, T)
    assert torch.equal(dataset[7].past, dataset.__getitems__([7]).past)
    for number in (-1, len(dataset)):
        with pytest.raises(IndexError, match="numbered from 0 to 33"):
            dataset[number]


def test_horizon_of_zero_has_no_target() -> None:
    batch = series_of(50, True).windows(torch.tensor([0]), torch.tensor([50]), L, 0)
    assert batch.target is None
    assert batch.target_observed is None
    assert batch.past_observed is not None
    assert batch.past.shape == (1, L, C)
    assert batch.time.shape == (1, L)


def test_windows_are_cut_when_asked_for_not_copied_ahead() -> None:
    series = series_of(20_000, False)
    dataset = WindowDataset(series, range(L, 19_000), L, T)
    assert dataset.series.values.data_ptr() == series.values.data_ptr()
    held = [part for part in vars(dataset).values() if isinstance(part, Tensor)]
    assert sum(part.nbytes for part in held) <= 100, "no more than a range a series"


def test_batch_does_not_share_memory_with_the_series() -> None:
    series = series_of(50, False)
    before = series.values.clone()
    WindowDataset(series, range(L, 46), L, T).__getitems__([0, 1]).past.zero_()
    assert torch.equal(series.values, before)


@pytest.mark.parametrize("season", [1, 3, 7])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_windows_know_their_targets_and_last_seasons_in_original_units(season: int, share: float) -> None:
    rng, lengths = np.random.default_rng(2), [40, 5, 30]
    y = np.round(100 + 9 * rng.standard_normal(sum(lengths)), 1)
    y[rng.random(len(y)) < share] = np.nan
    if share:
        y[2:40:7] = np.nan  # one place is never known
    days = [pd.date_range("2020-01-01", periods=length) for length in lengths]
    frame = pd.DataFrame({"unique_id": np.repeat([*"abc"], lengths), "ds": np.concatenate(days), "y": y})
    series = scaled_series(panel_from_frame(frame), Scaler((103.0,), (7.0,)))
    origins = [range(season, 37), range(3, 4), range(20, 28)]
    batch = WindowDataset(series, origins, 8, 2, [season]).__getitems__([*range(sum(map(len, origins)))])
    starts = np.cumsum([0, *lengths])
    ends = [(starts[number], starts[number] + row) for number, rows in enumerate(origins) for row in rows]
    np.testing.assert_array_equal(batch.units.target[..., 0], [y[end : end + 2] for _, end in ends])
    for window, (start, end) in enumerate(ends):
        for place in range(season):
            row = end - season + place
            of_place = [y[i] for i in range(row, start - 1, -season) if not np.isnan(y[i])]
            of_any = [y[i] for i in range(row, start - 1, -1) if not np.isnan(y[i])]
            expected = (of_place or of_any or [103.0])[0]
            known = batch.units.seasons[season]
            assert known.original[window, place, 0] == expected, (window, place)
            assert known.scaled[window, place, 0] == np.float32((expected - 103.0) / 7.0)
