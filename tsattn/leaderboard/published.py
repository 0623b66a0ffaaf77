"""Numbers that others published, with their sources, in a TOML file."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NAME = "published.toml"
_MEANS_OVER = ((96, 192, 336, 720), (24, 36, 48, 60))  # the horizons that publications average


@dataclass(frozen=True)
class Published:
    """Test errors that a publication gives for a model on a data set, on the train-standardised scale.

    `context_length` is a number, a range, or how it was chosen. `complete_test` is false if older code left out the
    last batch of test windows. `scores` holds ``(MSE, MAE)`` by horizon, or under ``mean`` the mean over
    ``96, 192, 336, 720`` or ``24, 36, 48, 60`` steps. A missing MAE is NaN.
    """

    model: str
    dataset: str
    context_length: str
    complete_test: bool
    source: str
    scores: Mapping[int | str, tuple[float, float]]
    note: str = ""

    def mean(self, horizons: Sequence[int]) -> tuple[float, float]:
        """MSE and MAE, mean over these horizons; NaN if a horizon is missing."""
        if "mean" in self.scores and tuple(sorted(horizons)) in _MEANS_OVER:
            return self.scores["mean"]
        nothing = math.nan, math.nan
        pairs = [self.scores.get(horizon, nothing) for horizon in horizons]
        mse, mae = (math.fsum(values) / len(pairs) for values in zip(*pairs, strict=True))
        return mse, mae


def shipped_numbers() -> Path | None:
    """The file of published numbers that tsattn includes; None if it is not installed."""
    here = Path(__file__).parent
    places = here / _NAME, here.parents[1] / "benchmarks" / _NAME
    return next((path for path in places if path.is_file()), None)


def read_published(path: str | Path) -> list[Published]:
    """Read ``[[published]]`` tables; scores are ``96 = [0.366, 0.391]``, or without an MAE ``96 = [0.366]``."""
    return [_entry(entry) for entry in tomllib.loads(Path(path).read_text("utf-8"))["published"]]


def _entry(entry: Mapping[str, Any]) -> Published:
    scores: dict[int | str, tuple[float, float]] = {
        name if name == "mean" else int(name): (float(mse), float(*mae or [math.nan]))
        for name, (mse, *mae) in entry["scores"].items()
    }
    return Published(**{**entry, "context_length": str(entry["context_length"]), "scores": scores})
