from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tsattn.data import CSVDataModule, scaling
from tsattn.errors import UserError
from tsattn.scaler import Scaler
from tsattn.task import Task

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
