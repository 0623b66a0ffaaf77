"""Training losses over the observed part of the targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from tsattn.batch import Batch
from tsattn.errors import UserError, one_of
from tsattn.evaluation.pinball import quantile_loss
from tsattn.layers import OutputDistribution

__all__ = [
    "LOSSES",
    "NLL",
    "PINBALL",
    "batch_loss",
    "choose_loss",
    "masked_loss",
    "refuse_beside_own_loss",
]

PINBALL = "pinball"
NLL = "nll"

LOSSES: dict[str, Callable[..., Tensor]] = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}
"""The losses of a point forecast."""


def choose_loss(name: str | None, quantiles: Sequence[float] = (), distribution: str | None = None) -> str:
    """The name of the loss, found from the quantiles if none is given.

    Args:
        name: ``mse``, ``mae``, ``huber``, ``pinball`` or ``nll``, the negative log-likelihood; None is ``mse``, or
            ``pinball`` with quantiles, or ``nll`` with a distribution.
        quantiles: the levels that are forecast, none for a point forecast.
        distribution: that is forecast, if one is.

    Raises:
        UserError: for an unknown loss, or one that does not train what is forecast.
    """
    if name is None:
        if distribution is not None:
            return NLL
        return PINBALL if quantiles else "mse"
    if name not in (*LOSSES, PINBALL, NLL):
        raise UserError(f"unknown loss {name!r}; valid: {one_of([*LOSSES, PINBALL, NLL])}")
    if distribution is not None:
        if name != NLL:
            raise UserError(f"loss {name} trains no distribution: with {distribution} the loss is {NLL}, or left out")
        return name
    if name == NLL:
        raise UserError(f"loss {NLL} needs a distribution, which model.distribution names")
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
    if name == PINBALL:
        return _mean(quantile_loss(forecast, target, quantiles).mean(-1), observed, weight)
    if observed is None and weight is None:
        return LOSSES[name](forecast, target)
    return _mean(LOSSES[name](forecast, target, reduction="none"), observed, weight)


def batch_loss(
    name: str, made: Tensor, batch: Batch, quantiles: Sequence[float] = (), family: OutputDistribution | None = None
) -> Tensor:
    """Mean loss over the observed targets of a batch.

    Args:
        name: of the loss.
        made: what the network gives: a forecast as for `masked_loss`, or the parameters `(B, T, C, P)` of `family`.
        batch: the windows.
        quantiles: the levels of the forecast.
        family: of the distribution, whose negative log-likelihood is the loss; None where none is forecast.
    """
    target, observed = batch.target, batch.target_observed
    assert target is not None, "a window beyond the end of the data has no target"
    if family is None:
        return masked_loss(name, made, target, observed, quantiles, batch.target_weight)
    loss = -family.log_prob(made, target, batch)
    return _mean(loss, observed, batch.target_weight)


def _mean(loss: Tensor, observed: Tensor | None, weight: Tensor | None) -> Tensor:
    """The mean of losses `(B, T, C)` over the targets that are observed and count; see `masked_loss`."""
    if weight is not None:
        observed = weight > 0 if observed is None else observed & (weight > 0)
        loss = loss * weight
    if observed is None:
        return loss.mean()
    return loss.where(observed, 0.0).sum() / observed.sum().clamp(min=1)
