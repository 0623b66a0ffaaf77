"""Scores of what was not trained on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from tests.forecaster.toys import SMALL, L, T, frame_of
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster


def test_a_point_counts_as_all_of_its_quantiles(fitted: Forecaster) -> None:
    """Of levels that lie evenly around the median, WQL is WAPE and CRPS is MAE."""
    scores = fitted.evaluate(frame_of(more=30))
    points = scores.drop(index="patchtst_mlr")
    np.testing.assert_allclose(points["wql_by_channel"], points["wape_by_channel"], rtol=1e-12)
    np.testing.assert_allclose(points["crps_original_by_channel"], points["mae_original_by_channel"], rtol=1e-12)
    assert points["coverage_80_by_channel"].isna().all()
    uneven = Forecaster(**{**SMALL, "max_steps": 2}, quantiles=[0.5, 0.9]).fit(frame_of({"a": 200}))
    new = frame_of({"a": 200}, more=T)
    error = new["y"].to_numpy() - frame_of({"a": 200})["y"].iloc[-1]
    loss = [2 * np.maximum(level * error, (level - 1) * error) for level in (0.5, 0.9)]
    assert uneven.evaluate(new).loc["persistence", "crps_original_by_channel"] == pytest.approx(np.mean(loss), rel=1e-5)


def test_evaluation_scores_only_what_was_not_fitted(fitted: Forecaster) -> None:
    """A frame with the fitted rows in it and one without them give the same scores."""
    new = frame_of(more=30)
    both = pd.concat([frame_of(), new]).sort_values(["unique_id", "ds"])
    alone, together = fitted.evaluate(new), fitted.evaluate(both)
    pd.testing.assert_frame_equal(alone, together.loc[alone.index], rtol=1e-4)
    with pytest.raises(UserError, match=r"nothing to score: no series has 12 rows .* after those that were fitted"):
        fitted.evaluate(frame_of())


def test_evaluation_equals_the_metrics_by_hand(fitted: Forecaster) -> None:
    new = frame_of(more=T).sort_values(["unique_id", "ds"], ignore_index=True)
    scores = fitted.evaluate(new)
    forecast = fitted.predict()
    error = forecast["predictions"] - new["y"]
    row = scores.loc["patchtst_mlr"]
    assert row["windows"] == 4
    assert row["mse_original_by_channel"] == pytest.approx((error**2).mean(), rel=1e-5)
    assert row["mae_original_by_channel"] == pytest.approx(error.abs().mean(), rel=1e-5)
    assert row["wape_by_channel"] == pytest.approx(error.abs().sum() / new["y"].abs().sum(), rel=1e-5)
    inside = (forecast["0.1"] <= new["y"]) & (new["y"] <= forecast["0.9"])
    assert row["coverage_80_by_channel"] == pytest.approx(inside.mean())
    history = frame_of()
    scale = history.groupby("unique_id", sort=False)["y"].apply(lambda y: (y - y.shift(24)).abs().mean())
    assert row["mase_by_channel"] == pytest.approx((error.abs() / new["unique_id"].map(scale)).mean(), rel=1e-5)
    persistence = new["y"] - new["unique_id"].map(history.groupby("unique_id")["y"].last())
    assert scores.loc["persistence", "mae_original_by_channel"] == pytest.approx(persistence.abs().mean(), rel=1e-5)


def test_a_frame_that_goes_on_much_later_is_scored_though_half_of_it_is_filled() -> None:
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame_of({"a": 200}))
    later = frame_of({"a": 1000})[900:]
    assert forecaster.evaluate(later)["windows"].iloc[0] > 0
    with pytest.raises(UserError, match=r"max_filled 0\.5 allows"):
        forecaster.predict(pd.concat([frame_of({"a": 200}), later]))


def test_strangers_are_scored_after_their_first_context(fitted: Forecaster) -> None:
    scores = fitted.evaluate(frame_of({"stranger": 100}, seed=5), step=10)
    assert scores["windows"].tolist() == [len(range(L, 100 - T + 1, 10))] * 3


def test_the_scale_of_strangers_knows_nothing_that_is_scored(fitted: Forecaster) -> None:
    frame = frame_of({"stranger": L + T}, seed=5)
    changed = frame.assign(y=frame["y"].where(frame.index < L, 1e6))
    contexts: list[torch.Tensor] = []
    assert fitted.fitted is not None
    hook = fitted.fitted.predictor.register_forward_hook(lambda _, inputs, __: contexts.append(inputs[0].past))
    for table in (frame, changed):
        fitted.evaluate(table)
    hook.remove()
    torch.testing.assert_close(*contexts, rtol=0, atol=0)
