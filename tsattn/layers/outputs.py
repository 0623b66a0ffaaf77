"""From the numbers of a head to the forecast: a point, quantiles that cannot cross, or parameters of a distribution.

For a distribution a network outputs, for each step and channel, a forecast of the level (as for the median of
quantiles) and P - 1 further numbers. They become parameters on the scale of the batch, or in original units for counts.
Likelihoods and the scale factor of the negative binomial follow Salinas et al., *DeepAR* (2020). Its level is ours: the
forecast of the network and the linear path, made positive by a softplus.

Shape letters: B windows, L context, T horizon, C channels, P parameters, Q quantiles, N levels.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import sub
from statistics import NormalDist
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, distributions, nn
from typing_extensions import override

from tsattn.batch import EXACT, Batch, ModuleWithConstants
from tsattn.layers.tokens import InstanceNorm
from tsattn.task import MEDIAN, Output, check_quantiles

_UNIT = math.log(math.e - 1)  # softplus(_UNIT) is 1
_LEAST = 1e-4  # smallest scale of a distribution, on the scale of the window
_LEAST_COUNT = 1e-6
_SHARPNESS = 4.0  # of the softplus: levels as large as the context's mean are hardly changed


class QuantileFan(ModuleWithConstants):
    """Quantiles built from a median: each level adds a step of at least zero to the level before, outwards.

    A step is ``z * softplus(raw + log(e - 1))``, where z is the distance of the two levels under the standard normal
    distribution. So `raw` of zeros gives normal quantiles, and a unit of `raw` means the same for close and far levels.
    Steps are added one by one, outwards. Rounding keeps order, so the quantiles do not cross in any precision.

    Source: Park et al., *Learning Quantile Functions without Quantile Crossing* (AISTATS 2022). Their increments start
    from the lowest level. Here they start from the median, so that the point forecast does not depend on the tails.

    Args:
        levels: Q levels, as in `Output.quantiles`; without levels the median is returned unchanged.

    Attributes:
        num_outputs: numbers that a head must output for each step and channel: the median and Q - 1 steps.

    Raises:
        UserError: for levels that are not valid quantiles.
    """

    normal: Tensor

    def __init__(self, levels: Sequence[float] = ()) -> None:
        super().__init__()
        self.levels = check_quantiles(levels)
        self.num_outputs = max(1, len(self.levels))
        self.below = self.levels.index(MEDIAN) if self.levels else 0
        z = [NormalDist().inv_cdf(level) for level in self.levels]
        steps = [high - low for low, high in pairwise(z)]
        self.register_constant("normal", steps, torch.get_default_dtype(), cast=True)

    def forward(
        self, median: Tensor, raw: Tensor, norm: InstanceNorm | None = None, batch: Batch | None = None
    ) -> Tensor:
        """The quantiles, in the order of the levels.

        Args:
            median: `(...)`, the level 0.5.
            raw: `(..., Q - 1)`, any numbers; they make the steps between neighbouring levels, lowest first.
            norm: converts quantiles of `(B, T, C)` back from the scale of the windows.
            batch: unused; present because `OutputDistribution` has the same signature.

        Returns:
            `(..., Q)`; the median `(...)` itself if there are no levels.
        """
        if not self.levels:
            return median if norm is None else norm.restore(median)
        self.fill_constants(median.device)
        steps = (self.normal * F.softplus(raw + _UNIT)).unbind(-1)
        down = accumulate(reversed(steps[: self.below]), sub, initial=median)
        up = accumulate(steps[self.below :], initial=median)
        opened = torch.stack([*reversed([*down]), *[*up][1:]], -1)
        return opened if norm is None else norm.restore(opened)


class OutputDistribution(nn.Module, ABC):
    """A family of distributions, one for each step and channel.

    Attributes:
        num_outputs: P, numbers that a head must output for each step and channel: the level and further numbers.
        are_counts: whether its values are whole numbers of at least 0, in original units.
    """

    num_outputs: ClassVar[int]
    are_counts: ClassVar[bool] = False

    @abstractmethod
    def forward(self, level: Tensor, raw: Tensor, norm: InstanceNorm | None, batch: Batch) -> Tensor:
        """The parameters `(B, T, C, P)`, in float32 or wider.

        Args:
            level: `(B, T, C)` on the scale of `norm`.
            raw: `(B, T, C, P - 1)`, any numbers.
            norm: normalisation of the windows; None if the level is on the scale of the batch.
            batch: the windows.
        """

    @abstractmethod
    def log_prob(self, parameters: Tensor, target: Tensor, batch: Batch) -> Tensor:
        """The logarithm of the density, or of the probability of counts, `(B, T, C)` in float64.

        Args:
            parameters: `(B, T, C, P)`.
            target: `(B, T, C)` on the scale of the batch.
            batch: the windows.
        """

    @abstractmethod
    def mean(self, parameters: Tensor, batch: Batch) -> Tensor:
        """The mean of each distribution, `(B, T, C)` on the scale of the batch."""

    @abstractmethod
    def quantiles(self, parameters: Tensor, levels: Tensor, batch: Batch) -> Tensor:
        """The quantiles `(B, T, C, N)` of levels `(N,)` or `(B, T, C, N)`, on the scale of the batch, float64."""

    @abstractmethod
    def cdf(self, parameters: Tensor, target: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The probabilities of `< target` and `<= target`, `(B, T, C)` each, float64; they differ for counts.

        Args:
            parameters: `(B, T, C, P)`.
            target: `(B, T, C)` on the scale of the batch.
            batch: the windows.
        """

    def forecast(self, parameters: Tensor, levels: Sequence[float], batch: Batch) -> Tensor:
        """The quantiles at `levels`, `(B, T, C, Q)`, or without levels the mean, `(B, T, C)`."""
        if not levels:
            return self.mean(parameters, batch).to(batch.past.dtype)
        asked = torch.tensor(levels, dtype=EXACT, device=parameters.device)
        return self.quantiles(parameters, asked, batch).to(batch.past.dtype)


class NormalOutput(OutputDistribution):
    """A normal distribution: location and scale."""

    num_outputs = 2

    @override
    def forward(self, level: Tensor, raw: Tensor, norm: InstanceNorm | None, batch: Batch) -> Tensor:
        return torch.stack(_located(level, raw[..., 0], norm), -1)

    @override
    def log_prob(self, parameters: Tensor, target: Tensor, batch: Batch) -> Tensor:
        location, scale = parameters.to(EXACT).unbind(-1)
        return _log_prob(distributions.Normal(location, scale, validate_args=False), target.to(EXACT))

    @override
    def mean(self, parameters: Tensor, batch: Batch) -> Tensor:
        return parameters[..., 0]

    @override
    def quantiles(self, parameters: Tensor, levels: Tensor, batch: Batch) -> Tensor:
        location, scale = parameters.to(EXACT)[..., None].unbind(-2)
        values: Tensor = location + scale * torch.special.ndtri(levels)
        return values

    @override
    def cdf(self, parameters: Tensor, target: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        location, scale = parameters.to(EXACT).unbind(-1)
        below = torch.special.ndtr((target.to(EXACT) - location) / scale)
        return below, below


class StudentTOutput(OutputDistribution):
    """Student's t-distribution: location, scale, and degrees of freedom above 2."""

    num_outputs = 3

    @override
    def forward(self, level: Tensor, raw: Tensor, norm: InstanceNorm | None, batch: Batch) -> Tensor:
        freedom = 2 + F.softplus(_precise(raw[..., 1]) + _UNIT)
        return torch.stack([*_located(level, raw[..., 0], norm), freedom], -1)

    @override
    def log_prob(self, parameters: Tensor, target: Tensor, batch: Batch) -> Tensor:
        location, scale, freedom = parameters.to(EXACT).unbind(-1)
        return _log_prob(distributions.StudentT(freedom, location, scale, validate_args=False), target.to(EXACT))

    @override
    def mean(self, parameters: Tensor, batch: Batch) -> Tensor:
        return parameters[..., 0]

    @override
    def quantiles(self, parameters: Tensor, levels: Tensor, batch: Batch) -> Tensor:
        from scipy import special  # only needed for a distribution

        location, scale, freedom = parameters.detach().to(EXACT)[..., None].unbind(-2)
        standard = special.stdtrit(freedom.cpu().numpy(), levels.cpu().numpy())
        return location + scale * torch.as_tensor(standard, dtype=EXACT).to(location.device)

    @override
    def cdf(self, parameters: Tensor, target: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        from scipy import special

        location, scale, freedom = parameters.detach().to(EXACT).unbind(-1)
        standard = ((target.to(EXACT) - location) / scale).cpu().numpy()
        below = torch.as_tensor(special.stdtr(freedom.cpu().numpy(), standard), dtype=EXACT).to(location.device)
        return below, below


class NegativeBinomialOutput(OutputDistribution):
    """Negative binomial distribution of counts, in original units: mean m, dispersion a and variance ``m + a m^2``.

    Both parameters use the scale factor ``v = 1 + mean count of the context``. For the forecast level x the mean is
    ``v softplus(x / v)``, with a sharp softplus. The dispersion is ``softplus(raw) / sqrt(v)``.
    """

    num_outputs = 2
    are_counts = True

    @override
    def forward(self, level: Tensor, raw: Tensor, norm: InstanceNorm | None, batch: Batch) -> Tensor:
        counts = _in_units(batch.past, batch).clamp(min=0)
        seen = torch.ones_like(counts) if batch.past_observed is None else batch.past_observed.to(counts.dtype)
        factor = 1 + (counts * seen).sum(1, keepdim=True) / seen.sum(1, keepdim=True).clamp(min=1)
        level = level.to(EXACT) if norm is None else norm.restore(level).to(EXACT)
        mean = factor * F.softplus(_in_units(level, batch) / factor, beta=_SHARPNESS)
        dispersion = F.softplus(raw[..., 0].to(EXACT) + _UNIT) / factor.sqrt()
        return torch.stack([mean, dispersion], -1) + _LEAST_COUNT

    @override
    def log_prob(self, parameters: Tensor, target: Tensor, batch: Batch) -> Tensor:
        mean, dispersion = parameters.to(EXACT).unbind(-1)
        counts = _in_units(target, batch).round().clamp(min=0)
        family = distributions.NegativeBinomial(1 / dispersion, logits=(mean * dispersion).log(), validate_args=False)
        return _log_prob(family, counts)

    @override
    def mean(self, parameters: Tensor, batch: Batch) -> Tensor:
        return _on_scale(parameters[..., :1], batch)[..., 0]

    @override
    def quantiles(self, parameters: Tensor, levels: Tensor, batch: Batch) -> Tensor:
        from scipy import stats  # takes a second to import

        mean, dispersion = parameters.detach().double()[..., None].cpu().unbind(-2)
        successes = (1 / dispersion).numpy()
        counts = stats.nbinom.ppf(levels.cpu().numpy(), successes, successes / (successes + mean.numpy()))
        return _on_scale(torch.as_tensor(counts, dtype=EXACT).to(parameters.device), batch)

    @override
    def cdf(self, parameters: Tensor, target: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        from scipy import stats  # takes a second to import

        mean, dispersion = parameters.detach().double().cpu().unbind(-1)
        counts = _in_units(target, batch).round().clamp(min=0).cpu().numpy()
        family = stats.nbinom((1 / dispersion).numpy(), (1 / (1 + mean * dispersion)).numpy())
        below, upto = (torch.as_tensor(family.cdf(part), dtype=EXACT) for part in (counts - 1, counts))
        return below.to(parameters.device), upto.to(parameters.device)


_FAMILIES: dict[str, type[OutputDistribution]] = {
    "normal": NormalOutput,
    "student_t": StudentTOutput,
    "negative_binomial": NegativeBinomialOutput,
}


def distribution(output: Output) -> OutputDistribution | None:
    """The family of an output's distribution; None for an output without one, with quantiles or a point forecast."""
    return None if output.distribution is None else _FAMILIES[output.distribution]()


def output_fan(output: Output) -> QuantileFan | OutputDistribution:
    """Build the last module of a network: it turns a level and further numbers into a point, quantiles or parameters.

    Its arguments are `level (B, T, C)`, `raw (B, T, C, num_outputs - 1)`, the normalisation of the windows (or None)
    and the batch.
    """
    return distribution(output) or QuantileFan(output.quantiles)


def _located(level: Tensor, raw: Tensor, norm: InstanceNorm | None) -> tuple[Tensor, Tensor]:
    """Location and scale on the scale of the batch."""
    scale = F.softplus(_precise(raw) + _UNIT) + _LEAST
    if norm is None:
        return level.to(scale.dtype), scale
    return norm.restore(level).to(scale.dtype), scale * norm.scale


def _log_prob(family: distributions.Distribution, values: Tensor) -> Tensor:
    logarithm: Tensor = family.log_prob(values)
    return logarithm


def _precise(values: Tensor) -> Tensor:
    """Values in float32 or wider."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _in_units(values: Tensor, batch: Batch) -> Tensor:
    """Convert values `(B, T, C)` to original units, float64."""
    return values.to(EXACT) if batch.units is None else batch.units.restore(values)


def _on_scale(values: Tensor, batch: Batch) -> Tensor:
    """Convert values `(B, T, C, N)` from original units to the scale of the batch, float64."""
    return values.to(EXACT) if batch.units is None else batch.units.normalise(values)


def at_levels(quantiles: Tensor, own: Sequence[float], asked: Sequence[float]) -> Tensor:
    """Interpolate quantiles `(..., Q)` at rising levels `own` to levels `asked` within their range, `(..., A)`."""
    if [*own] == [*asked]:
        return quantiles
    after = [max(1, bisect_left(own, level)) for level in asked]
    before = [at - 1 for at in after]
    share = [(level - own[low]) / (own[high] - own[low]) for level, low, high in zip(asked, before, after, strict=True)]
    return torch.lerp(quantiles[..., before], quantiles[..., after], quantiles.new_tensor(share))
