"""Errors and scores by their definitions, one number at a time in numpy, to compare the package with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from tsattn.batch import Batch
from tsattn.scaler import Units

Array = NDArray[np.float64]
CONTEXT = 4


@dataclass
class Cases:
    """N windows of S series: what a forecaster says of them, and what came."""

    forecast: Array  # (N, T, C), or (N, T, C, Q)
    target: Array  # (N, T, C), anything where it is not observed
    observed: NDArray[np.bool_]  # (N, T, C)
    series: NDArray[np.int64]  # (N,)
    mean: Array  # (S, C)
    scale: Array  # (S, C)
    seasonal: Array  # (S, C)
    levels: tuple[float, ...]

    @property
    def point(self) -> Array:
        return self.forecast[..., self.levels.index(0.5)] if self.forecast.ndim == 4 else self.forecast

    @property
    def units(self) -> Units:
        return Units(self.mean, self.scale)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(f"series {number}" for number in range(len(self.mean)))

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple("abcdef"[: self.target.shape[2]])

    def origin(self, window: int) -> int:
        """In seconds; different in each window."""
        return 3600 * (window + CONTEXT - 1)

    def take(self, windows: NDArray[np.int64]) -> Cases:
        per_window = {name: getattr(self, name)[windows] for name in ("forecast", "target", "observed", "series")}
        return replace(self, **per_window)

    def batches(self, *sizes: int, masked: bool = True) -> list[tuple[Batch, torch.Tensor]]:
        """Batches of these sizes and the rest, with the forecasts for each."""
        ends = np.cumsum([0, *sizes, len(self.series) - sum(sizes)])
        pairs = []
        for start, end in pairwise(ends):
            if start == end:
                continue
            part = slice(start, end)
            steps = np.arange(CONTEXT + self.target.shape[1]) + np.arange(start, end)[:, None]
            batch = Batch(
                past=torch.zeros(end - start, CONTEXT, self.target.shape[2]),
                target=torch.tensor(self.target[part]),
                target_observed=torch.tensor(self.observed[part]) if masked else None,
                time=torch.tensor(3600 * steps),
                series_id=torch.tensor(self.series[part]),
            )
            pairs.append((batch, torch.tensor(self.forecast[part])))
        return pairs


def drawn(
    seed: int,
    *,
    windows: int = 7,
    T: int = 5,
    C: int = 3,
    S: int = 2,
    levels: tuple[float, ...] = (),
    share: float = 0.6,
) -> Cases:
    """Random cases, `share` of them observed; what is not is NaN, or junk."""
    rng = np.random.default_rng(seed)
    shape = (windows, T, C)
    forecast = rng.standard_normal((*shape, len(levels)) if levels else shape)
    target = rng.standard_normal(shape)
    observed = rng.random(shape) < share
    junk = np.where(rng.random(shape) < 0.5, np.nan, 1e9)
    seasonal = np.exp(rng.standard_normal((S, C)))
    seasonal[rng.random((S, C)) < 0.2] = rng.choice([0.0, np.nan])
    return Cases(
        forecast=np.sort(forecast) if levels else forecast,
        target=np.where(observed, target, junk),
        observed=observed,
        series=rng.integers(0, S, windows),
        mean=10 * rng.standard_normal((S, C)),
        scale=np.exp(2 * rng.standard_normal((S, C))),
        seasonal=seasonal,
        levels=levels,
    )


def pinball(level: float, target: float, forecast: float) -> float:
    if math.isnan(forecast) or math.isnan(target):
        return math.nan
    return 2 * (level * (target - forecast) if target > forecast else (1 - level) * (forecast - target))


def pairs_of(levels: tuple[float, ...]) -> dict[str, tuple[int, int]]:
    """The central intervals, written down by hand for the levels that the tests use."""
    known = {
        (0.1, 0.5, 0.9): {"80": (0, 2)},
        (0.1, 0.25, 0.5, 0.75, 0.9): {"80": (0, 4), "50": (1, 3)},
        (0.2, 0.5): {},
        (0.5,): {},
        (): {},
    }
    return known[levels]


def row(cases: Cases, n: int, c: int) -> dict[str, float]:
    s, is_point = cases.series[n], cases.forecast.ndim == 3
    mean, scale = cases.mean[s, c], cases.scale[s, c]
    steps = [t for t in range(cases.target.shape[1]) if cases.observed[n, t, c]]
    sums = dict.fromkeys(("squared", "absolute"), 0.0)
    found = {f"{name}_{of}": 0.0 for name in sums for of in ("scaled", "original")}
    found |= {"count": float(len(steps)), "absolute_target_original": 0.0, "smape_sum": 0.0, "smape_count": 0.0}
    for level in cases.levels:
        found |= {f"pinball_scaled_{level}": 0.0, f"pinball_original_{level}": 0.0, f"below_{level}": 0.0}
    found |= {f"inside_{percent}": 0.0 for percent in pairs_of(cases.levels)}
    for t in steps:
        f, y = cases.point[n, t, c], cases.target[n, t, c]
        for of, (forecast, target) in {"scaled": (f, y), "original": (f * scale + mean, y * scale + mean)}.items():
            found[f"squared_{of}"] += (target - forecast) ** 2
            found[f"absolute_{of}"] += abs(target - forecast)
            for number, level in enumerate(cases.levels):
                one = forecast if is_point else cases.forecast[n, t, c, number]
                one = one * scale + mean if of == "original" and not is_point else one
                found[f"pinball_{of}_{level}"] += pinball(level, target, one)
        forecast, target = f * scale + mean, y * scale + mean
        found["absolute_target_original"] += abs(target)
        if abs(forecast) + abs(target) != 0:
            found["smape_sum"] += 2 * abs(target - forecast) / (abs(forecast) + abs(target))
            found["smape_count"] += 1
        for number, level in enumerate(cases.levels):
            one = math.nan if is_point else cases.forecast[n, t, c, number]
            found[f"below_{level}"] += math.nan if math.isnan(one - y) else float(y <= one)
        for percent, (low, high) in pairs_of(cases.levels).items():
            bounds = (math.nan, math.nan) if is_point else (cases.forecast[n, t, c, low], cases.forecast[n, t, c, high])
            is_unknown = math.isnan(y) or any(map(math.isnan, bounds))
            found[f"inside_{percent}"] += math.nan if is_unknown else float(bounds[0] <= y <= bounds[1])
    return {**found, "seasonal_error": cases.seasonal[s, c]}


def rows(cases: Cases) -> dict[tuple[int, int], dict[str, float]]:
    N, _, C = cases.target.shape
    return {(n, c): row(cases, n, c) for n in range(N) for c in range(C)}


def scores(cases: Cases) -> dict[str, float]:
    """All scores, as the literature defines them: over all observed targets, or over those of each channel."""
    table, (N, _, C) = rows(cases), cases.target.shape

    def found(channels: range) -> dict[str, float]:
        some = [table[n, c] for n in range(N) for c in channels]

        def total(name: str) -> float:
            return float(np.sum([one[name] for one in some]))

        def over(above: float, below: float) -> float:
            return above / below if below else math.nan

        known = [one for one in some if one["seasonal_error"] > 0]
        mase = float(np.sum([one["absolute_original"] / one["seasonal_error"] for one in known]))
        values = {
            "mse_scaled": over(total("squared_scaled"), total("count")),
            "mae_scaled": over(total("absolute_scaled"), total("count")),
            "mse_original": over(total("squared_original"), total("count")),
            "mae_original": over(total("absolute_original"), total("count")),
            "wape": over(total("absolute_original"), total("absolute_target_original")),
            "smape": over(total("smape_sum"), total("smape_count")),
            "mase": over(mase, sum(one["count"] for one in known)),
        }
        values |= {f"rmse_{of}": math.sqrt(values[f"mse_{of}"]) for of in ("scaled", "original")}
        if cases.levels:
            loss = {of: np.mean([total(f"pinball_{of}_{q}") for q in cases.levels]) for of in ("scaled", "original")}
            values["crps_scaled"] = over(loss["scaled"], total("count"))
            values["crps_original"] = over(loss["original"], total("count"))
            values["wql"] = over(loss["original"], total("absolute_target_original"))
        values |= {f"below_{q}": over(total(f"below_{q}"), total("count")) for q in cases.levels}
        pairs = pairs_of(cases.levels)
        return values | {f"coverage_{percent}": over(total(f"inside_{percent}"), total("count")) for percent in pairs}

    each = [found(range(c, c + 1)) for c in range(C)]
    by_channel = {f"{name}_by_channel": float(np.mean([one[name] for one in each])) for name in each[0]}
    observed = sum(one["count"] for one in table.values())
    has_scale = sum(one["count"] for one in table.values() if one["seasonal_error"] > 0)
    left_out = {
        "smape_left_out": observed - sum(one["smape_count"] for one in table.values()),
        "mase_left_out": observed - has_scale,
    }
    return {"windows": N, **found(range(C)), **by_channel, **left_out}
