"""Record of a batch of windows; also the precision of sums, and modules with constant buffers.

Shape letters: B windows, L context length, T prediction length, C channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

# long sums of small numbers need float64, which Apple's GPUs do not have
EXACT = torch.float32 if torch.backends.mps.is_available() else torch.float64


class ModuleWithConstants(nn.Module):
    """Module with buffers that follow from its arguments: not in a state dict, and refilled if left on ``meta``."""

    def __init__(self) -> None:
        super().__init__()
        self._constants: dict[str, tuple[Any, torch.dtype, bool]] = {}

    def register_constant(self, name: str, values: Any, dtype: torch.dtype, *, cast: bool) -> None:
        """Register a buffer; with `cast`, a cast of the module casts the buffer, too."""
        self._constants[name] = np.asarray(values), dtype, cast
        self.register_buffer(name, torch.tensor(self._constants[name][0], dtype=dtype), persistent=False)

    def fill_constants(self, device: torch.device) -> None:
        """Fill constants that are on ``meta`` after weights were assigned."""
        for name in self._constants:
            if self.get_buffer(name).is_meta != (device.type == "meta"):
                self._fill(name, device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        for name in self._constants:
            if self.get_buffer(name).is_meta:
                try:
                    fn(self.get_buffer(name))
                except NotImplementedError:  # a meta tensor holds no numbers to move, so make it
                    self._fill(name, torch.device("cpu"))
        moved: nn.Module = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in self._constants:
            self._fill(name, self.get_buffer(name).device)
        return moved

    def _fill(self, name: str, device: torch.device) -> None:
        values, dtype, cast = self._constants[name]
        dtype = self.get_buffer(name).dtype if cast else dtype
        self.register_buffer(name, torch.tensor(values, dtype=dtype, device=device), persistent=False)


class LastSeason(NamedTuple):
    """Last known value of each phase of a season, in the order of the s steps before the horizon."""

    scaled: Tensor  # (B, s, C) on the scale of the batch
    original: Tensor | None  # (B, s, C) float64 in original units, never rounded; None after a forecast was appended


class WindowUnits:
    """Units of windows: ``original = scaled * scale + mean``; if a transform is used, original means transformed.

    It is not a dataclass, because Lightning casts the tensors of a dataclass to the precision of a training. In
    bfloat16 a mean of 10000 would be rounded by tens.
    """

    def __init__(
        self,
        mean: Tensor,  # (B, C), kept in float64 (float32 on MPS)
        scale: Tensor,  # (B, C)
        past_covariate_scale: Tensor | None = None,  # (B, P)
        future_covariate_scale: Tensor | None = None,  # (B, F)
        target: Tensor | None = None,  # (B, T, C) targets as given, in original units, NaN where missing
        seasons: Mapping[int, LastSeason] | None = None,  # last seasons before the horizon, by length
    ) -> None:
        self.mean, self.scale, self.seasons = mean.to(EXACT), scale.to(EXACT), seasons or {}
        self.past_covariate_scale, self.future_covariate_scale = past_covariate_scale, future_covariate_scale
        self.target = None if target is None else target.to(EXACT)

    def map(self, function: Callable[[Tensor], Tensor]) -> WindowUnits:
        """Apply a function to each tensor."""
        others = (self.past_covariate_scale, self.future_covariate_scale, self.target)
        past, future, target = (None if part is None else function(part) for part in others)
        seasons = {
            length: LastSeason(function(scaled), None if original is None else function(original))
            for length, (scaled, original) in self.seasons.items()
        }
        return WindowUnits(function(self.mean), function(self.scale), past, future, target, seasons)

    def moved_on(self, values: Tensor) -> WindowUnits:
        """Return the units after values `(B, T, C)`, on the scale of the batch, were appended to the contexts."""
        seasons = {
            length: LastSeason(torch.cat([season.scaled, values.to(season.scaled.dtype)], 1)[:, -length:], None)
            for length, season in self.seasons.items()
        }
        covariates = (self.past_covariate_scale, self.future_covariate_scale)
        return WindowUnits(self.mean, self.scale, *covariates, None, seasons)

    def restore(self, scaled: Tensor) -> Tensor:
        """Convert `(B, T, C)` from the scale of a batch to original units, in the precision of the units."""
        return scaled.to(self.mean.dtype) * self.scale[:, None] + self.mean[:, None]

    def normalise(self, original: Tensor) -> Tensor:
        """Convert quantiles `(B, T, C, Q)` from original units to the scale of the batch, in the units' precision."""
        mean, scale = (part[:, None, :, None] for part in (self.mean, self.scale))
        return (original.to(mean.dtype) - mean) / scale


@dataclass  # not frozen: Lightning overwrites fields to change their precision
class Batch:
    """Batch of windows; fields that a data set lacks are None.

    Masks are bool, False where a value is missing; None if nothing is missing. Missing inputs are imputed.
    """

    past: Tensor  # (B, L, C) scaled values of the context
    target: Tensor | None = None  # (B, T, C) scaled values to forecast; None beyond the end of the data
    past_observed: Tensor | None = None  # (B, L, C) mask of `past`
    target_observed: Tensor | None = None  # (B, T, C) mask of `target`; a missing target is not scored
    target_weight: Tensor | None = None  # (B, T, C) in training, mean about 1; None: all 1, as in metrics
    time: Tensor | None = None  # (B, L + T) int64 time stamps, in seconds since 1970-01-01 by the clock of the data
    past_covariates: Tensor | None = None  # (B, L, P) scaled; categories as numbers, see `Task.covariate_categories`
    future_covariates: Tensor | None = None  # (B, L + T, F) likewise
    past_covariates_observed: Tensor | None = None  # (B, L, P) mask
    future_covariates_observed: Tensor | None = None  # (B, L + T, F) mask
    static: Tensor | None = None  # (B, K) int64 numbers of categories, see `Task.categories`; -1 if unknown
    series_id: Tensor | None = None  # (B,) int64 number of the series
    units: WindowUnits | None = None  # of `past` and `target`; None in original units

    def __len__(self) -> int:
        return self.past.shape[0]

    @property
    def known_target(self) -> Tensor:
        """The target; raises ValueError beyond the end of the data."""
        if self.target is None:
            raise ValueError("a window beyond the end of the data has no target")
        return self.target

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """Move to a device; return self if already there."""
        if self.past.device == torch.device(device):
            return self
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def repeated(self, times: int) -> Batch:
        """Repeat each window; copies of a window are adjacent."""
        return self._map(lambda tensor: tensor.repeat_interleave(times, 0))

    def pin_memory(self) -> Batch:
        """Copy to page-locked memory (called by the DataLoader)."""
        # a device copies in the background only from contiguous memory
        return self._map(lambda tensor: tensor.contiguous().pin_memory())

    def _map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        mapped = {name: function(part) for name, part in parts.items() if isinstance(part, Tensor)}
        return replace(self, **mapped, units=None if self.units is None else self.units.map(function))
