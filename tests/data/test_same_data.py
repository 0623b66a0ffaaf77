"""The same data in the memory of a device, where the host waits for none, and for a model of another context."""

import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

from tests.data.cases import long_frame as counted_frame
from tests.data.many_series import COLUMNS, LENGTHS, long_frame
from tests.toy_windows import tensors_of
from tsattn.batch import Batch
from tsattn.data import ForecastDataModule, FrameDataModule, MappedDataModule
from tsattn.errors import UserError
from tsattn.training import ForecastingModule


def wide(missing: bool) -> pd.DataFrame:
    values = np.random.default_rng(0).standard_normal((300, 3))
    if missing:
        values[::7, 1] = np.nan
    return pd.DataFrame(values, pd.date_range("2020-01-01", periods=300, freq="h", name="date"), ["a", "b", "c"])


KINDS: dict[str, Callable[[], tuple[pd.DataFrame, dict[str, Any]]]] = {
    "one series": lambda: (wide(missing=False), {}),
    "one with missing values": lambda: (wide(missing=True), {}),
    "many, short ones among them": lambda: (long_frame(LENGTHS), COLUMNS),
}


def prepared(kind: str, device: str, **options: Any) -> ForecastDataModule:
    frame, columns = KINDS[kind]()
    data = FrameDataModule(frame, context_length=12, prediction_length=4, batch_size=8, **columns, **options)
    data.setup("fit")
    strategy, state = SimpleNamespace(root_device=torch.device(device)), SimpleNamespace(status="running", fn="fit")
    data.trainer = SimpleNamespace(strategy=strategy, state=state, global_rank=0, world_size=1)
    return data


def loaders(data: ForecastDataModule) -> list[DataLoader[Batch]]:
    return [data.train_dataloader(), data.val_dataloader(), data.test_dataloader()]


@pytest.mark.parametrize(("kind", "has_mask"), [*zip(KINDS, (False, True, True), strict=True)])
def test_resident_series_give_the_same_batches(kind: str, has_mask: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    on_host = [list(loader) for loader in loaders(prepared(kind, "cpu"))]
    monkeypatch.setattr("tsattn.data.windows.RESIDENT_ON", ("cpu",))
    torch.manual_seed(3)
    resident = loaders(prepared(kind, "cpu"))
    assert {batch.past_observed is not None for batch in on_host[0]} == {has_mask}, "in each batch or in none"
    for expected, loader in zip(on_host, resident, strict=True):
        assert all(isinstance(numbers, torch.Tensor) for numbers in loader.batch_sampler)
        found = list(loader)
        assert len(found) == len(expected) > 0
        for one, other in zip(found, expected, strict=True):
            assert tensors_of(one).keys() == tensors_of(other).keys()
            for name, part in tensors_of(one).items():
                assert torch.equal(part, tensors_of(other)[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_made_on_the_device_without_a_look_at_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the device ``meta`` hold no numbers: to read one is an error."""
    monkeypatch.setattr("tsattn.data.windows.RESIDENT_ON", ("meta",))
    data = prepared(kind, "meta")
    for loader in loaders(data):
        windows: Any = loader.dataset
        for numbers in loader.batch_sampler:
            batch = windows.__getitems__(numbers)
            assert {part.device.type for part in tensors_of(batch).values()} == {"meta"}
            assert data.transfer_batch_to_device(batch, torch.device("meta"), 0) is batch
    with pytest.raises(RuntimeError):
        int(batch.time[0, 0])  # so a look would have failed


def test_what_the_host_reads_stays_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsattn.data.windows.RESIDENT_ON", ("meta",))
    data = prepared("one series", "meta")
    batches = [next(iter(data.eval_dataloader("train"))), next(iter(data.predict_dataloader())), data.windows("val")[0]]
    assert [batch.past.device.type for batch in batches] == ["cpu"] * 3
    # and nothing stays on the device when the Trainer ends: the model is back on the host then, too
    for end in (lambda data: data.teardown("fit"), lambda data: data.on_exception(KeyboardInterrupt())):
        data = prepared("one series", "meta")
        on_device = weakref.ref(data.train_dataloader().dataset.series.values)
        assert on_device() is not None
        end(data)
        assert on_device() is None
        data.trainer.state.status = "finished"
        assert {batch.past.device.type for loader in loaders(data) for batch in loader} == {"cpu"}


def test_larger_series_are_cut_on_the_host_and_pinned() -> None:
    data = prepared("one series", "cuda")
    assert data.series.nbytes == 300 * (3 * 4 + 8) + 2 * 8 + 2 * 3 * 8  # values and time, starts, mean and scale
    for options in ({"resident_gb": (data.series.nbytes - 1) / 1e9}, {"resident_gb": 0}, {"num_workers": 1}):
        for loader in loaders(prepared("one series", "cuda", **options)):
            assert loader.pin_memory
            assert loader.dataset.series.values.device.type == "cpu"
    assert not any(loader.pin_memory for loader in loaders(prepared("one series", "cpu")))
    assert not prepared("one series", "cuda").eval_dataloader("train").pin_memory  # the host reads it


def test_what_is_pinned_is_contiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device waits for what it copies out of memory that is not contiguous."""
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor)
    batch = next(iter(prepared("one with missing values", "cpu").train_dataloader()))
    assert not batch.past.is_contiguous()
    held = tensors_of(batch.pin_memory())
    assert len(pinned) == len(held) > 4
    assert all(part.is_contiguous() for part in held.values())
    assert torch.equal(held["past"], batch.past)
    assert torch.equal(held["target"], batch.target)


@pytest.mark.gpu
def test_training_on_a_gpu_is_the_same_resident_and_pinned(tmp_path: Any) -> None:
    errors: list[float] = []
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    sizes: dict[str, Any] = {"context_length": 12, "prediction_length": 4, "batch_size": 8}
    for limit in (8.0, 0.0):
        torch.manual_seed(0)
        data = FrameDataModule(wide(missing=True), **sizes, resident_gb=limit)
        model = ForecastingModule({"kind": "transformer", "d_model": 16, "num_heads": 2, "dropout": 0.0})
        trainer = Trainer(accelerator="gpu", devices=1, max_steps=20, default_root_dir=tmp_path, **quiet)
        trainer.fit(model, data)
        errors.append(trainer.validate(model, data, verbose=False)[0]["val_mse_scaled"])
    assert errors[0] == pytest.approx(errors[1], rel=1e-4)
    for batch in prepared("one with missing values", "cuda", resident_gb=0).train_dataloader():
        assert all(part.is_pinned() and part.is_contiguous() for part in tensors_of(batch).values())


L, T = 12, 4


def wide_data(tmp_path: Path) -> ForecastDataModule:
    frame = pd.DataFrame({"a": np.sin(np.arange(120.0)), "b": np.arange(120.0) ** 0.5})
    frame.iloc[[5, 60], 0] = np.nan
    frame["date"] = pd.date_range("2020-01-01", periods=120, freq="h")
    return FrameDataModule(frame.set_index("date"), context_length=L, prediction_length=T, eval_batch_size=7)


def long(tmp_path: Path) -> ForecastDataModule:
    frame = counted_frame({"long": 120, "short": 40, "tiny": 9})
    frame["price"] = np.arange(len(frame)) * 0.5
    columns: dict[str, Any] = {"future_covariates": ["price"], "scaling": "series"}
    return FrameDataModule(frame, context_length=L, prediction_length=T, eval_batch_size=7, **columns)


def mapped(tmp_path: Path) -> ForecastDataModule:
    counted_frame({"long": 120, "short": 40}).to_parquet(tmp_path / "sales.parquet")
    return MappedDataModule(str(tmp_path / "sales.parquet"), context_length=L, prediction_length=T, eval_batch_size=7)


DATA = {"wide_data": wide_data, "long": long, "mapped": mapped}


@pytest.fixture
def data(request: pytest.FixtureRequest, tmp_path: Path) -> ForecastDataModule:
    made = DATA[request.param](tmp_path)
    made.setup("fit")
    return made


def everything(data: ForecastDataModule, part: str) -> dict[str, torch.Tensor | None]:
    batches = [tensors_of(batch) for batch in data.eval_dataloader(part)]
    whole = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
    return {**dict.fromkeys(("target_observed", "past_observed", "static")), **whole}


@pytest.mark.parametrize(("data", "context"), [("wide_data", 1), ("long", 20), ("mapped", 20)], indirect=["data"])
def test_windows_of_validation_and_test_stay_those_of_the_same_rows(data: ForecastDataModule, context: int) -> None:
    other = data.with_context(context)
    other.setup("fit")  # as a Trainer calls it, and does nothing
    assert other.task.context_length == other.context_length == context
    assert (other.scaler, other.splits, other.series) == (data.scaler, data.splits, data.series)
    shared = min(L, context)
    for part in ("val", "test"):
        mine, own = everything(other, part), everything(data, part)
        assert mine.keys() == own.keys()
        for name in ("target", "target_observed", "series_id", "static"):
            assert mine[name] is own[name] is None or torch.equal(mine[name], own[name]), name
        for name in ("past", "past_observed"):
            assert own[name] is None or torch.equal(mine[name][:, -shared:], own[name][:, -shared:]), name
        assert mine["past"].shape[1] == context
    longer = data.with_context(L + 3)  # training windows have the whole context
    assert 3 <= len(data.windows("train")) - len(longer.windows("train")) <= 3 * len(data.splits)
    assert len(longer.train_dataloader().dataset) == len(data.windows("train", L + 3))


def test_a_training_of_one_leaves_no_mark_on_the_other(tmp_path: Path) -> None:
    data = long(tmp_path)
    with pytest.raises(UserError, match=r"call setup\('fit'\) before"):
        data.with_context(3)
    data.setup("fit")
    before = dict(vars(data))
    other = data.with_context(20)
    other.training_batches, other.scored_windows = 3, 2
    Trainer(fast_dev_run=True, barebones=False, logger=False, enable_progress_bar=False).fit(Idle(), datamodule=other)
    assert vars(data) == before
    again = other.with_context(L)
    assert (again.trainer, again.training_batches, again.scored_windows) == (None, None, None)
    with pytest.raises(UserError, match="context_length 500"):
        data.with_context(500).windows("train")


class Idle(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.level = torch.nn.Parameter(torch.zeros(()))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        assert batch.past.shape[1] == 20
        return self.level.square()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)
