"""Scaling by the mean and standard deviation of the training part, of all series together or of each alone.

Shape letters: S series, C channels, P past-only and F known-future covariates.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from tsattn.data.columns import match_ids
from tsattn.data.frequency import seconds
from tsattn.data.mapped.mapped_series import MappedSeries
from tsattn.data.moments import first_rows, is_before, moments, panel_moments
from tsattn.data.panel import Panel
from tsattn.data.quiet import quiet
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
from tsattn.scaler import Scaler, SeriesTransform, TargetTransform

__all__ = [
    "fit_scaler",
    "known_units",
    "scaled_ahead",
    "scaled_series",
    "series_units",
    "target_scaler",
    "with_new_series",
]

logger = logging.getLogger("tsattn")


def fit_scaler(
    panel: Panel, splits: Sequence[Split], scaling: str, transform: Mapping[str, Any] | None = None
) -> Scaler:
    """How series and covariates are scaled, from the training rows alone.

    A series without a training value has no scale of its own: it takes the one of all series, which is logged.

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
    covariates = [part for part in (panel.past_covariates, panel.future_covariates) if part is not None]
    if covariates:
        names = (*panel.past_names, *panel.future_names)
        parts = zip(*(first_rows(panel, part, ends) for part in covariates), strict=True)
        mean, scale = moments((np.concatenate(one, axis=1) for one in parts), names)
        if panel.covariate_categories:  # numbers of categories stay what they are
            is_number = [name not in panel.covariate_categories for name in names]
            mean = tuple(one if kept else 0.0 for one, kept in zip(mean, is_number, strict=True))
            scale = tuple(one if kept else 1.0 for one, kept in zip(scale, is_number, strict=True))
        scaler = replace(scaler, covariate_mean=mean, covariate_scale=scale)
    return scaler


def _fit_targets(panel: Panel, ends: NDArray[np.int64], scaling: str) -> Scaler:
    """How the values of a panel are scaled, whatever they are."""
    mean, scale = moments(first_rows(panel, panel.values, ends), panel.channels)
    return target_scaler(panel.ids, mean, scale, panel_moments(panel, ends) if scaling == "series" else None)


def _fit_transformed(panel: Panel, ends: NDArray[np.int64], original: Scaler, transform: Mapping[str, Any]) -> Scaler:
    """How targets are transformed and then scaled, where `original` scales them as they are."""
    kind = transform["kind"]
    check_domain(panel, kind)
    lambdas, own = fit_lambdas(panel, is_before(ends, panel), transform, each=original.scaling == "series")
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
    with quiet():  # what is to be said of the series is said of the values
        each = np.broadcast_to(lambdas, (len(panel), len(lambdas))) if own is None else own
        scaler = _fit_targets(transformed_panel(panel, kind, each), ends, original.scaling)
    return replace(scaler, transform=fitted)


def target_scaler(
    ids: tuple[Any, ...],
    mean: tuple[float, ...],
    scale: tuple[float, ...],
    own: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
) -> Scaler:
    """How the targets are scaled; where there are covariates, theirs is to be added.

    Args:
        ids: the S series.
        mean: C means of all series.
        scale: C standard deviations.
        own: what `series_moments` gives, two `(S, C)`, if each series has a scale of its own. One without a
            training value takes that of all series, which is logged.
    """
    if own is None:
        return Scaler(mean, scale)
    without = np.isnan(own[0])
    if without.any():
        logger.warning(
            "%d of %d series have no training value in some channel; these channels take the scale of all series",
            without.any(axis=1).sum(),
            len(ids),
        )
    means, scales = np.where(without, mean, own[0]), np.where(without, scale, own[1])
    return Scaler(mean, scale, "series", ids, _plain(means), _plain(scales))


def series_units(
    panel: Panel, scaler: Scaler, history: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and scale of each series of a panel, two `(S, C)`, as the scaler says; nothing known is fitted again.

    A series that was not trained on, where each has a scale of its own, takes that of its first rows.

    Args:
        panel: the series.
        scaler: of the training part.
        history: `(S,)` how many first rows these are, all before those that are forecast; by default all rows.
    """

    return known_units(panel.ids, scaler, lambda: panel_moments(panel, history))


def known_units(
    ids: tuple[Any, ...], scaler: Scaler, fit: Callable[[], tuple[NDArray[np.float64], NDArray[np.float64]]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and scale of the series of these ids, two `(S, C)`, as the scaler says.

    Ids that are numbers here and text there are the same, see `match_ids`; this is logged. `fit` gives what
    `series_moments` says of their history; it is called if a series was not trained on.
    """
    shape = len(ids), len(scaler.mean)
    mean, scale = np.broadcast_to(scaler.mean, shape), np.broadcast_to(scaler.scale, shape)
    if scaler.scaling != "series":
        return mean, scale
    known, numbers = match_ids(ids, scaler.ids), _known_numbers(ids, scaler)
    renamed = next((name for name in ids if known.get(name, name) != name), None)
    if renamed is not None:
        what = renamed, known[renamed]
        logger.warning("the ids are not those trained on, but their text is: %r is taken for %r", *what)
    is_new = numbers < 0
    saved = np.asarray(scaler.series_mean)[numbers], np.asarray(scaler.series_scale)[numbers]
    if not is_new.any():
        return saved
    own, spread = fit()
    texts = {str(name) for name in scaler.ids}
    alike = sum(str(name) in texts for name, new in zip(ids, is_new.tolist(), strict=True) if new)
    logger.warning(
        "%d of %d series not trained on; each is scaled by the rows given of it%s",
        *(is_new.sum(), len(ids)),
        f" (the ids of {alike} were trained on as numbers, or as text)" if alike else "",
    )
    own, spread = np.where(np.isnan(own), mean, own), np.where(np.isnan(own), scale, spread)
    return np.where(is_new[:, None], own, saved[0]), np.where(is_new[:, None], spread, saved[1])


def _known_numbers(ids: tuple[Any, ...], scaler: Scaler) -> NDArray[np.int64]:
    """`(S,)` the place of each id among those that were trained on, -1 of a new one."""
    place = {name: number for number, name in enumerate(scaler.ids)}
    known = match_ids(ids, scaler.ids)
    return np.array([place[known[name]] if name in known else -1 for name in ids])


def scaled_series(panel: Panel, scaler: Scaler, history: NDArray[np.int64] | None = None) -> Series:
    """A panel as tensors, ``(value - mean) / scale``; see `series_units` for `history`.

    Of a panel that lies in files no row is read: windows are scaled when they are cut, see `MappedSeries`.

    A missing value is imputed for the model's input by the last observed one of its series (so nothing is seen ahead
    of its time), at the very start by the mean; the mask of observed values keeps it out of loss and metrics.

    Targets that the scaler transforms are, and lie then on the scale of the transformed values.

    Raises:
        UserError: for a value so large that nothing could be computed with it, naming series and time stamp, or one
            that the transform does not take.
    """
    transform = _transform_of(panel, scaler, history)
    given = panel
    if transform is not None:
        panel = transformed_panel(panel, transform.kind, transform.lambdas)
    mean, scale = series_units(panel, scaler, history)
    past = len(panel.past_names)
    past_units, future_units = _covariate_units(scaler, slice(None, past)), _covariate_units(scaler, slice(past, None))
    weights = None if history is None else panel.weights
    weight = None if weights is None or history is None else mean_weight(panel, history)
    if not panel.is_mapped or history is not None:  # a fit looks at all rows of a file anyway
        _warn_of_rounding(panel, mean, scaler)
    if panel.is_mapped:
        return MappedSeries(panel, mean, scale, past_units, future_units, transform, weight, given.values)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = panel.values - _each_row(mean, panel)
        scaled /= _each_row(scale, panel)
    missing = np.isnan(panel.values)
    _check_magnitude(scaled, scale, missing, given)
    return Series(
        values=_imputed(scaled, panel),
        observed=_observed(missing),
        time=torch.from_numpy(seconds(panel.time)),
        starts=torch.from_numpy(panel.starts),
        mean=torch.from_numpy(np.array(mean, dtype=np.float64)),
        scale=torch.from_numpy(np.array(scale, dtype=np.float64)),
        past_covariates=_covariates("past_covariates", past_units, panel),
        future_covariates=_covariates("future_covariates", future_units, panel),
        past_covariates_observed=_covariates_observed(panel.past_covariates),
        future_covariates_observed=_covariates_observed(panel.future_covariates),
        static=None if panel.static is None else torch.from_numpy(panel.static),
        transform=transform,
        weights=None if weights is None or weight is None else torch.from_numpy((weights / weight).astype(np.float32)),
        past_covariate_scale=None if panel.past_covariates is None else torch.from_numpy(past_units[1]),
        future_covariate_scale=None if panel.future_covariates is None else torch.from_numpy(future_units[1]),
        original=given.values,
    )


def with_new_series(scaler: Scaler, panel: Panel, history: NDArray[np.int64]) -> Scaler:
    """A scaler that knows the series of a panel, too: new ones on the scale that `scaled_series` gives them.

    Args:
        scaler: of the series that were trained on.
        panel: with new series, or without.
        history: `(S,)` how many first rows of each the scale of a new one is taken from.
    """
    new = np.flatnonzero(_known_numbers(panel.ids, scaler) < 0)
    if scaler.scaling != "series" or not len(new):
        return scaler

    def added(known: tuple[tuple[float, ...], ...], table: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
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
    with quiet():  # what is new now is not new any more
        mean, scale = series_units(panel, scaler, history)
    return replace(
        scaler,
        ids=(*scaler.ids, *(panel.ids[number] for number in new)),
        series_mean=added(scaler.series_mean, mean),
        series_scale=added(scaler.series_scale, scale),
        transform=fitted,
    )


def _transform_of(panel: Panel, scaler: Scaler, history: NDArray[np.int64] | None) -> SeriesTransform | None:
    """The transform of the series of a panel: of one that was not trained on, that of all."""
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
    with quiet():  # the same is said of the transformed values
        mean, scale = series_units(panel, original, history)
    return SeriesTransform(fitted.kind, lambdas, mean, scale)


def _check_magnitude(
    scaled: NDArray[np.float64], scale: NDArray[np.float64], missing: NDArray[np.bool_], panel: Panel
) -> None:
    """Refuse values `(rows, C)` whose squares single precision cannot add up, or whose variance double cannot hold.

    A value that is far from all training rows is logged.
    """
    is_bad = ~(np.abs(scaled) < LARGEST) & ~missing
    is_bad |= ~np.isfinite(_each_row(scale, panel)) & ~missing
    if not is_bad.any():
        warn_of_far(scaled, _each_row(scale, panel), lambda place: cell_words(panel, "values", place))
        return
    row, channel = divmod(int(np.where(is_bad, np.abs(panel.values), -np.inf).argmax()), is_bad.shape[1])
    raise UserError(f"{cell_words(panel, 'values', (row, channel))}, too far from the rest to compute with; {EMPTY_IT}")


def _warn_of_rounding(panel: Panel, mean: NDArray[np.float64], scaler: Scaler) -> None:
    """Say which series and covariates are lost beside a value that makes their scale, and which value that is."""
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
            *(
                len(lost),
                len(names),
                listed([names[number] for number in lost.tolist()]),
                cell_words(panel, "values", (row, channel)),
            ),
            *(EMPTY_IT, ", or give each series its own scale (scaling: series)" if is_shared else ""),
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
        lost = blurred_columns(part, np.tile(center, (len(panel), 1)), panel.starts, together=True)[0]
        for place in np.flatnonzero(lost).tolist():
            row, covariate = farthest_row(part[:, place], center[place]), shown(names[place])
            logger.warning(
                "covariate %s changes by less than single precision tells apart: it%s; %s",
                *(covariate, cell_words(panel, name, (row, place)).removeprefix(f"covariate {covariate}"), EMPTY_IT),
            )


def _each_row(units: NDArray[np.float64], panel: Panel) -> NDArray[np.float64]:
    """Of `(S, C)` what belongs to each row, `(rows, C)`; of one series `(1, C)`, which broadcasts."""
    return units if len(panel) == 1 else units.repeat(panel.lengths, axis=0)


def scaled_ahead(ahead: NDArray[np.float64] | None, scaler: Scaler, panel: Panel) -> torch.Tensor | None:
    """Covariates after the end of a panel, `(S, T, F)`, as a float32 tensor on their scale; NaN stays NaN."""
    if ahead is None:
        return None
    mean, scale = _covariate_units(scaler, slice(-ahead.shape[-1], None))
    scaled = (ahead - mean) / scale

    def words(place: tuple[int, ...]) -> str:
        series, step, column = place
        of = "the series" if panel.is_wide else f"series {shown(panel.ids[series])}"
        return f"covariate {shown(panel.future_names[column])} is {ahead[place]:g} in step {step + 1} after {of}"

    warn_of_far(scaled, scale, words)
    with np.errstate(over="ignore"):
        return torch.from_numpy(scaled.astype(np.float32))


def _observed(missing: NDArray[np.bool_]) -> torch.Tensor | None:
    """Which numbers are not missing, None where none is."""
    return torch.from_numpy(~missing) if missing.any() else None


def _covariates_observed(part: NDArray[np.float64] | None) -> torch.Tensor | None:
    return None if part is None else _observed(np.isnan(part))


def _covariate_units(scaler: Scaler, part: slice) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.asarray(scaler.covariate_mean[part]), np.asarray(scaler.covariate_scale[part])


def _covariates(name: str, units: tuple[NDArray[np.float64], NDArray[np.float64]], panel: Panel) -> torch.Tensor | None:
    part = getattr(panel, name)
    if part is None:
        return None
    scaled = (part - units[0]) / units[1]
    warn_of_far(scaled, units[1], lambda place: cell_words(panel, name, place))
    return _imputed(scaled, panel)


def _imputed(scaled: NDArray[np.float64], panel: Panel) -> torch.Tensor:
    """float32, each missing number replaced by the last known one of its series, else by 0."""
    if np.isnan(scaled).any():
        frame = pd.DataFrame(scaled)
        filled = frame.groupby(np.arange(len(panel)).repeat(panel.lengths)).ffill() if len(panel) > 1 else frame.ffill()
        scaled = filled.fillna(0.0).to_numpy()
    # frames are laid out by column; a window is one run of memory only where rows are
    return torch.from_numpy(np.array(scaled, dtype=np.float32, order="C"))


def _plain(table: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in table.tolist())
