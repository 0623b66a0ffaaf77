"""Quantile forecasts that cannot cross."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import sub
from statistics import NormalDist

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.batch import Batch
from tsattn.constants import ModuleWithConstants
from tsattn.layers.instance_norm import InstanceNorm
from tsattn.task import MEDIAN, check_quantiles

__all__ = ["QuantileFan"]

_UNIT = math.log(math.e - 1)  # softplus of it is 1


class QuantileFan(ModuleWithConstants):
    """Opens a median into quantiles: each level stands a step, never negative, further out than the one before.

    A step is ``z * softplus(raw + log(e - 1))``, where z is the distance of the two levels under the standard normal
    distribution: zeros open the fan to its quantiles, and one unit of `raw` means the same for close and far levels.
    Steps are added one by one outwards; as rounding keeps order, the quantiles do not cross in any precision.

    Source: Park et al., *Learning Quantile Functions without Quantile Crossing* (AISTATS 2022), whose
    increments start from the lowest level; from the median, the point forecast does not depend on the tails.

    Args:
        levels: Q levels, as `Output.quantiles`; none leaves the median as it is.

    Attributes:
        num_outputs: numbers that a head must give for each step and channel: the median and Q - 1 steps.

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
            raw: `(..., Q - 1)`, any numbers: the steps between neighbouring levels, lowest first.
            norm: takes quantiles of `(B, T, C)` back from the scale of the windows.
            batch: nothing is read of it, see `OutputDistribution`, which takes the place of a fan.

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
