"""Scores of forecasts relative to seasonal naive, by groups of series: MASE, weighted quantile loss, coverage of 80 %.

    python benchmarks/pretraining/evaluate.py --series real.parquet --part choose --predictor tiny

The series are those that `real_series.py` writes. A group is a source at a frequency; its last horizons are forecast,
each from all rows before. The score over groups is the geometric mean of their ratios to seasonal naive. Other scripts
call `compare` with a function of their own.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
import yaml
from numpy.typing import NDArray

from tsattn import Forecaster
from tsattn.predictors import build_predictor

Array: TypeAlias = NDArray[np.float64]
Forecast: TypeAlias = Callable[[list[Array], int, int, Sequence[float]], Array]
"""From contexts, season, horizon T and levels Q to `(number, T, Q)`."""

LEVELS = tuple(round(level / 10, 1) for level in range(1, 10))
RATIOS = ("mase_ratio", "wql_ratio")
_LOW, _MIDDLE, _HIGH = LEVELS.index(0.1), LEVELS.index(0.5), LEVELS.index(0.9)
# the frequency of a season, and the first stamp of all series of it, so that long ones stay in the calendar
_STAMPS = {
    **{1: ("YS", "1700-01-01"), 4: ("QS", "1700-01-01"), 12: ("MS", "1700-01-01"), 52: ("W-MON", "1990-01-01")},
    **{7: ("D", "1990-01-01"), 5: ("B", "1990-01-01"), 24: ("h", "1990-01-01"), 48: ("30min", "1990-01-01")},
}
_HORIZONS = {1: 6, 4: 8, 12: 18, 52: 26, 7: 28, 5: 20, 24: 48, 48: 96}  # by season


@dataclass(frozen=True)
class Group:
    """Windows of series that are forecast and scored together; NaN where a value is missing.

    Attributes:
        contexts: `(rows,)` each, ending where the forecast starts.
        targets: `(number, horizon)`.
    """

    name: str
    season: int
    horizon: int
    contexts: list[Array]
    targets: Array

    def naive(self) -> Array:
        """Return forecasts that repeat the last season, each of its steps by its last known value."""
        return np.stack([_seasonal_naive(context, self.season, self.horizon) for context in self.contexts])

    def scores(self, forecast: Array) -> dict[str, float]:
        """Score quantiles `(number, horizon, Q)` at `LEVELS`: mean MASE, WQL of all together, coverage of 80 %.

        Forecasts of points, whose quantiles are equal, have no coverage.
        """
        scale = np.array([_naive_error(context, self.season) for context in self.contexts])
        scale[scale == 0] = np.nan  # such series have no MASE
        if not np.isfinite(forecast).all():
            raise ValueError("a forecast is not finite")
        truth = self.targets[..., None]
        over = truth - forecast
        loss = np.maximum(np.array(LEVELS) * over, (np.array(LEVELS) - 1) * over)
        error = np.abs(over[..., _MIDDLE])
        low, high = forecast[..., _LOW], forecast[..., _HIGH]
        is_inside = (self.targets >= low) & (self.targets <= high)
        coverage = float(is_inside[~np.isnan(self.targets)].mean())
        return {
            "mase": float(np.nanmean(np.nanmean(error, axis=1) / scale)),
            "wql": float(2 * np.nansum(loss) / len(LEVELS) / np.nansum(np.abs(self.targets))),
            "coverage_80": coverage if (high > low).any() else np.nan,
        }


def _seasonal_naive(context: Array, season: int, horizon: int) -> Array:
    whole = np.concatenate([np.full(-len(context) % season, np.nan), context]).reshape(-1, season)
    filled = pd.DataFrame(whole).ffill().to_numpy()[-1]
    return np.resize(np.where(np.isnan(filled), np.nanmean(context), filled), horizon)


def _naive_error(context: Array, season: int) -> float:
    """Return the mean absolute error of seasonal naive in the context; missing values are left out first."""
    known = context[~np.isnan(context)]
    return float(np.abs(known[season:] - known[:-season]).mean()) if len(known) > season else np.nan


def compare(groups: Sequence[Group], forecast: Forecast, *, most: int = 4096) -> pd.DataFrame:
    """Score a function on groups; a row each, with the ratios to seasonal naive and CPU seconds.

    The function gets the last `most` rows of each context, and `LEVELS`.
    """
    rows = []
    for group in groups:
        began = time.process_time()
        contexts = [context[-most:] for context in group.contexts]
        found = forecast(contexts, group.season, group.horizon, LEVELS)
        seconds = time.process_time() - began
        rows.append({**scored(group, found), "seconds": round(seconds, 2)})
    return pd.DataFrame(rows)


def scored(group: Group, forecast: Array) -> dict[str, Any]:
    """Return the scores of a forecast, those of seasonal naive, and their ratios."""
    own, naive = group.scores(forecast), group.scores(np.repeat(group.naive()[..., None], len(LEVELS), axis=2))
    return {
        **{"group": group.name, "windows": len(group.contexts), **own},
        **{"naive_mase": naive["mase"], "naive_wql": naive["wql"]},
        **{"mase_ratio": own["mase"] / naive["mase"], "wql_ratio": own["wql"] / naive["wql"]},
    }


def summary(rows: pd.DataFrame) -> dict[str, float]:
    """Return geometric means of the ratios, mean and least coverage, and how many groups are worse than naive."""
    means = {name: float(np.exp(np.log(rows[name]).mean())) for name in RATIOS}
    coverage = rows["coverage_80"]
    worse = float((rows["mase_ratio"] > 1).sum())
    return {**means, "coverage_80": float(coverage.mean()), "least_coverage_80": float(coverage.min()), "worse": worse}


def with_forecaster(predictor: Any, **arguments: Any) -> Forecast:
    """Make the function of a predictor, given by its description; `Forecaster` gets other arguments, too.

    A predictor that needs a fit is fitted to the contexts.
    """
    emits_quantiles, needs_fit = (build_predictor(predictor).emits_quantiles, build_predictor(predictor).needs_fit)

    def forecast(contexts: list[Array], season: int, horizon: int, levels: Sequence[float]) -> Array:
        quantiles = [*levels] if emits_quantiles else None
        forecaster = Forecaster(
            predictor, prediction_length=horizon, quantiles=quantiles, accelerator="cpu", **arguments
        )
        frame = _frame_of(contexts, season)
        made = forecaster.fit(frame).predict() if needs_fit else forecaster.predict(frame)
        columns = [str(level) for level in levels] if emits_quantiles else ["predictions"]
        values = made[columns].to_numpy(float).reshape(len(contexts), horizon, -1)
        return np.broadcast_to(values, (len(contexts), horizon, len(levels)))

    return forecast


def _frame_of(contexts: Sequence[Array], season: int) -> pd.DataFrame:
    frequency, first = _STAMPS[season]
    digits = len(str(len(contexts)))
    stamps = pd.date_range(first, periods=max(map(len, contexts)), freq=frequency)
    columns = {
        "unique_id": np.repeat([f"{number:0{digits}d}" for number in range(len(contexts))], [*map(len, contexts)]),
        "ds": np.concatenate([stamps[: len(context)] for context in contexts]),
        "y": np.concatenate(contexts),
    }
    return pd.DataFrame(columns)


def groups_of(series: pd.DataFrame, origins: int = 1) -> list[Group]:
    """Group rows of `real_series.py` by source and frequency, with the last windows of each series, a horizon apart.

    A window whose context is shorter than two seasons and a horizon goes, as does one of a series that does not vary.
    """
    groups = []
    for (source, frequency, season), rows in series.groupby(["source", "frequency", "season"], sort=True):
        horizon = _HORIZONS[season]
        contexts, targets = [], []
        for _, one in rows.groupby("unique_id", sort=True)["y"]:
            values = one.to_numpy(float)
            for end in range(len(values) - horizon, max(2 * season, horizon), -horizon)[:origins]:
                context, target = values[:end], values[end : end + horizon]
                if np.isfinite(target).any() and _naive_error(context, season) > 0:
                    contexts.append(context)
                    targets.append(target)
        if contexts:
            groups.append(Group(f"{source} {frequency}", season, horizon, contexts, np.stack(targets)))
    return groups


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=Path, required=True, help="Parquet file of real_series.py")
    parser.add_argument("--part", choices=("train", "choose"), default="choose")
    parser.add_argument("--predictor", type=yaml.safe_load, default="seasonal_naive", help="a name, or {kind: ...}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("tsattn").setLevel(logging.ERROR)
    series = pd.read_parquet(options.series)
    rows = compare(groups_of(series[series["part"] == options.part]), with_forecaster(options.predictor))
    print(rows.round(3).to_string(index=False))
    print(", ".join(f"{name} {value:.3f}" for name, value in summary(rows).items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
