"""What a model is asked to do, as plain data: saved with the model, never refitted at predict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from tsattn.errors import UserError

__all__ = ["MEDIAN", "Task", "check_quantiles"]

MEDIAN = 0.5


@dataclass(frozen=True)
class Task:
    """A forecasting task: the sizes a backbone is built for and what turns its output into original units.

    Attributes:
        data: name of the data set, e.g. ``ETTh1``.
        context_length: number of past steps that the model sees, L.
        prediction_length: number of steps that it forecasts, T.
        channels: names of the C series.
        frequency: pandas frequency of the time stamps, e.g. ``h``.
        season_length: number of steps in a season, e.g. 24 for hourly data.
        mean: C means of the training part, in original units.
        scale: C standard deviations of the training part; ``scaled = (original - mean) / scale``.
        quantiles: Q levels to forecast, rising, the median among them; none for a point forecast. They are what the
            model is asked for, not what the data says.
        scaling: ``global``, all series are scaled by `mean` and `scale`; ``series``, each by its own.
        ids: the S series that were trained on, where each has a scale of its own.
        series_mean: S times C means, one row for each of `ids`.
        series_scale: S times C standard deviations.
        past_covariates: names of the P covariates known for the past only.
        future_covariates: names of the F covariates known for the future too.
        covariate_mean: P + F means of the training part, past covariates first.
        covariate_scale: P + F standard deviations.
        static: names of the K static columns of categories.
        categories: the categories of each of them; a category is a number in `Batch.static`, by its place here.

    Raises:
        UserError: for quantiles that are not such levels.
    """

    data: str
    context_length: int
    prediction_length: int
    channels: tuple[str, ...]
    frequency: str
    season_length: int
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    quantiles: tuple[float, ...] = ()
    scaling: str = "global"
    ids: tuple[Any, ...] = ()
    series_mean: tuple[tuple[float, ...], ...] = ()
    series_scale: tuple[tuple[float, ...], ...] = ()
    past_covariates: tuple[str, ...] = ()
    future_covariates: tuple[str, ...] = ()
    covariate_mean: tuple[float, ...] = ()
    covariate_scale: tuple[float, ...] = ()
    static: tuple[str, ...] = ()
    categories: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        check_quantiles(self.quantiles)

    @property
    def num_channels(self) -> int:
        """C, the number of channels."""
        return len(self.channels)

    def to_dict(self) -> dict[str, Any]:
        """Plain data (str, int, float, list), as checkpoints and JSON store it."""
        return {name: _lists(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Task:
        """The inverse of `to_dict`."""
        return cls(**{name: _tuples(value) for name, value in data.items()})


def _lists(value: Any) -> Any:
    return [_lists(part) for part in value] if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value


def check_quantiles(levels: Iterable[float]) -> tuple[float, ...]:
    """The quantile levels as they were given, none for a point forecast.

    The median must be one of them: it is the point forecast of a model of quantiles.

    Raises:
        UserError: for levels outside (0, 1), levels that do not rise, or levels without the median.
    """
    checked = tuple(map(float, levels))
    written = ", ".join(map(str, checked))
    if not all(0 < level < 1 for level in checked):
        raise UserError(f"quantiles must lie between 0 and 1, ends excluded, not {written}")
    if not all(low < high for low, high in pairwise(checked)):
        raise UserError(f"quantiles must rise, each given once, not {written}")
    if checked and MEDIAN not in checked:
        raise UserError(f"quantiles must include {MEDIAN}, the median, which is the point forecast, not only {written}")
    return checked
