"""From the scale of a batch back to original units."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tsattn.constants import ModuleWithConstants
from tsattn.errors import UserError
from tsattn.evaluation.summed_metric import EXACT
from tsattn.task import Task

__all__ = ["Units"]


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

    @classmethod
    def of_task(cls, task: Task) -> Units:
        """The units of the series that a task names in its `ids`, in that order; `(1, C)` where all share one scale."""
        if task.scaling == "series":
            return cls(task.series_mean, task.series_scale)
        return cls([task.mean], [task.scale])

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
