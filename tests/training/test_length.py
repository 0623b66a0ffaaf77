"""How long a training is that nobody chose, and the share of it that validation takes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from tsattn.batch import Batch
from tsattn.cli import main
from tsattn.data import CSVDataModule
from tsattn.data.windows import spread
from tsattn.descriptions import DEFAULT_BACKBONE
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster
from tsattn.layers.optim import choose_warmup
from tsattn.training import ForecastingModule
from tsattn.training import length as one_epoch
from tsattn.training.callbacks import StopEarly
from tsattn.training.length import choose_interval, choose_length, scored_windows

pytestmark = pytest.mark.usefixtures("undrawn")

TINY = "--model.backbone={kind: patchtst, d_model: 8, num_layers: 1, num_heads: 2}"


def monthly(rows: int = 144) -> pd.DataFrame:
    """A trend times a season, as of air passengers, and some noise."""
    rng, months = np.random.default_rng(0), np.arange(rows)
    season = np.array([-0.09, -0.12, 0.02, -0.01, -0.01, 0.11, 0.22, 0.21, 0.07, -0.07, -0.21, -0.1])
    values = np.exp(4.8 + 0.01 * months + season[months % 12] + 0.03 * rng.standard_normal(rows)).round()
    return pd.DataFrame({"date": pd.date_range("1949-01-01", periods=rows, freq="MS"), "passengers": values})


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    monthly().to_csv(path, index=False)
    return path


def words(csv: Path, run: Path) -> list[str]:
    sizes = ["--data.context_length=24", "--data.prediction_length=12", "--trainer.accelerator=cpu"]
    return ["fit", "--data=CSVDataModule", f"--data.path={csv}", *sizes, f"--run={run}"]


def test_small_data_are_trained_well_past_their_warm_up() -> None:
    assert choose_length(windows=41, windows_a_step=32) == 400
    assert choose_warmup(400) == 40
    assert choose_length(8033, 32) == choose_length(10**9, 32) == 1000, "and large data have an end"
    assert choose_length(1000, 32) == 20 * 32
    assert choose_warmup(float("inf")) == 100, "of a training that time ends"
    assert choose_warmup(5) == 0


@pytest.mark.parametrize(
    ("steps", "available"), [(1, 60), (7, 1), (20, 60), (30, 2_000_000), (400, 1), (400, 60), (1000, 2_000_000)]
)
def test_validation_comes_twenty_times_at_most_and_costs_a_third_of_the_windows(steps: int, available: int) -> None:
    interval = choose_interval(steps, 32, available)
    assert 1 <= interval <= steps
    assert steps // interval <= 20
    scored = scored_windows(32 * interval, available)
    assert scored <= available
    if interval > 1:
        assert scored <= 32 * interval / 3
    assert scored >= min(available, 32)


def test_the_default_network_and_one_length_on_the_command_line_and_in_python(
    csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[int, int]] = []

    def short(windows: int, windows_a_step: int) -> int:
        asked.append((windows, windows_a_step))
        return 20

    monkeypatch.setattr(one_epoch, "choose_length", short)
    run = tmp_path / "run"
    assert main([*words(csv, run), f"--model.backbone={json.dumps(DEFAULT_BACKBONE)}"]) == 0
    said = capsys.readouterr().out
    assert "training: up to 20 steps, validation every 10 steps on 3 windows, ending after 7 more than 10 %" in said
    config = yaml.safe_load((run / "config.yaml").read_text())
    sizes: dict[str, Any] = {"context_length": 24, "prediction_length": 12, "accelerator": "cpu"}
    forecaster = Forecaster(DEFAULT_BACKBONE, **sizes).fit(monthly())
    assert config["model"]["backbone"] == forecaster.predictor.description == ForecastingModule().description
    assert config["model"] == forecaster.experiment.model | {"quantiles": []}
    # once before anything is computed, once for the training itself
    assert [*dict.fromkeys(asked)] == [(100 - 36 + 1, 32), (144 - 14 - 36 + 1, 32)]
    assert json.loads((run / "metrics.json").read_text())["training"]["steps"] == 20
    # the run's configuration leaves the choice open, so that it is made again
    assert config["trainer"]["max_epochs"] is None


@pytest.mark.parametrize(
    ("given", "steps", "validations"),
    [(["--trainer.max_epochs=2"], 6, 2), (["--trainer.max_steps=7", "--trainer.val_check_interval=2"], 7, 3)],
)
def test_what_the_user_says_is_done(
    csv: Path, tmp_path: Path, given: list[str], steps: int, validations: int, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main([*words(csv, run), TINY, *given, "--model.warmup_steps=3"]) == 0
    assert json.loads((run / "metrics.json").read_text())["training"]["steps"] == steps
    assert pd.read_csv(run / "metrics.csv")["val_mse_scaled"].notna().sum() == validations
    assert "ending after" not in capsys.readouterr().out
    assert yaml.safe_load((run / "config.yaml").read_text())["model"]["warmup_steps"] == 3


def test_a_training_ends_when_validation_no_longer_improves(csv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = iter([3.0, 2.0, *[2.5] * 30])
    seen: list[int] = []

    def worse(self: ForecastingModule) -> None:
        self.errors.reset()
        seen.append(self.trainer.global_step)
        self.log("val_mse_scaled", next(errors))

    monkeypatch.setattr(ForecastingModule, "on_validation_epoch_end", worse)
    sizes: dict[str, Any] = {"context_length": 24, "prediction_length": 12, "accelerator": "cpu", "quantiles": ()}
    Forecaster("nlinear", **sizes).fit(monthly())
    assert seen == [20 * number for number in range(1, 2 + 7 + 1)], "seven after the best, of 400 steps"
    seen.clear()
    errors = iter([3.0, 2.0, *[2.15] * 30])
    Forecaster("nlinear", **sizes).fit(monthly())
    assert seen[-1] == 400, "an error that does not clearly rise may fall with the learning rate"
    seen.clear()
    errors = iter([3.0, 2.0, *[2.15] * 30])
    Forecaster("nlinear", **sizes, training={"patience": 3}).fit(monthly())
    assert seen[-1] == 20 * (2 + 3), "patience that is asked for counts them all"
    seen.clear()
    errors = iter([3.0, 2.0, *[2.5] * 30])
    Forecaster("nlinear", **sizes, max_steps=60).fit(monthly())
    assert seen[-1] == 60, "steps that were asked for are all taken"


def test_a_training_that_was_over_when_it_was_killed_is_over() -> None:
    class Stub:
        should_stop = False

    stopping, trainer = StopEarly("val_mse_scaled"), Stub()
    stopping.patience = 7
    stopping.load_state_dict({**stopping.state_dict(), "wait_count": 7})
    stopping.on_train_start(trainer, None)
    assert trainer.should_stop
    longer = StopEarly("val_mse_scaled", limits=(200, "None"))
    for waited, left in ((7, 0), (6, 6)):
        longer.load_state_dict({**stopping.state_dict(), "wait_count": waited})
        assert longer.wait_count == left, "an ended training that is made longer counts from 0"


@pytest.mark.parametrize("best", [-2.0, 2.0])
def test_an_error_of_any_sign_may_be_a_little_above_the_best(best: float) -> None:
    stopping = StopEarly("val_nll", patience=1, tolerance=0.1)
    stopping.best_score = torch.tensor(best)
    ends = [stopping._evaluate_stopping_criteria(torch.tensor(best + more))[0] for more in (0.0, 0.15, 0.25)]
    assert ends == [False, False, True]


BACKBONE = {"kind": "patchtst", "d_model": 8, "num_layers": 1, "num_heads": 2}
SIZES: dict[str, Any] = {"context_length": 24, "prediction_length": 6}
SERIES, ROWS = 30, 300


def many() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    stamps = pd.date_range("2024-01-01", periods=ROWS, freq="h")
    parts = [
        pd.DataFrame({"unique_id": number, "ds": stamps, "y": rng.standard_normal(ROWS).cumsum()})
        for number in range(SERIES)
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, int]]]:
    seen: list[list[tuple[int, int]]] = []
    start, step = ForecastingModule.on_validation_epoch_end, ForecastingModule.validation_step
    now: list[tuple[int, int]] = []

    def note(self: ForecastingModule, batch: Batch, batch_idx: int) -> None:
        now.extend(zip(batch.series_id.tolist(), batch.time[:, 0].tolist(), strict=True))
        step(self, batch, batch_idx)

    def end(self: ForecastingModule) -> None:
        seen.append([*now])
        now.clear()
        start(self)

    monkeypatch.setattr(ForecastingModule, "validation_step", note)
    monkeypatch.setattr(ForecastingModule, "on_validation_epoch_end", end)
    return seen


@pytest.mark.parametrize(("windows", "most"), [(1000, 7), (10**9, 500), (8, 8), (3, 9)])
def test_fewer_windows_are_spread_evenly_the_same_each_time(windows: int, most: int) -> None:
    numbers = np.asarray(spread(windows, most))
    assert len(numbers) == min(windows, most)
    assert (np.diff(numbers) > 0).all()
    assert np.array_equal(numbers, np.asarray(spread(windows, most)))
    if most < windows:
        ends = np.arange(most + 1) * windows // most
        assert (ends[:-1] <= numbers).all(), "one of each stretch"
        assert (numbers < ends[1:]).all()
    if windows == 10**9:
        assert np.unique(numbers % 24).size == 24, "not all of one hour of the day"


def test_a_forecaster_scores_a_third_of_the_windows_that_it_trains_on(scored: list[list[tuple[int, int]]]) -> None:
    frame, steps = many(), 60
    Forecaster(BACKBONE, **SIZES, max_steps=steps, accelerator="cpu").fit(frame)
    assert 0 < sum(map(len, scored)) <= steps * 32 / 3
    assert all(windows == scored[0] for windows in scored), "errors are compared on the same windows"
    series, times = zip(*scored[0], strict=True)
    assert set(series) == set(range(SERIES)), "all series"
    assert len(set(times)) > 12, "and all of their time"
    first = scored[0]
    scored.clear()
    options: dict[str, Any] = {"max_steps": 2, "accelerator": "cpu", "seed": 2}
    Forecaster(BACKBONE, **SIZES, **options, data={"val_windows": len(first)}).fit(frame)
    assert [*map(sorted, scored)] == [sorted(first)], "the same for every seed, and as many as are asked for"
    for wrong in ("some", 0, 2.5, True):
        for make in (lambda **data: Forecaster(BACKBONE, data=data), lambda **data: CSVDataModule("a.csv", **data)):
            with pytest.raises(UserError, match="val_windows must be auto, all or a number of at least 1, not"):
                make(val_windows=wrong)


def test_the_command_line_does_the_same_and_validates_and_tests_on_all_windows(
    scored: list[list[tuple[int, int]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many().to_csv(tmp_path / "many.csv", index=False)
    run = tmp_path / "run"
    words = ["--data=CSVDataModule", f"--data.path={tmp_path / 'many.csv'}", "--trainer.max_steps=20"]
    words += [f"--data.{name}={size}" for name, size in SIZES.items()]
    assert main(["fit", *words, f"--model.backbone={json.dumps(BACKBONE)}", f"--run={run}"]) == 0
    assert "training: 20 steps, validation every 20 steps on 213 windows\n" in capsys.readouterr().out
    assert [*map(len, scored)] == [213]
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["validation_windows"] == 213
    assert metrics["test_windows"] == SERIES * (60 - 6 + 1)
    assert main(["validate", f"--run={run}"]) == 0
    assert f"{SERIES * 25} validation windows" in capsys.readouterr().out
    scored.clear()
    interval = ["--trainer.val_check_interval=4", "--data.val_windows=all"]
    assert main(["fit", *words, *interval, f"--model.backbone={json.dumps(BACKBONE)}", f"--run={tmp_path / 'b'}"]) == 0
    assert [*map(len, scored)] == [SERIES * 25] * 5
