"""The forecasts that any predictor must beat, on the same windows."""

from __future__ import annotations

from pathlib import Path

from tests.baseline_scores import baseline_scores
from tsattn.data import CSVDataModule


def test_baselines_need_no_model_and_know_their_context(toy_csv: Path) -> None:
    data = CSVDataModule(str(toy_csv), context_length=24, prediction_length=12)
    data.setup("fit")
    scores = baseline_scores(data)
    assert list(scores) == ["ridge (context 204)", "seasonal naive (24 steps)", "persistence"]
    assert {one["windows"] for one in scores.values()} == {109}
    errors = [one["mse_scaled"] for one in scores.values()]
    assert errors == sorted(errors), "of a daily wave"
