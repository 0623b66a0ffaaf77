"""Scores of forecasts by groups of series, and the search for series that a test must keep to itself."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def script_folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(BENCHMARKS / "pretraining"))
    yield
    for name in ("evaluate", "same_series"):
        sys.modules.pop(name, None)


def module(name: str) -> Any:
    return importlib.import_module(name)


def group_of(series: list[Any], season: int, horizon: int) -> Any:
    contexts, targets = [one[:-horizon] for one in series], np.stack([one[-horizon:] for one in series])
    return module("evaluate").Group("toy", season, horizon, contexts, targets)


def test_seasonal_naive_scores_one_through_the_forecaster_and_by_itself() -> None:
    evaluate, rng = module("evaluate"), np.random.default_rng(0)
    series = [rng.normal(size=40) + np.tile([1.0, 2, 3, 4], 10) for _ in range(3)]
    series[1][5:9] = np.nan
    rows = evaluate.compare([group_of(series, 4, 8)], evaluate.with_forecaster("seasonal_naive"))
    assert rows.loc[0, "mase_ratio"] == pytest.approx(1, abs=1e-5)
    assert rows.loc[0, "wql_ratio"] == pytest.approx(1, abs=1e-5)


def test_scores_are_those_by_hand() -> None:
    series = np.arange(12.0)
    group = group_of([series], 1, 2)  # naive errors of 1 a step in the context
    levels = module("evaluate").LEVELS
    forecast = np.tile(np.array([9.0, 10.0])[None, :, None], (1, 1, len(levels)))  # 1 too low at all levels
    scores = group.scores(forecast)
    assert scores["mase"] == 1
    assert scores["wql"] == pytest.approx(2 * np.mean(levels) * 2 / (10 + 11))
    assert np.isnan(scores["coverage_80"])
    wide = forecast + np.linspace(-3, 3, len(levels))
    assert group.scores(wide)["coverage_80"] == 1


def test_a_summary_is_the_geometric_mean_over_groups() -> None:
    evaluate, rng = module("evaluate"), np.random.default_rng(1)
    groups = [group_of([rng.normal(size=60).cumsum() for _ in range(2)], 12, 6) for _ in range(3)]
    rows = evaluate.compare(groups, lambda contexts, season, horizon, levels: np.zeros((2, horizon, len(levels))))
    assert evaluate.summary(rows)["mase_ratio"] == pytest.approx(np.exp(np.log(rows["mase_ratio"]).mean()))


def test_a_series_is_found_again_scaled_moved_and_cut() -> None:
    bank, rng = module("same_series").Bank(), np.random.default_rng(2)
    known = [rng.normal(size=length).cumsum() for length in (80, 30, 200)]
    for one in known:
        bank.add("M", one)
    assert bank.has("M", 7 * known[2][40:150] - 3)
    assert bank.has("M", np.concatenate([known[0][:70], rng.normal(size=10)]))  # its end was revised
    assert not bank.has("M", rng.normal(size=100).cumsum())
    assert not bank.has("Q", known[2])
