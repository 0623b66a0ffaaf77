"""Loggers, callbacks and early stopping of a Forecaster."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger

import tsattn
from tests.forecaster.toys import SMALL, frame_of
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster

QUICK: dict[str, Any] = {**SMALL, "max_steps": 4, "quantiles": None}
FRAME = frame_of({"a": 200})


class Counted(Callback):
    """Counts steps, of all of its kind."""

    total = 0

    def __init__(self) -> None:
        self.steps = 0

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *of_the_step: Any) -> None:
        self.steps += 1
        Counted.total += 1


def steps_of(forecaster: Forecaster) -> int:
    return int(forecaster.result.fit["training"]["steps"])


def test_patience_ends_a_training_whose_error_does_not_come_down() -> None:
    often: dict[str, Any] = {**QUICK, "max_steps": 12, "trainer": {"val_check_interval": 2}}
    assert steps_of(Forecaster(**often).fit(FRAME)) == 12
    # no error comes down by so much: the first is the least, and two more end it
    forecaster = Forecaster(**often, patience=2, min_delta=1e6).fit(FRAME)
    assert steps_of(forecaster) == 6
    again = forecaster.result.forecaster()
    assert (again.arguments["patience"], again.arguments["min_delta"]) == (2, 1e6)


def test_patience_enters_the_key_only_where_it_is_given() -> None:
    plain, patient = Forecaster(**QUICK).fit(FRAME), Forecaster(**QUICK, patience=50).fit(FRAME)
    assert plain.result.key != patient.result.key
    pd.testing.assert_frame_equal(plain.predict(), patient.predict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 0}, "patience must be at least 1 validation, not 0"),
        ({"min_delta": -1.0}, "min_delta must be a number of at least 0"),
        (
            {"logger": "cake"},
            "logger must be one of csv, tensorboard, wandb, mlflow, or a Lightning logger, not 'cake'",
        ),
        ({"logger": 3}, "logger must be Lightning's"),
        ({"callbacks": [print]}, "callbacks must be Lightning's, or described by class_path"),
        ({"callbacks": [Counted()], "trainer": {"callbacks": []}}, "callbacks is given twice"),
        ({"callbacks": ["NoSuchCallback"]}, "NoSuchCallback"),
        ({"save_top_k": -2}, "save_top_k must be at least -1"),
        ({"trainer": {"enable_progress_bar": True}}, "progress is an argument of the Forecaster"),
        ({"backbone": "ridge", "checkpoints": "kept"}, "checkpoints are kept of one network, and ridge is none"),
    ],
)
def test_what_is_not_valid_is_refused_before_any_data(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Forecaster(**{**QUICK, **options})


def test_a_logger_whose_package_is_missing_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda one, *of: None if one == "wandb" else find(one, *of))
    with pytest.raises(UserError, match="logger wandb needs a package that is not installed: pip install wandb"):
        Forecaster(**QUICK, logger="wandb").fit(FRAME)


def test_a_logger_object_and_callbacks_see_the_fit(tmp_path: Path) -> None:
    logger, counted = CSVLogger(tmp_path, name="mine", version=""), Counted()
    described = {"class_path": f"{__name__}.Counted"}
    before = Counted.total
    forecaster = Forecaster(
        **QUICK, logger=logger, callbacks=[counted, described], trainer={"log_every_n_steps": 1}
    ).fit(FRAME)
    assert (tmp_path / "mine" / "metrics.csv").exists()
    assert counted.steps == 4
    assert Counted.total - before == 8
    forecaster.cross_validate(FRAME, windows=1)
    assert counted.steps == 4, "models that are trained aside have copies"
    assert Counted.total - before == 16


def test_objects_are_not_saved_and_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    described = {"class_path": f"{__name__}.Counted"}
    forecaster = Forecaster(
        **QUICK, callbacks=[Counted(), described], logger="csv", trainer={"default_root_dir": str(tmp_path)}
    )
    forecaster.fit(FRAME).save(tmp_path / "model")
    assert "callbacks and loggers that are objects are not saved: Counted" in caplog.text
    again = tsattn.load(tmp_path / "model")
    assert again.arguments["callbacks"] == [described]
    assert again.arguments["logger"] == ["csv"]


def test_a_forecaster_of_a_result_has_all_that_decides_its_training() -> None:
    described = {"class_path": f"{__name__}.Counted"}
    trainer = {"gradient_clip_val": None, "limit_train_batches": 3}
    forecaster = Forecaster(**QUICK, callbacks=[described], trainer=trainer).fit(FRAME)
    again = forecaster.result.forecaster()
    assert again.experiment.trainer == forecaster.result.experiment.trainer
    assert again.experiment.trainer["gradient_clip_val"] is None
    pd.testing.assert_frame_equal(again.fit(FRAME).predict(), forecaster.predict())
