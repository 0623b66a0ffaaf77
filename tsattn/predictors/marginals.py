"""The distribution of each step by itself, of which a forecast says some quantiles or all.

Shape letters: B windows, T horizon, C channels, Q quantile levels, N levels that are asked for, P parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.layers import OutputDistribution
from tsattn.predictors.base import Predictor
from tsattn.predictors.network import NetworkPredictor

__all__ = ["FamilyMarginals", "Marginals", "QuantileMarginals", "check_marginals", "has_marginals", "marginals_of"]


class Marginals(ABC):
    """What is known of each step of some windows."""

    @abstractmethod
    def quantiles(self, levels: Tensor) -> Tensor:
        """The quantiles of levels `(B, T, C, N)`, each step by its own ones, on the scale of the batch, float64."""

    @abstractmethod
    def scores(self, target: Tensor, uniform: Tensor) -> Tensor:
        """Normal scores of targets, rising with the probability of what lies below them.

        Args:
            target: `(B, T, C)` on the scale of the batch.
            uniform: `(B, T, C)` in (0, 1), which say where in the probability of a count it is placed.
        """


class QuantileMarginals(Marginals):
    """Between two levels, and beyond the outermost, the quantile is linear in the normal score of the level.

    So quantiles of a normal distribution are continued as that goes on.

    Args:
        quantiles: `(B, T, C, Q)`, not falling.
        levels: Q of them, at least two.
    """

    def __init__(self, quantiles: Tensor, levels: Sequence[float]) -> None:
        self._known = quantiles.double()
        self._places = torch.special.ndtri(torch.tensor(levels, dtype=torch.float64))

    @override
    def quantiles(self, levels: Tensor) -> Tensor:
        places = torch.special.ndtri(levels.double()).contiguous()
        number = torch.searchsorted(self._places, places).clamp(1, len(self._places) - 1)
        left, right = self._places[number - 1], self._places[number]
        low, high = self._known.gather(-1, number - 1), self._known.gather(-1, number)
        values: Tensor = low + (places - left) / (right - left) * (high - low)
        return values

    @override
    def scores(self, target: Tensor, uniform: Tensor) -> Tensor:
        goal, known = target.double()[..., None].contiguous(), self._known.contiguous()
        number = torch.searchsorted(known, goal).clamp(1, known.shape[-1] - 1)
        low, high = known.gather(-1, number - 1), known.gather(-1, number)
        left, right = self._places[number - 1], self._places[number]
        width = high - low
        share = torch.where(width > 0, (goal - low) / torch.where(width > 0, width, 1.0), uniform.double()[..., None])
        scores: Tensor = (left + share * (right - left))[..., 0]
        return scores


class FamilyMarginals(Marginals):
    """A distribution, exactly.

    Args:
        family: of the distribution.
        parameters: `(B, T, C, P)`.
        batch: the windows.
    """

    def __init__(self, family: OutputDistribution, parameters: Tensor, batch: Batch) -> None:
        self._family, self._parameters, self._batch = family, parameters, batch

    @override
    def quantiles(self, levels: Tensor) -> Tensor:
        return self._family.quantiles(self._parameters, levels.double(), self._batch)

    @override
    def scores(self, target: Tensor, uniform: Tensor) -> Tensor:
        below, upto = self._family.cdf(self._parameters, target, self._batch)
        least = torch.finfo(torch.float64).eps
        scores: Tensor = torch.special.ndtri((below + uniform.double() * (upto - below)).clamp(least, 1 - least))
        return scores


def has_marginals(predictor: Predictor) -> bool:
    """Whether forecasts say anything of the distribution of a step: they are two quantiles or more, or exact."""
    assert predictor.output is not None, "build(task, output) comes first"
    is_exact = isinstance(predictor, NetworkPredictor) and predictor.family is not None
    return is_exact or len(predictor.output.quantiles) > 1


def check_marginals(predictor: Predictor) -> None:
    """Refuse forecasts that say nothing of the distribution of a step.

    Raises:
        UserError: saying what is needed.
    """
    if not has_marginals(predictor):
        what = f"{predictor.name} was built for a point forecast, of which no path can be drawn"
        if not predictor.emits_quantiles:
            raise UserError(f"{what}, calibrated or not: take a predictor of quantiles or of a distribution")
        raise UserError(f"{what}: ask it for quantiles, such as [0.1, 0.5, 0.9], or for a distribution")


def marginals_of(predictor: Predictor, made: Tensor, batch: Batch) -> Marginals:
    """The marginals of what `parameters_of` gives of a network with a distribution, or of its quantiles."""
    assert predictor.output is not None
    if isinstance(predictor, NetworkPredictor) and predictor.family is not None:
        return FamilyMarginals(predictor.family, made, batch)
    return QuantileMarginals(made, predictor.output.quantiles)
