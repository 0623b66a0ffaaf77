"""Real files, read as anyone would read their own."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from tsattn.data import CSVDataModule, scaling
from tsattn.data.windows import ShuffledBatches
from tsattn.errors import UserError
from tsattn.scaler import Scaler
from tsattn.task import Task

SIZES = {"context_length": 48, "prediction_length": 24, "eval_batch_size": 16}


@pytest.fixture
def saved(data: CSVDataModule) -> tuple[Task, Scaler]:
    records = json.loads(json.dumps([data.task.to_dict(), data.scaler.to_dict()]))
    return Task.from_dict(records[0]), Scaler.from_dict(records[1])


@pytest.fixture
def other(toy_frame: pd.DataFrame) -> pd.DataFrame:
    return 5 - 2 * toy_frame.set_axis(toy_frame.index + pd.Timedelta(days=366))


def written(path: Path, frame: pd.DataFrame) -> Path:
    frame.to_csv(path, index_label="date")
    return path


def restored(values: torch.Tensor, saved: tuple[Task, Scaler]) -> np.ndarray:
    return values.double().numpy() * saved[1].scale + saved[1].mean


def forecasting(training: Path, saved: tuple[Task, Scaler], path: Path) -> CSVDataModule:
    data = CSVDataModule(str(training), **SIZES)
    data.forecast_from(path)
    data.prepare("predict", *saved)
    return data


def test_preset_task_is_obeyed_and_nothing_refitted(
    saved: tuple[Task, Scaler], other: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("moments", "panel_moments"):
        monkeypatch.setattr(scaling, name, lambda *_: pytest.fail("a trained scaler must not be fitted again"))
    path = str(written(tmp_path / "other.csv", other))
    data = CSVDataModule(path, **SIZES)
    data.prepare("test", *saved)
    assert (data.task, data.scaler) == saved
    batch = next(iter(data.test_dataloader()))
    np.testing.assert_allclose(restored(batch.target[0], saved), other[480:504], atol=1e-4)
    assert batch.target.mean() < -1, "on the scale of the first file, not its own"
    for sizes in ((60, 24), (48, 12)):
        data = CSVDataModule(path, context_length=sizes[0], prediction_length=sizes[1])
        with pytest.raises(
            UserError, match=r"the model was trained with (context_length 48|prediction_length 24), not"
        ):
            data.prepare("test", *saved)


def test_forecast_from_another_file_takes_its_end_and_the_model_s_scale(
    saved: tuple[Task, Scaler], other: pd.DataFrame, tmp_path: Path
) -> None:
    data = forecasting(tmp_path / "gone.csv", saved, written(tmp_path / "other.csv", other))
    (batch,) = data.predict_dataloader()
    assert (data.task, data.scaler) == saved
    assert batch.target is None
    np.testing.assert_allclose(restored(batch.past[0], saved), other[-48:], atol=1e-4)
    assert pd.Timestamp(int(batch.time[0, 47]), unit="s") == other.index[-1]
    with pytest.raises(UserError, match="split"):
        data.test_dataloader()
    path = written(tmp_path / "coarse.csv", other[::2])
    with pytest.raises(UserError, match=f"^{path}, line 2: the time stamps have frequency '2h', not 'h'; "):
        forecasting(tmp_path / "gone.csv", saved, path)


CSV_SIZES = {"context_length": 48, "prediction_length": 24, "batch_size": 32, "eval_batch_size": 10}


@pytest.fixture
def data(toy_csv: Path) -> CSVDataModule:
    data = CSVDataModule(str(toy_csv), **CSV_SIZES)
    data.prepare_data()
    data.setup("fit")
    return data


def test_loaders_keep_their_last_batch(data: CSVDataModule, toy_frame: pd.DataFrame) -> None:
    for part, batches, last, windows in (("train", 11, 29, 349), ("val", 4, 7, 37), ("test", 10, 7, 97)):
        loader = getattr(data, f"{part}_dataloader")()
        sizes = [len(batch) for batch in loader]
        assert (len(sizes), sizes[-1]) == (batches, last)
        assert sum(sizes) == len(data.windows(part)) == windows
        assert isinstance(loader.batch_sampler, ShuffledBatches) is (part == "train")
    last = max(int(batch.time.max()) for batch in data.train_dataloader())
    assert pd.Timestamp(last, unit="s") == toy_frame.index[419], "before validation starts"


@pytest.mark.parametrize("part", ["val", "test"])
def test_evaluation_windows_come_in_the_order_of_time(data: CSVDataModule, toy_frame: pd.DataFrame, part: str) -> None:
    start, end = {"val": (420, 480), "test": (480, 600)}[part]
    batches = list(getattr(data, f"{part}_dataloader")())
    starts = torch.cat([batch.time[:, 48] for batch in batches])
    assert pd.to_datetime(starts.numpy(), unit="s").tolist() == toy_frame.index[start : end - 23].tolist()
    for rows, part_of_window in ((slice(start, start + 24), "target"), (slice(start - 48, start), "past")):
        values = getattr(batches[0], part_of_window)[0].double().numpy() * data.scaler.scale + data.scaler.mean
        np.testing.assert_allclose(values, toy_frame[rows], atol=1e-4)


def test_every_third_window_or_those_of_one_of_two_processes(data: CSVDataModule) -> None:
    whole = torch.cat([batch.time[:, 0] for batch in data.eval_dataloader("val")])
    third = torch.cat([batch.time[:, 0] for batch in data.eval_dataloader("val", every=3)])
    assert torch.equal(third, whole[::3])
    state = SimpleNamespace(fn="validate", status="finished")
    for rank in (0, 1):
        data.trainer = SimpleNamespace(global_rank=rank, world_size=2, state=state)
        share = torch.cat([batch.time[:, 0] for batch in data.val_dataloader()])
        assert torch.equal(share, whole[rank::2])


def test_nothing_is_read_before_setup(tmp_path: Path) -> None:
    data = CSVDataModule(str(tmp_path / "gone.csv"), **CSV_SIZES)
    for ask in (lambda: data.splits, data.train_dataloader, data.test_dataloader, data.predict_dataloader):
        with pytest.raises(UserError, match="call setup"):
            ask()
    with pytest.raises(UserError, match="does not exist"):
        data.setup("fit")
