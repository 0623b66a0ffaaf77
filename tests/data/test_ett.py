from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from tsattn.data import ETTDataModule
from tsattn.errors import UserError

HORIZONS = (96, 192, 336, 720)
COUNTS = {
    **dict.fromkeys(["ETTh1", "ETTh2"], (2785, 2689, 2545, 2161)),
    **dict.fromkeys(["ETTm1", "ETTm2"], (11425, 11329, 11185, 10801)),
}
CASES = [
    (name, horizon, count) for name, counts in COUNTS.items() for horizon, count in zip(HORIZONS, counts, strict=True)
]


def prepared(name: str, horizon: int = 96) -> ETTDataModule:
    data = ETTDataModule(name, context_length=336, prediction_length=horizon)
    data.prepare_data()
    data.setup("fit")
    return data


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "horizon", "count"), CASES)
def test_number_of_test_windows_is_the_literature_s(name: str, horizon: int, count: int) -> None:
    data = prepared(name, horizon)
    windows = data.windows("test")
    assert len(windows) == count
    assert len(data.windows("val")) == count
    assert len(data.windows("test", context_length=2 * 336)) == count
    steps = 24 if name.startswith("ETTh") else 96
    assert len(data.windows("train")) == 12 * 30 * steps - 336 - horizon + 1
    if horizon == 96:
        assert sum(map(len, data.test_dataloader())) == count
    assert windows.origins[0] == 16 * 30 * steps
    assert windows.origins[-1] + horizon == 20 * 30 * steps


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "rows", "frequency"), [("ETTh1", 17420, "h"), ("ETTm1", 69680, "15min")])
def test_scaler_is_fitted_on_the_first_twelve_months(name: str, rows: int, frequency: str) -> None:
    data = prepared(name)
    assert data.frame is not None
    assert data.task is not None
    assert len(data.frame) == rows
    assert data.task.channels == ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
    assert data.task.frequency == frequency
    assert data.task.season_length == {"h": 24, "15min": 96}[frequency]
    train = data.frame.to_numpy()[: 12 * 30 * data.task.season_length]
    np.testing.assert_allclose(data.task.mean, train.mean(0), rtol=1e-9)
    np.testing.assert_allclose(data.task.scale, train.std(0), rtol=1e-9)


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["ETTh2", "ETTm2"])
def test_first_test_window_holds_the_rows_of_the_file(name: str) -> None:
    data = prepared(name)
    assert data.task is not None
    assert data.frame is not None
    batch = next(iter(data.test_dataloader()))
    start = 16 * 30 * data.task.season_length
    restored = batch.target[0].double().numpy() * data.task.scale + data.task.mean
    np.testing.assert_allclose(restored, data.frame.iloc[start : start + 96], atol=1e-4)
    first = pd.Timestamp(int(batch.time[0, 336]), unit="s")
    assert first == data.frame.index[start]
    assert batch.past_observed is None
    assert torch.isfinite(batch.past).all()


@pytest.mark.real_data
def test_horizon_longer_than_the_validation_part_is_refused() -> None:
    with pytest.raises(UserError, match=r"prediction_length 2881 .* 1 to 2880"):
        prepared("ETTh1", 2881)


@pytest.mark.parametrize("name", ["ETTh3", "etth1", "ETTh1.csv", ""])
def test_unknown_name_lists_the_valid_ones(name: str) -> None:
    with pytest.raises(UserError) as caught:
        ETTDataModule(name)
    assert str(caught.value) == f"unknown ETT data set {name!r}; valid: ETTh1, ETTh2, ETTm1, ETTm2"
