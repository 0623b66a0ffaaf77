"""Training on from weights that are there: warm starts, fine-tuning, and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tsattn
from tests.forecaster.toys import SMALL, frame_of
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster

QUICK: dict[str, Any] = {**SMALL, "max_steps": 3, "quantiles": None}
FRAME = frame_of({"a": 200, "b": 160})


def weights(forecaster: Forecaster) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in forecaster.fitted.predictor.state_dict().items()}


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved forecaster."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    Forecaster(**QUICK).fit(FRAME).save(folder)
    return folder


def test_a_warm_start_begins_where_the_last_fit_ended(first: Path) -> None:
    warm = tsattn.load(first)
    before, scaler = weights(warm), warm.scaler
    warm.fine_tune(FRAME, max_steps=1, learning_rate=1e-7)
    # one step of AdamW moves a weight by no more than its learning rate, and weights anew lie far away
    assert 0 < distance(before, weights(warm)) < 1e-6
    assert warm.scaler == scaler
    anew = Forecaster(**{**QUICK, "max_steps": 1, "learning_rate": 1e-7, "seed": 2}).fit(FRAME)
    assert distance(before, weights(anew)) > 1e-3


def test_a_warm_start_has_an_optimizer_of_its_own_and_a_key_of_its_own(first: Path) -> None:
    warm, again = tsattn.load(first), tsattn.load(first)
    warm.fit(FRAME, warm_start=True)
    again.fit(FRAME)
    assert warm.result.key != again.result.key == again.result.experiment.key_with(again.result.data)
    assert warm.result.fit["training"]["steps"] == 3
    assert warm.arguments == again.arguments


def test_series_that_are_known_keep_their_scale_and_new_ones_get_one(first: Path) -> None:
    warm = tsattn.load(first)
    scaler = warm.scaler
    more = frame_of({"a": 200, "c": 300}, seed=5)
    more["y"] *= 3
    warm.fine_tune(more, max_steps=1)
    assert warm.scaler.ids == ("a", "b", "c")
    assert warm.scaler.series_mean[:2] == scaler.series_mean
    assert warm.scaler.series_scale[:2] == scaler.series_scale
    rows = more[more["unique_id"] == "c"]["y"].to_numpy()[: 300 - 30]  # the last tenth is for validation
    assert warm.scaler.series_mean[2] == (pytest.approx(rows.mean()),)
    assert warm.scaler.series_scale[2] == (pytest.approx(rows.std()),)
    warm.fine_tune(more, max_steps=1, rescale=True)
    assert warm.scaler.ids == ("a", "c")
    assert warm.scaler.series_mean[0] == (pytest.approx(more["y"].to_numpy()[: 200 - 20].mean()),)


def test_rows_of_an_earlier_fit_are_not_scored_after_a_later_one(first: Path, tmp_path: Path) -> None:
    warm = tsattn.load(first).fine_tune(frame_of({"a": 150}), max_steps=1)
    warm.save(tmp_path / "model")
    for forecaster in (warm, tsattn.load(tmp_path / "model")):
        with pytest.raises(UserError, match="nothing to score"):
            forecaster.evaluate(FRAME)
        longer = pd.concat([FRAME, frame_of({"a": 200, "b": 160}, more=24)])
        assert forecaster.evaluate(longer)["windows"].tolist() == [2 * (24 - 12 + 1)] * 3


def test_a_changed_channel_is_refused_by_name() -> None:
    index = pd.date_range("2024-01-01", periods=200, freq="h")
    wide = pd.DataFrame(np.random.default_rng(0).random((200, 2)), index=index, columns=["w", "x"])
    forecaster = Forecaster(**QUICK).fit(wide)
    with pytest.raises(UserError, match="the frame lacks x and adds z: what is trained further keeps its channels, w"):
        forecaster.fit(wide.rename(columns={"x": "z"}), warm_start=True)
    with pytest.raises(UserError, match="the frame adds z"):
        forecaster.fine_tune(wide.assign(z=1.0), 1)
    forecaster.fine_tune(wide[["x", "w"]], 1)  # in another order they are the same
    assert forecaster.task.channels == ("w", "x")


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        ({"warm_start": True}, "a warm start needs weights to start from"),
        ({"rescale": True}, "give warm_start=True with it"),
        ({"checkpoint": "none.ckpt"}, "the checkpoint none.ckpt is not there"),
        ({"checkpoint": "none.ckpt", "warm_start": True}, "of warm_start and checkpoint give one"),
    ],
)
def test_what_a_fit_cannot_start_from_is_refused(fit: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Forecaster(**QUICK).fit(FRAME, **fit)


def test_a_closed_form_has_no_weights_to_start_from(first: Path) -> None:
    ridge = Forecaster("ridge", context_length=48, prediction_length=12).fit(FRAME)
    with pytest.raises(UserError, match="only a network starts from weights that it has, and ridge"):
        ridge.fine_tune(FRAME)
    with pytest.raises(UserError, match="of warm_start and refit give one"):
        tsattn.load(first).fit(FRAME, warm_start=True, refit=True)


def test_a_training_goes_on_from_its_checkpoint_as_if_it_had_never_ended(tmp_path: Path) -> None:
    steady = {"schedule": "constant", "warmup_steps": 0, "trainer": {"val_check_interval": 2}}
    kept, longer = tmp_path / "kept", {**QUICK, "max_steps": 8}
    all_kept = Forecaster(**longer, training={**steady, "save_top_k": -1, "checkpoints": kept}).fit(FRAME)
    all_kept.fine_tune(FRAME, max_steps=1)  # whose checkpoints are not kept
    assert sorted(file.name for file in kept.iterdir()) == [
        "last.ckpt",
        *(f"step_{step}.ckpt" for step in (2, 4, 6, 8)),
    ]
    broken = Forecaster(**{**longer, "context_length": "auto"}, training=steady)
    broken.fit(FRAME, checkpoint=kept / "step_4.ckpt")
    assert broken.result.fit["training"]["steps"] == 8
    assert broken.result.fit["best_step"] in (6, 8)
    at = {step: torch.load(kept / f"step_{step}.ckpt", weights_only=True)["state_dict"] for step in (6, 8)}
    assert distance(weights(broken), at[broken.result.fit["best_step"]]) == 0.0
    with pytest.raises(UserError, match=r"step_8.ckpt is of step 8, the end: a higher max_steps goes on"):
        broken.fit(FRAME, checkpoint=kept / "step_8.ckpt")
    with pytest.raises(UserError, match="has checkpoints already: name another folder"):
        Forecaster(**QUICK, training={**steady, "checkpoints": kept}).fit(FRAME)


def test_a_run_folder_keeps_as_many_checkpoints_as_are_asked_for(tmp_path: Path) -> None:
    training = {"save_top_k": 2, "trainer": {"val_check_interval": 2}}
    forecaster = Forecaster(**{**QUICK, "max_steps": 6}, training=training)
    forecaster.fit(FRAME, folder=tmp_path / "run")
    names = {file.name for file in (tmp_path / "run" / "checkpoints").iterdir()}
    assert {"best.ckpt", "last.ckpt"} < names
    assert len(names) == 4
    with pytest.raises(UserError, match="save_top_k needs a folder"):
        forecaster.fit(FRAME)
