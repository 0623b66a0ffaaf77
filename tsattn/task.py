"""What a model is asked to do, as plain data: saved with the model, never refitted at predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Task"]


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
    """

    data: str
    context_length: int
    prediction_length: int
    channels: tuple[str, ...]
    frequency: str
    season_length: int
    mean: tuple[float, ...]
    scale: tuple[float, ...]

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
