"""Scaling by the mean and standard deviation of the training part, of all series together or of each series.

Targets may be transformed first. Letters: S series, C channels, P past-only and F known-future covariates, n columns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tsattn.data.columns import first_names, match_ids
from tsattn.data.frequency import seconds
from tsattn.data.panel import Panel
from tsattn.data.row_ranges import LastKnown, are_first, blocks_of, each_row, made_rows, owners, room_like
from tsattn.data.splits import Split
from tsattn.data.windows import EMPTY_IT, Series, warn_of_far
from tsattn.errors import UserError, quiet, shown
from tsattn.scaler import LARGEST_LAMBDA, TRANSFORMS, Scaler, SeriesTransform, TargetTransform, transformed

logger = logging.getLogger("tsattn")

_BLOCK = 1 << 22  # numbers of an array in a file to average at a time
_SMALLEST = 1e-150  # the squares of smaller numbers lose digits
_READ = 1_000_000  # most rows of an array in a file from which to estimate lambdas
_MOST = 100_000  # enough values to estimate a lambda
LARGEST = 1e17  # standard deviations from the mean: single precision can hold the sum of a thousand squares of it
_ROUNDING = 2.0**-24  # relative rounding error of a float32
_NOISE = 2.0**-45  # relative to a float64: smaller changes may be rounding errors
_TOLD = 0.05  # largest share of a change that rounding may take

Table: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.int64]


def moments(blocks: Iterable[Table], names: Sequence[str]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation (1 for a constant) of each column of all blocks `(rows, C)`; errors say `names`."""
    found, rows = _Moments((len(names),)), 0
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # `scaled_series` refuses large values
        for values in blocks:
            count, total = (~np.isnan(values)).sum(axis=0), np.nansum(values, axis=0)
            rows += len(values)
            mean = total / count
            # correct for the rounding of the mean (Chan, Golub and LeVeque), as in scikit-learn
            away = values - mean
            correction = np.nansum(away, axis=0)
            away **= 2
            found.add(slice(None), count, mean, (np.nansum(away, axis=0) - correction**2 / count) / count)
    empty = np.flatnonzero(found.count == 0)
    if empty.size:
        raise UserError(f"{names[empty[0]]} has no value in the {rows} training rows")
    mean, scale = found.scaled(names)
    return tuple(mean.tolist()), tuple(scale.tolist())


def panel_moments(panel: Panel, ends: Rows | None = None) -> tuple[Table, Table]:
    """Mean (NaN without values) and standard deviation `(S, C)` of the first `ends (S,)` rows, or of all rows."""
    found = _Moments((len(panel), len(panel.channels)))
    for rows in blocks_of(panel.values, most=_BLOCK):
        values = panel.values[rows].astype(np.float64, copy=False)
        if ends is not None:
            counts = are_first(panel.starts, ends, rows)
            values = values if counts.all() else np.where(counts[:, None], values, np.nan)
        first, last = (int(panel.starts.searchsorted(row, side="right")) - 1 for row in (rows.start, rows.stop - 1))
        starts = panel.starts[first : last + 2].clip(rows.start, rows.stop) - rows.start
        known, lengths = ~np.isnan(values), np.diff(starts)
        count = np.add.reduceat(known, starts[:-1], dtype=np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.add.reduceat(np.where(known, values, 0.0), starts[:-1]) / count
            squares = (values - mean.repeat(lengths, axis=0)) ** 2
            variance = np.add.reduceat(np.where(known, squares, 0.0), starts[:-1]) / count
            found.add(slice(first, last + 1), count, mean, variance)
    return found.scaled()


class _Moments:
    """Counts, means and variances, updated block by block; with a single block they are exact."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = np.zeros(shape, np.int64)
        self.mean, self.variance = np.full(shape, np.nan), np.full(shape, np.nan)

    def add(self, place: slice, count: Rows, mean: Table, variance: Table) -> None:
        """Merge the moments of other rows (Chan, Golub and LeVeque, Updating formulae, 1979)."""
        n, own, spread = self.count[place], self.mean[place], self.variance[place]
        total = n + count
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            step = mean - own
            merged = (spread * n + variance * count + step**2 * (n * count / total)) / total
            self.mean[place] = np.where(n == 0, mean, np.where(count == 0, own, own + step * (count / total)))
        self.variance[place] = np.where(n == 0, variance, np.where(count == 0, spread, merged))
        self.count[place] = total

    def scaled(self, names: Sequence[str] = ()) -> tuple[Table, Table]:
        """Mean and standard deviation; values so small that their squares underflow are refused."""
        mean, scale = self.mean, np.sqrt(self.variance)
        is_bad = (scale < _SMALLEST) & (np.abs(mean) < _SMALLEST) & (mean != 0)
        if is_bad.any():
            whose = f"{names[int(is_bad.nonzero()[-1][0])]} has" if names else "a series has"
            size = mean[is_bad].flat[0]
            raise UserError(f"{whose} values around {size:.0e}, too small to compute with: give it in a smaller unit")
        # rounding gives a constant a small standard deviation
        return mean, np.where(scale > 10 * np.finfo(np.float64).eps * np.abs(mean), scale, 1.0)


def fit_scaler(
    panel: Panel, splits: Sequence[Split], scaling: str, transform: Mapping[str, Any] | None = None
) -> Scaler:
    """Fit scales, and a transform of the targets, to training rows; series with none get the scale of all."""
    ends = np.array([split.train_end for split in splits])
    scaler = _fit_targets(panel, ends, scaling)
    if transform is not None:
        scaler = _fit_transformed(panel, ends, scaler, transform)
    parts = [part for part in (panel.past_covariates, panel.future_covariates) if part is not None]
    if not parts:
        return scaler
    names = (*panel.past_names, *panel.future_names)
    mean, scale = moments(_first_rows(panel, parts, ends), [f"covariate {name}" for name in names])
    kept = [name in panel.covariate_categories for name in names]  # numbers of categories stay as they are
    mean = tuple(0.0 if is_kept else one for one, is_kept in zip(mean, kept, strict=True))
    scale = tuple(1.0 if is_kept else one for one, is_kept in zip(scale, kept, strict=True))
    return replace(scaler, covariate_mean=mean, covariate_scale=scale)


def _first_rows(panel: Panel, parts: Sequence[Table], ends: Rows) -> Iterable[Table]:
    for rows in blocks_of(panel.values, sum(part.shape[1] for part in parts), _BLOCK):
        kept = are_first(panel.starts, ends, rows)
        if kept.any() or not panel.is_mapped:
            chosen = [part[rows][kept].astype(np.float64, copy=False) for part in parts]
            yield chosen[0] if len(chosen) == 1 else np.concatenate(chosen, axis=1)


def _fit_targets(panel: Panel, ends: Rows, scaling: str) -> Scaler:
    names = [f"channel {name}" for name in panel.channels]
    mean, scale = moments(_first_rows(panel, [panel.values], ends), names)
    if scaling != "series":
        return Scaler(mean, scale)
    means, scales = panel_moments(panel, ends)
    without = np.isnan(means)
    if without.any():
        said = "%d of %d series have no training value in some channel; these channels use the scale of all series"
        logger.warning(said, without.any(axis=1).sum(), len(panel))
    means, scales = np.where(without, mean, means), np.where(without, scale, scales)
    return Scaler(mean, scale, "series", panel.ids, _plain(means), _plain(scales))


def _fit_transformed(panel: Panel, ends: Rows, original: Scaler, transform: Mapping[str, Any]) -> Scaler:
    """Fit a transform and the scales of transformed values; lambdas are given, or the most likely from 0 to 2."""
    kind, C, by_series = transform["kind"], len(panel.channels), None
    _check_domain(panel, kind)
    lambdas = (transform.get("lambda", 0.0),) * C
    if kind == "box_cox" and "lambda" not in transform:
        is_train = are_first(panel.starts, ends, slice(0, len(panel.values)))
        some = np.flatnonzero(is_train)
        pooled = _likely(panel.values[some[:: -(-len(some) // _READ) or 1] if panel.is_mapped else some])
        lambdas = tuple(np.where(np.isnan(pooled), 1.0, pooled).tolist())
        if original.scaling == "series":
            rows = [slice(*panel.starts[number : number + 2]) for number in range(len(panel))]
            by_series = np.stack([_likely(panel.values[own][is_train[own]]) for own in rows])
            by_series = np.where(np.isnan(by_series), lambdas, by_series)
    of_series = () if by_series is None else _plain(by_series)
    units = original.mean, original.scale, of_series, original.series_mean, original.series_scale
    with quiet():  # the same messages were logged for the values before the transform
        each = np.broadcast_to(lambdas, (len(panel), C)) if by_series is None else by_series
        scaler = _fit_targets(_transformed_panel(panel, kind, each), ends, original.scaling)
    return replace(scaler, transform=TargetTransform(kind, lambdas, *units))


def _likely(values: Table) -> Table:
    from scipy import optimize, stats

    bounded = partial(optimize.minimize_scalar, bounds=(0.0, LARGEST_LAMBDA), method="bounded")
    lambdas = np.full(values.shape[1], np.nan)
    for place, column in enumerate(values.T):
        known = column[~np.isnan(column)]
        known = known[:: -(-len(known) // _MOST) or 1]
        with np.errstate(all="ignore"):
            if len(known) > 1:
                is_constant = (known == known[0]).all()
                lambdas[place] = 1.0 if is_constant else stats.boxcox_normmax(known, method="mle", optimizer=bounded)
    return lambdas.clip(0.0, LARGEST_LAMBDA)


def _transformed_panel(panel: Panel, kind: str, lambdas: Table) -> Panel:
    _check_domain(panel, kind)

    def values_of(rows: slice) -> Table:
        values = panel.values[rows].astype(np.float64, copy=False)
        return transformed(kind, values, each_row(lambdas, panel.starts, rows))

    return replace(panel, values=made_rows(panel.values, values_of))


def _check_domain(panel: Panel, kind: str) -> None:
    bad = _first_bad(panel, lambda values: values < 0 if kind == "log1p" else values <= 0)
    if bad is not None:
        others = "give log1p, " if kind != "log1p" and bad[0] == 0 else ""
        mend = f"{others}leave transform out, or empty the cell"
        raise UserError(f"transform {kind} needs values {TRANSFORMS[kind]}, but {bad[1]}: {mend}")


def check_counts(panel: Panel, what: str, of: Panel | None = None) -> None:
    """Refuse values other than whole numbers of at least 0, which `what` needs; messages name rows of panel `of`."""
    bad = _first_bad(panel, lambda values: ~np.isnan(values) & ((values < 0) | (values != np.round(values))), of)
    if bad is not None:
        mend = "give distribution normal or student_t for other values"
        raise UserError(f"{what} needs counts (whole numbers from 0), but {bad[1]}; {mend}")


def _first_bad(
    panel: Panel, is_bad: Callable[[Table], NDArray[np.bool_]], of: Panel | None = None
) -> tuple[float, str] | None:
    for block in blocks_of(panel.values):
        with np.errstate(invalid="ignore"):
            places = is_bad(panel.values[block]).nonzero()
        if len(places[0]):
            row, channel = block.start + int(places[0][0]), int(places[1][0])
            number, value = int(panel.starts.searchsorted(row, side="right")) - 1, float(panel.values[row, channel])
            place = row - int(panel.starts[number]) + 1
            place += 0 if of is None else int(of.lengths[number] - panel.lengths[number])
            series = "" if panel.is_wide else f" of series {shown(panel.ids[number])}"
            column = shown(panel.channels[channel])
            return value, f"column {column} has {value:g} in row {place}{series}, {panel.time[row]}"
    return None


def series_units(panel: Panel, scaler: Scaler, history: Rows | None = None) -> tuple[Table, Table]:
    """Mean and scale of each series, `(S, C)`; for new series from their first `history (S,)` rows, or all rows."""
    shape = len(panel), len(scaler.mean)
    mean, scale = np.broadcast_to(scaler.mean, shape), np.broadcast_to(scaler.scale, shape)
    if scaler.scaling != "series":
        return mean, scale
    numbers = _known_numbers(panel.ids, scaler)
    for one, number in zip(panel.ids, numbers.tolist(), strict=True):
        if number >= 0 and scaler.ids[number] != one:
            says = "the ids differ from those of the training only by type: %r is read as %r"
            logger.warning(says, one, scaler.ids[number])
            break
    is_new = numbers < 0
    saved = np.asarray(scaler.series_mean)[numbers], np.asarray(scaler.series_scale)[numbers]
    if not is_new.any():
        return saved
    own, spread = panel_moments(panel, history)
    said = "%d of %d series were not in the training; each is scaled by its given rows"
    logger.warning(said, is_new.sum(), len(panel))
    own, spread = np.where(np.isnan(own), mean, own), np.where(np.isnan(own), scale, spread)
    return np.where(is_new[:, None], own, saved[0]), np.where(is_new[:, None], spread, saved[1])


def _known_numbers(ids: tuple[Any, ...], scaler: Scaler) -> Rows:
    """`(S,)`: the place of each id among the ids of the training, -1 for a new id."""
    place, known = {name: number for number, name in enumerate(scaler.ids)}, match_ids(ids, scaler.ids)
    return np.array([place[known[name]] if name in known else -1 for name in ids])


def scaled_series(panel: Panel, scaler: Scaler, history: Rows | None = None) -> Series:
    """Scale a panel to tensors, ``(value - mean) / scale``; the tensors of a large panel in files also lie in files.

    A missing value is imputed by the last observed value of its series, which uses no later values; without one, by
    the mean. UserError for a value too large to compute with, or outside the transform's domain. New series are scaled
    by their first `history (S,)` rows; by default all. With `history`, targets are weighted as in a training.
    """
    transform, given = _transform_of(panel, scaler, history), panel
    if transform is not None:
        panel = _transformed_panel(panel, transform.kind, transform.lambdas)
    mean, scale = series_units(panel, scaler, history)
    past = len(panel.past_names)
    units = {
        name: (np.asarray(scaler.covariate_mean[part]), np.asarray(scaler.covariate_scale[part]))
        for name, part in (("past_covariates", slice(None, past)), ("future_covariates", slice(past, None)))
        if getattr(panel, name) is not None
    }
    parts: dict[str, Any] = {}
    parts["values"], parts["observed"] = _scaled(panel, "values", (mean, scale), given, scaler.scaling)
    for name, of_part in units.items():
        parts[name], parts[f"{name}_observed"] = _scaled(panel, name, of_part, given, scaler.scaling)
        parts[f"{name.removesuffix('s')}_scale"] = of_part[1]
    weights = panel.weights
    if history is not None and weights is not None:
        total, count = 0.0, 0  # mean of the positive weights of observed targets, so that only ratios matter
        for rows in blocks_of(panel.values):
            block = weights[rows]
            counts = (block > 0) & ~np.isnan(panel.values[rows]) & are_first(panel.starts, history, rows)[:, None]
            total, count = total + float(block[counts].sum()), count + int(counts.sum())
        if not count:
            raise UserError("every training target has weight 0: give some rows, series or columns a weight above 0")
        mean_of, single = total / count, np.float32
        parts["weights"] = made_rows(weights, lambda rows: (weights[rows] / mean_of).astype(single), dtype=single)
    parts["time"] = made_rows(panel.values, lambda rows: seconds(panel.time[rows]), (), np.int64)
    parts |= {"starts": panel.starts, "static": panel.static}
    parts |= {"mean": np.array(mean, dtype=np.float64), "scale": np.array(scale, dtype=np.float64)}
    return Series.of_arrays(parts, transform, given.values)


def _scaled(
    panel: Panel, name: str, units: tuple[Table, Table], given: Panel, scaling: str
) -> tuple[NDArray[np.float32], NDArray[np.bool_] | None]:
    """Scale the array `name` by mean and scale `(S, n)` or `(n,)` and impute it; also return the mask of observed."""
    part = getattr(panel, name)
    scaled, observed = room_like(part, part.shape, np.float32), None
    last_known, is_far, tallies = LastKnown(panel.starts), False, np.zeros((2, len(panel), part.shape[1]), np.int64)

    def words(place: tuple[int, ...]) -> str:
        return cell_words(given, name, (rows.start + place[0], place[1]))

    for rows in blocks_of(part):
        mean, scale = (
            one if one.ndim == 1 or len(one) == 1 else each_row(one, panel.starts, rows) for one in units
        )  # units of a single series broadcast
        missing = np.isnan(part[rows])
        with np.errstate(over="ignore", invalid="ignore"):
            block = part[rows] - mean
            block /= scale
            if name == "values":  # squares would overflow float32, or the variance float64
                is_bad = (~(np.abs(block) < LARGEST) | ~np.isfinite(scale)) & ~missing
                if is_bad.any():
                    worst = np.where(is_bad, np.abs(part[rows]), -np.inf).argmax()
                    row, channel = divmod(int(worst), is_bad.shape[1])
                    raise UserError(f"{words((row, channel))}, too far from the rest to compute with; {EMPTY_IT}")
            is_far = is_far or warn_of_far(block, scale, words)
            tallies += step_counts(part[rows], block, owners(panel.starts, rows), len(panel))
            scaled[rows] = block
        if observed is None and not missing.any():
            last_known.carried = rows.stop - 1
            continue
        if observed is None:
            observed = room_like(part, part.shape, np.bool_)
            observed[: rows.start] = True
        observed[rows] = ~missing
        sources = last_known(observed[rows], rows)
        if missing.any():
            imputed = scaled[sources, np.arange(part.shape[1])]
            scaled[rows] = np.where(np.isnan(imputed), np.float32(0), imputed)
    _warn_of_rounding(panel, name, scaled, tallies, scaling)
    return scaled, observed


def with_new_series(scaler: Scaler, panel: Panel, history: Rows) -> Scaler:
    """Add the new series of a panel to a scaler, with their scales in `scaled_series` for `history (S,)`."""
    new = np.flatnonzero(_known_numbers(panel.ids, scaler) < 0)
    if scaler.scaling != "series" or not len(new):
        return scaler

    def added(known: tuple[tuple[float, ...], ...], table: Table) -> tuple[tuple[float, ...], ...]:
        return (*known, *_plain(table[new]))

    fitted, transform = scaler.transform, _transform_of(panel, scaler, history)
    if fitted is not None and transform is not None:
        panel = _transformed_panel(panel, transform.kind, transform.lambdas)
        fitted = replace(
            fitted,
            series_lambdas=added(fitted.series_lambdas, transform.lambdas) if fitted.series_lambdas else (),
            series_mean=added(fitted.series_mean, transform.mean),
            series_scale=added(fitted.series_scale, transform.scale),
        )
    with quiet():  # do not log these series as new again
        mean, scale = series_units(panel, scaler, history)
    ids = (*scaler.ids, *(panel.ids[number] for number in new))
    mean_of, scale_of = added(scaler.series_mean, mean), added(scaler.series_scale, scale)
    return replace(scaler, ids=ids, series_mean=mean_of, series_scale=scale_of, transform=fitted)


def _transform_of(panel: Panel, scaler: Scaler, history: Rows | None) -> SeriesTransform | None:
    fitted = scaler.transform
    if fitted is None:
        return None
    lambdas = np.broadcast_to(fitted.lambdas, (len(panel), len(fitted.lambdas)))
    if fitted.series_lambdas:
        numbers = _known_numbers(panel.ids, scaler)
        lambdas = np.where(numbers[:, None] < 0, lambdas, np.asarray(fitted.series_lambdas)[numbers])
    units: Any = {name: getattr(fitted, name) for name in ("mean", "scale", "series_mean", "series_scale")}
    with quiet():  # the same messages are logged for the transformed values
        return SeriesTransform(fitted.kind, lambdas, *series_units(panel, replace(scaler, **units), history))


def _plain(table: Table) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, table.tolist()))


def step_counts(
    values: NDArray[np.float64], scaled: NDArray[np.float64], owner: NDArray[np.int64], S: int
) -> NDArray[np.int64]:
    """`(2, S, n)`: numbers of steps of rows `(rows, n)` with a change, and with a change that scaled float32 blurs."""
    n = values.shape[1]
    with np.errstate(invalid="ignore", over="ignore"):
        change, step = (np.abs(np.diff(part, axis=0)) for part in (values, scaled))
        larger, size = (np.maximum(np.abs(part[1:]), np.abs(part[:-1])) for part in (values, scaled))
        is_change = (change > _NOISE * larger) & (owner[1:] == owner[:-1])[:, None]
        # next to opposite fill values, all others are exact near 0, but no model sees changes so small on its scale
        is_blurred = is_change & (_ROUNDING * np.maximum(size, 1.0) > _TOLD * step)
    places = owner[1:, None] * n + np.arange(n)
    counts = [np.bincount(places[which], minlength=S * n) for which in (is_change, is_blurred)]
    return np.stack(counts).reshape(2, S, n)


def _warn_of_rounding(panel: Panel, name: str, scaled: Any, tallies: NDArray[np.int64], scaling: str) -> None:
    """Log series or covariates whose changes are lost because a large value sets their scale; name this value."""
    is_target = name == "values"
    changes, blurred = tallies if is_target else tallies.sum(axis=1, keepdims=True)
    lost = np.argwhere(4 * blurred > changes)  # a quarter suffices, as most steps may involve a fill value
    is_shared = not is_target or (scaling != "series" and len(panel) > 1)
    for series, column in lost[: 1 if is_target else None].tolist():
        first, end = (0, len(scaled)) if is_shared else panel.starts[series : series + 2].tolist()
        pieces = [slice(begin, min(begin + _BLOCK, end)) for begin in range(first, end, _BLOCK)]
        best = max(pieces, key=lambda rows: float(np.nanmax(np.abs(scaled[rows, column]))))
        words = cell_words(panel, name, (best.start + int(np.nanargmax(np.abs(scaled[best, column]))), column))
        if not is_target:
            what = words.partition(" is ")[0]
            says = "%s changes by less than single precision tells apart: it%s; %s"
            logger.warning(says, what, words.removeprefix(what), EMPTY_IT)
            continue
        names = panel.channels if panel.is_wide else panel.ids
        small = [names[number] for number in np.unique(lost[:, 1 if panel.is_wide else 0]).tolist()]
        mend = EMPTY_IT + (", or give each series its own scale (scaling: series)" if is_shared else "")
        says = "%d of %d series (%s) change by less than single precision tells apart: %s; %s"
        logger.warning(says, len(small), len(names), first_names(small), words, mend)


def cell_words(panel: Panel, name: str, place: tuple[int, int]) -> str:
    """Describe the number at a row and column of the array `name` of a panel."""
    row, column = place
    number = getattr(panel, name)[row, column]
    series = panel.ids[panel.starts.searchsorted(row, side="right") - 1]
    if name == "values":
        whose = panel.channels[column] if panel.is_wide else series
        return f"series {shown(whose)} has the value {number:g} at {panel.time[row]}"
    covariate = (panel.past_names if name == "past_covariates" else panel.future_names)[column]
    of = "" if panel.is_wide else f" of series {shown(series)}"
    return f"covariate {shown(covariate)} is {number:g} at {panel.time[row]}{of}"
