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

    def __post_init__(self) -> None:
        check_quantiles(self.quantiles)

    @property
    def num_channels(self) -> int:
        """C, the number of channels."""
        return len(self.channels)

    def to_dict(self) -> dict[str, Any]:
        """Plain data (str, int, float, list), as checkpoints and JSON store it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Task:
        """The inverse of `to_dict`."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        return cls(**fields)


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
