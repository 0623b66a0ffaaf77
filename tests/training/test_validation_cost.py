"""Choosing the best weights takes a bounded share of a training; what is left out is spread evenly, not by a clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tsattn.batch import Batch
from tsattn.cli import main
from tsattn.data import CSVDataModule
from tsattn.data.batch_order import spread
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster
from tsattn.training import ForecastingModule

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
    """Series and first time stamp of each window of each validation."""
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


@pytest.mark.parametrize(("windows", "most"), [(1000, 7), (1000, 999), (10**9, 500), (8, 8), (3, 9)])
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
    Forecaster(BACKBONE, **SIZES, max_steps=steps, accelerator="cpu", seed=2).fit(frame)
    assert scored[0] == first


@pytest.mark.parametrize(("given", "number"), [("all", SERIES * 25), (40, 40), (10**6, SERIES * 25)])
def test_how_many_are_scored_can_be_said(scored: list[list[tuple[int, int]]], given: Any, number: int) -> None:
    Forecaster(BACKBONE, **SIZES, max_steps=2, accelerator="cpu", data={"val_windows": given}).fit(many())
    assert [*map(len, scored)] == [number]


@pytest.mark.parametrize("wrong", ["some", 0, 2.5, True])
def test_another_number_is_refused(wrong: Any) -> None:
    with pytest.raises(UserError, match="val_windows must be auto, all or a number of at least 1, not"):
        Forecaster(BACKBONE, data={"val_windows": wrong})
    with pytest.raises(UserError, match="val_windows must be auto, all or a number of at least 1, not"):
        CSVDataModule("mine.csv", val_windows=wrong)


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
