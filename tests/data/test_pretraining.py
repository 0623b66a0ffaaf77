"""Generated and mixed series, the same for the same seed, and windows of them on their own scale, some short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from pretraining_data import (
    PretrainingDataModule,
    mixed_series,
    own_scale,
    seasonal_series,
    shortened,
    synthetic_series,
)

from tsattn.batch import Batch
from tsattn.data import CO2DataModule


def small(**changes: Any) -> PretrainingDataModule:
    sizes: dict[str, Any] = {"context_length": 32, "prediction_length": 8, "length": 64, "shortest": 4}
    return PretrainingDataModule(**{**sizes, "synthetic": 8, "seasonal": 4, "mixed": 5, "public": ["co2"], **changes})


def test_series_are_cut_into_parts_of_which_the_seed_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    data, again = small(), small()
    for one in (data, again):
        one.setup("fit")
    assert {(split.train_end, split.val_end, split.test_end) for split in data.splits} == {(48, 56, 64)}
    assert len(data.windows("train")) == 17 * (48 - 40 + 1)
    assert torch.equal(again.series.values, data.series.values)
    # of real series training rows alone are mixed
    changed = CO2DataModule().load_frame()
    changed.iloc[int(0.7 * len(changed)) :] = 1e6
    monkeypatch.setattr(CO2DataModule, "load_frame", lambda self: changed)
    assert np.array_equal(small().source.load().values, data.panel.values, equal_nan=True)


def test_the_shipped_configuration_names_no_data_that_it_is_compared_on() -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "chronos_tiny.yaml"
    public = yaml.safe_load(path.read_text())["data"]["init_args"]["public"]
    assert sorted(public) == ["co2", "exchange_rate", "national_illness", "weather"]


def test_windows_are_shortened_and_on_their_own_scale() -> None:
    torch.manual_seed(0)
    whole = Batch(50 + 7 * torch.randn(4000, 32, 1), torch.randn(4000, 8, 1))
    known = shortened(whole, 0.5, 4).past_observed[..., 0].int()
    assert torch.equal(known.cummax(1).values, known)
    assert known.sum(1).min() >= 4
    assert 0.45 < (known.sum(1) == 32).float().mean() < 0.56
    mean, std = whole.past.mean(1, keepdim=True), whole.past.std(1, correction=0, keepdim=True)
    torch.testing.assert_close(own_scale(whole).target, (whole.target - mean) / std, rtol=1e-4, atol=1e-4)


def test_generated_and_mixed_series_are_those_of_their_seed() -> None:
    for make in (synthetic_series, seasonal_series):
        series = make(13, 96, seed=4)
        assert np.array_equal(series[:5], make(5, 96, seed=4)), "fewer are the first of more"
        assert not np.allclose(series, make(13, 96, seed=5))
    sources = {"waves": [np.sin(np.arange(900.0) / 5)], "line": [np.arange(50.0)]}
    mixed, again = (mixed_series(sources, 100, 100, seed=2) for _ in range(2))
    assert np.allclose([(one.mean(), one.std()) for one in mixed], (0, 1))
    assert all(np.array_equal(one, other) for one, other in zip(mixed, again, strict=True))
