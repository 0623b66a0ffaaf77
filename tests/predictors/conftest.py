"""Data that predictors are fitted to."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tsattn.data import FrameDataModule


@pytest.fixture
def data(toy_frame: pd.DataFrame) -> FrameDataModule:
    """The toy frame with a few values missing, set up."""
    missing = np.random.default_rng(1).random(toy_frame.shape) < 0.002
    frame = toy_frame.mask(missing)
    data = FrameDataModule(frame, context_length=24, prediction_length=8, eval_batch_size=50)
    data.setup("fit")
    return data
