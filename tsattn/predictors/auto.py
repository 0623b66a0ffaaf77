"""The default predictor: a mean of simple, pretrained and trained members, with shares that the fit finds.

Shape letters: B windows, T horizon, C channels, Q quantiles, M members.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.data.splits import Split
from tsattn.data.windows import OrderedBatches, spread
from tsattn.descriptions import DEFAULT_BACKBONE
from tsattn.errors import UserError, number_of, quiet
from tsattn.predictors import build_predictor
from tsattn.predictors.base import Predictor, last_context
from tsattn.predictors.ensemble import Ensemble
from tsattn.scaler import Units
from tsattn.task import MEDIAN, Output, Task
from tsattn.training.execution import Execution

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training

PRIORS = (1.0, 0.25, 0.1, 1.0)
"""Relative shares of tiny, ridge, seasonal naive and the network at equal errors, not yet divided by their sum."""
POWER = 4
"""Power of the ratio of errors, by which a share falls."""
_LEAST = 0.02  # smallest share that is worth the time of its forecasts
_NETWORK_WINDOWS = 700  # training windows from which on there is a network
_MOST_WINDOWS, _FEWEST_WINDOWS = 256, 8  # windows that choose: at most, for one channel; at least, for many
_MOST_GIVEN, _NUMBERS = 2048, 2**27  # windows that choose among given members, and numbers of their forecasts
_WIDEST = 3.0  # most times the width of the intervals that members forecast


class Auto(Ensemble):
    """The mean of `tiny`, a ridge, seasonal naive and a small network, each by a share that its errors decide.

    `fit` measures the median of each member on validation windows. Shares fall with the fourth power of the mean
    absolute error. At equal errors, a ridge has a quarter of the share of `tiny` or the network, naive a tenth.
    Below 700 training windows there is no network, unless there are covariates, which the network alone uses. Without
    validation rows, members that need no fit forecast the last third of the training rows, and the others count as the
    best of them.

    The mean interval of the members lies around the mean of all medians. It is widened if it held fewer of the
    validation targets than it claims.

    Args:
        members: descriptions of other members, as of an ensemble. All are fitted, and have equal shares at equal
            errors. `val_windows` of the validation windows choose, 2048 at most.
        seeds: how often a trained member is trained, see `Ensemble`.
        context_length: past steps that `tiny` reads; its longest by default. For the default members only.
    """

    def __init__(
        self, *, members: Sequence[Any] | None = None, seeds: int = 1, context_length: int | None = None
    ) -> None:
        if members is not None and context_length is not None:
            raise UserError("auto takes context_length or members, not both: give each member its context_length")
        tiny = {"kind": "tiny", "context_length": context_length}
        default = [tiny, "ridge", "seasonal_naive", DEFAULT_BACKBONE]
        super().__init__(members=default if members is None else members, seeds=seeds)
        given = None if members is None else self.arguments["members"]
        self.arguments = {"members": given, "seeds": seeds, "context_length": context_length}
        self.needs_fit, self.width = True, 1.0
        self.is_default = self.reads_short = members is None
        self.emits_quantiles = any(copy.emits_quantiles for copy in self._all)
        self.priors = PRIORS if self.is_default else (1.0,) * len(self.described)

    @override
    def with_context(self, context_length: int) -> Predictor:
        if not self.is_default:
            return super().with_context(context_length)
        return type(self)(seeds=self.seeds, context_length=self.arguments["context_length"] or context_length)

    check_output = Predictor.check_output

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        try:
            build_predictor("tiny").check_output(output)
        except UserError:  # levels that it does not forecast
            if self.is_default:
                self._take([0.0, 1.0, 1.0, 1.0])
        with quiet(self.is_default):  # the network reads the covariates that others leave unread
            super().build(task, output, empty=empty)
        self.reads_short = self.is_default or self.reads_short

    @override
    def get_extra_state(self) -> Tensor:
        is_empty = any(part.is_meta for part in (*self.parameters(), *self.buffers()))
        return torch.tensor([*self.weights, self.width], dtype=torch.float64, device="meta" if is_empty else None)

    @override
    def set_extra_state(self, state: Tensor) -> None:
        *weights, width = state.tolist()
        self._take(weights, width)

    def _take(self, weights: Sequence[float], width: float = 1.0) -> None:
        """Take shares, and drop the members without a share: no state of them is kept."""
        self.weights, self.width = [*weights], width
        for number in (number for number, weight in enumerate(weights) if not weight):
            self.members[number] = nn.ModuleList()

    @property
    def shares(self) -> dict[str, float]:
        """Share of each member by its kind, the largest first."""
        pairs = zip(self._kinds, self.weights, strict=True)
        return {kind: weight for kind, weight in sorted(pairs, key=lambda pair: -pair[1]) if weight}

    @property
    def _kinds(self) -> list[str]:
        kinds = [member.predictor["kind"] for member in self.described]
        return [one if kinds.count(one) == 1 else f"{one} {kinds[:i].count(one) + 1}" for i, one in enumerate(kinds)]

    @property
    def _taken(self) -> list[list[Predictor]]:
        """The trainings of each member that has a share."""
        return [copies for copies in self._copies if copies]

    def _first_shares(self, data: ForecastDataModule, training: Training) -> tuple[list[float], float]:
        """Return the shares and the width before the fit: of an earlier fit, or by what the data are enough for."""
        if (known := training.choices.get(training.member)) is not None:
            return [known["shares"].get(kind, 0.0) for kind in self._kinds], known["width"]
        if not self.is_default:
            return self.weights, self.width
        task, has_rows = data.contents[1], len(data.windows("train")) >= _NETWORK_WINDOWS
        tiny, reads = len(self._copies[0]), task.past_covariates or task.future_covariates or task.static
        return [float(tiny), 1.0, 1.0, float(has_rows or bool(reads) or not tiny)], 1.0

    @override
    def check_fit(self, data: ForecastDataModule, training: Training) -> None:
        shares, _ = self._first_shares(data, training)
        for share, parts in zip(shares, self._parts(data, training), strict=True):
            for copy, own_data, own in parts[:1] if share else ():
                if copy.needs_fit or not self.is_default:
                    copy.check_fit(own_data, own)

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        """Fit the members that the rows are enough for; ``chosen`` has their shares and the width of intervals."""
        self._take(*self._first_shares(data, training))
        quietly = replace(training, say=lambda line: None)  # one line names the chosen members
        facts = super().fit(data, quietly if self.is_default else training)
        return facts if training.member in training.choices else {**facts, **self._choose(data, training)}

    @override
    def forward(self, batch: Batch) -> Tensor:
        return self._mixed(self._forecasts(batch))

    def _forecasts(self, batch: Batch) -> Tensor:
        """Return the forecasts of all members that have a share, `(M, B, T, C)` or `(M, B, T, C, Q)`."""
        batch, levels = last_context(batch, self.context_length), len(self.output.quantiles)
        made = []
        for copies in self._taken:
            mean = reduce(add, (copy(batch).to(batch.past.dtype) for copy in copies)) / len(copies)
            is_whole = copies[0].emits_quantiles or not levels
            made.append(mean if is_whole else mean[..., None].expand(*mean.shape, levels))
        return torch.stack(made)

    def _mixed(self, parts: Tensor) -> Tensor:
        weights, middle = [weight for weight in self.weights if weight], self.output.median

        def total(of: Tensor, shares: Sequence[float]) -> Tensor:
            return reduce(add, (part * share for part, share in zip(of.unbind(), shares, strict=True)))

        if middle is None:
            return total(parts, weights)
        medians = parts[..., middle, None]
        emitting = [weight * one.emits_quantiles for weight, (one, *_) in zip(weights, self._taken, strict=True)]
        scale = self.width / math.fsum(emitting)
        return total(medians, weights) + total(parts - medians, [scale * weight for weight in emitting])

    def _choose(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        from tsattn.evaluation.selection import selection_metric
        from tsattn.training.losses import choose_loss

        levels, options, rolls = self.output.quantiles, training.options, "val" not in data.parts
        held, units = self._held_out(data, training), data.series.units
        firsts = [first for first, *_ in self._taken]
        alone = [[(batch, parts[number]) for batch, parts in held] for number in range(len(firsts))]
        errors = [self._scores(made, units)["mae_scaled"] for made in alone]
        if rolls:  # a member has no error to compare among the rows that it was fitted to
            errors = [math.nan if one.needs_fit else error for one, error in zip(firsts, errors, strict=True)]
        places = [place for place, copies in enumerate(self._copies) if copies]
        shares = shares_of(errors, [self.priors[place] for place in places])
        # intervals need a member that has some
        emitting = [share for share, one in zip(shares, firsts, strict=True) if one.emits_quantiles and levels]
        least = min(_LEAST, max(shares), max(emitting, default=1.0))
        kept = [number for number, share in enumerate(shares) if share >= least]
        sums = math.fsum(shares[number] for number in kept)
        weights = {places[number]: shares[number] / sums for number in kept}
        self._take([weights.get(place, 0.0) for place in range(len(self.members))])
        held = [(batch, parts[kept]) for batch, parts in held]
        if levels:
            self.width = _width([(batch, self._mixed(parts)) for batch, parts in held], levels)
        windows = sum(  # with a known target
            len(batch) if (known := batch.target_observed) is None else int(known.flatten(1).any(1).sum())
            for batch, _ in held
        )
        by = f"by {number_of(windows, 'rolling origin' if rolls else 'validation window')}"
        by = "as no rows are held out" if rolls and all(one.needs_fit for one in firsts) else by
        shown = ", ".join(f"{100 * share:.0f} % {kind}" for kind, share in self.shares.items())
        training.say(f"{self.name}: {shown}, {by}")
        chosen = {"chosen": {"shares": self.shares, "width": self.width}}
        if rolls or not self.is_default:
            return chosen
        metric = selection_metric(choose_loss(options.get("loss"), levels), levels, options.get("selection"))
        error = self._scores([(batch, self._mixed(parts)) for batch, parts in held], units)[metric]
        return {**chosen, "validation_error": error, "selected_by": metric, "validation_windows": windows}

    def _held_out(self, data: ForecastDataModule, training: Training) -> list[tuple[Batch, Tensor]]:
        """Forecast validation windows by each member, or else windows in the last third of the training rows."""
        if "val" not in data.parts:
            T = data.prediction_length
            data = data.with_splits(
                lambda one: Split(max(0, one.train_end - max(T, one.train_end // 3)), one.train_end, one.test_end),
                ("train", "val"),
            )
        try:
            windows, channels = data.windows("val", **self.cut), self.task.num_channels
        except UserError:  # there may be too few rows for a window
            return []
        few = max(_FEWEST_WINDOWS, _MOST_WINDOWS // channels)  # tiny takes its time
        numbers_each = len(self._taken) * data.prediction_length * channels * max(1, len(self.output.quantiles))
        given = min(_MOST_GIVEN, data.num_scored(len(windows)), max(_FEWEST_WINDOWS, _NUMBERS // numbers_each))
        numbers = OrderedBatches(spread(len(windows), few if self.is_default else given), data.eval_batch_size)
        forecast = self.on(Execution(training.trainer), self._forecasts)
        return [(batch, forecast(batch)) for batch in map(windows.__getitems__, numbers)]

    def _scores(self, made: Sequence[tuple[Batch, Tensor]], units: Units) -> dict[str, float]:
        """Score forecasts as a validation does; NaN without any."""
        from tsattn.evaluation.reductions import ErrorTotals

        totals = ErrorTotals(self.task.num_channels, self.output.quantiles)
        for batch, forecast in made:
            found, known = (units.standardised(part, batch.series_id) for part in (forecast, batch.known_target))
            totals.update(found, known, batch.target_observed, units.of(batch.series_id))
        return totals.scores()


def _width(made: Sequence[tuple[Batch, Tensor]], levels: Sequence[float]) -> float:
    """Return the factor, 1 to 3, by which the outermost interval must widen to hold its share."""
    middle, reached = levels.index(MEDIAN), [torch.ones(0)]
    for batch, forecast in made:
        error = batch.known_target - forecast[..., middle]
        side = torch.where(error > 0, forecast[..., -1], forecast[..., 0]) - forecast[..., middle]
        times = error.abs() / side.abs().clamp(min=1e-9)
        reached.append(times.flatten() if batch.target_observed is None else times[batch.target_observed])
    found = torch.cat(reached).double().numpy()
    return float(np.clip(np.quantile(found, levels[-1] - levels[0]), 1.0, _WIDEST)) if len(found) else 1.0


def shares_of(errors: Sequence[float], priors: Sequence[float]) -> list[float]:
    """Return shares that sum to one and fall with errors, by `POWER`; an unknown error counts as the lowest."""
    least = min((error for error in errors if error > 0), default=1.0)
    pairs = zip(priors, errors, strict=True)
    found = [prior * (least / error if error > least else 1.0) ** POWER for prior, error in pairs]
    return [one / math.fsum(found) for one in found]
