"""Training losses over the observed part of the targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from tsattn.errors import UserError, one_of
from tsattn.evaluation.pinball import quantile_loss

__all__ = ["LOSSES", "PINBALL", "choose_loss", "masked_loss", "refuse_beside_own_loss"]

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


def refuse_beside_own_loss(kind: str, **given: Any) -> None:
    """Refuse options that mean nothing to a backbone that goes on from pretrained weights, by its own loss.

    Args:
        kind: of the backbone.
        **given: options, of which those that are set are refused.

    Raises:
        UserError: naming the first that is set.
    """
    for name in (name for name, value in given.items() if value):
        raise UserError(f"{kind} goes on from pretrained weights: leave {name} out")


def masked_loss(
    name: str,
    forecast: Tensor,
    target: Tensor,
    observed: Tensor | None,
    quantiles: Sequence[float] = (),
    weight: Tensor | None = None,
) -> Tensor:
    """Mean loss over the observed targets, and over the quantiles.

    Args:
        name: ``mse``, ``mae``, ``huber`` (with its bend at 1, one standard deviation of the training data), or
            ``pinball``, see `quantile_loss`.
        forecast: `(B, T, C)`; for ``pinball`` `(B, T, C, Q)`.
        target: `(B, T, C)`.
        observed: `(B, T, C)` bool; None if all is observed. Without one observed target the loss is 0.
        quantiles: the Q levels of ``pinball``.
        weight: `(B, T, C)` of each target, by which its loss is multiplied; targets of weight 0 are as not observed.
            The mean is that over all others, not over the weights of a batch, in which a batch of small ones would
            count as much as any.

    Raises:
        UserError: for an unknown loss, ``pinball`` without quantiles, or another loss with them.
    """
    name = choose_loss(name, quantiles)
    if weight is not None:
        counts = weight > 0
        observed = counts if observed is None else counts & observed
    if name == PINBALL:
        loss = quantile_loss(forecast, target, quantiles).mean(-1)
        if observed is None:
            return loss.mean()
    elif observed is None:
        return LOSSES[name](forecast, target)
    else:
        loss = LOSSES[name](forecast, target, reduction="none")
    if weight is not None:
        loss = loss * weight
    return (loss * observed).sum() / observed.sum().clamp(min=1)
