"""The forecasts that any predictor must beat, on the same windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from tests.baseline_scores import baseline_scores
from tsattn.data import CSVDataModule


def test_the_seasonal_naive_of_a_table_knows_the_place_of_a_hole_in_the_season(tmp_path: Path) -> None:
    day = np.random.default_rng(0).permutation(24) - 7.0
    y = np.tile(day, 30)
    y[np.random.default_rng(1).choice(np.arange(24, 720), 150, replace=False)] = np.nan
    y[600:624] = np.nan
    frame = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=720, freq="h"), "y": y})
    frame.to_csv(tmp_path / "days.csv", index=False)
    data = CSVDataModule(str(tmp_path / "days.csv"), context_length=24, prediction_length=12)
    data.setup("fit")
    scores = baseline_scores(data)
    assert scores["seasonal naive (24 steps)"]["mae_original"] == 0
    assert scores["persistence"]["mae_original"] > 5


def test_baselines_need_no_model_and_know_their_context(toy_csv: Path) -> None:
    data = CSVDataModule(str(toy_csv), context_length=24, prediction_length=12)
    data.setup("fit")
    scores = baseline_scores(data)
    assert list(scores) == ["ridge (context 204)", "seasonal naive (24 steps)", "persistence"]
    assert {one["windows"] for one in scores.values()} == {109}
    errors = [one["mse_scaled"] for one in scores.values()]
    assert errors == sorted(errors), "of a daily wave"
