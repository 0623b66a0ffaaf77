"""Sums of products of all steps of windows, which determine every linear map of them; streamed, float64.

Consecutive windows share all but one step, so their sums are updated instead of multiplied. A thousand steps of context
cost seconds for millions of windows.

Shape letters: L context length, T prediction length, F columns of the season's waves, n windows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsattn.backbones.linear_maps import wave_columns
from tsattn.data.splits import all_origins

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.data.windows import Series

Numbers = NDArray[np.float64]
Origins = NDArray[np.int64]

DAY, WEEK, YEAR = 86_400, 7 * 86_400, 31_556_952  # seconds; a mean year
MOST_WAVES = 6
_RUN, _AT_ONCE, _ROWS = 128, 8192, 4096  # windows updated together, at least and at most; windows multiplied together


@dataclass(frozen=True)
class Waves:
    """A constant, and sines and cosines of the time of a forecast in its season.

    The period is in the unit of `Batch.time`: seconds, or steps; 0 for none.
    """

    season_length: int
    period: int | None = None  # not known yet

    @classmethod
    def of(cls, data: ForecastDataModule) -> Waves:
        """Take the period of the season if training rows hold it twice."""
        task, series = data.contents[1], data.series
        spans = [(int(series.starts[number]), split.train_end) for number, split in enumerate(data.splits)]
        first, rows = max(spans, key=lambda span: span[1])
        if rows < 2:
            return cls(task.season_length, 0)
        covered = int(series.time[first + rows - 1] - series.time[first])
        season = task.season_length * covered / (rows - 1)
        if not task.counts_steps:  # a month is no fixed share of a year, nor are all days of a week there
            season = next((one for one in (DAY, WEEK, YEAR) if abs(season / one - 1) < 0.04), season)
        return cls(task.season_length, round(season) if 2 * season <= covered else 0)

    def __len__(self) -> int:
        """F, 0 without a season."""
        waves = min(MOST_WAVES, self.season_length // 2)
        return 1 + 2 * waves if waves and self.period != 0 else 0


@dataclass
class Products:
    """Sums over windows of the products of context, target and waves with each other, and the number of windows."""

    sums: Tensor  # (L + T + F, L + T + F)
    windows: int = 0

    def __add__(self, other: Products) -> Products:
        return Products(self.sums + other.sums, self.windows + other.windows)

    def shortened(self, steps: int) -> Products:
        """Leave out the first steps of the context."""
        return Products(self.sums[steps:, steps:], self.windows)

    def centred(self, L: int, T: int) -> Equations:
        """Subtract the last value of each context."""
        n, sums = L + T, self.sums.clone()
        sums[:, :n] -= self.sums[:, L - 1 : L]
        sums[:n] -= sums[L - 1 : L].clone()
        kept = torch.cat([sums[:L], sums[n:]])
        gram, targets = torch.cat([kept[:, :L], kept[:, n:]], 1), sums[L:n, L:n]
        return Equations(gram, kept[:, L:n].clone(), targets.trace(), self.windows * T)


@dataclass
class Equations:
    """Normal equations of a regression, and the sum and number of its squared targets."""

    gram: Tensor  # (n, n)
    moment: Tensor  # (n, T)
    squares: Tensor
    count: int

    def solve(self, penalty: float, towards: Tensor | None = None) -> Tensor:
        """Return the map `(n, T)` of least squared error plus the penalty times the squared distance from `towards`."""
        gram = self.gram.clone()
        gram.diagonal().add_(penalty)
        moment = self.moment if towards is None else self.moment + penalty * towards
        factor, failed = torch.linalg.cholesky_ex(gram)
        # rounding may leave the gram matrix of values far from 0 without a factor
        solved: Tensor = torch.linalg.solve(gram, moment) if failed else torch.cholesky_solve(moment, factor)
        return solved

    def squared_error(self, weight: Tensor) -> float:
        """Return the sum of squared errors of a map."""
        return max(0.0, float(self.squares + ((self.gram @ weight - 2 * self.moment) * weight).sum()))  # rounding


@dataclass(frozen=True)
class Windows:
    """Windows of a part of the data, by series: its first row, and the origins counted from there."""

    series: Series
    sizes: tuple[int, int]  # L and T
    origins: list[tuple[int, Origins]]
    weighted: bool  # as training windows are

    @classmethod
    def of(cls, data: ForecastDataModule, part: str, context_length: int, longer: int | None = None) -> Windows:
        """All windows of a part, or only the windows that a longer context does not allow."""
        T, series = data.prediction_length, data.series
        ranges = all_origins(data.splits, part, context_length, T)
        if longer is not None:
            others = all_origins(data.splits, part, longer, T)
            ranges = [rows[: len(rows) - len(other)] for rows, other in zip(ranges, others, strict=True)]
        found = [(int(first), np.asarray(rows)) for first, rows in zip(series.starts, ranges, strict=False) if rows]
        return cls(series, (context_length, T), found, part == "train")

    def __len__(self) -> int:
        return sum(len(origins) for _, origins in self.origins)

    def blocks(self, count: int) -> list[Windows]:
        """Cut the windows, in the order of series and time, into blocks of equal size."""
        bounds = np.arange(1, count) * len(self) // count
        found: list[list[tuple[int, Origins]]] = [[] for _ in range(count)]
        before = 0
        for first, origins in self.origins:
            for some, part in zip(found, np.split(origins, np.clip(bounds - before, 0, None)), strict=True):
                if len(part):
                    some.append((first, part))
            before += len(origins)
        return [replace(self, origins=some) for some in found]

    def products(self, channel: int, waves: Waves) -> Products:
        """Sum the products of a channel's windows whose targets are all observed, by their mean weight.

        A window with a target of weight 0 is left out. A missing value in a context is the last known value before it.
        """
        (L, T), F = self.sizes, len(waves)
        K = L + T
        sums, counted = np.zeros((K + F, K + F)), 0
        period = torch.tensor(waves.period or 0)
        rest: list[tuple[Numbers, Numbers, Numbers]] = []  # windows that are multiplied: weights, steps and waves
        for first, origins in self.origins:
            values = self.series.values[first : first + int(origins[-1]) + T, channel].double().numpy()
            weight = self._weights(first, origins, channel)
            counted += int((weight > 0).sum())
            for start, end, is_run in _runs(origins, weight, L):
                at, of = origins[start:end], weight[start:end]
                columns = wave_columns(self.series.time[first + torch.from_numpy(at)], period, F)
                if is_run:
                    _add_run(sums, values[at[0] - L : at[-1] + T], columns.numpy(), K, of[0])
                    continue
                rows = at[:, None] + np.arange(-L, T)
                steps = values[rows.clip(min=0)]
                # before a series begins nothing is known: take the context's last value, its level
                rest.append((of, np.where(rows < 0, steps[:, L - 1 : L], steps), columns.numpy()))
                if sum(len(one) for one, *_ in rest) >= _ROWS:
                    _add_rows(sums, rest)
        _add_rows(sums, rest)
        return Products(torch.from_numpy(sums), counted)

    def _weights(self, first: int, origins: Origins, channel: int) -> Numbers:
        """The weight of each window; 0 for windows that are left out."""
        T, rows = self.sizes[1], torch.from_numpy(origins) + first
        weight = torch.ones(len(origins), dtype=torch.float64)
        for part in (self.series.observed, self.series.weights if self.weighted else None):
            if part is not None:
                low = int(rows[0])
                targets = part[low : int(rows[-1]) + T, channel].unfold(0, T, 1)[rows - low]
                kept = (targets > 0).all(-1)
                weight = torch.where(kept, weight * targets.mean(-1, dtype=torch.float64), 0.0)
        return weight.numpy()


def _runs(origins: Origins, weight: Numbers, L: int) -> Iterator[tuple[int, int, bool]]:
    """Yield stretches of windows, and whether they are complete, consecutive and of one weight."""
    full = (origins >= L) & (weight > 0)
    breaks = (np.diff(origins) != 1) | (np.diff(weight) != 0) | (np.diff(full) != 0)
    cuts = range(0, len(origins), _AT_ONCE)
    bounds = np.unique([*cuts, *(np.flatnonzero(breaks) + 1), len(origins)]).tolist()
    pending = 0  # start of the shorter stretches that wait for the next run
    for start, end in itertools.pairwise(bounds):
        is_run = full[start] and end - start >= _RUN
        if is_run or end - pending >= _ROWS:
            yield pending, start if is_run else end, False
            pending = end
        if is_run:
            yield start, end, True
    yield pending, len(origins), False


def _add_rows(sums: Numbers, rest: list[tuple[Numbers, Numbers, Numbers]]) -> None:
    """Add the products of rows, and empty the list of them."""
    if rest:
        weight, *parts = (np.concatenate(part) for part in zip(*rest, strict=True))
        rows = np.concatenate(parts, 1)[weight > 0] * np.sqrt(weight[weight > 0])[:, None]
        sums += rows.T @ rows
        rest.clear()


def _add_run(sums: Numbers, values: Numbers, columns: Numbers, K: int, weight: float) -> None:
    """Add the products of all windows of K steps in a row of values; each later step drops a product and adds one."""
    n = len(columns)
    first, last = values[: K - 1], values[n:]
    steps = np.empty((K, K))
    steps[0] = np.correlate(values, values[:n], "valid")
    for i in range(K - 1):
        row = steps[i + 1, i + 1 :]
        np.multiply(last[i:], last[i], out=row)
        row += steps[i, i:-1]
        row -= first[i:] * first[i]
    upper = torch.from_numpy(steps).triu_()
    steps = (upper + upper.triu(1).T).numpy()
    size = 1 << (n + K).bit_length()
    spectrum = np.fft.rfft(values, size)
    crossed = np.empty((columns.shape[1], K))
    for place, one in enumerate(columns.T):
        crossed[place] = np.fft.irfft(np.conj(np.fft.rfft(one, size)) * spectrum, size)[:K]
    sums[:K, :K] += weight * steps
    sums[K:, :K] += weight * crossed
    sums[:K, K:] += weight * crossed.T
    sums[K:, K:] += weight * (columns.T @ columns)
