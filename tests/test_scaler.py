"""Forecasts come back in the units of their own series."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Trainer

from tsattn.errors import UserError
from tsattn.scaler import Scaler
from tsattn.task import Task
from tsattn.training import ForecastingModule

SMALL = {"kind": "transformer", "d_model": 8, "num_layers": 1, "num_heads": 2}
TASK = Task("toy", 4, 3, ("a", "b"), "h", 1)
SERIES = Scaler(
    mean=(0.0, 0.0),
    scale=(1.0, 1.0),
    scaling="series",
    ids=("small", "large"),
    series_mean=((1.0, 2.0), (100.0, 200.0)),
    series_scale=((0.1, 0.2), (10.0, 20.0)),
)


def test_a_scaler_travels_as_plain_data() -> None:
    assert Scaler.from_dict(json.loads(json.dumps(SERIES.to_dict()))) == SERIES
    with pytest.raises(TypeError, match="Scaler has no 'spread'"):
        Scaler.from_dict({**SERIES.to_dict(), "spread": 1.0})


def test_one_scale_serves_all_series() -> None:
    units = Scaler((1.0, 2.0), (3.0, 4.0)).units()
    assert units.restore(torch.ones(5, 2, 2), torch.arange(5)).unique(dim=0).tolist() == [[[4.0, 6.0]] * 2]


def test_a_model_built_for_a_scaler_restores_each_series_by_its_own_scale(tmp_path: Path) -> None:
    model = ForecastingModule(SMALL)
    model.build(TASK, SERIES)
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=tmp_path)
    trainer.strategy.connect(model)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    loaded = ForecastingModule.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    for built in (model, loaded):
        restored = built.units.restore(torch.ones(2, 3, 2), torch.tensor([1, 0]))
        assert restored[0, 0].tolist() == [110.0, 220.0]
        assert restored[1, 0].tolist() == pytest.approx([1.1, 2.2])


def test_no_scale_is_guessed_where_the_series_is_not_named() -> None:
    with pytest.raises(UserError, match="each of the 2 series has a scale of its own: give series_id"):
        SERIES.units().restore(torch.ones(2, 3, 2))
