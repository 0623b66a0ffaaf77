"""What goes to the worker and comes back, row by row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tests.peers.toys import L, T, toy_data, toy_frame
from tests.toy_windows import toy_task, toy_windows
from tsattn.errors import UserError
from tsattn.peers.predictors import read_forecasts, write_series, write_windows


def test_the_series_end_with_their_validation_rows(tmp_path: Path) -> None:
    frame = toy_frame()
    frame.iloc[7, 1] = np.nan
    data = toy_data(frame)
    (split,) = data.splits
    held = write_series(tmp_path / "table", data)
    assert held == split.val_end - split.train_end > 0
    table = pd.read_parquet(tmp_path / "table")
    assert table["unique_id"].tolist() == [0] * split.val_end + [1] * split.val_end
    assert table["ds"].tolist() == [*range(split.val_end)] * 2
    expected = data.series.values[: split.val_end].T.reshape(-1)
    np.testing.assert_array_equal(table["y"], expected)
    assert np.flatnonzero(~table["observed"]).tolist() == [split.val_end + 7]


def test_no_validation_row_is_among_the_training_rows_of_series_of_any_length(tmp_path: Path) -> None:
    lengths = {"a": 300, "b": 200, "c": 60, "d": 12}
    frame = pd.concat(
        toy_frame(rows, 1, seed).rename(columns={"a": "y"}).assign(unique_id=name).rename_axis("ds").reset_index()
        for seed, (name, rows) in enumerate(lengths.items())
    )
    data = toy_data(frame)
    held = write_series(tmp_path / "table", data)
    table = pd.read_parquet(tmp_path / "table")
    longest = [split.val_end - split.train_end for split in data.splits]
    assert held == min(rows for rows in longest if rows >= T)
    for number, split in enumerate(data.splits):
        rows = (table["unique_id"] == number).sum()
        assert rows - held <= split.train_end
        assert rows <= split.val_end
    assert (table["unique_id"] == 0).sum() - held == data.splits[0].train_end, "of a long one all training rows stay"


def test_without_a_validation_part_no_rows_are_held(tmp_path: Path) -> None:
    data = toy_data().with_all_rows()
    assert write_series(tmp_path / "table", data) == 0
    assert len(pd.read_parquet(tmp_path / "table")) == 2 * 200


@pytest.mark.parametrize("cut_fronts", [False, True])
def test_windows_are_written_by_window_channel_and_step(cut_fronts: bool, tmp_path: Path) -> None:
    """Fronts without a value can be left out."""
    windows = toy_windows(toy_task(L, T, 3), 4, gaps=True)
    assert windows.past_observed is not None
    write_windows(tmp_path / "table", windows, cut_fronts=cut_fronts)
    table = pd.read_parquet(tmp_path / "table")
    for (window, channel), part in table.groupby(["window", "unique_id"]):
        seen = windows.past_observed[window, :, channel].numpy()
        first = int(seen.argmax()) if cut_fronts and seen.any() else 0
        assert part["ds"].tolist() == [*range(first, L)]
        np.testing.assert_array_equal(part["y"], windows.past[window, first:, channel].float().numpy())
        np.testing.assert_array_equal(part["observed"], seen[first:])
    assert table["window"].is_monotonic_increasing
    assert table["window"].max() == 3


def forecasts(path: Path, levels: tuple[float, ...] = (), rows: int = 2 * 3 * 4) -> torch.Tensor:
    keys = np.indices((2, 3, 4)).reshape(3, -1)
    values = np.random.default_rng(0).standard_normal((24, max(1, len(levels))))
    names = [f"{level:g}" for level in levels] or ["predictions"]
    table = pd.DataFrame(
        {"window": keys[0], "unique_id": keys[1], "ds": keys[2], **dict(zip(names, values.T, strict=True))}
    )
    table[:rows].to_parquet(path)
    return torch.from_numpy(values).reshape(2, 3, 4, -1).transpose(1, 2)


def test_forecasts_come_back_by_window_step_and_channel(tmp_path: Path) -> None:
    expected = forecasts(tmp_path / "made")
    torch.testing.assert_close(read_forecasts(tmp_path / "made", 2, 3, 4, ()), expected[..., 0])
    expected = forecasts(tmp_path / "made", (0.1, 0.5, 0.9))
    found = read_forecasts(tmp_path / "made", 2, 3, 4, (0.1, 0.5, 0.9))
    torch.testing.assert_close(found, expected.sort(-1).values)


def test_forecasts_that_are_lacking_or_no_numbers_are_refused(tmp_path: Path) -> None:
    forecasts(tmp_path / "made", rows=23)
    with pytest.raises(UserError, match=r"^the peer has not forecast each of 2 windows of 3 channels$"):
        read_forecasts(tmp_path / "made", 2, 3, 4, ())
    forecasts(tmp_path / "made")
    table = pd.read_parquet(tmp_path / "made")
    table.loc[5, "predictions"] = np.inf
    table.to_parquet(tmp_path / "made")
    with pytest.raises(UserError, match=r"^the peer has forecast what is no number$"):
        read_forecasts(tmp_path / "made", 2, 3, 4, ())
