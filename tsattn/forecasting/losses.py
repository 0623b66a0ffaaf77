"""Training losses over the observed part of the targets."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from tsattn.errors import UserError, one_of

__all__ = ["LOSSES", "masked_loss"]

LOSSES: dict[str, Callable[..., Tensor]] = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}


def masked_loss(name: str, forecast: Tensor, target: Tensor, observed: Tensor | None) -> Tensor:
    """Mean loss over the observed targets.

    Args:
        name: ``mse``, ``mae`` or ``huber`` (with its bend at 1, one standard deviation of the training data).
        forecast: `(B, T, C)`.
        target: `(B, T, C)`.
        observed: `(B, T, C)` bool; None if all is observed. Without one observed target the loss is 0.
    """
    if name not in LOSSES:
        raise UserError(f"unknown loss {name!r}; valid: {one_of(LOSSES)}")
    if observed is None:
        return LOSSES[name](forecast, target)
    loss = LOSSES[name](forecast, target, reduction="none")
    return (loss * observed).sum() / observed.sum().clamp(min=1)
