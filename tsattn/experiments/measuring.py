"""Scores of a predictor on all windows of a part of the data, beside baselines, as tables of errors and as text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tsattn.data import ForecastDataModule
from tsattn.data.frequency import is_steps
from tsattn.errors import UserError, number_of, rounded
from tsattn.evaluation import ErrorTable, measure
from tsattn.evaluation.measure import ScoredBatch, seasonal_errors
from tsattn.evaluation.reductions import short_name
from tsattn.predictors import Predictor, build_predictor
from tsattn.predictors.fitted import FittedPredictor, with_levels
from tsattn.task import Output
from tsattn.training import Execution, Training
from tsattn.training.callbacks import DIVERGED

__all__ = ["RIDGE_CONTEXT", "calibrated_on", "extent", "fitted_baselines", "group_table", "labelled", "measured"]
__all__ += ["score_table", "tables_beside_baselines", "title", "verdict"]

RIDGE_CONTEXT = 512
_WORDS = {"val": "validation", "test": "test"}
_SCALED = ("mse_scaled", "mae_scaled", "mase", "crps_scaled")
_DETAILS = ("mse_original", "mae_original", "rmse_original", "crps_original", "smape", "wape", "wql")


def fitted_baselines(data: ForecastDataModule, part: str, training: Training) -> Iterator[tuple[str, Predictor]]:
    """Closed-form ridge, seasonal naive and persistence, by what tables call them, fitted to the training windows.

    They read the series itself, with contexts of their own, whatever the predictor's. The ridge has `RIDGE_CONTEXT`
    steps, fewer only if no series has that many before a window of the part. There is no seasonal naive for a season
    longer than the data.
    """
    assert data.task is not None
    T, season = data.task.prediction_length, data.task.season_length
    bounds = [split.bounds(part) for split in data.splits]
    before = max((start for start, end in bounds if end - start >= T), default=1)  # rows that a context may have
    rows = min(before, max(split.train_end for split in data.splits))
    context = max(1, min(RIDGE_CONTEXT, (rows - T) // 2))
    every = data.thinning("train", context)
    thinned = "" if every == 1 else f", each {every}th window"
    kinds = {f"ridge (context {context}{thinned})": {"kind": "ridge", "context_length": context}}
    if season <= rows:
        kinds[f"seasonal naive ({season} steps)"] = {"kind": "seasonal_naive"}
    kinds["persistence"] = {"kind": "persistence"}
    for name, description in kinds.items():
        predictor = build_predictor(description)
        predictor.build(data.task, Output())
        predictor.fit(data, training)
        yield name, predictor.eval()


def measured(
    predictor: Predictor,
    data: ForecastDataModule,
    part: str,
    execution: Execution,
    path: Path | None = None,
    *,
    by_step: bool = False,
    watch: Callable[[ScoredBatch], None] | None = None,
) -> ErrorTable:
    """The errors of a fitted predictor over all windows of a part, each once; they must be finite.

    A path of a Parquet file takes the rows, where they are too many for memory. `by_step` adds totals by step of the
    horizon. `watch` is given each batch with its forecast.
    """
    panel, task = data.panel, data.task
    assert panel is not None
    assert task is not None
    before = np.array([split.bounds(part)[0] for split in data.splits])
    table = measure(
        predictor.on(execution),
        data.eval_dataloader(part, predictor.context_length, seasons=predictor.seasons),
        units=data.series.units,
        levels=predictor.output.quantiles,
        ids=panel.ids,
        channels=panel.channels,
        path=path,
        seasonal_errors=seasonal_errors(panel, before, task.season_length),
        counts_steps=is_steps(panel.frequency),
        by_step=by_step,
        watch=watch,
        in_units=predictor.in_units,
    )
    if not math.isfinite(table.scores()["mse_scaled"]):
        raise UserError(f"the {part} errors are not finite: {DIVERGED}")
    scored, windows = table.scores()["windows"], len(data.windows(part))
    if scored != windows:
        raise RuntimeError(f"{scored} windows were scored, not all {windows}")
    return table


def tables_beside_baselines(
    predictor: Predictor,
    data: ForecastDataModule,
    part: str,
    execution: Execution,
    path: Path | None = None,
    *,
    folder: Path | None = None,
    by_step: bool = False,
    watch: Callable[[ScoredBatch], None] | None = None,
) -> dict[str, ErrorTable]:
    """The errors of a predictor and of the baselines on the same windows, by name; the arguments are `measured`'s.

    A folder takes all rows, where they are too many for memory.
    """
    path = path if folder is None else folder / "0.parquet"
    tables = {predictor.name: measured(predictor, data, part, execution, path, by_step=by_step, watch=watch)}
    for name, baseline in fitted_baselines(data, part, Training(execution.options, {})):
        if name not in tables:  # persistence may be measured already
            own = None if folder is None else folder / f"{len(tables)}.parquet"
            tables[name] = measured(baseline, data, part, execution, own, by_step=by_step)
    return tables


def calibrated_on(fitted: FittedPredictor, data: ForecastDataModule) -> Predictor:
    """What forecasts the series of data: the predictor, its quantiles calibrated if it has scores for that."""
    assert data.panel is not None
    return with_levels(fitted, data.panel.ids).predictor


def labelled(tables: Mapping[str, ErrorTable], predictor: Predictor) -> dict[str, ErrorTable]:
    """Tables of `tables_beside_baselines`, that of the predictor under its label."""
    return {predictor.label if name == predictor.name else name: table for name, table in tables.items()}


# as text


def title(data: ForecastDataModule, windows: int, part: str = "test") -> str:
    """What a table of scores is about: the data, the horizon, and how many windows were scored."""
    assert data.task is not None
    what = f"{windows} {_WORDS[part]} windows, {extent(data)}"
    return f"{data.task.data}, horizon {data.task.prediction_length}: {what}"


def extent(data: ForecastDataModule) -> str:
    """How many channels of one series, or series, the data hold."""
    panel = data.panel
    assert panel is not None
    return number_of(len(panel.channels), "channel") if panel.is_wide else f"{len(panel)} series"


def score_table(head: str, tables: Mapping[str, ErrorTable], *, detail: bool = False) -> str:
    """The scores under a title, one predictor a line, the lowest scaled MSE marked.

    MSE, MAE and CRPS are on the scale that is trained on. CRPS and the coverage of the central intervals in percent are
    blank for a point forecast, and left out where nothing forecasts quantiles. `detail` adds a second table: scores in
    original units, sMAPE, WAPE and WQL.
    """
    scores = {name: table.scores() for name, table in tables.items()}
    best = min((one["mse_scaled"] for one in scores.values() if math.isfinite(one["mse_scaled"])), default=None)
    marked = {name for name, one in scores.items() if one["mse_scaled"] == best}
    lines = [head, *_lines(scores, marked)]
    lines += ["", "in original units", *_lines(scores, columns=_DETAILS)] if detail else []
    more = "" if detail else "; --detail adds original units"
    left_out = max((one.get("mase_left_out", 0) for one in scores.values()), default=0)
    return _noted(lines, f"* lowest MSE. MSE, MAE, CRPS: standardised scale{more}", left_out)


def group_table(head: str, frame: pd.DataFrame, name: str) -> str:
    """Scores of one predictor by group, of `tsattn.evaluation.scores_by`; marked where all baselines are worse."""
    own = frame.loc[name]
    # in both, the groups are in one order
    others = [frame.loc[other]["mse_scaled"].to_numpy() for other in frame.index.unique(0) if other != name]
    is_best = np.all([own["mse_scaled"].to_numpy() < other for other in others], axis=0)
    scores = {str(label): {str(key): value for key, value in row.items()} for label, row in own.iterrows()}
    marked = {label for label, is_marked in zip(scores, np.broadcast_to(is_best, len(own)), strict=True) if is_marked}
    left_out = sum(one.get("mase_left_out", 0) for one in scores.values())
    lines = [head, *_lines(scores, marked, str(own.index.name))]
    return _noted(lines, "* lower MSE than every baseline", left_out)


def verdict(tables: Mapping[str, ErrorTable], context_length: int | None) -> list[str]:
    """Compare the scaled MSE of the first predictor with the baselines, in sentences.

    The context length is given where `--data.context_length` sets the steps that the predictor sees.
    """
    name, *others = tables
    mse = {one: table.scores()["mse_scaled"] for one, table in tables.items()}
    naive = next((one for one in others if one.startswith("seasonal naive")), "persistence")
    ridge = re.search(r"^ridge \(context (\d+).*", "\n".join(others), re.MULTILINE)
    called = {naive: naive.partition(" (")[0], **({ridge[0]: "the linear model"} if ridge else {})}
    parts = [
        f"{_change(mse[name] / mse[one])} {what}" for one, what in called.items() if one in others and mse[one] > 0
    ]
    said = [f"{name}: MSE {', '.join(parts)}."] if parts else []
    if said and ridge and context_length is not None and mse[ridge[0]] < mse[name] and int(ridge[1]) > context_length:
        saw = f"The linear model saw {ridge[1]} steps, yours {context_length}"
        said.append(f"{saw}; try --data.context_length {ridge[1]}.")
    return said


def _change(ratio: float) -> str:
    percent = round(100 * abs(ratio - 1))
    return f"{percent} % {'below' if ratio < 1 else 'above'}" if percent else "within 0.5 % of"


def _noted(lines: list[str], note: str, left_out: float) -> str:
    """A table with what the star means, and what its MASE leaves out."""
    out = f"MASE leaves out {number_of(int(left_out), 'target')} of series without a seasonal error, such as constant"
    return "\n".join([*lines, "", note, *([f"{out} ones"] if left_out else [])])


def _lines(
    scores: Mapping[str, Mapping[str, float]],
    marked: Collection[str] = (),
    head: str = "",
    columns: Sequence[str] = _SCALED,
) -> list[str]:
    names = dict.fromkeys(name for one in scores.values() for name in one)
    covered = [name for name in names if name.startswith("coverage_") and name.count("_") == 1]
    shown = [name for name in (*columns, *(covered if columns is _SCALED else ())) if name in names]
    rows = {head: [*map(short_name, shown)]}
    rows |= {name: [rounded(one[score]) if score in one else "" for score in shown] for name, one in scores.items()}
    widths = [max(8, 2 + max(map(len, column))) for column in zip(*rows.values(), strict=True)]
    width = max(map(len, rows))
    return [
        f"{name:{width}}{''.join(map(str.rjust, cells, widths))}{' *' if name in marked else ''}".rstrip()
        for name, cells in rows.items()
    ]
