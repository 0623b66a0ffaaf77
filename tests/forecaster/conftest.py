"""Forecasters that several files of tests ask, and that none of them changes."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.forecaster.toys import SMALL, frame_of, promotions
from tests.pictures import empty_pictures
from tsattn.forecaster import Forecaster

__all__ = ["empty_pictures"]  # a fixture


@pytest.fixture(scope="package")
def fitted() -> Forecaster:
    return Forecaster(attention="mlr", **SMALL).fit(frame_of())


@pytest.fixture(scope="package")
def shops() -> Forecaster:
    columns: dict[str, Any] = {"future_covariates": ["promotion"], "static": ["region"]}
    frame = promotions(400)
    # the promotions of the last 20 days are known, the sales are not
    frame.loc[frame["ds"] >= frame["ds"].max() - pd.Timedelta(days=19), "y"] = np.nan
    return Forecaster(**{**SMALL, "max_steps": 60, "learning_rate": 0.01}, **columns).fit(frame)
