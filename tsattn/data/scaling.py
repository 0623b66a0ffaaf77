"""Scaling by the mean and standard deviation of the training part, of all series together or of each alone.

Large arrays in files are read block by block, and what is made of them lies in files, too.

Shape letters: S series, C channels, P past-only and F known-future covariates.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tsattn.data.columns import match_ids
from tsattn.data.frequency import seconds
from tsattn.data.panel import Panel
from tsattn.data.quiet import quiet
from tsattn.data.row_ranges import LastKnown, are_first, blocks_of, each_row, is_mapped, made_rows, room_like
from tsattn.data.single_precision import (
    EMPTY_IT,
    LARGEST,
    blurred_columns,
    cell_words,
    farthest_row,
    warn_of_far,
)
from tsattn.data.splits import Split
from tsattn.data.table_rows import listed
from tsattn.data.target_transforms import check_domain, fit_lambdas, transformed_panel
from tsattn.data.weights import mean_weight
from tsattn.data.windows import Series
from tsattn.errors import UserError, shown
from tsattn.scaler import Scaler
from tsattn.target_transform import SeriesTransform, TargetTransform

__all__ = ["fit_scaler", "moments", "panel_moments", "scaled_series", "series_units", "with_new_series"]

logger = logging.getLogger("tsattn")

_BLOCK = 1 << 22  # numbers of an array in a file that are averaged at once
_SMALLEST = 1e-150  # whose squares keep all their digits

Table: TypeAlias = NDArray[np.float64]


def moments(blocks: Iterable[Table], names: Sequence[str]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each column over the observed training rows; a constant column has scale 1.

    Args:
        blocks: training rows, each `(rows, C)`, NaN where missing.
        names: the C columns, for messages.

    Raises:
        UserError: for a column without one observed value.
    """
    found, rows = _Moments((len(names),)), 0
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # `scaled_series` refuses too large values
        for values in blocks:
            count, total = (~np.isnan(values)).sum(axis=0), np.nansum(values, axis=0)
            rows += len(values)
            mean = total / count
            # with the correction of Chan, Golub and LeVeque for the rounding of the mean, as in scikit-learn
            away = values - mean
            correction = np.nansum(away, axis=0)
            away **= 2
            found.add(slice(None), count, mean, (np.nansum(away, axis=0) - correction**2 / count) / count)
    empty = np.flatnonzero(found.count == 0)
    if empty.size:
        raise UserError(f"channel {names[empty[0]]} has no value in the {rows} training rows")
    mean, scale = found.scaled(names)
    return tuple(mean.tolist()), tuple(scale.tolist())


def panel_moments(panel: Panel, ends: NDArray[np.int64] | None = None) -> tuple[Table, Table]:
    """Mean and standard deviation of each channel of each series.

    Args:
        panel: the series.
        ends: `(S,)` how many first rows of each count; all by default.

    Returns:
        two `(S, C)`: means, NaN without an observed value, and standard deviations, 1 where a channel is constant.
    """
    found = _Moments((len(panel), len(panel.channels)))
    for rows in blocks_of(panel.values, most=_BLOCK):
        values = panel.values[rows].astype(np.float64, copy=False)
        if ends is not None:
            counts = are_first(panel.starts, ends, rows)
            values = values if counts.all() else np.where(counts[:, None], values, np.nan)
        series = slice(*(int(panel.starts.searchsorted(row, side="right")) - 1 for row in (rows.start, rows.stop - 1)))
        series = slice(series.start, series.stop + 1)
        starts = panel.starts[series.start : series.stop + 1].clip(rows.start, rows.stop) - rows.start
        known, lengths = ~np.isnan(values), np.diff(starts)
        count = np.add.reduceat(known, starts[:-1], dtype=np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.add.reduceat(np.where(known, values, 0.0), starts[:-1]) / count
            squares = (values - mean.repeat(lengths, axis=0)) ** 2
            found.add(series, count, mean, np.add.reduceat(np.where(known, squares, 0.0), starts[:-1]) / count)
    return found.scaled()


class _Moments:
    """Counts, means and variances that grow block by block; those of a single block are exact."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = np.zeros(shape, np.int64)
        self.mean, self.variance = np.full(shape, np.nan), np.full(shape, np.nan)

    def add(self, place: slice, count: NDArray[np.int64], mean: Table, variance: Table) -> None:
        """Merge those of other rows (Chan, Golub and LeVeque, Updating formulae, 1979)."""
        n, own, spread = self.count[place], self.mean[place], self.variance[place]
        total = n + count
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            step = mean - own
            merged = (spread * n + variance * count + step**2 * (n * count / total)) / total
            self.mean[place] = np.where(n == 0, mean, np.where(count == 0, own, own + step * (count / total)))
        self.variance[place] = np.where(n == 0, variance, np.where(count == 0, spread, merged))
        self.count[place] = total

    def scaled(self, names: Sequence[str] = ()) -> tuple[Table, Table]:
        """Mean and standard deviation; values whose squares double precision takes for 0 are refused."""
        mean, scale = self.mean, np.sqrt(self.variance)
        is_bad = (scale < _SMALLEST) & (np.abs(mean) < _SMALLEST) & (mean != 0)
        if is_bad.any():
            whose = f"channel {names[int(is_bad.nonzero()[-1][0])]} has" if names else "a series has"
            size = mean[is_bad].flat[0]
            raise UserError(f"{whose} values around {size:.0e}, too small to compute with: give it in a smaller unit")
        # rounding leaves something of a constant, of however many rows
        return mean, np.where(scale > 10 * np.finfo(np.float64).eps * np.abs(mean), scale, 1.0)


def fit_scaler(
    panel: Panel, splits: Sequence[Split], scaling: str, transform: Mapping[str, Any] | None = None
) -> Scaler:
    """Fit the scales of series and covariates to the training rows alone.

    A series without a training value takes the scale of all series, which is logged.

    Args:
        panel: the series.
        splits: where the training rows of each of them end.
        scaling: ``global`` or ``series``, see `Scaler`.
        transform: of the targets, as `check_transform` gives it.

    Raises:
        UserError: for a column without a training value, or values that the transform does not take.
    """
    ends = np.array([split.train_end for split in splits])
    scaler = _fit_targets(panel, ends, scaling)
    if transform is not None:
        scaler = _fit_transformed(panel, ends, scaler, transform)
    parts = [part for part in (panel.past_covariates, panel.future_covariates) if part is not None]
    if parts:
        names = (*panel.past_names, *panel.future_names)
        mean, scale = moments(_first_rows(panel, parts, ends), names)
        is_number = [name not in panel.covariate_categories for name in names]  # numbers of categories stay as they are
        mean = tuple(one if kept else 0.0 for one, kept in zip(mean, is_number, strict=True))
        scale = tuple(one if kept else 1.0 for one, kept in zip(scale, is_number, strict=True))
        scaler = replace(scaler, covariate_mean=mean, covariate_scale=scale)
    return scaler


def _first_rows(panel: Panel, parts: Sequence[Table], ends: NDArray[np.int64]) -> Iterable[Table]:
    """The first `ends (S,)` rows of all series, of arrays `(rows, n)` side by side."""
    for rows in blocks_of(panel.values, sum(part.shape[1] for part in parts), _BLOCK):
        kept = are_first(panel.starts, ends, rows)
        if kept.any() or not is_mapped(panel.values):
            chosen = [part[rows][kept].astype(np.float64, copy=False) for part in parts]
            yield chosen[0] if len(chosen) == 1 else np.concatenate(chosen, axis=1)


def _fit_targets(panel: Panel, ends: NDArray[np.int64], scaling: str) -> Scaler:
    mean, scale = moments(_first_rows(panel, [panel.values], ends), panel.channels)
    if scaling != "series":
        return Scaler(mean, scale)
    means, scales = panel_moments(panel, ends)
    without = np.isnan(means)
    if without.any():
        logger.warning(
            "%d of %d series have no training value in some channel; these channels take the scale of all series",
            without.any(axis=1).sum(),
            len(panel),
        )
    means, scales = np.where(without, mean, means), np.where(without, scale, scales)
    return Scaler(mean, scale, "series", panel.ids, _plain(means), _plain(scales))


def _fit_transformed(panel: Panel, ends: NDArray[np.int64], original: Scaler, transform: Mapping[str, Any]) -> Scaler:
    """How targets are transformed and then scaled, where `original` scales them as they are."""
    kind = transform["kind"]
    check_domain(panel, kind)
    is_train = are_first(panel.starts, ends, slice(0, len(panel.values)))
    lambdas, own = fit_lambdas(panel, is_train, transform, each=original.scaling == "series")
    own = None if own is None else np.where(np.isnan(own), lambdas, own)
    fitted = TargetTransform(
        kind,
        lambdas,
        original.mean,
        original.scale,
        () if own is None else _plain(own),
        original.series_mean,
        original.series_scale,
    )
    with quiet():  # the same was logged of the values themselves
        each = np.broadcast_to(lambdas, (len(panel), len(lambdas))) if own is None else own
        scaler = _fit_targets(transformed_panel(panel, kind, each), ends, original.scaling)
    return replace(scaler, transform=fitted)


def series_units(panel: Panel, scaler: Scaler, history: NDArray[np.int64] | None = None) -> tuple[Table, Table]:
    """Mean and scale of each series, two `(S, C)`; a new one has those of its first `history (S,)` rows, or of all.

    Ids that are numbers here and text there are the same, see `match_ids`; this is logged.
    """
    shape = len(panel), len(scaler.mean)
    mean, scale = np.broadcast_to(scaler.mean, shape), np.broadcast_to(scaler.scale, shape)
    if scaler.scaling != "series":
        return mean, scale
    known, numbers = match_ids(panel.ids, scaler.ids), _known_numbers(panel.ids, scaler)
    renamed = next((name for name in panel.ids if known.get(name, name) != name), None)
    if renamed is not None:
        what = renamed, known[renamed]
        logger.warning("the ids are not those trained on, but their text is: %r is taken for %r", *what)
    is_new = numbers < 0
    saved = np.asarray(scaler.series_mean)[numbers], np.asarray(scaler.series_scale)[numbers]
    if not is_new.any():
        return saved
    own, spread = panel_moments(panel, history)
    texts = {str(name) for name in scaler.ids}
    similar = sum(str(name) in texts for name, new in zip(panel.ids, is_new.tolist(), strict=True) if new)
    logger.warning(
        "%d of %d series not trained on; each is scaled by the rows given of it%s",
        *(is_new.sum(), len(panel)),
        f" (the ids of {similar} were trained on as numbers, or as text)" if similar else "",
    )
    own, spread = np.where(np.isnan(own), mean, own), np.where(np.isnan(own), scale, spread)
    return np.where(is_new[:, None], own, saved[0]), np.where(is_new[:, None], spread, saved[1])


def _known_numbers(ids: tuple[Any, ...], scaler: Scaler) -> NDArray[np.int64]:
    """`(S,)` the place of each id among those that were trained on, -1 of a new one."""
    place = {name: number for number, name in enumerate(scaler.ids)}
    known = match_ids(ids, scaler.ids)
    return np.array([place[known[name]] if name in known else -1 for name in ids])


def scaled_series(panel: Panel, scaler: Scaler, history: NDArray[np.int64] | None = None) -> Series:
    """Scale a panel to tensors, ``(value - mean) / scale``; of a large panel in files these lie in files, too.

    A missing value is imputed for the model's input by the last observed one of its series (so nothing is seen ahead
    of its time), at the very start by the mean; the mask of observed values keeps it out of loss and metrics.

    Args:
        panel: the series.
        scaler: of the training part; targets that it transforms lie on the scale of the transformed values.
        history: `(S,)` how many first rows of each series scale it where it was not trained on, all before those that
            are forecast; all rows by default. With it, targets are weighted as in a training.

    Raises:
        UserError: for a value so large that nothing could be computed with it, naming series and time stamp, or one
            that the transform does not take.
    """
    transform, given = _transform_of(panel, scaler, history), panel
    if transform is not None:
        panel = transformed_panel(panel, transform.kind, transform.lambdas)
    mean, scale = series_units(panel, scaler, history)
    past = len(panel.past_names)
    units = {
        "past_covariates": _covariate_units(scaler, slice(None, past)),
        "future_covariates": _covariate_units(scaler, slice(past, None)),
    }
    if not panel.is_mapped or history is not None:  # a fit looks at all rows of a file anyway
        _warn_of_rounding(panel, mean, scaler)
    parts: dict[str, Any] = {}
    parts["values"], parts["observed"] = _scaled(panel, "values", (mean, scale), given)
    for name, of_part in units.items():
        if getattr(panel, name) is not None:
            parts[name], parts[f"{name}_observed"] = _scaled(panel, name, of_part, given)
            parts[f"{name.removesuffix('s')}_scale"] = of_part[1]
    weights = panel.weights
    if history is not None and weights is not None:
        mean_of = mean_weight(panel, history)
        parts["weights"] = made_rows(
            weights, lambda rows: (weights[rows] / mean_of).astype(np.float32), dtype=np.float32
        )
    parts["time"] = made_rows(panel.values, lambda rows: seconds(panel.time[rows]), (), np.int64)
    parts |= {"starts": panel.starts, "static": panel.static}
    parts |= {"mean": np.array(mean, dtype=np.float64), "scale": np.array(scale, dtype=np.float64)}
    return Series.of_arrays(parts, transform, given.values)


def _scaled(
    panel: Panel, name: str, units: tuple[Table, Table], given: Panel
) -> tuple[NDArray[np.float32], NDArray[np.bool_] | None]:
    """One of the arrays of a panel, scaled and imputed, and which of its numbers are observed (None: all).

    Args:
        panel: the series.
        name: of the array, `(rows, n)`.
        units: mean and scale, `(S, n)` of values, `(n,)` of covariates.
        given: the panel before its targets were transformed, for messages.
    """
    part = getattr(panel, name)
    scaled, observed = room_like(part, part.shape, np.float32), room_like(part, part.shape, np.bool_)
    last_known, is_far, lacks_some = LastKnown(panel.starts), False, False
    values = given.values if name == "values" else None

    def words(place: tuple[int, ...]) -> str:
        return cell_words(panel, name, (rows.start + place[0], place[1]), values)

    for rows in blocks_of(part):
        mean, scale = (
            one if one.ndim == 1 or len(one) == 1 else each_row(one, panel.starts, rows) for one in units
        )  # that of a single series broadcasts
        missing = np.isnan(part[rows])
        with np.errstate(over="ignore", invalid="ignore"):
            block = part[rows] - mean
            block /= scale
            if name == "values":  # single precision could not add up the squares, or double not hold the variance
                is_bad = (~(np.abs(block) < LARGEST) | ~np.isfinite(scale)) & ~missing
                if is_bad.any():
                    worst = np.where(is_bad, np.abs(part[rows]), -np.inf).argmax()
                    row, channel = divmod(int(worst), is_bad.shape[1])
                    raise UserError(f"{words((row, channel))}, too far from the rest to compute with; {EMPTY_IT}")
            is_far = is_far or warn_of_far(block, scale, words)
            scaled[rows] = block
        if name in panel.complete:
            continue
        lacks_some = lacks_some or bool(missing.any())
        observed[rows] = ~missing
        if lacks_some or is_mapped(part):
            sources = last_known(observed[rows], rows)
        if missing.any():
            imputed = scaled[sources, np.arange(part.shape[1])]
            scaled[rows] = np.where(np.isnan(imputed), np.float32(0), imputed)
    return scaled, observed if lacks_some else None


def with_new_series(scaler: Scaler, panel: Panel, history: NDArray[np.int64]) -> Scaler:
    """Add the new series of a panel to a scaler, on the scale that `scaled_series` gives them.

    Args:
        scaler: of the series that were trained on.
        panel: with new series, or without.
        history: `(S,)` how many first rows of each the scale of a new one is taken from.
    """
    new = np.flatnonzero(_known_numbers(panel.ids, scaler) < 0)
    if scaler.scaling != "series" or not len(new):
        return scaler

    def added(known: tuple[tuple[float, ...], ...], table: Table) -> tuple[tuple[float, ...], ...]:
        return (*known, *_plain(table[new]))

    fitted, transform = scaler.transform, _transform_of(panel, scaler, history)
    if fitted is not None and transform is not None:
        panel = transformed_panel(panel, transform.kind, transform.lambdas)
        fitted = replace(
            fitted,
            series_lambdas=added(fitted.series_lambdas, transform.lambdas) if fitted.series_lambdas else (),
            series_mean=added(fitted.series_mean, transform.mean),
            series_scale=added(fitted.series_scale, transform.scale),
        )
    with quiet():  # these series are no longer new
        mean, scale = series_units(panel, scaler, history)
    return replace(
        scaler,
        ids=(*scaler.ids, *(panel.ids[number] for number in new)),
        series_mean=added(scaler.series_mean, mean),
        series_scale=added(scaler.series_scale, scale),
        transform=fitted,
    )


def _transform_of(panel: Panel, scaler: Scaler, history: NDArray[np.int64] | None) -> SeriesTransform | None:
    """The transform of the series of a panel; a new series takes the one of all."""
    fitted = scaler.transform
    if fitted is None:
        return None
    lambdas = np.broadcast_to(fitted.lambdas, (len(panel), len(fitted.lambdas)))
    if fitted.series_lambdas:
        numbers = _known_numbers(panel.ids, scaler)
        lambdas = np.where(numbers[:, None] < 0, lambdas, np.asarray(fitted.series_lambdas)[numbers])
    original = replace(
        scaler, mean=fitted.mean, scale=fitted.scale, series_mean=fitted.series_mean, series_scale=fitted.series_scale
    )
    with quiet():  # the same is logged of the transformed values
        mean, scale = series_units(panel, original, history)
    return SeriesTransform(fitted.kind, lambdas, mean, scale)


def _warn_of_rounding(panel: Panel, mean: Table, scaler: Scaler) -> None:
    """Log the series and covariates that are lost beside a value that makes their scale, and that value."""
    blurred = np.argwhere(blurred_columns(panel.values, mean, panel.starts))
    if blurred.size:
        series, channel = blurred[0].tolist()
        is_shared = scaler.scaling != "series" and len(panel) > 1
        rows = (0, len(panel.values)) if is_shared else panel.starts[series : series + 2].tolist()
        row = farthest_row(panel.values[:, channel], mean[series, channel], *rows)
        names = panel.channels if panel.is_wide else panel.ids
        lost = np.unique(blurred[:, 1 if panel.is_wide else 0])
        logger.warning(
            "%d of %d series (%s) change by less than single precision tells apart: %s; %s%s",
            *(len(lost), len(names), listed([names[number] for number in lost.tolist()])),
            *(cell_words(panel, "values", (row, channel)), EMPTY_IT),
            ", or give each series its own scale (scaling: series)" if is_shared else "",
        )
    past = len(panel.past_names)
    for name, names, units in (
        ("past_covariates", panel.past_names, slice(None, past)),
        ("future_covariates", panel.future_names, slice(past, None)),
    ):
        part = getattr(panel, name)
        if part is None:
            continue
        center = np.asarray(scaler.covariate_mean[units])
        blurred = blurred_columns(part, np.tile(center, (len(panel), 1)), panel.starts, together=True)[0]
        for place in np.flatnonzero(blurred).tolist():
            row, covariate = farthest_row(part[:, place], center[place]), shown(names[place])
            logger.warning(
                "covariate %s changes by less than single precision tells apart: it%s; %s",
                *(covariate, cell_words(panel, name, (row, place)).removeprefix(f"covariate {covariate}"), EMPTY_IT),
            )


def _covariate_units(scaler: Scaler, part: slice) -> tuple[Table, Table]:
    return np.asarray(scaler.covariate_mean[part]), np.asarray(scaler.covariate_scale[part])


def _plain(table: Table) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in table.tolist())
