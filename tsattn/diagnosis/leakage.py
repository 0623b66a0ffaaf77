"""Covariates that know the future of the target: copies of it, and what goes with it beyond what its past gives.

A past covariate is known up to the origin of a forecast, a future covariate over the horizon, too. For each step h of
the horizon the target is regressed on its own past as it is known at the origin (the last three values, and those one
and two seasons before the step), and so is the covariate at each place where it would be known. The correlation of what
is left of both, their partial correlation, is 1 for a copy of the target, however it is scaled and shifted, and stays
high under noise. Calendars, promotions and other covariates of few values are not looked at: they may well decide a
target.

Shape letters: n rows, k regressors, W places of the covariate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsattn.diagnosis.finding import Finding
from tsattn.diagnosis.given_rows import GivenRows
from tsattn.errors import number_of

__all__ = ["leakage_findings", "most_told"]

_TELLS = 0.95  # partial correlation
_COPIES = 1 - 1e-6
_VALUES = 20  # different ones, at least, of a covariate that could hold a target
_SERIES = 5  # the longest ones, that are looked at
_ROWS = 2000  # the last ones of each
_FEWEST = 40
_HORIZON = 96  # steps ahead at most
_LEFT = 1e-8  # of the variance: what the past leaves of a target that it gives away

Array = NDArray[np.float64]


def leakage_findings(rows: GivenRows, prediction_length: int) -> Iterator[Finding]:
    """A finding for each covariate and target, of the series where it is strongest."""
    roles = rows.roles
    longest = np.argsort(-np.diff(rows.begin), kind="stable")[:_SERIES].tolist()
    both = np.concatenate([rows.values, rows.past, rows.known], axis=1)
    grids = {series: rows.spread(series, both) for series in longest}
    C, P = len(roles.target), len(roles.past)
    for number, column in enumerate((*roles.past, *roles.future)):
        for channel, target in enumerate(roles.target):
            found = {}
            for series, grid in grids.items():
                if grid is not None:
                    full = grid[1][-_ROWS:]
                    told = most_told(full[:, channel], full[:, C + number], rows.season, prediction_length, number >= P)
                    if told is not None and abs(told[0]) > _TELLS:
                        found[series] = told
            if found:
                best = max(found, key=lambda series: abs(found[series][0]))
                label: Any = rows.label(best, channel)
                kind, where, sentence = _said(target, *found[best], is_future=number >= P)
                counted = "" if roles.is_wide else f" ({len(found)} of {number_of(len(grids), 'series')} looked at)"
                yield Finding(label, column, kind, len(found), where, sentence + counted)


def most_told(
    target: Array, covariate: Array, season: int, prediction_length: int, is_future: bool
) -> tuple[float, int] | None:
    """The largest partial correlation of a covariate with a target to come, and how many steps after it that is.

    Args:
        target: `(n,)` on a grid, NaN where missing.
        covariate: `(n,)`.
        season: steps in a season.
        prediction_length: steps of the horizon, T.
        is_future: whether the covariate is known over the horizon.

    Returns:
        the correlation, and the shift of the target, from 1 for a past covariate, from 1 - T for one of the future;
        None where nothing can be said.
    """
    known = covariate[~np.isnan(covariate)]
    if len(known) < max(_FEWEST, len(covariate) // 2) or len(np.unique(known)) <= _VALUES:
        return None
    T = min(prediction_length, _HORIZON, len(target) // 4)
    if T < 1:
        return None
    copied = abs(_correlation(target, covariate))
    if not is_future and copied > _COPIES:
        return copied, 0
    best: tuple[float, int] | None = None
    # of a step h, the shifts of the target after the covariate at which that would be known
    steps = {1: range(1 - T, 1), T: range(T)} if is_future else {h: range(h, h + 1) for h in range(1, T + 1)}
    for h, shifts in steps.items():
        told = _partial(target, covariate, season, h, [*shifts])
        if told is not None and (best is None or abs(told[0]) > abs(best[0]) + 1e-12):
            best = told
    return best


def _partial(target: Array, covariate: Array, season: int, h: int, shifts: list[int]) -> tuple[float, int] | None:
    """The largest partial correlation of the target at u with the covariate at u - shift, given the target to u - h."""
    n = len(target)
    whole = season * -(-h // season)  # seasons back, to what is known at the origin
    lags = sorted({h, h + 1, h + 2, *([whole, whole + season] if season > 1 else [])})
    places = np.arange(n)
    past = np.stack([np.ones(n), *(_shifted(target, lag) for lag in lags)], axis=1)  # (n, k)
    moved = np.stack([_shifted(covariate, shift) for shift in shifts], axis=1)  # (n, W)
    usable = places[~np.isnan(past).any(axis=1) & ~np.isnan(target) & ~np.isnan(moved).any(axis=1)]
    if len(usable) < max(_FEWEST, 4 * past.shape[1]):
        return None
    y, x, regressors = target[usable], moved[usable], past[usable]
    both = np.concatenate([y[:, None], x], axis=1)
    both = both - both.mean(axis=0)
    centred = regressors[:, 1:] - regressors[:, 1:].mean(axis=0)
    scale = centred.std(axis=0)
    centred = centred[:, scale > 0] / scale[scale > 0]
    left = both - centred @ np.linalg.lstsq(centred, both, rcond=None)[0]
    share = (left**2).sum(axis=0) / np.maximum((both**2).sum(axis=0), np.finfo(float).tiny)
    if share[0] < _LEFT:  # its past gives it away
        return None
    norms = np.sqrt((left**2).sum(axis=0))
    found = np.where(share[1:] < _LEFT, 0.0, left[:, 1:].T @ left[:, 0] / np.maximum(norms[1:] * norms[0], 1e-300))
    strongest = int(np.argmax(abs(found)))
    return float(found[strongest]), shifts[strongest]


def _shifted(values: Array, places: int) -> Array:
    """Values as they were so many places before; of the future where that is below 0."""
    moved = np.full(len(values), np.nan)
    if abs(places) >= len(values):
        return moved
    if places >= 0:
        moved[places:] = values[: len(values) - places]
    else:
        moved[:places] = values[-places:]
    return moved


def _correlation(one: Array, other: Array) -> float:
    known = ~np.isnan(one) & ~np.isnan(other)
    one, other = one[known], other[known]
    if len(one) < _FEWEST or not one.std() or not other.std():
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def _said(target: str, correlation: float, shift: int, *, is_future: bool) -> tuple[str, str, str]:
    """The kind, the place and the sentence."""
    side = "after it" if shift > 0 else "before it"
    place = f"{number_of(abs(shift), 'step')} {side}" if shift else "at the same step"
    if not is_future and not shift:
        return "copy", place, f"this covariate is {target} itself, scaled: it adds nothing to its past"
    is_copy = abs(correlation) > _COPIES
    what = f"this covariate is {target} {place}, scaled" if is_copy else f"this covariate goes with {target} {place}"
    much = "" if is_copy else f" ({correlation:.3f} beyond what the past of {target} gives)"
    known = "and it would be given over the horizon" if is_future else "which is not known yet"
    return "leakage", place, f"{what}{much}, {known}: a model would read the answer; check that it is known then"
