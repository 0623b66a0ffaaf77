"""How series are scaled, as plain data that is saved with the model and never fitted again; and the way back to units.

Shape letters: B windows, T horizon, S series, C channels, Q quantiles, P past-only and F known-future covariates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tsattn.constants import EXACT, ModuleWithConstants
from tsattn.errors import UserError
from tsattn.plain_data import PlainData

__all__ = ["Scaler", "Units"]


@dataclass(frozen=True)
class Scaler(PlainData):
    """Means and standard deviations of the training part, in original units: ``scaled = (original - mean) / scale``.

    Attributes:
        mean: C means of all series.
        scale: C standard deviations of all series.
        scaling: ``global``, all series are scaled by `mean` and `scale`; ``series``, each by its own.
        ids: the S series that were trained on, where each has a scale of its own.
        series_mean: S times C means, one row for each of `ids`.
        series_scale: S times C standard deviations.
        covariate_mean: P + F means, past covariates first.
        covariate_scale: P + F standard deviations.
    """

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    scaling: str = "global"
    ids: tuple[Any, ...] = ()
    series_mean: tuple[tuple[float, ...], ...] = ()
    series_scale: tuple[tuple[float, ...], ...] = ()
    covariate_mean: tuple[float, ...] = ()
    covariate_scale: tuple[float, ...] = ()

    def units(self) -> Units:
        """The units of the series of `ids`, in that order; `(1, C)` where all share one scale."""
        if self.scaling == "series":
            return Units(self.series_mean, self.series_scale)
        return Units([self.mean], [self.scale])


class Units(ModuleWithConstants):
    """Mean and scale of every series, kept precise when the model around them is cast to another precision.

    Args:
        mean: `(S, C)` of each series and channel; `(1, C)` serves all series.
        scale: `(S, C)`; ``original = scaled * scale + mean``.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Any, scale: Any) -> None:
        super().__init__()
        for name, table in (("mean", mean), ("scale", scale)):
            self.register_constant(name, table, EXACT, cast=False)

    def of(self, series_id: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and scale of the windows of these series `(B,)`: two `(B, 1, C)`, or `(1, 1, C)` if all share one.

        They lie on the device of the units, the numbers of the series on any.

        Raises:
            UserError: without the series of each window, where each has a scale of its own.
        """
        if len(self.mean) == 1:
            return self.mean[:, None], self.scale[:, None]
        if series_id is None:
            raise UserError(f"each of the {len(self.mean)} series has a scale of its own: give series_id, (B,)")
        series_id = series_id.to(self.mean.device)
        return self.mean[series_id, None], self.scale[series_id, None]

    def restore(self, scaled: Tensor, series_id: Tensor | None = None) -> Tensor:
        """Values or forecasts `(B, T, C)` or `(B, T, C, Q)` of the scale of the batch, in original units (float64)."""
        self.fill_constants(scaled.device)
        mean, scale = self.of(series_id)
        if scaled.dim() == 4:
            mean, scale = mean[..., None], scale[..., None]
        return scaled.to(EXACT) * scale + mean
