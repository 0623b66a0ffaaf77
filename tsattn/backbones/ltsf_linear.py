"""DLinear and NLinear: linear maps of the context, without attention.

Source: Zeng et al., *Are Transformers Effective for Time Series Forecasting?* (AAAI 2023). As in the paper, windows
are not normalised. Quantiles are our addition.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from tsattn.backbones.base import Backbone
from tsattn.batch import Batch
from tsattn.errors import UserError, whole_number
from tsattn.layers import InstanceNorm, OutputDistribution, QuantileFan, output_fan
from tsattn.task import Output, Task


class DLinear(Backbone):
    """The sum of two linear maps: one of the trend, which is a moving average, and one of the remainder.

    It uses no covariates.

    Args:
        task: the sizes to build for.
        output: the form of the forecast: a point forecast, quantiles or a distribution.
        kernel_size: steps of the moving average, an odd number. Beyond its ends the context is padded with its first
            and last values.
        individual: learn two maps for each channel, instead of two maps for all channels.

    Raises:
        UserError: for a `kernel_size` that is not odd.
    """

    emits_quantiles: ClassVar[bool] = True
    emits_distributions: ClassVar[bool] = True

    def __init__(self, task: Task, output: Output, *, kernel_size: int = 25, individual: bool = False) -> None:
        super().__init__()
        self.kernel_size = whole_number("kernel_size", kernel_size)
        if self.kernel_size % 2 == 0:
            raise UserError(f"kernel_size must be odd, such as {self.kernel_size + 1}, not {kernel_size}")
        self.fan = output_fan(output)
        self.trend, self.remainder = (_series_linear(task, self.fan, individual) for _ in range(2))

    @override
    def forward(self, batch: Batch) -> Tensor:
        past = _known_past(batch).transpose(1, 2).contiguous()
        trend = moving_average(past, self.kernel_size)
        return _forecast(self.fan, batch, self.trend(trend) + self.remainder(past - trend))


class NLinear(Backbone):
    """A linear map of the context minus its last value; the last value is then added to the forecast.

    It uses no covariates.

    Args:
        task: the sizes to build for.
        output: the form of the forecast: a point forecast, quantiles or a distribution.
        individual: learn a map for each channel, instead of a map for all channels.
    """

    emits_quantiles: ClassVar[bool] = True
    emits_distributions: ClassVar[bool] = True

    def __init__(self, task: Task, output: Output, *, individual: bool = False) -> None:
        super().__init__()
        self.fan = output_fan(output)
        self.linear = _series_linear(task, self.fan, individual)

    @override
    def forward(self, batch: Batch) -> Tensor:
        past = _known_past(batch)
        last = past[:, -1:]
        return _forecast(self.fan, batch, self.linear((past - last).transpose(1, 2)), last)


def _series_linear(task: Task, fan: QuantileFan | OutputDistribution, individual: bool) -> _SeriesLinear:
    """A map from the context of a channel to the outputs of all steps of the horizon."""
    num_outputs = task.prediction_length * fan.num_outputs
    return _SeriesLinear(task.context_length, num_outputs, task.num_channels if individual else None)


def _known_past(batch: Batch) -> Tensor:
    """The context `(B, L, C)`; steps before the first observed step, whose values are unknown, get its mean."""
    if batch.past_observed is None:
        return batch.past
    return InstanceNorm(batch.past, batch.past_observed).past


def _forecast(fan: QuantileFan | OutputDistribution, batch: Batch, raw: Tensor, level: Tensor | float = 0.0) -> Tensor:
    """The forecast `(B, T, C)` or `(B, T, C, Q)` from the maps' output `(B, C, T Q)` and a level `(B, 1, C)`."""
    steps = raw.reshape(*raw.shape[:2], -1, fan.num_outputs).transpose(1, 2)
    forecast: Tensor = fan(steps[..., 0] + level, steps[..., 1:], None, batch)
    return forecast


class _SeriesLinear(nn.Module):
    """A linear map of the context of a channel: one map for all channels (`channels` None), or one for each."""

    mup_roles: ClassVar[dict[str, str]] = {"shared": "input", "weight": "input"}  # see tsattn.layers.optim

    def __init__(self, context_length: int, num_outputs: int, channels: int | None = None) -> None:
        super().__init__()
        self.shared: nn.Module = nn.Linear(context_length, num_outputs) if channels is None else nn.Identity()
        self.weight: nn.Parameter | None = None
        self.bias: nn.Parameter | None = None
        if channels is not None:
            # each map starts as in nn.Linear; the biases form one vector, so that weight decay leaves them out
            bound = 1 / math.sqrt(context_length)
            self.weight = nn.Parameter(torch.empty(channels, num_outputs, context_length).uniform_(-bound, bound))
            self.bias = nn.Parameter(torch.empty(channels * num_outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, C, L)` to `(B, C, num_outputs)`."""
        if self.weight is None or self.bias is None:
            out: Tensor = self.shared(x)
            return out
        mapped = torch.einsum("bcl,col->bco", x, self.weight)
        return mapped + self.bias.view(*self.weight.shape[:2])


def moving_average(series: Tensor, size: int) -> Tensor:
    """The moving average of `(..., L)` over `size` steps, an odd number; the ends are padded by repetition."""
    half = size // 2
    exact = series.to(torch.promote_types(series.dtype, torch.float32))
    first = exact[..., :1]  # subtracted, as long sums of large values would lose digits
    rows = (exact - first).reshape(-1, 1, series.shape[-1])
    sums = F.pad(rows, (half + 1, half), mode="replicate")[:, 0].cumsum(-1)
    mean = (sums[:, size:] - sums[:, :-size]) / size
    return (mean.view(series.shape) + first).to(series.dtype)
