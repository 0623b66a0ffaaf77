"""Forecasts of the test windows of runs, made from their checkpoints: by step, and some to step through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsattn.batch import Batch
from tsattn.data import ForecastDataModule
from tsattn.data.frequency import is_steps
from tsattn.errors import UserError, shown
from tsattn.evaluation.horizon import error_by_horizon
from tsattn.evaluation.intervals import central_intervals
from tsattn.experiments.fingerprint import fingerprint
from tsattn.experiments.reopened import reopened
from tsattn.leaderboard.run_page.reported_run import ReportedRun
from tsattn.leaderboard.run_page.window_choice import ChosenWindow, choose_windows, spread_windows
from tsattn.predictors import Predictor
from tsattn.scaler import Units

__all__ = ["Forecasts", "RunForecasts", "forecast_runs"]

_VALUES = 20_000_000  # targets that are forecast for the errors by step; of more windows each k-th is
_ROOM = 240_000  # numbers of windows in a page: about 1.5 MB
_HISTORY = 336  # steps before a forecast, unless the horizon is longer


@dataclass(frozen=True)
class RunForecasts:
    """Forecasts of one run.

    Attributes:
        run: the run.
        bands: percents of its central intervals, the widest first.
        by_step: ``mse`` and ``mae`` of each step, `(T,)`, on the scale that is trained on.
        every: 1 where `by_step` is of all windows, k where it is of each k-th.
        windows: for each of the chosen ones ``point``, ``bands`` and ``mse``, in original units.
    """

    run: ReportedRun
    bands: tuple[float, ...]
    by_step: dict[str, NDArray[np.float64]]
    every: int
    windows: list[dict[str, Any]]


@dataclass
class Forecasts:
    """Forecasts of runs on the same windows.

    Attributes:
        part: ``test``, or ``val`` for runs whose test windows were not read.
        runs: those that could be opened.
        windows: plain data of each chosen window, without its forecasts: ``series``, ``word``, ``times``, ``past`` and
            ``truth``.
        series: the names of what the windows are of, and a word for each.
        counts_steps: whether time counts steps.
        are_dates: whether all time stamps are midnights.
    """

    part: str
    runs: list[RunForecasts] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)
    series: list[dict[str, str]] = field(default_factory=list)
    counts_steps: bool = False
    are_dates: bool = False


def forecast_runs(runs: Sequence[ReportedRun]) -> tuple[list[Forecasts], list[str]]:
    """Forecasts by the checkpoints of runs, those of the same test windows together.

    Returns:
        them, and a sentence for each run that has none.
    """
    sets: dict[Any, list[ReportedRun]] = {}
    for run in runs:
        sets.setdefault(run.test_set, []).append(run)
    found, lacking = [], []
    for own in sets.values():
        made = Forecasts("test" if own[0].scores or not own[0].metrics else "val")
        chosen: list[ChosenWindow] | None = None
        for run in own:
            try:
                chosen = _add(made, run, own, chosen, _ROOM // len(sets))
            except UserError as error:
                lacking.append(f"{run.name} has no forecasts here: {error}.")
        if made.runs:
            found.append(made)
    return found, lacking


def _add(
    made: Forecasts, run: ReportedRun, own: Sequence[ReportedRun], chosen: list[ChosenWindow] | None, room: int
) -> list[ChosenWindow]:
    """Add the forecasts of a run, and the windows themselves if they are the first; give the windows."""
    if not run.metrics:
        raise UserError("it is not finished")
    run.folder.check_trained()
    fitted, data, execution = reopened(run.experiment, run.folder.best, "test" if made.part == "test" else "validate")
    _check_same_data(run, data)
    predictor = fitted.predictor
    assert predictor.task is not None
    assert predictor.output is not None
    T, C, levels = predictor.task.prediction_length, predictor.task.num_channels, predictor.output.quantiles
    windows = data.windows(made.part)
    if run.errors is not None and len(run.errors) != len(windows) * C:
        raise UserError(
            f"the data have {len(windows)} {made.part} windows now, and the run scored {len(run.errors) // C}"
        )
    intervals = central_intervals(levels)
    if chosen is None:
        history = _history(T)
        lines = 1 + sum(1 + 2 * one.num_bands for one in own)
        items = max(4, room // (history + T * lines))
        errors = [one.errors for one in own if one.errors is not None]
        chosen = choose_windows(errors, items) if errors else spread_windows(len(windows), C, items)
        if not chosen:
            raise UserError("none of its windows has an observed target")
        _describe(made, data, chosen, history)
    every = max(1, -(-len(windows) * T * C // _VALUES))
    forecast = predictor.on(execution)
    batches = data.eval_dataloader(made.part, predictor.context_length, every, predictor.seasons)
    by_step = error_by_horizon(forecast, batches, quantiles=levels)
    made.runs.append(
        RunForecasts(
            run,
            tuple(percent for percent, _, _ in intervals),
            {name: by_step[name].double().numpy() for name in ("mse", "mae")},
            every,
            _forecast_windows(predictor, forecast, data, made.part, chosen),
        )
    )
    return chosen


def _check_same_data(run: ReportedRun, data: ForecastDataModule) -> None:
    noted = run.versions.get("fingerprint")
    if noted is not None and noted != fingerprint(data):
        raise UserError("its data have changed since it was run")


def _history(T: int) -> int:
    """Steps that are shown before a forecast: two horizons where that is not too many."""
    return max(T, min(2 * T, _HISTORY), 24)


def _describe(made: Forecasts, data: ForecastDataModule, chosen: Sequence[ChosenWindow], history: int) -> None:
    """What the chosen windows are, without their forecasts."""
    task = data.task
    assert task is not None
    units = data.series.units
    found: list[Any] = [None] * len(chosen)
    names: list[str] = [""] * len(chosen)
    are_midnights = True
    for index, row, batch in _cut(data, made.part, chosen, history):
        channel = chosen[index].channel
        assert batch.time is not None
        values = units.restore(batch.past, batch.series_id)[row, :, channel]
        if batch.past_observed is not None:
            values = values.masked_fill(~batch.past_observed[row, :, channel], torch.nan)
        times = batch.time[row].numpy()
        # what is padded has the time of the first row
        is_fine = bool((np.diff(times[history:]) > 0).all())
        skipped = int((times == times[0]).sum()) - 1 if is_fine else 0
        times = times[skipped:]
        are_midnights = are_midnights and bool((times % 86400 == 0).all())
        names[index] = _series_name(data, 0 if batch.series_id is None else int(batch.series_id[row]), channel)
        truth = _truth(batch, units)[row, :, channel]
        past = values[skipped:].numpy()
        found[index] = {"times": _times(times), "past": _plain(past), "truth": _plain(truth)}
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    words = {name: one.about for name, one in zip(names, chosen, strict=True)}
    made.series = [{"name": name, "word": words[name]} for name in numbers]
    made.windows = [
        {"series": numbers[name], "word": one.word, **facts}
        for name, one, facts in zip(names, chosen, found, strict=True)
    ]
    made.counts_steps = is_steps(task.frequency)
    made.are_dates = are_midnights and not made.counts_steps


def _forecast_windows(
    predictor: Predictor,
    forecast: Callable[[Batch], Tensor],
    data: ForecastDataModule,
    part: str,
    chosen: Sequence[ChosenWindow],
) -> list[dict[str, Any]]:
    """The forecasts of the chosen windows, in original units."""
    output = predictor.output
    assert output is not None
    units = data.series.units
    found: list[dict[str, Any]] = [{}] * len(chosen)
    last: Batch | None = None
    for index, row, batch in _cut(data, part, chosen, predictor.context_length, predictor.seasons):
        if batch is not last:
            restored = units.restore(forecast(batch), batch.series_id).numpy()
            truth, last = _truth(batch, units), batch
        channel = chosen[index].channel
        values = restored[row, :, channel]  # (T,) or (T, Q)
        point = values if output.median is None else values[:, output.median]
        intervals = central_intervals(output.quantiles)
        errors = np.square(point - truth[row, :, channel])
        errors = errors[np.isfinite(errors)]
        found[index] = {
            "point": _plain(point),
            "bands": [[_plain(values[:, low]), _plain(values[:, high])] for _, low, high in intervals],
            "mse": float(f"{errors.mean():.5g}") if len(errors) else None,
        }
    return found


def _truth(batch: Batch, units: Units) -> NDArray[np.float64]:
    """The targets in original units `(B, T, C)`, NaN where they are missing."""
    assert batch.target is not None
    truth = units.restore(batch.target, batch.series_id)
    if batch.target_observed is not None:
        truth = truth.masked_fill(~batch.target_observed, torch.nan)
    return truth.numpy()


def _cut(
    data: ForecastDataModule, part: str, chosen: Sequence[ChosenWindow], context: int, seasons: Sequence[int] = ()
) -> Iterator[tuple[int, int, Batch]]:
    """The place of each chosen window, with the batch that holds it and its row there; a batch at a time."""
    windows = data.windows(part, context, seasons)
    places: dict[int, list[int]] = {}
    for index, one in enumerate(chosen):
        places.setdefault(one.window, []).append(index)
    numbers = sorted(places)
    for start in range(0, len(numbers), data.eval_batch_size):
        some = numbers[start : start + data.eval_batch_size]
        batch = windows.__getitems__(some)
        for row, number in enumerate(some):
            for index in places[number]:
                yield index, row, batch


def _series_name(data: ForecastDataModule, number: int, channel: int) -> str:
    panel = data.panel
    assert panel is not None
    if panel.is_wide:
        return str(panel.channels[channel])
    name = shown(panel.ids[number])
    return name if len(panel.channels) == 1 else f"{name}, {panel.channels[channel]}"


def _times(times: NDArray[np.int64]) -> dict[str, Any]:
    """Times of a window: first, step and count where they are even."""
    steps = np.unique(np.diff(times))
    if len(steps) == 1:
        return {"even": [int(times[0]), int(steps[0]), len(times)]}
    return {"each": times.tolist()}


def _plain(values: NDArray[Any]) -> list[float | None]:
    """Numbers of five digits, None for what is missing: more are not seen, and make a page large."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values.tolist()]
