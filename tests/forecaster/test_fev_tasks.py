"""Tasks of fev on local files: what they are told, what comes back, and that its scores are ours."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from docs.examples.fev_tasks import fev_forecaster, forecast_fev_task
from tsattn import Forecaster
from tsattn.errors import UserError

fev: Any = pytest.importorskip("fev", reason="fev is not installed, so its tasks are not forecast")

T = 6
ROWS = {"b": 150, "a": 120, "c": 133}
NETWORK = {"kind": "patchtst", "d_model": 8, "num_layers": 1, "num_heads": 2, "patch_len": 6}
SIZES = {"context_length": 24, "accelerator": "cpu"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fev loads stays with the test."""
    monkeypatch.setattr(importlib.import_module("datasets.config"), "HF_DATASETS_CACHE", tmp_path / "cache")


def rows_of(name: str) -> pd.DataFrame:
    """Days of a series whose target jumps with a promotion."""
    rng, days = np.random.default_rng([0, ord(name)]), np.arange(ROWS[name])
    promotion = rng.integers(0, 2, len(days))
    sales = 20 + 3 * np.sin(2 * np.pi * days / 7) + 5 * promotion + 0.1 * rng.standard_normal(len(days))
    stamps = pd.date_range("2024-01-01", periods=len(days), freq="D")
    return pd.DataFrame({"id": name, "timestamp": stamps, "target": sales, "promotion": promotion})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pd.concat([rows_of(name) for name in ROWS]).to_parquet(tmp_path / "days.parquet")
    return tmp_path / "days.parquet"


def task_of(path: Path, **more: Any) -> Any:
    return fev.Task(**{"dataset_path": str(path), "horizon": T, "seasonality": 7, "num_windows": 2, **more})


def forecaster_for(task: Any, backbone: Any = "seasonal_naive", covariates: bool = True, **more: Any) -> Forecaster:
    return fev_forecaster(task, backbone, covariates=covariates, **{**SIZES, **more})


def test_each_window_is_forecast_from_what_came_before(path: Path) -> None:
    """By the seasonal naive forecast, which can be read off the file."""
    task = task_of(path, num_windows=3)
    made = forecast_fev_task(forecaster_for(task), task)
    assert len(made) == 3
    for number, window in enumerate(made):
        assert list(window) == ["target"]
        for row, name in enumerate(sorted(ROWS)):
            end = ROWS[name] - (3 - number) * T
            expected = rows_of(name)["target"].to_numpy()[end - 7 : end - 7 + T]
            np.testing.assert_allclose(window["target"][row]["predictions"], expected, rtol=1e-6)


@pytest.mark.parametrize("levels", [[], [0.1, 0.5, 0.9]], ids=["point", "quantiles"])
def test_the_scores_of_fev_are_ours(path: Path, levels: list[float]) -> None:
    """One window at the end of each of two series alike in length, by both."""
    frame = pd.read_parquet(path)
    frame = frame[(frame["id"] != "c") & (frame.groupby("id").cumcount() < ROWS["a"])]
    frame.to_parquet(path)
    names = {name: name for name in ("MAE", "RMSE", "MSE", "MASE", "WAPE", *(["WQL"] if levels else []))}
    names["SMAPE"] = "sMAPE"
    task = task_of(
        path, num_windows=1, quantile_levels=levels, extra_metrics=[name for name in names if name != "MASE"]
    )
    backbone, more = (NETWORK, {"max_steps": 3}) if levels else ("seasonal_naive", {})
    forecaster = forecaster_for(task, backbone, scaling="series", **more)
    made = forecast_fev_task(forecaster, task)
    found = task.evaluation_summary(made, model_name="one")
    long = frame[["id", "timestamp", "target"]]
    if not levels:  # one that knows the rows before the window, which none is fitted to
        last = long.groupby("id").cumcount() >= ROWS["a"] - T - SIZES["context_length"]  # type: ignore[operator]
        del names["MASE"]  # whose history begins with them
        long = long[last]
    ours = forecaster.evaluate(long, detail=True).iloc[0]
    assert ours["windows"] == 2
    for theirs, name in names.items():
        assert found[theirs] == pytest.approx(ours[name], rel=1e-5), theirs


def test_what_does_not_fit_a_task_is_refused(path: Path) -> None:
    task = task_of(path, quantile_levels=[0.1])
    with pytest.raises(UserError, match=r"^the task forecasts target: give the forecaster target=\['target'\]$"):
        forecast_fev_task(Forecaster("persistence"), task)
    with pytest.raises(UserError, match=r"^the task asks for the quantile 0.1, and the forecaster has 0.5, 0.8 alone$"):
        forecast_fev_task(forecaster_for(task, NETWORK, quantiles=[0.5, 0.8]), task)
