"""Of thinned data sets every k-th window is scored, and all are trained on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.paper.thinned_windows import ThinnedDataModule
from tsattn.data import ForecastDataModule
from tsattn.data.public import public_data

pytestmark = pytest.mark.real_data

SIZES = {"context_length": 24, "prediction_length": 8}


def made(data: ForecastDataModule) -> ForecastDataModule:
    data.setup("fit")
    return data


def test_every_third_window_is_scored_and_all_are_trained_on() -> None:
    whole = made(public_data.PublicDataModule("ETTh1", **SIZES))
    thinned = made(ThinnedDataModule("ETTh1", 3, **SIZES))
    assert thinned.task.data == "ETTh1_every_3"
    assert len(thinned.windows("train")) == len(whole.windows("train"))
    assert thinned.scaler == whole.scaler
    for part in ("val", "test"):
        count = len(whole.windows(part))
        numbers = np.arange(0, count, 3)
        assert len(thinned.windows(part)) == len(numbers) == -(-count // 3)
        few = thinned.windows(part).__getitems__(np.arange(len(numbers)))
        many = whole.windows(part).__getitems__(numbers)
        assert torch.equal(few.past, many.past)
        assert torch.equal(few.target, many.target)
    scored = sum(len(batch.past) for batch in thinned.eval_dataloader("test"))
    assert scored == len(thinned.windows("test"))
    longer = thinned.with_context(48)
    assert len(longer.windows("test")) == len(thinned.windows("test"))
