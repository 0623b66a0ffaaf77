"""The whole way on the real files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsattn
from tests.conftest import REAL_ROOT
from tests.forecaster.toys import SMALL, T
from tsattn.data import panel_from_frame
from tsattn.forecaster import Forecaster


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("file", "frequency", "options"),
    [
        (
            "vic_electricity.csv",
            "30min",
            {"time_column": "Time", "target": "Demand", "future_covariates": ["Temperature", "Holiday"]},
        ),
        ("national_illness.csv", "W-TUE", {"past_covariates": ["NUM. OF PROVIDERS"]}),
    ],
)
def test_the_whole_way_on_real_files(
    file: str, frequency: str, options: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Gaps, covariates, quantiles, horizons, cross-validation, evaluation, figures and saving; the end is held out."""
    table = pd.read_csv(Path(REAL_ROOT) / file, nrows=460)
    if file.startswith("vic"):
        table = table.drop(columns="Date")
    past, future = table[:400].copy(), table[400:]
    time_name = options.get("time_column", "date")
    past = past.drop(index=[150, 151])  # a gap in time
    target = options.get("target", past.columns[-1])
    past.loc[200, target] = np.nan
    panel = panel_from_frame(past, **options)
    assert panel.frequency == frequency
    assert "filled 2 missing time stamps" in caplog.text
    assert "values are missing" in caplog.text

    forecaster = Forecaster(**{**SMALL, "max_steps": 2}, attention="mlr", **options).fit(past)
    known = {"future": future[[time_name, *options["future_covariates"]]]} if "future_covariates" in options else {}
    forecast = forecaster.predict(**known)
    channels = len(panel.channels)
    assert len(forecast) == T * channels
    assert forecast[time_name].iloc[0] == pd.Timestamp(future[time_name].iloc[0])
    assert forecast[time_name].tolist()[:T] == pd.to_datetime(future[time_name][:T]).tolist()
    assert (forecast["0.1"] <= forecast["0.5"]).all()
    assert (forecast["0.5"] <= forecast["0.9"]).all()
    # in original units: between the extremes that were seen, and as much again
    low, high = np.nanmin(panel.values), np.nanmax(panel.values)
    assert forecast["predictions"].between(2 * low - high, 2 * high - low).all()
    with pytest.warns(UserWarning, match="horizon 30 is longer"):
        assert len(forecaster.predict(horizon=30, **known)) == 30 * channels
    assert len(forecaster.predict(horizon=5, **known)) == 5 * channels

    scores = forecaster.evaluate(table, detail=True)
    assert scores["windows"].eq(60 - T + 1).all(), "only what comes after the fitted rows"
    names = ["MSE", "MAE", "RMSE", "sMAPE", "WAPE", "WQL", "CRPS"]
    assert np.isfinite(scores.loc["patchtst_mlr", names]).all()
    validated = forecaster.cross_validate(past, windows=2)
    assert len(validated) == 2 * T * channels
    assert validated["cutoff"].nunique() == 2
    assert len(forecaster.plot(forecast, history=table).axes) == min(6, channels)
    forecaster.save(tmp_path / "model")
    loaded = tsattn.load(tmp_path / "model").predict(**known)
    np.testing.assert_allclose(loaded["predictions"], forecast["predictions"], rtol=1e-5)
