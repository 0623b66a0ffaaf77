"""Transforms of the target before it is scaled, and the exact way back: for forecasts that are never negative.

Each is of the Box-Cox family, ``(y ** lambda - 1) / lambda``, which is the logarithm at ``lambda`` 0. All rise with the
value, so that a quantile that is taken back is the same quantile of the values. A mean that is taken back is none: it
is a median, if the transformed values lie evenly around it.

Source: Box & Cox, *An Analysis of Transformations* (1964).

Shape letters: B windows, T horizon, S series, C channels, Q quantiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from tsattn import descriptions
from tsattn.descriptions import Description
from tsattn.errors import UserError, one_of, shown
from tsattn.plain_data import PlainData

__all__ = [
    "LARGEST_LAMBDA",
    "TRANSFORMS",
    "SeriesTransform",
    "TargetTransform",
    "check_transform",
    "restored",
    "transformed",
    "transformed_tensor",
]

TRANSFORMS = {"log": "above 0", "log1p": "of at least 0", "box_cox": "above 0"}
"""The transforms, and the values that they take."""

LARGEST_LAMBDA = 2.0


@dataclass(frozen=True)
class TargetTransform(PlainData):
    """A transform of the targets as it was fitted to the training rows, and the units of the values themselves.

    Attributes:
        kind: one of `TRANSFORMS`.
        lambdas: C of them, of all series; 0 for the two logarithms.
        mean: C means of all series in original units, by which scores are standardised.
        scale: C standard deviations.
        series_lambdas: S times C of them, where each series has its own.
        series_mean: S times C means, where each series has a scale of its own.
        series_scale: S times C standard deviations.

    Raises:
        UserError: for another kind, or numbers of other series or channels.
    """

    kind: str
    lambdas: tuple[float, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    series_lambdas: tuple[tuple[float, ...], ...] = ()
    series_mean: tuple[tuple[float, ...], ...] = ()
    series_scale: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in TRANSFORMS:
            raise UserError(f"unknown transform {shown(self.kind)}; valid: {one_of(TRANSFORMS)}")
        C, S = len(self.mean), len(self.series_mean)
        rows = (self.lambdas, self.scale, *self.series_lambdas, *self.series_mean, *self.series_scale)
        if {C, *map(len, rows)} != {C} or len(self.series_scale) != S or len(self.series_lambdas) not in (0, S):
            raise UserError("a transform needs a lambda, a mean and a scale for each channel and series")

    @property
    def of_all(self) -> SeriesTransform:
        """The transform of all series by one scale, `(1, C)`."""
        return SeriesTransform(self.kind, *(_table([part]) for part in (self.lambdas, self.mean, self.scale)))

    @property
    def of_each(self) -> SeriesTransform:
        """The transform of the S series that were trained on, each by its own scale, `(S, C)`."""
        lambdas = self.series_lambdas or (self.lambdas,) * len(self.series_mean)
        return SeriesTransform(self.kind, *(_table(part) for part in (lambdas, self.series_mean, self.series_scale)))


@dataclass(frozen=True, eq=False)
class SeriesTransform:
    """The transform of some series, and the units of their values.

    Attributes:
        kind: one of `TRANSFORMS`.
        lambdas: `(S, C)` float64.
        mean: `(S, C)` float64 means in original units.
        scale: `(S, C)` float64 standard deviations.
    """

    kind: str
    lambdas: NDArray[np.float64]
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]


def check_transform(description: Description | None) -> dict[str, Any] | None:
    """A transform as plain data: ``{kind: log}``, or ``{kind: box_cox, lambda: 0.5}`` with the lambda that was given.

    Args:
        description: a kind of `TRANSFORMS`, or its description; None for none.

    Raises:
        UserError: for another one, or a lambda outside of 0 to 2.
    """
    if description is None:
        return None
    kind, chosen = descriptions.named(description, what="transform", table=TRANSFORMS)
    if kind not in TRANSFORMS:
        raise UserError(f"unknown transform {shown(kind)}; valid: {one_of(TRANSFORMS)}")
    descriptions.check_names(chosen, ["lambda"] if kind == "box_cox" else [], f"transform {kind}")
    given = chosen.get("lambda")
    if given is None:
        return {"kind": kind}
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not 0 <= given <= LARGEST_LAMBDA:
        raise UserError(
            f"lambda of transform box_cox must be a number from 0 to {LARGEST_LAMBDA:g}, not {shown(repr(given))}: "
            "with one below 0 there is a ceiling that no forecast can pass"
        )
    return {"kind": kind, "lambda": float(given)}


def transformed(kind: str, values: NDArray[np.float64], lambdas: NDArray[np.float64]) -> NDArray[np.float64]:
    """The transform of values in its domain, NaN where they are.

    Args:
        kind: one of `TRANSFORMS`.
        values: of any shape.
        lambdas: that broadcast to it.
    """
    result: NDArray[np.float64] = special.boxcox1p(values, 0.0) if kind == "log1p" else special.boxcox(values, lambdas)
    return result


def transformed_tensor(kind: str, values: Tensor, lambdas: Tensor) -> Tensor:
    """What `transformed` gives, of tensors: for graphs that are exported."""
    if kind == "log1p":
        return values.log1p()
    logarithm = values.log()
    is_log = lambdas == 0
    power = torch.where(is_log, 1.0, lambdas)
    return torch.where(is_log, logarithm, (power * logarithm).expm1() / power)


def restored(kind: str, values: Tensor, lambdas: Tensor) -> Tensor:
    """The way back from transformed values, never below 0.

    What lies below all that the transform gives, which a forecast can, comes back as 0: the quantile of a variable that
    is cut off there.

    Args:
        kind: one of `TRANSFORMS`.
        values: of any shape.
        lambdas: that broadcast to it.
    """
    if kind == "log":
        return values.exp()
    if kind == "log1p":
        return values.expm1().clamp(min=0)
    is_log = lambdas == 0
    power = torch.where(is_log, 1.0, lambdas)
    return torch.where(is_log, values, torch.log1p((power * values).clamp(min=-1)) / power).exp()


def _table(rows: Any) -> NDArray[np.float64]:
    return np.asarray(rows, dtype=np.float64)
