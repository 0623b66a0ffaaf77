"""What MASE divides by: how far values lie from those one season before."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsattn.constants import EXACT
from tsattn.data import Panel
from tsattn.errors import UserError

__all__ = ["seasonal_error", "seasonal_errors"]


def seasonal_error(past: Tensor, season_length: int, observed: Tensor | None = None) -> Tensor:
    """The mean absolute difference of values one season apart: the error of the seasonal naive forecast.

    Args:
        past: `(B, L, C)`, anything (NaN too) where it is not observed.
        season_length: steps in a season; 1 for none.
        observed: `(B, L, C)` bool; None if all is observed. Only pairs with both values observed count.

    Returns:
        `(B, C)` float64; NaN where no pair is observed.

    Raises:
        UserError: for a season below 1.
    """
    if season_length < 1:
        raise UserError(f"season_length must be at least 1, not {season_length}")
    past = past.to(EXACT)
    difference = (past[:, season_length:] - past[:, :-season_length]).abs()
    if observed is None:
        return difference.mean(1)
    pairs = observed[:, season_length:] & observed[:, :-season_length]
    return difference.where(pairs, 0.0).sum(1) / pairs.sum(1)


def seasonal_errors(panel: Panel, ends: NDArray[np.int64], season: int) -> NDArray[np.float64]:
    """The same of the first rows of each series.

    Args:
        panel: the series.
        ends: `(S,)` how many rows of each are looked at.
        season: steps in a season.

    Returns:
        `(S, C)` in original units; NaN where there is no pair of values a season apart.
    """
    errors = np.full((len(panel), len(panel.channels)), np.nan)
    for number, (start, rows) in enumerate(zip(panel.starts, ends, strict=False)):
        history = torch.from_numpy(panel.values[start : start + rows].copy())[None]
        if rows > season:
            errors[number] = seasonal_error(history, season, ~history.isnan())[0].numpy()
    return errors
