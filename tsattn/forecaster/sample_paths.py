"""Sample paths: possible futures, drawn from the quantiles of each step by an empirical copula of the steps.

The copula is the ranks, over validation windows, of each target's level in its forecast. A path takes the levels of a
window, so that its steps depend on each other as errors did. With many paths each step gets one level in each N-th of
(0, 1), and its marginals stay as forecast. This is the Schaake shuffle of Clark et al. (2004).

Shape letters: B windows, T horizon, C channels, N paths, W windows of the copula, Q quantile levels.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsattn.batch import Batch
from tsattn.data import Panel, WindowDataset, scaled_series
from tsattn.data.windows import spread
from tsattn.errors import UserError, number_of
from tsattn.forecaster.frames import future_frame
from tsattn.layers import distribution
from tsattn.predictors.base import AnyHorizon, last_context, moved_on, window_from
from tsattn.predictors.calibrated import Calibrated
from tsattn.predictors.fitted import FittedPredictor, future_batches, with_levels
from tsattn.predictors.network import NetworkPredictor
from tsattn.task import Output
from tsattn.training.execution import Execution

if TYPE_CHECKING:
    from tsattn.experiments import Result

logger = logging.getLogger("tsattn")

_SAMPLE = "sample"
_MOST_WINDOWS, _FEWEST_IN_TIME = 1000, 50  # of a copula; with many channels
_LEAST_WINDOWS, _WINDOWS_A_STEP = 20, 2
_LEAST_RANKED = 100  # paths: with fewer, one level in each N-th would make steps independent


@dataclass(frozen=True, eq=False)
class StepCopula:
    """Empirical copula of a horizon: `ranks` `(W, T)`, int32, are a permutation of 0 to W - 1 for each step."""

    ranks: NDArray[np.int32]

    @classmethod
    def of(cls, scores: NDArray[np.float64]) -> StepCopula:
        """Rank normal scores `(W, T)`, NaN where a step was not observed: its rank is random."""
        filled = np.where(np.isnan(scores), np.random.default_rng(0).standard_normal(scores.shape), scores)
        return cls(filled.argsort(0).argsort(0).astype(np.int32))

    def levels(self, generators: Sequence[np.random.Generator], steps: int, channels: int, paths: int) -> Tensor:
        """Draw levels `(B, steps, C, N)`, one generator a window; channels and stretches of T steps are independent."""
        W, T = self.ranks.shape
        stretches, times = -(-steps // T), -(-paths // W)
        drawn = np.empty((len(generators), stretches * T, channels, paths))
        for window, generator in zip(drawn, generators, strict=True):
            for stretch, channel in np.ndindex(stretches, channels):
                rows = np.concatenate([generator.permutation(W) for _ in range(times)])[:paths]
                levels = (self.ranks[rows] + generator.random((paths, T))) / W
                if paths >= _LEAST_RANKED:
                    levels = (levels.argsort(0).argsort(0) + generator.random((paths, T))) / paths
                window[stretch * T : (stretch + 1) * T, channel] = levels.T
        return torch.from_numpy(drawn[:, :steps].clip(1e-12, 1 - 1e-12))


class PathSampler:
    """Sampler of the paths of a fitted predictor, of `batch_size` windows at once."""

    def __init__(self, fitted: FittedPredictor, batch_size: int, execution: Execution) -> None:
        self._fitted, self._batch_size, self._execution = fitted, batch_size, execution
        self._predictor = predictor = fitted.predictor
        self._draws = isinstance(predictor, AnyHorizon) and predictor.draws_paths
        self._family = distribution(predictor.output) if isinstance(predictor, NetworkPredictor) else None
        # normal scores of the quantile levels `(Q,)`
        self._known: Tensor = torch.special.ndtri(torch.tensor(predictor.output.quantiles, dtype=torch.float64))
        self._has_marginals = self._family is not None or len(self._known) > 1

    def _of_parameters(self, batch: Batch, compute: Callable[[Tensor, Batch], Tensor]) -> Tensor:
        """Compute from the parameters of the forecast distribution, float64."""
        predictor: Any = self._predictor  # a network

        def call(there: Batch) -> Tensor:
            there = last_context(there, predictor.context_length)
            return compute(predictor.network.backbone(there), there)

        made: Tensor = predictor.on(self._execution, call)(batch)
        return made.double()

    def _values(self, batch: Batch, asked: Tensor, horizon: int | None = None) -> Tensor:
        """Forecast values `(B, T, C, N)` at levels, linear in the normal score between and beyond quantiles."""
        if (family := self._family) is not None:
            return self._of_parameters(batch, lambda made, there: family.quantiles(made, asked.to(made.device), there))
        known, predictor = self._known, self._predictor
        call = predictor.on(self._execution)
        if horizon is not None and isinstance(predictor, AnyHorizon):
            call = predictor.on(self._execution, lambda there: predictor.forecast_to(there, horizon))
        quantiles, places = call(batch).double(), torch.special.ndtri(asked).contiguous()
        number = torch.searchsorted(known, places).clamp(1, len(known) - 1)
        low, high = quantiles.gather(-1, number - 1), quantiles.gather(-1, number)
        share = (places - known[number - 1]) / (known[number] - known[number - 1])
        values: Tensor = low + share * (high - low)
        return values

    def _scores(self, batch: Batch, goal: Tensor, uniform: Tensor) -> Tensor:
        """Return normal scores `(B, T, C)` of targets in their forecasts; `uniform` chooses among equal levels."""
        if (family := self._family) is not None:
            bounds = self._of_parameters(
                batch, lambda made, there: torch.stack(family.cdf(made, goal.to(made.device), there), -1)
            )
            below, upto = bounds.to(uniform.device).unbind(-1)
            least = torch.finfo(torch.float64).eps
            exact: Tensor = torch.special.ndtri((below + uniform * (upto - below)).clamp(least, 1 - least))
            return exact
        known, goal, uniform = self._known, goal[..., None].contiguous(), uniform[..., None]
        quantiles = self._predictor.on(self._execution)(batch).double().contiguous()
        number = torch.searchsorted(quantiles, goal).clamp(1, len(known) - 1)
        low, high = quantiles.gather(-1, number - 1), quantiles.gather(-1, number)
        width = high - low
        share = torch.where(width > 0, (goal - low) / torch.where(width > 0, width, 1.0), uniform)
        scores = known[number - 1] + share * (known[number] - known[number - 1])
        last = (torch.searchsorted(quantiles, goal, right=True) - 1).clamp(min=0)
        between = known[number] + uniform * (known[last] - known[number])
        return torch.where((last > number) & (width > 0), between, scores)[..., 0]

    def _copula(self, windows: WindowDataset) -> StepCopula:
        generator, parts = torch.Generator().manual_seed(0), []
        most = max(_FEWEST_IN_TIME, _MOST_WINDOWS // self._predictor.task.num_channels)
        numbers = np.asarray(spread(len(windows), most))
        for start in range(0, len(numbers), self._batch_size):
            batch = windows.__getitems__(numbers[start : start + self._batch_size])
            goal = batch.known_target.double()
            uniform = torch.rand(goal.shape, generator=generator, dtype=torch.float64)
            scores = self._scores(replace(batch, target=None, target_observed=None), goal, uniform)
            if batch.target_observed is not None:
                scores = scores.where(batch.target_observed, torch.nan)
            parts.append(scores.transpose(1, 2).flatten(0, 1))
        rows = torch.cat(parts).numpy()
        return StepCopula.of(rows[np.asarray(spread(len(rows), _MOST_WINDOWS))])

    def copula_of(self, result: Result) -> StepCopula | None:
        """Find the copula in the validation windows of a fit; None without any, or without a use for it."""
        if self._draws or not self._has_marginals or "val" not in result.data.parts:
            return None
        return self._copula(result.data.windows("val", **self._predictor.cut))

    def _copula_in(self, panel: Panel) -> StepCopula:
        """Find the copula in all windows of a panel, which the predictor may have been trained on."""
        L, T = self._predictor.context_length, self._predictor.task.prediction_length
        origins = [range(max(1, min(L, rows - T)), max(1, rows - T + 1)) for rows in panel.lengths.tolist()]
        windows = WindowDataset(scaled_series(panel, self._fitted.scaler), origins, L, T, self._predictor.seasons)
        if not len(windows):
            raise UserError(
                f"sample paths need past windows, to learn how steps depend on each other, and no series has {T + 1} "
                "rows: give longer series, or sample from the fitted forecaster"
            )
        logger.warning("the dependence of steps is estimated on the given rows, which may have been trained on")
        return self._copula(windows)

    def frame(self, copula: StepCopula | None, panel: Panel, horizon: int, paths: int, seed: int) -> pd.DataFrame:
        """Draw paths as a frame of ids, times, ``sample`` and ``y``; without a copula, the panel gives it."""
        if _SAMPLE in (panel.id_name, panel.time_name):
            raise UserError(f"rename column {_SAMPLE} of the series: the frame of paths has a column of that name")
        if not self._draws:
            if not self._has_marginals:
                mend = "give the Forecaster quantiles=[0.1, 0.5, 0.9], or a distribution"
                ask = mend if self._predictor.emits_quantiles else "choose another backbone"
                what = "forecasts points, and sample paths need quantiles or a distribution"
                raise UserError(f"{self._predictor.name} {what}: {ask}")
            copula = self._copula_in(panel) if copula is None else copula
            windows, steps = copula.ranks.shape
            needed = max(_LEAST_WINDOWS, _WINDOWS_A_STEP * steps)
            if windows < needed and steps > 1:
                logger.warning(
                    "sample paths may vary too little: the dependence of %d steps is estimated from %s and needs %d; "
                    "keep more rows for validation (val_rows), or give longer series",
                    *(steps, number_of(windows, "window"), needed),
                )
        sampler = self
        if self._fitted.conformal is not None:
            if self._draws or self._family is not None:
                logger.warning("sample paths are drawn from the forecast before calibration")
            else:
                calibrated = with_levels(self._fitted, panel.ids)
                sampler = PathSampler(calibrated, self._batch_size, self._execution)
        return pd.concat([*sampler._frames(copula, panel, horizon, paths, seed)], ignore_index=True)

    def _frames(
        self, copula: StepCopula | None, panel: Panel, horizon: int, paths: int, seed: int
    ) -> Iterator[pd.DataFrame]:
        predictor: Any = self._predictor
        series, first = scaled_series(panel, self._fitted.scaler), 0
        at_once = self._batch_size if horizon <= predictor.task.prediction_length else max(1, self._batch_size // paths)
        for batch in future_batches(self._fitted, panel, series, horizon, at_once):
            generators = [own_generator(seed, one) for one in panel.ids[first : first + len(batch)]]
            if copula is None:  # the predictor draws them itself
                seeds = [int(one) for own in generators for one in own.integers(2**63, size=batch.past.shape[-1])]
                draw = partial(predictor.paths_to, horizon=horizon, count=paths, seeds=seeds)
                drawn = predictor.on(self._execution, draw)(batch)
            else:
                drawn = self._paths(copula, batch, horizon, paths, generators)
            values = series.units.restore(drawn, batch.series_id)
            if predictor.forecasts_counts:  # scaled floats are slightly off, and quantiles are interpolated
                values = values.round().clamp(min=0).add_(0.0)  # no minus zero
            made = future_frame([values.mean(-1)], predictor.task, Output(), panel, first).drop(columns="predictions")
            T, N = values.shape[1], values.shape[-1]
            rows = np.arange(len(made)).reshape(-1, 1, T).repeat(N, 1).ravel()  # of a series, or channel, N times
            numbers = np.tile(np.arange(N).repeat(T), len(made) // T)
            y = values.permute(0, 2, 3, 1).numpy().ravel()  # (B, C, N, T)
            yield made.take(rows).assign(**{_SAMPLE: numbers}, y=y).reset_index(drop=True)
            first += len(batch)

    def _paths(
        self, copula: StepCopula, batch: Batch, horizon: int, paths: int, generators: Sequence[np.random.Generator]
    ) -> Tensor:
        """Draw paths `(B, horizon, C, N)` on the scale of the batch; beyond T steps each continues itself."""
        predictor, windows = self._predictor, batch
        L, T, C = predictor.context_length, predictor.task.prediction_length, batch.past.shape[-1]
        if isinstance(predictor.predictor if isinstance(predictor, Calibrated) else predictor, AnyHorizon):
            return self._values(batch, copula.levels(generators, horizon, C, paths), horizon)
        pieces = [self._values(window_from(batch, 0, L + T), copula.levels(generators, T, C, paths))]
        for start in range(T, horizon, T):
            # a window for each path of each series, in this order
            last = pieces[-1].permute(0, 3, 1, 2).flatten(0, 1).to(batch.past.dtype)
            windows = moved_on(windows.repeated(paths) if start == T else windows, last, L)
            levels = copula.levels(generators, T, C, paths).permute(0, 3, 1, 2).flatten(0, 1)[..., None]
            piece = self._values(window_from(windows, start, L + T), levels)[..., 0]
            pieces.append(piece.reshape(-1, paths, *piece.shape[1:]).permute(0, 2, 3, 1))
        return torch.cat(pieces, 1)[:, :horizon]


def own_generator(seed: int, series: Any) -> np.random.Generator:
    """Return the generator of a series, which depends on its id, not on the other series of a frame."""
    own = hashlib.sha256(str(series).encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(own[:8], "little")])
