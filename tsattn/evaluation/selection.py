"""The rule that chooses weights and trials: the validation error that belongs to the training loss."""

from __future__ import annotations

from collections.abc import Sequence

from tsattn.errors import UserError, one_of, shown

SELECTION_CHOICES = {"mse": "mse_scaled", "mae": "mae_scaled", "crps": "crps_scaled"}
"""Scores that a user may select for this choice."""

_OF_LOSS = {"mse": "mse", "huber": "mse", "mae": "mae", "frequency": "mae", "pinball": "crps", "nll": "crps"}


def selection_metric(loss: str, quantiles: Sequence[float] = (), choice: str | None = None) -> str:
    """Name the score of the validation windows that chooses weights and trials; the lowest is best.

    Args:
        loss: the training loss; for nll without quantiles the score is ``mse_scaled``.
        quantiles: the levels that are forecast, none for a point forecast.
        choice: one of `SELECTION_CHOICES`, to replace the error that belongs to the loss.

    Raises:
        UserError: for an unknown loss or choice, or the CRPS of a point forecast.
    """
    if loss not in _OF_LOSS:
        raise UserError(f"loss must be one of {one_of(_OF_LOSS)}, not {shown(loss)}")
    if choice is not None and choice not in SELECTION_CHOICES:
        raise UserError(f"selection must be one of {one_of(SELECTION_CHOICES)}, not {shown(choice)}")
    chosen = choice or ("mse" if loss == "nll" and not quantiles else _OF_LOSS[loss])
    if chosen == "crps" and not quantiles:
        valid = one_of(name for name in SELECTION_CHOICES if name != "crps")
        raise UserError(f"selection crps needs quantiles; without them, selection must be one of {valid}")
    return SELECTION_CHOICES[chosen]
