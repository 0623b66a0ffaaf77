"""Training losses over the observed part of the targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.batch import Batch
from tsattn.errors import UserError, one_of
from tsattn.evaluation.window_errors import quantile_loss
from tsattn.layers import OutputDistribution

PINBALL, NLL, FREQUENCY = "pinball", "nll", "frequency"
LOSSES: dict[str, Callable[..., Tensor]] = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}
"""Losses of a point forecast, step by step."""

_OF_POINTS = (*LOSSES, FREQUENCY)
_SHARE_OF_SPECTRUM = 0.5  # of the loss by frequency


def choose_loss(name: str | None, quantiles: Sequence[float] = (), distribution: str | None = None) -> str:
    """Return the loss of an output, by default ``mse``, ``pinball`` or ``nll``; a `UserError` if it cannot train it."""
    if name is None:
        return NLL if distribution is not None else PINBALL if quantiles else "mse"
    if name not in (*_OF_POINTS, PINBALL, NLL):
        raise UserError(f"unknown loss {name!r}; valid: {one_of([*_OF_POINTS, PINBALL, NLL])}")
    if distribution is not None and name != NLL:
        raise UserError(f"loss {name} does not train a distribution: give loss {NLL} with {distribution}, or no loss")
    if distribution is None and name == NLL:
        raise UserError(f"loss {NLL} needs a distribution: give `--model.distribution NAME` (Python: `distribution=`)")
    if quantiles and name not in (PINBALL, NLL):
        raise UserError(f"loss {name} trains a point forecast, not quantiles: give loss {PINBALL}, or no loss")
    if not quantiles and name == PINBALL:
        raise UserError(f"loss {PINBALL} needs quantiles: give quantiles, or one of {one_of(_OF_POINTS)} as loss")
    return name


def masked_loss(
    name: str,
    forecast: Tensor,
    target: Tensor,
    observed: Tensor | None,
    quantiles: Sequence[float] = (),
    weight: Tensor | None = None,
) -> Tensor:
    """Return the mean loss over the observed targets, and over the quantiles.

    Args:
        name: ``mse``, ``mae``, ``huber`` (with its bend at 1, one standard deviation of the training data),
            ``frequency``, see `frequency_loss`, or ``pinball``, see `quantile_loss`.
        forecast: `(B, T, C)`; for ``pinball`` `(B, T, C, Q)`.
        target: `(B, T, C)`.
        observed: `(B, T, C)` bool; None if all is observed. Without one observed target the loss is 0.
        quantiles: the Q levels of ``pinball``.
        weight: `(B, T, C)` factor of each target's loss; weight 0 counts as not observed. The mean divides by the
            number of other targets, not by their weights: else a batch of small weights would count as much as any.

    Raises:
        UserError: for an unknown loss, ``pinball`` without quantiles, or another loss with them.
    """
    name = choose_loss(name, quantiles)
    if observed is not None:  # what is unknown may be NaN, which a mask of losses alone would not keep out of gradients
        target = target.masked_fill(~observed, 0.0)
    if name == PINBALL:
        loss = quantile_loss(forecast, target, quantiles).mean(-1)
    elif name == FREQUENCY:
        loss = frequency_loss(forecast, target, _counted(observed, weight))
    elif observed is None and weight is None:
        return LOSSES[name](forecast, target)
    else:
        loss = LOSSES[name](forecast, target, reduction="none")
    return _mean(loss, observed, weight)


def frequency_loss(forecast: Tensor, target: Tensor, observed: Tensor | None = None) -> Tensor:
    """Return half the absolute error of each step plus half the error of its window's frequencies, `(B, T, C)`.

    Steps of a window depend on each other, so a loss step by step counts one error many times; frequencies nearly do
    not (Wang et al., *FreDF: Learning to Forecast in the Frequency Domain*, ICLR 2025). Their part is the mean modulus
    of the difference of both orthonormal spectra, in which the error of an unobserved step is 0.
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
    """Return the mean loss over observed targets of a forecast, or of the parameters `(B, T, C, P)` of a family."""
    target = batch.known_target
    if family is None:
        return masked_loss(name, made, target, batch.target_observed, quantiles, batch.target_weight)
    return _mean(-family.log_prob(made, target, batch), batch.target_observed, batch.target_weight)


def _mean(loss: Tensor, observed: Tensor | None, weight: Tensor | None) -> Tensor:
    observed, loss = _counted(observed, weight), loss if weight is None else loss * weight
    if observed is None:
        return loss.mean()
    return loss.where(observed, 0.0).sum() / observed.sum().clamp(min=1)


def _counted(observed: Tensor | None, weight: Tensor | None) -> Tensor | None:
    """Return `(B, T, C)` bool, True where a target is observed and has a weight; None if all do."""
    if weight is None:
        return observed
    return weight > 0 if observed is None else observed & (weight > 0)
