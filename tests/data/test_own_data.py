from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from tsattn.data import CSVDataModule
from tsattn.data.batch_order import ShuffledBatches
from tsattn.errors import UserError

SIZES = {"context_length": 48, "prediction_length": 24, "batch_size": 32, "eval_batch_size": 10}


@pytest.fixture
def data(toy_csv: Path) -> CSVDataModule:
    data = CSVDataModule(str(toy_csv), **SIZES)
    data.prepare_data()
    data.setup("fit")
    return data


def test_scaler_sees_training_rows_only(toy_frame: pd.DataFrame, tmp_path: Path, data: CSVDataModule) -> None:
    toy_frame.iloc[420:] = 1e6
    path = tmp_path / "later.csv"
    toy_frame.to_csv(path)
    changed = CSVDataModule(str(path), **SIZES)
    changed.setup("fit")
    assert data.task is not None
    assert changed.task is not None
    assert changed.scaler.mean == data.scaler.mean
    assert changed.scaler.scale == data.scaler.scale


@pytest.mark.parametrize(("part", "batches", "last"), [("train", 11, 29), ("val", 4, 7), ("test", 10, 7)])
def test_loaders_keep_their_last_batch(data: CSVDataModule, part: str, batches: int, last: int) -> None:
    loader = getattr(data, f"{part}_dataloader")()
    sizes = [len(batch) for batch in loader]
    assert (len(sizes), sizes[-1]) == (batches, last)
    assert sum(sizes) == len(data.windows(part)) == {"train": 349, "val": 37, "test": 97}[part]
    assert isinstance(loader.batch_sampler, ShuffledBatches) is (part == "train")


@pytest.mark.parametrize("part", ["val", "test"])
def test_evaluation_windows_come_in_the_order_of_time(data: CSVDataModule, toy_frame: pd.DataFrame, part: str) -> None:
    assert data.task is not None
    start = {"val": 420, "test": 480}[part]
    loader = data.val_dataloader() if part == "val" else data.test_dataloader()
    batches = list(loader)
    starts = torch.cat([batch.time[:, 48] for batch in batches])
    assert pd.to_datetime(starts.numpy(), unit="s").tolist() == toy_frame.index[start : start + len(starts)].tolist()
    restored = batches[0].target[0].double().numpy() * data.scaler.scale + data.scaler.mean
    np.testing.assert_allclose(restored, toy_frame[start : start + 24], atol=1e-4)
    context = batches[0].past[0].double().numpy() * data.scaler.scale + data.scaler.mean
    np.testing.assert_allclose(context, toy_frame[start - 48 : start], atol=1e-4)


def test_test_windows_reach_back_before_the_split_and_their_horizons_do_not(data: CSVDataModule) -> None:
    (split,) = data.splits
    batches = list(data.test_dataloader())
    rows = data.series.time
    first, last = batches[0].time[0], batches[-1].time[-1]
    assert first[0] == rows[split.val_end - 48] < rows[split.val_end] == first[48]
    assert last[-1] == rows[split.test_end - 1]
    assert torch.equal(batches[0].past[0], data.series.values[split.val_end - 48 : split.val_end])


def test_training_windows_end_before_validation_starts(data: CSVDataModule, toy_frame: pd.DataFrame) -> None:
    last = max(int(batch.time.max()) for batch in data.train_dataloader())
    assert pd.Timestamp(last, unit="s") == toy_frame.index[419]


def test_every_third_window_or_those_of_one_of_two_processes(data: CSVDataModule) -> None:
    whole = torch.cat([batch.time[:, 0] for batch in data.eval_dataloader("val")])
    third = torch.cat([batch.time[:, 0] for batch in data.eval_dataloader("val", every=3)])
    assert torch.equal(third, whole[::3])
    state = SimpleNamespace(fn="validate", status="finished")
    for rank in (0, 1):
        data.trainer = SimpleNamespace(global_rank=rank, world_size=2, state=state)  # type: ignore[assignment]
        share = torch.cat([batch.time[:, 0] for batch in data.val_dataloader()])
        assert torch.equal(share, whole[rank::2])


def test_batches_come_out_of_a_worker_process(toy_csv: Path) -> None:
    data = CSVDataModule(str(toy_csv), num_workers=1, **SIZES)
    data.setup("fit")
    assert sum(len(batch) for batch in data.val_dataloader()) == 37


def test_empty_cells_are_masked_and_logged(
    tmp_path: Path, toy_frame: pd.DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    toy_frame.iloc[590, 1] = np.nan
    path = tmp_path / "missing.csv"
    toy_frame.to_csv(path)
    data = CSVDataModule(str(path), **SIZES)
    data.setup("fit")
    data.setup("test")
    assert caplog.messages == [f"{path}: 1 of 1200 values are missing; they are masked, never scored"]
    *_, batch = data.test_dataloader()
    assert not batch.target_observed[-1, 590 - 576, 1]
    assert int((~batch.target_observed[-1]).sum()) == 1


def test_sizes_below_one_are_refused() -> None:
    for name in ("context_length", "prediction_length", "batch_size", "eval_batch_size"):
        with pytest.raises(UserError, match=f"^{name} must be at least 1, not 0$"):
            CSVDataModule("any.csv", **{name: 0})
        with pytest.raises(UserError, match=f"{name} must be a whole number, not None"):
            CSVDataModule("any.csv", **{name: None})  # as of a key of YAML without a value
    with pytest.raises(UserError, match="num_workers must be at least 0, not -1"):
        CSVDataModule("any.csv", num_workers=-1)
    for size in (-1.0, float("nan")):
        with pytest.raises(UserError, match="resident_gb must be at least 0"):
            CSVDataModule("any.csv", resident_gb=size)


def test_nothing_is_read_before_setup(tmp_path: Path) -> None:
    data = CSVDataModule(str(tmp_path / "gone.csv"), **SIZES)
    for ask in (lambda: data.splits, data.train_dataloader, data.test_dataloader, data.predict_dataloader):
        with pytest.raises(UserError, match="call setup"):
            ask()
    with pytest.raises(UserError, match="no such file"):
        data.setup("fit")
