"""Covariates of categories in a Forecaster: learnt, saved, and what was not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsattn
from tests.forecaster.toys import T
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster

SIZES: dict[str, Any] = {"d_model": 16, "num_layers": 1, "num_heads": 2}
OPTIONS: dict[str, Any] = {
    **{"context_length": 24, "prediction_length": T, "quantiles": None, "accelerator": "cpu"},
    "future_covariates": ["event"],
}
EFFECT = {"none": 0.0, "fair": 6.0, "storm": -6.0}


def sales(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Sales of two shops that an event of the day, which is known ahead, moves up or down."""
    rng = np.random.default_rng(seed)
    stamps = pd.date_range("2023-01-01", periods=rows, freq="D")
    event = rng.choice([*EFFECT], rows, p=[0.6, 0.2, 0.2])
    moved = np.array([EFFECT[name] for name in event])
    noise = rng.standard_normal((2, rows))
    return pd.DataFrame({"ds": stamps, "north": 20 + moved + noise[0], "south": 50 + moved + noise[1], "event": event})


def test_what_an_event_does_is_learnt(tmp_path: Path) -> None:
    frame = sales()
    options = {**OPTIONS, "max_steps": 40, "learning_rate": 0.01}
    forecaster = Forecaster({"kind": "patchtst", **SIZES}, **options).fit(frame[:-T])
    assert forecaster.task.covariate_categories == (("fair", "none", "storm"),)
    future = frame[-T:][["ds", "event"]]

    def mean(event: str) -> float:
        return float(forecaster.predict(frame[:-T], future=future.assign(event=event))["predictions"].mean())

    assert mean("fair") > mean("none") + 2
    assert mean("storm") < mean("none") - 2
    # one that was never seen lies between those that were
    assert mean("storm") < mean("comet") < mean("fair")
    forecaster.save(tmp_path / "model")
    again = tsattn.load(tmp_path / "model")
    expected = forecaster.predict(future=future)
    pd.testing.assert_frame_equal(again.predict(future=future), expected)
    pd.testing.assert_frame_equal(again.predict(frame[:-T].sample(frac=1, random_state=1), future=future), expected)
    as_categories = future.astype({"event": "category"})
    pd.testing.assert_frame_equal(again.predict(future=as_categories), expected)


def test_an_unseen_category_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    frame = sales(120)
    options = {**OPTIONS, "future_covariates": (), "past_covariates": ["event"], "max_steps": 2}
    forecaster = Forecaster({"kind": "patchtst", **SIZES}, **options).fit(frame)
    forecaster.predict(frame.assign(event="comet"))
    assert (
        "covariate event: comet not seen in training: the mean of all that were takes the place" in caplog.messages[-1]
    )
    with pytest.raises(UserError, match="event"):
        forecaster.predict(frame.drop(columns="event"))
    forecaster.fine_tune(frame.assign(event=np.where(frame["event"] == "fair", "comet", frame["event"])), max_steps=1)
    assert forecaster.task.covariate_categories == (("fair", "none", "storm"),)
    scores = forecaster.cross_validate(frame, windows=1)
    assert scores["predictions"].notna().all()
