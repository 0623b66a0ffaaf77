"""Real files, read as anyone would read their own."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch import Trainer

from tests.conftest import REAL_ROOT
from tests.data.cases import logged
from tsattn.data import CSVDataModule, scaling
from tsattn.data.batch_order import ShuffledBatches
from tsattn.errors import UserError
from tsattn.forecaster import future_frame
from tsattn.scaler import Scaler
from tsattn.task import Task
from tsattn.training import ForecastingModule

SIZES = {"context_length": 48, "prediction_length": 24, "eval_batch_size": 16}


@pytest.fixture
def trained(toy_csv: Path) -> CSVDataModule:
    data = CSVDataModule(str(toy_csv), **SIZES)
    data.setup("fit")
    return data


@pytest.fixture
def saved(trained: CSVDataModule) -> tuple[Task, Scaler]:
    assert trained.task is not None
    assert trained.scaler is not None
    records = json.loads(json.dumps([trained.task.to_dict(), trained.scaler.to_dict()]))
    return Task.from_dict(records[0]), Scaler.from_dict(records[1])


@pytest.fixture
def other(toy_frame: pd.DataFrame) -> pd.DataFrame:
    """Other values of the same channels, a year later."""
    return 5 - 2 * toy_frame.set_axis(toy_frame.index + pd.Timedelta(days=366))


def written(path: Path, frame: pd.DataFrame) -> Path:
    frame.to_csv(path, index_label="date")
    return path


def restored(values: torch.Tensor, saved: tuple[Task, Scaler]) -> np.ndarray:
    return values.double().numpy() * saved[1].scale + saved[1].mean


def forecasting(toy_csv: Path, saved: tuple[Task, Scaler], path: Path) -> CSVDataModule:
    data = CSVDataModule(str(toy_csv), **SIZES)
    data.task, data.scaler = saved
    data.forecast_from(path)
    data.prepare_data()
    data.setup("predict")
    return data


def test_preset_task_is_obeyed_and_nothing_refitted(
    saved: tuple[Task, Scaler], other: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refit(*args: object) -> None:
        raise AssertionError("a trained model's scaler must not be fitted again")

    for name in ("moments", "panel_moments"):
        monkeypatch.setattr(scaling, name, refit)
    data = CSVDataModule(str(written(tmp_path / "other.csv", other)), **SIZES)
    data.task, data.scaler = saved
    data.setup("test")
    assert data.task is saved[0]
    assert data.scaler is saved[1]
    batch = next(iter(data.test_dataloader()))
    np.testing.assert_allclose(restored(batch.target[0], saved), other[480:504], atol=1e-4)
    assert batch.target.mean() < -1, "on the scale of the first file, not its own"


@pytest.mark.parametrize("name", ["task", "scaler"])
def test_one_of_task_and_scaler_alone_is_a_mistake(toy_csv: Path, saved: tuple[Task, Scaler], name: str) -> None:
    data = CSVDataModule(str(toy_csv), **SIZES)
    setattr(data, name, saved[name == "scaler"])
    with pytest.raises(AssertionError, match="are set together"):
        data.setup("test")


@pytest.mark.parametrize("again", [False, True])
def test_second_setup_changes_nothing(trained: CSVDataModule, saved: tuple[Task, Scaler], again: bool) -> None:
    before = next(iter(trained.test_dataloader()))
    if again:
        trained.task, trained.scaler = saved  # equal ones: scaled anew
    trained.setup("test")
    assert (trained.task, trained.scaler) == saved
    assert torch.equal(next(iter(trained.test_dataloader())).past, before.past)


@pytest.mark.parametrize("sizes", [(60, 24), (48, 12)])
def test_other_sizes_than_those_of_the_preset_task_are_refused(
    saved: tuple[Task, Scaler], toy_csv: Path, sizes: tuple[int, int]
) -> None:
    data = CSVDataModule(str(toy_csv), context_length=sizes[0], prediction_length=sizes[1])
    data.task, data.scaler = saved
    with pytest.raises(UserError, match=r"the model was trained with (context_length 48|prediction_length 24), not"):
        data.setup("test")


def test_forecast_from_another_file_takes_its_end_and_the_model_s_scale(
    toy_csv: Path, saved: tuple[Task, Scaler], other: pd.DataFrame, tmp_path: Path
) -> None:
    data = forecasting(toy_csv, saved, written(tmp_path / "other.csv", other))
    (batch,) = data.predict_dataloader()
    assert data.task is saved[0]
    assert data.scaler is saved[1]
    assert batch.target is None
    np.testing.assert_allclose(restored(batch.past[0], saved), other[-48:], atol=1e-4)
    assert pd.Timestamp(int(batch.time[0, 47]), unit="s") == other.index[-1]


def test_forecast_from_needs_no_training_file(saved: tuple[Task, Scaler], other: pd.DataFrame, tmp_path: Path) -> None:
    data = forecasting(tmp_path / "gone.csv", saved, written(tmp_path / "other.csv", other))
    assert len(data.predict_dataloader()) == 1


@pytest.mark.parametrize("rows", [1, 47])
def test_forecast_from_fewer_rows_than_the_context_pads_it_and_says_so(
    toy_csv: Path,
    saved: tuple[Task, Scaler],
    other: pd.DataFrame,
    tmp_path: Path,
    rows: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = written(tmp_path / "short.csv", other[:rows])
    (batch,) = forecasting(toy_csv, saved, path).predict_dataloader()
    assert caplog.messages == ["1 of 1 series have fewer rows than context_length 48; their contexts are padded"]
    assert not batch.past_observed[0, : 48 - rows].any()
    assert batch.past_observed[0, 48 - rows :].all()
    assert (batch.past[0, : 48 - rows] == 0).all()
    np.testing.assert_allclose(restored(batch.past[0, 48 - rows :], saved), other[:rows], atol=1e-4)
    assert pd.Timestamp(int(batch.time[0, 48]), unit="s") == other.index[rows - 1] + pd.Timedelta(hours=1)


def test_extra_columns_are_left_out_which_is_logged_and_the_order_restored(
    toy_csv: Path, saved: tuple[Task, Scaler], other: pd.DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = forecasting(toy_csv, saved, written(tmp_path / "plain.csv", other))
    assert caplog.messages == []
    mixed = other.assign(rain=7.0, note="text")[["rain", "drift", "note", "wave"]]
    data = forecasting(toy_csv, saved, written(tmp_path / "mixed.csv", mixed))
    (said,) = caplog.messages
    assert said.startswith(f"{tmp_path / 'mixed.csv'}: columns rain, note are not used")
    assert data.panel is not None
    assert data.panel.channels == saved[0].channels
    assert torch.equal(next(iter(data.predict_dataloader())).past, next(iter(plain.predict_dataloader())).past)


def test_wrong_frequency_is_refused(
    toy_csv: Path, saved: tuple[Task, Scaler], other: pd.DataFrame, tmp_path: Path
) -> None:
    path = written(tmp_path / "coarse.csv", other[::2])
    with pytest.raises(UserError) as caught:
        forecasting(toy_csv, saved, path)
    assert str(caught.value).startswith(f"{path}, line 2: the time stamps have frequency '2h', not 'h'; ")


def test_a_second_setup_reads_and_logs_nothing_again(
    toy_csv: Path, saved: tuple[Task, Scaler], other: pd.DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = forecasting(toy_csv, saved, written(tmp_path / "o.csv", other.assign(rain=1.0)))
    series = data.series
    data.setup("predict")
    assert data.series is series
    assert len(caplog.messages) == 1


def test_there_are_no_parts_in_a_file_to_forecast_from(
    toy_csv: Path, saved: tuple[Task, Scaler], other: pd.DataFrame, tmp_path: Path
) -> None:
    data = forecasting(toy_csv, saved, written(tmp_path / "other.csv", other))
    with pytest.raises(UserError, match="split"):
        data.test_dataloader()


CSV_SIZES = {"context_length": 48, "prediction_length": 24, "batch_size": 32, "eval_batch_size": 10}


@pytest.fixture
def data(toy_csv: Path) -> CSVDataModule:
    data = CSVDataModule(str(toy_csv), **CSV_SIZES)
    data.prepare_data()
    data.setup("fit")
    return data


def test_scaler_sees_training_rows_only(toy_frame: pd.DataFrame, tmp_path: Path, data: CSVDataModule) -> None:
    toy_frame.iloc[420:] = 1e6
    path = tmp_path / "later.csv"
    toy_frame.to_csv(path)
    changed = CSVDataModule(str(path), **CSV_SIZES)
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
    data = CSVDataModule(str(toy_csv), num_workers=1, **CSV_SIZES)
    data.setup("fit")
    assert sum(len(batch) for batch in data.val_dataloader()) == 37


def test_empty_cells_are_masked_and_logged(
    tmp_path: Path, toy_frame: pd.DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    toy_frame.iloc[590, 1] = np.nan
    path = tmp_path / "missing.csv"
    toy_frame.to_csv(path)
    data = CSVDataModule(str(path), **CSV_SIZES)
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
    data = CSVDataModule(str(tmp_path / "gone.csv"), **CSV_SIZES)
    for ask in (lambda: data.splits, data.train_dataloader, data.test_dataloader, data.predict_dataloader):
        with pytest.raises(UserError, match="call setup"):
            ask()
    with pytest.raises(UserError, match="no such file"):
        data.setup("fit")


REAL = {"ETTh1": ("h", 7, 17420), "vic_electricity": ("30min", 2, 52608), "national_illness": ("W-TUE", 7, 966)}
REAL["exchange_rate"] = ("D", 8, 7588)  # its dates are invented (see its card), but regular
REAL["ETTm1"] = ("15min", 7, 69680)


def prepared(name: str, **columns: Any) -> CSVDataModule:
    data = CSVDataModule(f"{REAL_ROOT}/{name}.csv", context_length=36, prediction_length=12, **columns)
    data.setup("fit")
    return data


@pytest.mark.real_data
@pytest.mark.parametrize("name", REAL)
def test_a_real_file_is_one_s_own_data_too(name: str, caplog: pytest.LogCaptureFixture) -> None:
    frequency, channels, rows = REAL[name]
    time_column = {"vic_electricity": "Time"}.get(name, "date")
    target = ["Demand", "Temperature"] if name == "vic_electricity" else None
    data = prepared(name, time_column=time_column, target=target)
    assert data.panel.is_wide
    assert data.panel.frequency == data.task.frequency == frequency
    assert data.panel.values.shape == (rows, channels)
    table = pd.read_csv(f"{REAL_ROOT}/{name}.csv")
    np.testing.assert_array_equal(data.panel.values, table[list(data.task.channels)])
    last = pd.Timestamp(table[time_column].iloc[-1])
    stamps = data.panel.future_time(0, 3)
    step = pd.tseries.frequencies.to_offset(frequency)
    assert stamps.tolist() == [last + step, last + 2 * step, last + 3 * step]
    assert [said for said in logged(caplog) if "not used" not in said] == []


@pytest.mark.real_data
def test_a_real_file_is_trained_on_and_forecast(tmp_path: Path) -> None:
    data = prepared("vic_electricity", time_column="Time", target=["Demand", "Temperature"])
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "limit_val_batches": 1}
    model = ForecastingModule({"kind": "transformer", "d_model": 8, "num_heads": 2, "num_layers": 1})
    trainer = Trainer(default_root_dir=tmp_path, accelerator="cpu", max_steps=2, **quiet)
    trainer.fit(model, data)
    (forecasts,) = trainer.predict(model, data)
    frame = future_frame([forecasts], model.task, model.output, data.panel)
    assert len(frame) == 12 * 2
    assert np.isfinite(frame.predictions).all()
