"""The same data for a model of another context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer

from tests.data.cases import long_frame
from tests.toy_windows import tensors_of
from tsattn.data import ForecastDataModule, FrameDataModule, MappedDataModule
from tsattn.errors import UserError

L, T = 12, 4


def wide(tmp_path: Path) -> ForecastDataModule:
    frame = pd.DataFrame({"a": np.sin(np.arange(120.0)), "b": np.arange(120.0) ** 0.5})
    frame.iloc[[5, 60], 0] = np.nan
    frame["date"] = pd.date_range("2020-01-01", periods=120, freq="h")
    return FrameDataModule(frame.set_index("date"), context_length=L, prediction_length=T, eval_batch_size=7)


def long(tmp_path: Path) -> ForecastDataModule:
    frame = long_frame({"long": 120, "short": 40, "tiny": 9})
    frame["price"] = np.arange(len(frame)) * 0.5
    columns: dict[str, Any] = {"future_covariates": ["price"], "scaling": "series"}
    return FrameDataModule(frame, context_length=L, prediction_length=T, eval_batch_size=7, **columns)


def mapped(tmp_path: Path) -> ForecastDataModule:
    long_frame({"long": 120, "short": 40}).to_parquet(tmp_path / "sales.parquet")
    return MappedDataModule(str(tmp_path / "sales.parquet"), context_length=L, prediction_length=T, eval_batch_size=7)


DATA = {"wide": wide, "long": long, "mapped": mapped}


@pytest.fixture(params=DATA)
def data(request: pytest.FixtureRequest, tmp_path: Path) -> ForecastDataModule:
    made = DATA[request.param](tmp_path)
    made.setup("fit")
    return made


def everything(data: ForecastDataModule, part: str) -> dict[str, torch.Tensor | None]:
    batches = [tensors_of(batch) for batch in data.eval_dataloader(part)]
    whole = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
    return {**dict.fromkeys(("target_observed", "past_observed", "static")), **whole}


@pytest.mark.parametrize("context", [1, 20])
def test_windows_of_validation_and_test_stay_those_of_the_same_rows(data: ForecastDataModule, context: int) -> None:
    other = data.with_context(context)
    other.setup("fit")  # as a Trainer calls it, and does nothing
    assert other.task is not None
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
