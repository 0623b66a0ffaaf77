"""Scaling of series, and transforms of the target before: plain data, saved with the model.

Transforms are of the Box-Cox family (Box & Cox 1964), ``(y ** lambda - 1) / lambda``: the logarithm at ``lambda`` 0.
They rise with the value, so quantiles are restored exactly; a mean becomes approximately a median.

Shape letters: B windows, T horizon, S series, C channels, Q quantiles, P past-only and F known-future covariates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from tsattn.batch import EXACT, ModuleWithConstants
from tsattn.descriptions import PlainData
from tsattn.errors import UserError, one_of, shown

TRANSFORMS = {"log": "above 0", "log1p": "of at least 0", "box_cox": "above 0"}
"""The transforms, and the values that they take."""

LARGEST_LAMBDA = 2.0


@dataclass(frozen=True)
class TargetTransform(PlainData):
    """Transform of targets, fitted to training rows, and the units of the values themselves."""

    kind: str  # one of `TRANSFORMS`
    lambdas: tuple[float, ...]  # C, of all series; 0 for the two logarithms
    mean: tuple[float, ...]  # C, in original units, by which scores are standardised
    scale: tuple[float, ...]  # C standard deviations
    series_lambdas: tuple[tuple[float, ...], ...] = ()  # S times C, if each series has its own
    series_mean: tuple[tuple[float, ...], ...] = ()  # S times C, likewise
    series_scale: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in TRANSFORMS:
            raise UserError(f"unknown transform {shown(self.kind)}; valid: {one_of(TRANSFORMS)}")
        C, S = len(self.mean), len(self.series_mean)
        rows = (self.lambdas, self.scale, *self.series_lambdas, *self.series_mean, *self.series_scale)
        if {C, *map(len, rows)} != {C} or len(self.series_scale) != S or len(self.series_lambdas) not in (0, S):
            raise UserError("a transform needs a lambda, a mean and a scale for each channel and series")


class SeriesTransform(NamedTuple):
    """Transform of some series, and the units of their values: `(S, C)` float64, in original units."""

    kind: str
    lambdas: NDArray[np.float64]
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]


def transformed(kind: str, values: NDArray[np.float64], lambdas: NDArray[np.float64]) -> NDArray[np.float64]:
    """Transform values of its domain; NaN stays NaN, and lambdas broadcast."""
    from scipy import special  # a forecast needs none of it

    result: NDArray[np.float64] = special.boxcox1p(values, 0.0) if kind == "log1p" else special.boxcox(values, lambdas)
    return result


def restored(kind: str, values: Tensor, lambdas: Tensor) -> Tensor:
    """Invert a transform; 0 for values below its range."""
    if kind == "log":
        return values.exp()
    if kind == "log1p":
        return values.expm1().clamp(min=0)
    is_log = lambdas == 0
    power = torch.where(is_log, 1.0, lambdas)
    return torch.where(is_log, values, torch.log1p((power * values).clamp(min=-1)) / power).exp()


SeriesId: TypeAlias = str | int | float | bool | tuple[Any, ...] | None  # as plain data


@dataclass(frozen=True)
class Scaler(PlainData):
    """Means and deviations of the training part: ``scaled = (original - mean) / scale``, of transformed targets.

    Raises:
        UserError: for another scaling, or numbers of other series or channels.
    """

    mean: tuple[float, ...]  # C means of all series
    scale: tuple[float, ...]  # C standard deviations of all series
    scaling: str = "global"  # one for all series; "series": each by its own
    ids: tuple[SeriesId, ...] = ()  # S series that were trained on, if each has its own scale
    series_mean: tuple[tuple[float, ...], ...] = ()  # S times C, a row for each of `ids`
    series_scale: tuple[tuple[float, ...], ...] = ()  # S times C
    covariate_mean: tuple[float, ...] = ()  # P + F means, past covariates first
    covariate_scale: tuple[float, ...] = ()  # P + F standard deviations
    transform: TargetTransform | None = None  # of the targets before they are scaled

    def __post_init__(self) -> None:
        if self.scaling not in ("global", "series"):
            raise UserError(f"scaling must be global or series, not {shown(self.scaling)}")
        C, S = len(self.mean), len(self.ids)
        rows = (self.scale, *self.series_mean, *self.series_scale)
        of_series = len(self.series_mean) == len(self.series_scale) == S
        if {C, *map(len, rows)} != {C} or not of_series or len(self.covariate_mean) != len(self.covariate_scale):
            raise UserError("a scaler needs a mean and a scale for each channel, series and covariate")
        if not all(one > 0 for scales in (self.scale, self.covariate_scale, *self.series_scale) for one in scales):
            raise UserError("the scales of a scaler must be above 0")
        if self.transform is not None and (len(self.transform.mean), len(self.transform.series_mean)) != (C, S):
            raise UserError("a transform must be of the channels and series of its scaler")

    @classmethod
    @override
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        if isinstance(data, Mapping) and data.get("transform") is not None:
            data = {**data, "transform": TargetTransform.from_dict(data["transform"])}
        return super().from_dict(data)

    def units(self) -> Units:
        """Return the units of the series of `ids`; `(1, C)` if all share one scale."""
        each, ours, transform = self.scaling == "series", self.transform, None
        if ours is not None:
            lambdas = ours.series_lambdas or (ours.lambdas,) * len(ours.series_mean)
            own = (lambdas, ours.series_mean, ours.series_scale)
            parts = own if each else ([ours.lambdas], [ours.mean], [ours.scale])
            transform = SeriesTransform(ours.kind, *(np.array(part, float) for part in parts))
        mean, scale = (self.series_mean, self.series_scale) if each else ([self.mean], [self.scale])
        return Units(mean, scale, transform)


class Units(ModuleWithConstants):
    """Mean and scale of every series, kept precise when a model is cast to another precision."""

    mean: Tensor  # (S, C), of transformed values; (1, C) serves all series
    scale: Tensor  # likewise; original = scaled * scale + mean
    lambdas: Tensor
    original_mean: Tensor
    original_scale: Tensor

    def __init__(self, mean: Any, scale: Any, transform: SeriesTransform | None = None) -> None:
        super().__init__()
        self.kind = None if transform is None else transform.kind
        tables = (mean, scale, *(() if transform is None else transform[1:]))
        for name, table in zip(("mean", "scale", "lambdas", "original_mean", "original_scale"), tables, strict=False):
            self.register_constant(name, table, EXACT, cast=False)

    def of(self, series_id: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return mean and scale of untransformed values of series `(B,)`, both `(B, 1, C)`, or `(1, 1, C)`."""
        if self.kind is None:
            return self._rows(self.mean, series_id), self._rows(self.scale, series_id)
        return self._rows(self.original_mean, series_id), self._rows(self.original_scale, series_id)

    def standardised(self, scaled: Tensor, series_id: Tensor | None = None) -> Tensor:
        """Convert `(B, T, C)` or `(B, T, C, Q)` from the scale of the batch to the scale of `of`."""
        if self.kind is None:
            return scaled
        original = self.restore(scaled, series_id)
        mean, scale = (self._rows(part, series_id, original) for part in (self.original_mean, self.original_scale))
        return (original - mean) / scale

    def scaled(self, original: Tensor, series_id: Tensor | None = None) -> Tensor:
        """Convert `(B, L, C)` from original units to the scale of the batch (float64)."""
        self.fill_constants(original.device)
        values = original.to(EXACT)
        if self.kind == "log1p":
            values = values.log1p()
        elif self.kind is not None:  # as `transformed` does, in a graph that is exported
            lambdas, logarithm = self._rows(self.lambdas, series_id, original), values.log()
            power = torch.where(lambdas == 0, 1.0, lambdas)
            values = torch.where(lambdas == 0, logarithm, (power * logarithm).expm1() / power)
        mean, scale = (self._rows(part, series_id, original) for part in (self.mean, self.scale))
        return (values - mean) / scale

    def restore(self, scaled: Tensor, series_id: Tensor | None = None) -> Tensor:
        """Convert `(B, T, C)` or `(B, T, C, Q)` from the scale of the batch to original units (float64)."""
        self.fill_constants(scaled.device)
        mean, scale = (self._rows(part, series_id, scaled) for part in (self.mean, self.scale))
        values = torch.addcmul(mean, scaled.to(EXACT), scale)
        return values if self.kind is None else restored(self.kind, values, self._rows(self.lambdas, series_id, scaled))

    def _rows(self, table: Tensor, series_id: Tensor | None, values: Tensor | None = None) -> Tensor:
        """Return the rows of a table `(S, C)` for windows, `(B, 1, C)`, or as they broadcast to values."""
        if len(table) == 1:
            rows = table[:, None]
        elif series_id is None:
            raise UserError(f"the {len(table)} series have different scales: give series_id, (B,)")
        else:
            rows = table[series_id.to(table.device), None]
        rows = rows if values is None else rows.to(values.device)
        return rows[..., None] if values is not None and values.dim() == 4 else rows
