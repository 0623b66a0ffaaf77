"""Trainings that go on from Chronos models that were fitted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from tests.chronos.saved_weights import weights_of
from tests.chronos.test_fine_tuning import MLR, described, forecaster, same
from tsattn import load
from tsattn.errors import UserError
from tsattn.training.task_network import load_checkpoint


def test_nothing_goes_on_from_what_was_not_trained(toy_frame: pd.DataFrame, tmp_path: Path) -> None:
    """Calibration fits anew from the original, so that a further training would drop the weights that are there."""
    described: dict[str, Any] = {"kind": "chronos", "weights": weights_of("bolt"), "attention": MLR, "calibrate": 2}
    made = forecaster(described).fit(toy_frame, folder=tmp_path / "run")
    forecast = made.predict()
    with pytest.raises(UserError, match="nothing of tiny-bolt_mlr is trained, so that no training goes on from it"):
        made.fine_tune(toy_frame)
    same(made.predict(), forecast)
    checkpoint = tmp_path / "run" / "checkpoints" / "best.ckpt"
    with pytest.raises(UserError, match="that of one trained network, and tiny-bolt_mlr is none"):
        forecaster(described).fit(toy_frame, checkpoint=checkpoint)


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Takes the weights away that a model began with, and calibration with them."""

    def take() -> None:
        for name in ("open_weights", "ChronosNetwork.prepare"):
            monkeypatch.setattr(f"tsattn.chronos.chronos_predictor.{name}", lambda *_: pytest.fail("it was begun anew"))

    return take


@pytest.mark.parametrize(
    ("family", "attention", "trained"), [("bolt", "mlr", "lora"), ("t5", "none", "all"), ("chronos2", "btt", "lora")]
)
def test_a_saved_model_is_trained_further_without_its_first_weights(
    family: str, attention: str, trained: str, toy_frame: pd.DataFrame, gone: Callable[[], None], tmp_path: Path
) -> None:
    made = forecaster(described(family, attention, trained)).fit(toy_frame)
    made.save(tmp_path / "model")
    forecast = made.predict()
    again = load(tmp_path / "model")
    gone()
    again.fine_tune(toy_frame, max_steps=1, learning_rate=1e-12)
    found = again.predict()
    columns = ["predictions", "0.1", "0.5", "0.9"]
    assert abs(found[columns] - forecast[columns]).to_numpy().max() < 1e-4
    again.fine_tune(toy_frame, max_steps=3, learning_rate=1e-2)
    assert abs(again.predict()[columns] - forecast[columns]).to_numpy().max() > 1e-3
    same(made.predict(), forecast)


@pytest.mark.usefixtures("undrawn", "short_ridge")
def test_a_checkpoint_goes_on_without_the_first_weights(
    toy_frame: pd.DataFrame, gone: Callable[[], None], tmp_path: Path
) -> None:
    steady: dict[str, Any] = {"schedule": "constant", "warmup_steps": 0, "trainer": {"val_check_interval": 2}}
    steady |= {"description": described("bolt", "mlr", "lora")}
    whole = forecaster(**steady, max_steps=4, checkpoints=tmp_path / "whole").fit(toy_frame)
    forecaster(**steady, max_steps=2, checkpoints=tmp_path / "part").fit(toy_frame)
    gone()
    made = forecaster(**steady, max_steps=4, checkpoints=tmp_path / "part")
    made.fit(toy_frame, checkpoint=tmp_path / "part" / "last.ckpt")
    assert made.result is not None
    assert whole.result is not None
    assert made.result.fit["parameters"] == whole.result.fit["parameters"]
    states = [load_checkpoint(tmp_path / name / "last.ckpt")["state_dict"] for name in ("part", "whole")]
    assert states[0].keys() == states[1].keys()
    assert all(
        torch.equal(part, states[1][name]) for name, part in states[0].items() if name != "network.backbone.record"
    )
