"""Split-conformal calibration: intervals moved so that they hold the share of targets that they claim.

A score says by how much a target lies outside an interval of the predictor; it is below 0 inside. For quantiles it
follows conformalised quantile regression (Romano, Patterson & Candes 2019); for a point forecast it is the absolute
error (Lei et al. 2018). Widen an interval by the ``ceil((n + 1) a)``-th smallest of n scores: it then holds a new
target with a probability of at least a. This is true of any predictor, if the new window is exchangeable with those n.

Shape letters: B windows, T horizon, C channels, Q quantile levels, P intervals, G groups of series, N scores.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.data.columns import match_ids
from tsattn.data.splits import Split
from tsattn.data.windows import OrderedBatches, spread
from tsattn.descriptions import typed
from tsattn.errors import UserError, is_number, number_of, shown
from tsattn.predictors.base import AnyHorizon, Predictor
from tsattn.scaler import SeriesId
from tsattn.task import MEDIAN, Output, calibration_share, rounded_level

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Execution

Interval: TypeAlias = tuple[float | None, float | None]  # levels of the lower and upper bound; None is no bound
POINT: Interval = (MEDIAN, MEDIAN)  # of a point forecast
OWN_WINDOWS = 100  # validation windows from which on a series has its own scores: they allow all levels up to 99
_MOST_WINDOWS = 1000  # of a group; neighbours are similar, so more of them add little
_NUMBERS = 1 << 24  # most scores that are kept, apart from `OWN_WINDOWS`, which are always kept
_DIGITS = 9  # of a share
_USUAL: Interval = (0.1, 0.9)  # an interval that users ask of a point forecast, too
_TYPES = {"intervals": tuple[tuple[float | None, ...], ...], "ids": tuple[SeriesId, ...], "values": Tensor}


def levels_of(level: Any) -> tuple[float, ...]:
    """Return the quantile levels of central intervals that hold these percentages, ``[80, 95]``, and the median."""
    bounds = {MEDIAN}
    for percent in level if isinstance(level, Iterable) and not isinstance(level, str) else [level]:
        if not is_number(percent) or not 0 < float(percent) < 100:
            raise UserError(f"level must be percent between 0 and 100, such as [80, 95], not {shown(repr(percent))}")
        tail = (100 - float(percent)) / 200
        bounds |= {rounded_level(tail), rounded_level(1 - tail)}
    if len(bounds) == 1:
        raise UserError("level must be percent, such as [80, 95], not an empty list")
    return tuple(sorted(bounds))


def intervals_of(levels: Sequence[float]) -> list[Interval]:
    """Return the intervals that levels bound, widest first; without a central interval the point ``(0.5, 0.5)``."""
    from tsattn.evaluation.window_errors import central_intervals  # a first forecast needs no scores

    pairs: list[Interval] = [(levels[low], levels[high]) for _, low, high in central_intervals(levels)]
    paired = {MEDIAN, *itertools.chain(*pairs)}
    alone = [level for level in levels if level not in paired]
    open_ones: list[Interval] = [(None, level) if level > MEDIAN else (level, None) for level in alone]
    return [*(pairs or [POINT]), *open_ones]


def coverage(interval: Interval) -> float:
    """Return the share of targets that an interval should hold."""
    low, high = interval
    return round((1.0 if high is None else high) - (0.0 if low is None else low), _DIGITS)


def needed_scores(interval: Interval) -> int:
    """Return the fewest scores that an interval needs: with fewer, no finite interval holds its share."""
    share = coverage(interval)
    return math.ceil(round(share / (1 - share), _DIGITS))


def highest_level(num_scores: int) -> float:
    """Return the percentage of the widest interval that so many scores allow, rounded down to a tenth."""
    return math.floor(round(1000 * num_scores / (num_scores + 1), _DIGITS)) / 10


@dataclass(frozen=True, eq=False)
class ConformalScores:
    """Scores of windows that a predictor was not trained on, on the scale of the series."""

    intervals: tuple[Interval, ...]  # P, of the predictor
    ids: tuple[Any, ...]  # of the G - 1 series that have scores of their own
    values: Tensor  # (P, G, T, C, N) float32, rising along N and NaN after the last; the first group is of all series

    @classmethod
    def of(cls, intervals: Sequence[Interval], ids: Sequence[Any], groups: Sequence[Tensor]) -> Self:
        """Sort G groups of scores, each `(n, P, T, C)`, NaN where a target is missing."""
        values = pad_sequence([*groups], batch_first=True, padding_value=torch.nan).float()
        rising = values.permute(2, 0, 3, 4, 1).sort(-1).values  # sorting puts NaN last
        return cls(tuple(intervals), tuple(ids), rising.contiguous())

    @property
    def counts(self) -> Tensor:
        """`(G, T, C)` numbers of scores."""
        return (~self.values[0].isnan()).sum(-1)

    @property
    def facts(self) -> dict[str, Any]:
        """How many windows there are, the fewest observed targets of a step, and what level these allow."""
        most, least = int(self.counts[0].max()), int(self.counts[0].min())
        levels = {"windows": most, "least_observed": least, "highest_level": highest_level(least)}
        return {**levels, "series_of_their_own": len(self.ids)}

    def groups(self, ids: Sequence[Any]) -> Tensor:
        """Return the group of each series, `(S,)` int64: its own, or the first."""
        number = {name: group for group, name in enumerate(self.ids, 1)}
        own = match_ids(ids, self.ids)
        return torch.tensor([number[own[name]] if name in own else 0 for name in ids])

    def base(self, interval: Interval) -> int:
        """Return the number of the predictor's interval that is widened for another: the nearest in coverage."""
        if interval in self.intervals:
            return self.intervals.index(interval)
        central = [number for number, one in enumerate(self.intervals) if None not in one]
        return min(central, key=lambda number: abs(coverage(self.intervals[number]) - coverage(interval)))

    def widening(self, interval: Interval, channels: Sequence[str]) -> Tensor:
        """Return how far bounds move, `(G, T, C)`, above 0 outwards; a series with too few scores takes group 0's."""
        counts, share = self.counts, coverage(interval)
        rank = ((counts + 1).double() * share).round(decimals=_DIGITS).ceil().long()
        lacks = rank > counts
        if bool(lacks[0].any()):
            least = int(counts[0].min())
            step, channel = (counts[0] == least).nonzero()[0].tolist()
            raise UserError(
                f"level {100 * share:g} needs {number_of(needed_scores(interval), 'validation window')}, but "
                f"{shown(channels[channel])}, step {step + 1}, has {least}: ask for at most "
                f"{highest_level(least):g}, or hold out more rows for validation (rolling origins: longer series)"
            )
        places = (rank - 1).clamp(min=0, max=self.values.shape[-1] - 1)
        found = self.values[self.base(interval)].gather(-1, places[..., None])[..., 0]
        return found.where(~lacks, found[:1])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data and a tensor."""
        return {"intervals": [list(one) for one in self.intervals], "ids": list(self.ids), "values": self.values}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Invert `to_dict`; raise a TypeError for other fields, a ValueError for values of another type or shape."""
        fields = typed(saved, _TYPES, "conformal")
        shape, values = (len(fields["intervals"]), len(fields["ids"]) + 1), fields["values"]
        if values.dim() != 5 or values.shape[:2] != shape:
            raise ValueError("the scores are not those of their intervals and series")
        return cls(**fields)


def scores_of(forecast: Tensor, target: Tensor, observed: Tensor | None, levels: Sequence[float]) -> Tensor:
    """Return how far targets lie outside their intervals, `(B, P, T, C)`, NaN where not observed."""
    quantiles = dict(zip(levels or (MEDIAN,), (forecast if levels else forecast[..., None]).unbind(-1), strict=True))
    parts = []
    for interval in intervals_of(levels):
        bounds = [(sign, level) for sign, level in zip((-1, 1), interval, strict=True) if level is not None]
        outside = [sign * (target - quantiles[level]) for sign, level in bounds]
        parts.append(torch.stack(outside).amax(0))
    scores = torch.stack(parts, 1)
    return scores if observed is None else scores.masked_fill(~observed[:, None], torch.nan)


class Calibrated(AnyHorizon):
    """Quantiles of a fitted predictor, also of a point predictor, moved by conformal scores.

    The median, one of the levels, stays. Bounds never cross it, and wider levels have wider intervals. Steps beyond the
    fitted horizon take the scores of the last step. The ids are the series that `Batch.series_id` numbers.
    """

    emits_quantiles = True

    def __init__(
        self, predictor: Predictor, scores: ConformalScores, levels: Sequence[float], ids: Sequence[Any]
    ) -> None:
        super().__init__()
        self.predictor, self.output = predictor, Output(tuple(levels))
        self._scores, asked = scores, [interval for interval in intervals_of(levels) if interval != POINT]
        self._moves = [(interval, scores.widening(interval, self.task.channels)) for interval in asked]
        self._groups = scores.groups(ids)

    @override
    def on(self, execution: Execution, forecast: Callable[[Batch], Tensor] | None = None) -> Callable[[Batch], Tensor]:
        return self.predictor.on(execution, forecast or self)

    @override
    def forecast_to(self, batch: Batch, horizon: int) -> Tensor:
        forecast = self.predictor.forecast_to(batch, horizon)
        forecast = forecast.to(torch.promote_types(forecast.dtype, torch.float32))
        own, levels = self.predictor.output.quantiles, self.output.quantiles
        quantiles = dict(zip(own or (MEDIAN,), (forecast if own else forecast[..., None]).unbind(-1), strict=True))
        middle, bounds = levels.index(MEDIAN), [quantiles[MEDIAN]] * len(levels)
        groups = self._groups[:1] if batch.series_id is None else self._groups[batch.series_id.to("cpu")]
        for interval, move in self._moves:
            steps = torch.arange(forecast.shape[1]).clamp(max=move.shape[1] - 1)
            moved = move[groups][:, steps].to(forecast)
            widened = self._scores.intervals[self._scores.base(interval)]
            for wanted, base, sign in zip(interval, widened, (-1, 1), strict=True):
                if wanted is not None and base is not None:
                    bounds[levels.index(wanted)] = quantiles[base] + sign * moved
        above = torch.stack(bounds[middle:], -1).cummax(-1).values
        below = torch.stack(bounds[middle::-1], -1).cummin(-1).values.flip(-1)
        return torch.cat([below, above[..., 1:]], -1)


_KEPT = ("task", "needs_fit", "is_trained", "uses_covariates", "reads_short", "forecasts_counts", "context_length")
for _name in ("description", "name", "title", "label", "pretraining", "seasons", "steps_at_once", "repeated", *_KEPT):
    setattr(Calibrated, _name, property(attrgetter(f"predictor.{_name}")))


def check_calibration(data: ForecastDataModule, output: Output) -> None:
    """Refuse data with too few validation windows to calibrate the quantiles of an output."""
    if "val" not in data.parts:
        raise UserError("calibrate needs validation rows, and no series is long enough: leave calibrate out")
    windows = len(data.windows("val"))
    widest = max(intervals_of(output.quantiles), key=coverage)
    if windows < max(1, needed_scores(widest)):
        raise UserError(
            f"calibrate needs {needed_scores(widest)} validation windows for an interval of {100 * coverage(widest):g} "
            f"%, and there {'is' if windows == 1 else 'are'} {windows}: hold out more rows for validation"
        )


def calibration_parts(
    data: ForecastDataModule, calibrate: bool | float, output: Output
) -> tuple[ForecastDataModule, ForecastDataModule | None]:
    """Return the data to fit to, and the data whose validation windows calibrate; None if nothing is calibrated.

    With too few validation windows, earlier windows calibrate, by a second model: see `fits_before`.
    """
    share = calibration_share(calibrate)
    if share is None:
        return data, None
    if share == 1.0:
        least = needed_scores(max([*intervals_of(output.quantiles), _USUAL], key=coverage))
        if "val" not in data.parts or len(data.windows("val")) < least:
            L, T = data.context_length, data.prediction_length

            def rolling(split: Split) -> Split:
                """Validate on the last third of the rows before the test, or more; train on one window at least."""
                start = split.val_end - max(T + least - 1, round(split.val_end / 3))
                return replace(split, train_end=min(split.train_end, max(start, L + T)))

            earlier = data.with_splits(rolling, ("train", "val"))
            with contextlib.suppress(UserError):
                if len(earlier.windows("val")) >= least:
                    return data, earlier
        check_calibration(data, output)
        return data, data
    try:
        fit_data = data.with_splits(lambda split: split.with_validation(0.0, 1.0 - share))
        held_out = data.with_splits(lambda split: split.with_validation(1.0 - share, 1.0))
        check_calibration(held_out, output)
        fit_data.windows("val")
    except UserError as error:
        raise UserError(f"calibrate {share:g} splits the validation rows in two, but then {error}") from error
    return fit_data, held_out


def fits_before(calibrating: ForecastDataModule, fitted_to: ForecastDataModule) -> bool:
    """Return whether windows that calibrate are training rows of a fit: then a second model is fitted before them.

    Scores of windows that a model was trained on are too small, so its intervals would be too narrow.
    """
    pairs = zip(calibrating.splits, fitted_to.splits, strict=True)
    return any(one.train_end < other.train_end for one, other in pairs)


def conformal_scores(predictor: Predictor, data: ForecastDataModule, execution: Execution) -> ConformalScores:
    """Score evenly thinned validation windows: of all series, and of each series that has `OWN_WINDOWS` of them."""
    levels, intervals = predictor.output.quantiles, intervals_of(predictor.output.quantiles)
    windows = data.windows("val", **predictor.cut)
    counts = [len(rows) for rows in windows.origins]
    own = [number for number, count in enumerate(counts) if count >= OWN_WINDOWS and len(counts) > 1]
    size = len(intervals) * data.prediction_length * predictor.task.num_channels
    most = min(_MOST_WINDOWS, _NUMBERS // (size * (1 + len(own))))
    if most < OWN_WINDOWS:
        own, most = [], min(_MOST_WINDOWS, max(OWN_WINDOWS, _NUMBERS // size))
    starts = np.cumsum([0, *counts])
    chosen = [np.asarray(spread(len(windows), most))]
    chosen += [starts[number] + np.asarray(spread(counts[number], most)) for number in own]
    forecast, parts = predictor.on(execution), []
    for batch in map(windows.__getitems__, OrderedBatches(np.concatenate(chosen), data.eval_batch_size)):
        parts.append(scores_of(forecast(batch).float(), batch.known_target, batch.target_observed, levels))
    groups = torch.split(torch.cat(parts), [len(some) for some in chosen])
    return ConformalScores.of(intervals, [data.contents[0].ids[number] for number in own], groups)
