"""Training losses over the observed part of the targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.batch import Batch
from tsattn.errors import UserError, one_of
from tsattn.evaluation.window_errors import quantile_loss
from tsattn.layers import OutputDistribution

__all__ = [
    "FREQUENCY",
    "LOSSES",
    "NLL",
    "PINBALL",
    "batch_loss",
    "choose_loss",
    "frequency_loss",
    "masked_loss",
    "refuse_beside_own_loss",
]

PINBALL = "pinball"
NLL = "nll"
FREQUENCY = "frequency"

LOSSES: dict[str, Callable[..., Tensor]] = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}
"""The losses of a point forecast that take each step by itself."""

_OF_POINTS = (*LOSSES, FREQUENCY)
_SHARE_OF_SPECTRUM = 0.5  # of the loss by frequency, beside that of the steps


def choose_loss(name: str | None, quantiles: Sequence[float] = (), distribution: str | None = None) -> str:
    """The name of the loss, found from the quantiles if none is given.

    Args:
        name: ``mse``, ``mae``, ``huber``, ``frequency``, ``pinball`` or ``nll``, the negative log-likelihood; None is
            ``mse``, or ``pinball`` with quantiles, or ``nll`` with a distribution.
        quantiles: the levels that are forecast, none for a point forecast.
        distribution: that is forecast, if one is.

    Raises:
        UserError: for an unknown loss, or one that does not train what is forecast.
    """
    if name is None:
        if distribution is not None:
            return NLL
        return PINBALL if quantiles else "mse"
    if name not in (*_OF_POINTS, PINBALL, NLL):
        raise UserError(f"unknown loss {name!r}; valid: {one_of([*_OF_POINTS, PINBALL, NLL])}")
    if distribution is not None:
        if name != NLL:
            raise UserError(f"loss {name} trains no distribution: with {distribution} the loss is {NLL}, or left out")
        return name
    if name == NLL:
        raise UserError(f"loss {NLL} needs a distribution, which model.distribution names")
    if quantiles and name != PINBALL:
        raise UserError(
            f"loss {name} trains a point forecast, not quantiles: give `--model.loss {PINBALL}` "
            f'(Python: loss="{PINBALL}"), or no loss'
        )
    if not quantiles and name == PINBALL:
        raise UserError(f"loss {PINBALL} needs quantiles; without them the loss is one of {one_of(_OF_POINTS)}")
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
        name: ``mse``, ``mae``, ``huber`` (with its bend at 1, one standard deviation of the training data),
            ``frequency``, see `frequency_loss`, or ``pinball``, see `quantile_loss`.
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
    if observed is not None:  # what is unknown may be NaN, which a mask of losses alone would not keep out of gradients
        target = target.masked_fill(~observed, 0.0)
    if name == PINBALL:
        return _mean(quantile_loss(forecast, target, quantiles).mean(-1), observed, weight)
    if name == FREQUENCY:
        return _mean(frequency_loss(forecast, target, _counted(observed, weight)), observed, weight)
    if observed is None and weight is None:
        return LOSSES[name](forecast, target)
    return _mean(LOSSES[name](forecast, target, reduction="none"), observed, weight)


def frequency_loss(forecast: Tensor, target: Tensor, observed: Tensor | None = None) -> Tensor:
    """Half the absolute error of each step, and half that of the frequencies of its window.

    The steps of a window depend on each other, so that a loss step by step counts one error many times; its frequencies
    nearly do not (Wang et al., *FreDF: Learning to Forecast in the Frequency Domain*, ICLR 2025). What is taken is the
    mean modulus of the difference of both spectra, of a transform that keeps the sum of squares.

    Args:
        forecast: `(B, T, C)`.
        target: `(B, T, C)`.
        observed: `(B, T, C)` bool. Where it is False the error is taken to be 0 in the spectrum, whatever the target
            is; None if all is observed.

    Returns:
        `(B, T, C)`: the part of the frequencies is the same for all steps of a window and channel.
    """
    error = forecast - target
    if observed is not None:
        error = error.where(observed, 0.0)
    # half precisions have no transform of every length
    exact = error if error.dtype == torch.float64 else error.float()
    spectrum = torch.fft.rfft(exact, dim=1, norm="ortho").abs().mean(1, keepdim=True)
    loss: Tensor = (1 - _SHARE_OF_SPECTRUM) * exact.abs() + _SHARE_OF_SPECTRUM * spectrum
    return loss


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
    observed = _counted(observed, weight)
    if weight is not None:
        loss = loss * weight
    if observed is None:
        return loss.mean()
    return loss.where(observed, 0.0).sum() / observed.sum().clamp(min=1)


def _counted(observed: Tensor | None, weight: Tensor | None) -> Tensor | None:
    """`(B, T, C)` bool, which targets are observed and count; None if all do."""
    if weight is None:
        return observed
    return weight > 0 if observed is None else observed & (weight > 0)
