"""The one rule by which weights and trials are chosen: the validation error of what is trained."""

from __future__ import annotations

from collections.abc import Sequence

from tsattn.errors import UserError, one_of, shown

__all__ = ["SELECTION_CHOICES", "selection_metric"]

SELECTION_CHOICES = {"mse": "mse_scaled", "mae": "mae_scaled", "crps": "crps_scaled"}
"""What a user may choose by, and the score that it is."""

_OF_LOSS = {"mse": "mse", "huber": "mse", "mae": "mae", "frequency": "mae", "pinball": "crps", "nll": "crps"}


def selection_metric(loss: str, quantiles: Sequence[float] = (), choice: str | None = None) -> str:
    """The score of the validation windows, least is best, by which weights and trials are chosen.

    Args:
        loss: what is trained: ``mse``, ``huber``, ``mae``, ``frequency``, ``pinball`` or ``nll``.
        quantiles: the levels that are forecast, none for a point forecast.
        choice: one of `SELECTION_CHOICES` in place of the error of the loss.

    Returns:
        ``mse_scaled`` for mse and huber, ``mae_scaled`` for mae and frequency, ``crps_scaled`` for pinball and nll,
        whose mean is selected by ``mse_scaled`` without quantiles.

    Raises:
        UserError: for an unknown loss or choice, or the CRPS of a point forecast.
    """
    if loss not in _OF_LOSS:
        raise UserError(f"loss must be one of {one_of(_OF_LOSS)}, not {shown(loss)}")
    if choice is not None and choice not in SELECTION_CHOICES:
        raise UserError(f"weights are selected by one of {one_of(SELECTION_CHOICES)}, not {shown(choice)}")
    of_loss = "mse" if loss == "nll" and not quantiles else _OF_LOSS[loss]
    chosen = of_loss if choice is None else choice
    if chosen == "crps" and not quantiles:
        valid = one_of(name for name in SELECTION_CHOICES if name != "crps")
        raise UserError(f"weights are selected by crps only with quantiles; without them by one of {valid}")
    return SELECTION_CHOICES[chosen]
