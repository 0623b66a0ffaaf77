"""Scaling each channel by its training mean and standard deviation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from sklearn.preprocessing import StandardScaler

from tsattn.data.frequency import seconds
from tsattn.data.windows import Series
from tsattn.errors import UserError

__all__ = ["fit_scaler", "scaled_series"]


def fit_scaler(train: pd.DataFrame) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel over the observed training rows; a constant channel has scale 1.

    Raises:
        UserError: for a channel without one observed training value.
    """
    empty = train.columns[train.isna().all()]
    if len(empty):
        raise UserError(f"channel {empty[0]} has no value in the {len(train)} training rows")
    scaler = StandardScaler().fit(train.to_numpy())
    return tuple(scaler.mean_.tolist()), tuple(scaler.scale_.tolist())


def scaled_series(frame: pd.DataFrame, mean: tuple[float, ...], scale: tuple[float, ...]) -> Series:
    """The frame as tensors, `(value - mean) / scale`.

    A missing value is imputed for the model's input by the last observed one before it (so nothing is seen ahead of
    its time), at the very start by the mean; the mask of observed values keeps it out of loss and metrics.
    """
    scaled = (frame.to_numpy() - np.asarray(mean)) / np.asarray(scale)
    missing = np.isnan(scaled)
    observed = torch.from_numpy(~missing) if missing.any() else None
    filled = pd.DataFrame(scaled).ffill().fillna(0.0).to_numpy(dtype=np.float32)
    stamps = seconds(pd.DatetimeIndex(frame.index))
    return Series(torch.from_numpy(filled.copy()), observed, torch.from_numpy(stamps))
