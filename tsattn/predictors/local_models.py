"""Theta and exponential smoothing (ETS): local models, fitted to each channel of each window as they forecast it.

Shape letters: B windows, L context length, T horizon, C channels, Q quantiles, n rows of a series.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from abc import abstractmethod
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from einops import rearrange
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.errors import whole_number
from tsattn.predictors.base import AnyHorizon, Predictor, last_context
from tsattn.task import MOST_STEPS

Values: TypeAlias = NDArray[np.float64]
Known: TypeAlias = NDArray[np.bool_]
MOST_ROWS = 1000  # older rows change a forecast little, and cost time
_FEWEST = 10  # rows that a trend needs
_LAST_RESORT = 0.5  # smoothing level
_FAILURES = (ValueError, ArithmeticError, np.linalg.LinAlgError)  # of a fit


class LocalForecast(NamedTuple):
    """Forecast of one series: its errors follow a t distribution."""

    mean: Values  # (T,)
    deviation: Values  # (T,)
    freedom: int  # degrees of freedom: rows that are left after all parameters


class LocalModel(AnyHorizon):
    """Base class of models of one series. They need no fit and forecast quantiles.

    Missing values are interpolated around the season, and do not count for intervals; after the last known value they
    are forecast, too. A constant series stays constant. Series with fewer than 10 known values, or that no form fits,
    are forecast by simple exponential smoothing, of level 0.5.

    Args:
        season_length: steps in a season; by default the task's. With 1, or fewer rows than two seasons, there is none.
        context_length: last rows to read, fewer if a series has fewer; 1000 by default.
    """

    needs_fit = False
    emits_quantiles = True
    reads_short = True
    steps_at_once = 1 << 60  # any horizon

    def __init__(self, *, season_length: int | None = None, context_length: int | None = None) -> None:
        super().__init__(season_length=season_length, context_length=context_length)
        self._season = None if season_length is None else whole_number("season_length", season_length, most=MOST_STEPS)
        self._rows = None if context_length is None else whole_number("context_length", context_length)

    @property
    @override
    def context_length(self) -> int:
        return self._rows or MOST_ROWS

    @override
    def with_context(self, context_length: int) -> Predictor:
        return self if self._rows else type(self)(season_length=self._season, context_length=context_length)

    @override
    def check_export(self) -> None:
        self.refuse_export()

    @override
    def forecast_to(self, batch: Batch, horizon: int) -> Tensor:
        """Forecast any horizon, `(B, horizon, C, Q)`, or `(B, horizon, C)` of a point forecast."""
        from scipy.stats import t

        window, levels = last_context(batch, self.context_length).to("cpu"), self.output.quantiles
        units, season = window.units, self._season or self.task.season_length
        past = window.past.double() if units is None else units.restore(window.past)
        seen = torch.ones_like(past, dtype=torch.bool) if window.past_observed is None else window.past_observed
        series = zip(*(part.transpose(1, 2).flatten(0, 1).numpy() for part in (past, seen)), strict=True)  # (B C, L)
        made = [self.forecast_series(values, season, horizon, known) for values, known in series]
        ends = [t.ppf(levels or [0.5], max(1, one.freedom)) for one in made]
        rows = [one.mean[:, None] + one.deviation[:, None] * end for one, end in zip(made, ends, strict=True)]
        forecast = rearrange(torch.from_numpy(np.stack(rows)), "(B C) T Q -> B T C Q", B=len(window))
        forecast = forecast if units is None else units.normalise(forecast)
        return (forecast if levels else forecast[..., 0]).to(batch.past)

    def forecast_series(self, series: Values, season: int, horizon: int, known: Known | None = None) -> LocalForecast:
        """Forecast `horizon` steps of a series, whose values are all known by default; zeros if no value is `known`."""
        known = np.ones(len(series), dtype=bool) if known is None else known
        end = int(np.flatnonzero(known)[-1]) + 1 if known.any() else 0
        ahead, series = len(known) - end, filled(series[:end], known[:end], season)
        if not len(series) or not np.ptp(series):
            return LocalForecast(np.full(horizon, series[-1] if len(series) else 0.0), np.zeros(horizon), 1)
        known, horizon = known[end - len(series) : end], ahead + horizon
        counted = known & np.concatenate([known[:1], known[:-1]])  # the value after a gap was used to fill it
        counted = counted if counted.sum() >= _FEWEST else known
        unit = float(np.abs(series).mean())  # so that no fit depends on the units
        scaled, found = series / unit, None
        with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.suppress(*_FAILURES):
            warnings.simplefilter("ignore")  # of convergence, which the choice of forms takes care of
            if known.sum() >= _FEWEST:
                found = self._fitted(scaled, counted, season if len(series) >= 2 * season else 1, horizon)
        if found is None or not np.isfinite(found.mean).all() or not np.isfinite(found.deviation).all():
            levels = _levels(scaled, _LAST_RESORT)
            growth = 1 + _LAST_RESORT**2 * np.arange(horizon)
            deviation = np.sqrt(((scaled[1:] - levels[:-1])[counted[1:]] ** 2).mean() * growth)
            found = LocalForecast(np.full(horizon, levels[-1]), deviation, int(counted.sum()) - 1)
        return LocalForecast(found.mean[ahead:] * unit, found.deviation[ahead:] * unit, found.freedom)

    @abstractmethod
    def _fitted(self, series: Values, counted: Known, season: int, horizon: int) -> LocalForecast | None:
        """Fit to a series that is not constant, and forecast it, with errors where `counted`; None if that fails."""


class Theta(LocalModel):
    """Theta method: half a linear trend, half simple exponential smoothing, of the series without its season.

    The season is removed if a test finds it: as factors of a series above 0, else as summands. Intervals are analytic:
    the method equals exponential smoothing with drift. Sources: Assimakopoulos & Nikolopoulos (2000);
    Hyndman & Billah (2003); it is statsmodels' `ThetaModel`.
    """

    @override
    def _fitted(self, series: Values, counted: Known, season: int, horizon: int) -> LocalForecast | None:
        from statsmodels.tsa.forecasting.theta import ThetaModel

        n = len(series)
        fit = ThetaModel(series, period=season, deseasonalize=season > 1).fit()
        slope, alpha = fit.params["b0"], fit.params["alpha"]
        factors = fit.forecast_components(max(season, horizon))["seasonal"].to_numpy()
        places, is_product = np.arange(-n, 0) % season, fit.model.method.startswith("mul")
        rest = series / factors[places] if is_product else series - factors[places]
        drift = slope / 2 * ((1 - (1 - alpha) ** np.arange(1, n)) / alpha if alpha > 0 else 0.0)
        errors = (rest[1:] - _levels(rest, alpha)[:-1] - drift)[counted[1:]]
        freedom = int(counted.sum()) - 3  # two parameters, and the first level
        deviation = np.sqrt((errors**2).sum() / freedom * (1 + alpha**2 * np.arange(horizon)))
        scale = factors[:horizon] if is_product else 1.0
        return LocalForecast(np.asarray(fit.forecast(horizon)), deviation * scale, freedom)


class ETS(LocalModel):
    """Exponential smoothing of the form, among few, with the lowest corrected Akaike criterion (AICc).

    Forms have no trend, a trend or a damped one, and a season or none. For a series above 0 seasons may be factors,
    with relative errors. Intervals are analytic, but approximate with factors. Source: Hyndman et al. (2008),
    *Forecasting with Exponential Smoothing*; it is statsmodels' `ETSModel`.
    """

    @override
    def _fitted(self, series: Values, counted: Known, season: int, horizon: int) -> LocalForecast | None:
        from statsmodels.tsa.exponential_smoothing.ets import ETSModel

        n, best = len(series), cast(Any, None)
        seasons = [None, *(["add", *(["mul"] if series.min() > 0 else [])] if season > 1 else [])]
        for seasonal, (trend, is_damped) in itertools.product(seasons, ((None, False), ("add", False), ("add", True))):
            is_product = seasonal == "mul"
            shape: dict[str, Any] = {"error": "mul" if is_product else "add", "trend": trend, "damped_trend": is_damped}
            shape |= {"seasonal": seasonal, "seasonal_periods": season if seasonal else None}
            with contextlib.suppress(*_FAILURES):  # the next form may fit
                fit = ETSModel(series, **shape, initialization_method="heuristic").fit(disp=False, maxiter=100)
                states = 1 + (trend is not None) + (season - 1 if seasonal else 0)
                parameters = len(fit.params) + states + 1  # of the variance
                spare = n - parameters - 1
                criterion = 2 * parameters * n / spare - 2 * fit.llf if spare > 0 else np.inf
                if np.isfinite(fit.llf) and (best is None or criterion < best[0]):
                    best = criterion, fit, parameters, is_product
        if best is None:
            return None
        _, fit, parameters, is_product = best
        mean, fitted = np.asarray(fit.forecast(horizon)), np.asarray(fit.fittedvalues)
        errors = ((series - fitted) / (fitted if is_product else 1.0))[counted]
        freedom = len(errors) - min(parameters, len(errors) // 2)
        deviation = np.sqrt((errors**2).sum() / freedom * _growth(fit, season, horizon))
        return LocalForecast(mean, deviation * np.abs(mean) if is_product else deviation, freedom)


def _growth(fit: Any, season: int, horizon: int) -> Values:
    """Return `(T,)` variances of the steps, as multiples of the first one."""
    usual = {"smoothing_level": 0.0, "smoothing_trend": 0.0, "smoothing_seasonal": 0.0, "damping_trend": 1.0}
    alpha, beta, gamma, damping = (usual | dict(zip(fit.param_names, fit.params, strict=True))).values()
    steps = np.arange(1, horizon)
    moved = alpha + beta * np.cumsum(damping**steps) + gamma * (steps % season == 0)
    return np.concatenate([[1.0], 1 + np.cumsum(moved**2)])


def _levels(series: Values, alpha: float) -> Values:
    """Return `(n,)` levels of simple exponential smoothing, which starts at the first value."""
    from scipy.signal import lfilter

    levels: Values = lfilter([alpha], [1, alpha - 1], series, zi=[(1 - alpha) * series[0]])[0]
    return levels


def filled(values: Values, known: Known, season: int) -> Values:
    """Return a series from its first known value on; missing values are interpolated around the season."""
    first = int(known.argmax()) if known.any() else len(known)
    values, known, steps = values[first:], known[first:], np.arange(len(values) - first)
    if known.all():
        return values
    profile, places = np.zeros(len(values)), steps % season
    if len(values) >= 2 * season > 2:
        from scipy.ndimage import uniform_filter1d

        level = uniform_filter1d(np.interp(steps, steps[known], values[known]), season, mode="nearest")
        counts = np.bincount(places[known], minlength=season)
        profile = (np.bincount(places[known], (values - level)[known], season) / np.maximum(counts, 1))[places]
    rest = np.interp(steps, steps[known], (values - profile)[known])
    return np.where(known, values, rest + profile)
