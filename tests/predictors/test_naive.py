"""Naive forecasts, the first forecast, and the commands of the page on predictors."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.predictors.cases import windows_for
from tests.toy_windows import toy_task
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.predictors import build_predictor, predictor_kinds
from tsattn.predictors.ensemble import TRAINING_OPTIONS


@pytest.mark.parametrize(
    ("description", "season"),
    [
        ("persistence", 1),
        ("seasonal_naive", 6),
        ({"kind": "seasonal_naive", "season_length": 5}, 5),
        ({"kind": "seasonal_naive", "season_length": 31}, 31),
    ],
)
def test_the_last_steps_come_again_and_again(description: object, season: int) -> None:
    predictor = build_predictor(description)  # type: ignore[arg-type]
    assert not predictor.needs_fit
    predictor.build(toy_task(24, 13))
    assert predictor.context_length == season
    windows = windows_for(predictor, extra=2)
    forecast = predictor(windows)
    L = windows.past.shape[1]
    for step in range(13):
        source = L + step
        while source >= L:
            source -= season
        assert forecast[:, step].equal(windows.past[:, source])


def test_a_season_has_a_step() -> None:
    with pytest.raises(UserError, match="season_length must be at least 1, not 0"):
        build_predictor({"kind": "seasonal_naive", "season_length": 0})


@pytest.mark.parametrize(("own", "L"), [(None, 24), (5, 5), (31, 31)])
def test_the_mean_of_what_was_observed(own: int | None, L: int) -> None:
    predictor = build_predictor({"kind": "window_mean", "context_length": own})
    assert not predictor.needs_fit
    predictor.build(toy_task(24, 13))
    assert predictor.context_length == L
    windows = windows_for(predictor, gaps=True, extra=3)
    forecast = predictor(windows)
    assert forecast.shape == (4, 13, 3)
    for window in range(4):
        for channel in range(3):
            values = windows.past[window, -L:, channel]
            seen = windows.past_observed[window, -L:, channel]
            mean = values[seen].mean() if seen.any() else values.mean()
            assert forecast[window, :, channel].tolist() == pytest.approx([float(mean)] * 13)


# A first forecast by pretrained weights imports nothing that only trains, draws, tunes or reads configurations.


FORECAST = """
import sys
import numpy as np
import pandas as pd
from tsattn.data.reader import panel_from_frame
from tsattn.predictors import build_predictor
from tsattn.predictors.fitted import forecast_batches
from tsattn.scaler import Scaler
from tsattn.task import Task
from tsattn.training import Execution, TrainerOptions
from tsattn.training.trainer_options import default_precision

values = pd.Series(np.sin(np.arange(100) / 4), pd.date_range("2024", periods=100, freq="h"), name="y")
panel = panel_from_frame(values.to_frame())
predictor = build_predictor("chronos-tiny")
predictor.build(Task("toy", 96, 24, ("y",), "h", 24, time_zone=None))
assert default_precision("cpu", 1) == "32-true"
names = ("accelerator", "precision", "plugins", "deterministic", "benchmark")
given = dict.fromkeys(names) | {"accelerator": "cpu"}
execution = Execution(TrainerOptions(given, chooses_steps=True, chooses_validation=True))
(forecast,) = forecast_batches(predictor.eval(), Scaler((0.0,), (1.0,)), panel, 24, 1, execution)
assert forecast.shape == (1, 24, 1)
assert forecast.isfinite().all()
heavy = "lightning jsonargparse sklearn scipy matplotlib torchmetrics transformers optuna statsmodels"
print(*(name for name in heavy.split() if name in sys.modules))
"""


def test_it_needs_neither_lightning_nor_what_draws_and_tunes() -> None:
    done = subprocess.run([sys.executable, "-c", FORECAST], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


# The predictors on the command line, as their page shows them.


PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "predictors.md").read_text("utf-8")


def test_the_commands_run(tmp_path: Path) -> None:
    assert set(re.findall(r"`(\w+)`", PAGE)) >= {*predictor_kinds(), *TRAINING_OPTIONS}
    commands = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)[0].replace("\\\n", "")
    names = []
    # in a file, what says how to train may stand beside what is not trained
    (tmp_path / "toy.yaml").write_text("trainer: {max_steps: 1, accelerator: cpu}\n")
    for number, command in enumerate(commands.splitlines()):
        run = tmp_path / str(number)
        toy = ["--config", str(tmp_path / "toy.yaml"), "--run", str(run)]
        assert main([*shlex.split(command)[1:], *toy]) == 0
        metrics = json.loads((run / "metrics.json").read_text())
        assert metrics["test_windows"] == 407
        names.append(next(iter(metrics["test"])))
    assert names == ["ridge", "seasonal_naive", "ensemble"]
