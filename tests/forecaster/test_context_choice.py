"""The context that a Forecaster takes where nobody names one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tsattn import Forecaster, load
from tsattn.errors import UserError
from tsattn.forecaster.fitting import CONTEXTS

TINY = {"kind": "patchtst", "d_model": 8, "num_heads": 2, "num_layers": 1}


def seasonal(rows: int, season: int, seed: int = 0) -> pd.DataFrame:
    """A noisy series that repeats a random season."""
    generator = np.random.default_rng(seed)
    pattern = generator.normal(size=season)
    values = np.tile(pattern, rows // season + 1)[:rows] + 0.3 * generator.normal(size=rows)
    return pd.DataFrame({"ds": pd.date_range("2020-01-01", periods=rows, freq="h"), "y": values})


def test_it_is_the_context_of_the_best_ridge_on_validation() -> None:
    frame = seasonal(900, 70)
    chosen = Forecaster(TINY, prediction_length=6, max_steps=1).fit(frame).task.context_length
    errors = {}
    for length in (24, 48, 96, 192):  # at most a quarter of 810 rows for training
        for alpha in (1.0, 10.0, 100.0, 1000.0):
            ridge = Forecaster({"kind": "ridge", "alpha": alpha}, context_length=length, prediction_length=6)
            result = ridge.fit(frame).result
            errors[length, alpha] = result.fit["validation_error"]
    assert chosen == min(errors, key=lambda pair: errors[pair])[0]
    assert chosen > 70  # less does not hold a season


def test_a_series_without_a_past_worth_knowing_has_a_short_context() -> None:
    values = np.random.default_rng(1).normal(size=1200).cumsum()
    frame = pd.DataFrame({"ds": pd.date_range("2020-01-01", periods=1200, freq="h"), "y": values})
    assert Forecaster(TINY, prediction_length=6, max_steps=1).fit(frame).task.context_length < CONTEXTS[-1]


def test_short_series_have_the_shortest_and_too_short_ones_are_refused() -> None:
    forecaster = Forecaster(TINY, prediction_length=4, max_steps=1)
    assert forecaster.fit(seasonal(90, 7)).task.context_length == CONTEXTS[0]
    with pytest.raises(UserError, match="24 "):
        forecaster.fit(seasonal(26, 7))


def test_of_several_series_the_usual_length_bounds_it() -> None:
    long = seasonal(2000, 70).assign(unique_id="long")
    short = [seasonal(200, 70, seed=seed).assign(unique_id=f"short {seed}") for seed in (1, 2)]
    alone = Forecaster(TINY, prediction_length=6, max_steps=1).fit(long).task.context_length
    together = Forecaster(TINY, prediction_length=6, max_steps=1)
    assert alone > together.fit(pd.concat([long, *short], ignore_index=True)).task.context_length <= 180 / 4


def test_it_is_saved_and_loaded_and_chosen_anew_for_other_series(tmp_path: Path) -> None:
    frame = seasonal(900, 70)
    forecaster = Forecaster(TINY, prediction_length=6, max_steps=1).fit(frame)
    forecaster.save(tmp_path / "saved")
    loaded = load(tmp_path / "saved")
    assert loaded.arguments["context_length"] == "auto"
    assert loaded.task.context_length == forecaster.task.context_length
    pd.testing.assert_frame_equal(loaded.predict(), forecaster.predict())
    folds = forecaster.cross_validate(frame.iloc[:130], windows=1)
    assert len(folds) == 6


@pytest.mark.parametrize(("rows", "horizon"), [(200, 96), (300, 168), (361, 336), (700, 336), (767, 336)])
def test_a_horizon_that_is_long_for_the_series_leaves_a_context_that_fits(rows: int, horizon: int) -> None:
    """With rows for validation and without, where the horizon leaves less than a quarter of the rows for a context."""
    forecaster = Forecaster(TINY, prediction_length=horizon, max_steps=1, quantiles=None).fit(seasonal(rows, 7))
    assert forecaster.task.context_length + horizon <= forecaster.result.data.splits[0].train_end
