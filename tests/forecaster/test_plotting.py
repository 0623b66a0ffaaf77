"""Figures of a Forecaster show what was observed, the forecasts and their intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.forecaster.toys import SMALL, T, entries, frame_of
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster


def test_figures_show_history_forecast_and_bands(fitted: Forecaster) -> None:
    figure = fitted.plot(fitted.predict(), ids=["short", "small"])
    assert [ax.get_ylabel() for ax in figure.axes] == ["short", "small"]
    for ax in figure.axes:
        history, forecast = ax.lines[:2]
        assert len(forecast.get_xdata()) == 1 + T
        assert history.get_xdata()[-1] == forecast.get_xdata()[0], "it begins at the last observed step"
        assert history.get_ydata()[-1] == forecast.get_ydata()[0]
        assert len(ax.collections) == 1, "one band for 0.1 to 0.9"
    with pytest.raises(UserError, match="no forecast of nobody; valid are large, late, short, small"):
        fitted.plot(fitted.predict(), ids=["nobody"])


def test_figures_show_what_came_where_the_history_has_it(fitted: Forecaster) -> None:
    forecast = fitted.predict()
    whole = pd.concat([frame_of(), frame_of(more=T)])
    figure = fitted.plot(forecast, ids="small", history=whole.sort_values(["unique_id", "ds"]))
    observed = figure.axes[0].lines[0]
    came = frame_of(more=T)
    np.testing.assert_allclose(observed.get_ydata()[-T:], came.loc[came["unique_id"] == "small", "y"])
    stranger = fitted.predict(frame_of({"stranger": 100}))
    with pytest.raises(UserError, match="the history has no series stranger; give the frame that was forecast from"):
        fitted.plot(stranger)
    assert fitted.plot(stranger, history=frame_of({"stranger": 100})).axes


def test_figures_of_a_cross_validation_show_each_origin() -> None:
    frame = frame_of({"a": 200})
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame)
    figure = forecaster.plot(forecaster.cross_validate(frame, windows=3))
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 1 + T]
    assert len(lines) == 3
    assert len(figure.axes[0].collections) == 3
    assert entries(figure) == ["observed", "forecast", "80 % interval"]
