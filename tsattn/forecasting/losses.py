"""Training losses over the observed part of the targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.errors import UserError, one_of

__all__ = ["LOSSES", "PINBALL", "choose_loss", "masked_loss", "quantile_loss"]

PINBALL = "pinball"

LOSSES: dict[str, Callable[..., Tensor]] = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}
"""The losses of a point forecast."""


def choose_loss(name: str | None, quantiles: Sequence[float] = ()) -> str:
    """The name of the loss, found from the quantiles if none is given.

    Args:
        name: ``mse``, ``mae``, ``huber`` or ``pinball``; None is ``mse``, or ``pinball`` with quantiles.
        quantiles: the levels that are forecast, none for a point forecast.

    Raises:
        UserError: for an unknown loss, or one that does not train what is forecast.
    """
    if name is None:
        return PINBALL if quantiles else "mse"
    if name not in (*LOSSES, PINBALL):
        raise UserError(f"unknown loss {name!r}; valid: {one_of([*LOSSES, PINBALL])}")
    if quantiles and name != PINBALL:
        raise UserError(f"loss {name} trains a point forecast: with quantiles the loss is {PINBALL}, or left out")
    if not quantiles and name == PINBALL:
        raise UserError(f"loss {PINBALL} needs quantiles; without them the loss is one of {one_of(LOSSES)}")
    return name


def quantile_loss(forecast: Tensor, target: Tensor, levels: Sequence[float]) -> Tensor:
    """Twice the pinball loss of every quantile, so that it is the absolute error at the median.

    This is the loss of the weighted quantile loss of GluonTS and fev: for a level q,
    ``2 q (y - f)`` if the target y lies above the forecast f, ``2 (1 - q) (f - y)`` if it lies below.

    Args:
        forecast: `(..., Q)`.
        target: `(...)`.
        levels: Q levels in (0, 1).

    Returns:
        `(..., Q)`, in the units of the target.
    """
    # half precision would round 0.999 to 1
    level = _levels(tuple(levels), torch.promote_types(forecast.dtype, torch.float32), forecast.device)
    error = target[..., None] - forecast
    return 2 * torch.maximum(level * error, (level - 1) * error)


@lru_cache(maxsize=64)
def _levels(levels: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The levels on a device, sent there once: a copy in each step would hold the host up."""
    with torch.inference_mode(False):  # what validation asks for first, training uses too
        return torch.tensor(levels, dtype=dtype).to(device)


def masked_loss(
    name: str, forecast: Tensor, target: Tensor, observed: Tensor | None, quantiles: Sequence[float] = ()
) -> Tensor:
    """Mean loss over the observed targets, and over the quantiles.

    Args:
        name: ``mse``, ``mae``, ``huber`` (with its bend at 1, one standard deviation of the training data), or
            ``pinball``, see `quantile_loss`.
        forecast: `(B, T, C)`; for ``pinball`` `(B, T, C, Q)`.
        target: `(B, T, C)`.
        observed: `(B, T, C)` bool; None if all is observed. Without one observed target the loss is 0.
        quantiles: the Q levels of ``pinball``.

    Raises:
        UserError: for an unknown loss, ``pinball`` without quantiles, or another loss with them.
    """
    name = choose_loss(name, quantiles)
    if name == PINBALL:
        loss = quantile_loss(forecast, target, quantiles).mean(-1)
        if observed is None:
            return loss.mean()
    elif observed is None:
        return LOSSES[name](forecast, target)
    else:
        loss = LOSSES[name](forecast, target, reduction="none")
    return (loss * observed).sum() / observed.sum().clamp(min=1)
