"""Measure a predictor: its errors and the errors of baselines, as tables and as text, and its size and flops."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from tsattn.data import ForecastDataModule
from tsattn.data.frequency import is_steps
from tsattn.descriptions import Description
from tsattn.errors import UserError, number_of, rounded
from tsattn.evaluation import ErrorTable, measure
from tsattn.evaluation.measure import ScoredBatch, seasonal_errors
from tsattn.evaluation.reductions import short_name
from tsattn.experiments.experiment import Experiment
from tsattn.ops import executed_flops
from tsattn.predictors import Predictor, build_predictor
from tsattn.task import Output
from tsattn.training import Execution, TrainerOptions, Training
from tsattn.training.callbacks import DIVERGED
from tsattn.training.execution import own_random_state

# patterns of the names of scores, in the order of columns
_SCALED = r"mse_scaled mae_scaled mase crps_scaled coverage_[^_]+"
_DETAILS = "mse_original mae_original rmse_original crps_original smape wape wql"


def fitted_baselines(data: ForecastDataModule, part: str, training: Training) -> Iterator[tuple[str, Predictor]]:
    """Ridge, persistence and, unless the season is longer than the data, seasonal naive, fitted to training windows."""
    _, task, _ = data.contents
    T, season = task.prediction_length, task.season_length
    bounds = [split.bounds(part) for split in data.splits]
    before = max((start for start, end in bounds if end - start >= T), default=1)  # rows that a context may have
    rows = min(before, max(split.train_end for split in data.splits))
    seasonal = {f"seasonal naive ({season} steps)": "seasonal_naive"} if season <= rows else {}
    kinds: dict[str, Description] = {"": "ridge", **seasonal, "persistence": "persistence"}
    for name, description in kinds.items():
        predictor = build_predictor(description)
        predictor.build(task, Output())
        predictor.fit(data, training)
        yield name or predictor.label, predictor.eval()


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
    """The errors of a fitted predictor over all windows of a part; written to a Parquet file if `path` is given."""
    panel, task, _ = data.contents
    before = np.array([split.bounds(part)[0] for split in data.splits])
    table = measure(
        predictor.on(execution),
        data.eval_dataloader(part, **predictor.cut),
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
    scores, windows = table.scores(), len(data.windows(part))
    if not math.isfinite(scores["mse_scaled"]):
        raise UserError(f"the {part} errors are not finite: {DIVERGED}")
    if scores["windows"] != windows:
        raise RuntimeError(f"{scores['windows']} windows were scored, not all {windows}")
    return table


def tables_with_baselines(
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
    """The errors of a predictor and of baselines on the same windows, by name; `folder` takes all rows as files."""
    path = path if folder is None else folder / "0.parquet"
    tables = {predictor.name: measured(predictor, data, part, execution, path, by_step=by_step, watch=watch)}
    for name, baseline in fitted_baselines(data, part, Training(execution.options, {})):
        if name not in tables:  # persistence may be measured already
            own = None if folder is None else folder / f"{len(tables)}.parquet"
            tables[name] = measured(baseline, data, part, execution, own, by_step=by_step)
    return tables


def title(data: ForecastDataModule, windows: int, part: str = "test") -> str:
    """The title of a table of scores: the data, the horizon, and the number of scored windows."""
    _, task, _ = data.contents
    scored = f"{windows} {'validation' if part == 'val' else part} windows"
    return f"{task.data}, horizon {task.prediction_length}: {scored}, {extent(data)}"


def extent(data: ForecastDataModule) -> str:
    """The size of the data: the number of channels of one series, or the number of series."""
    panel, _, _ = data.contents
    return number_of(len(panel.channels), "channel") if panel.is_wide else f"{len(panel)} series"


def score_table(head: str, tables: Mapping[str, ErrorTable], label: str = "", *, detail: bool = False) -> str:
    """Show scores under a title, the first by its label, the lowest scaled MSE marked; `detail` adds original units."""
    (first, own), *others = [(name, table.scores()) for name, table in tables.items()]
    # the label of a ridge, whatever its penalty, is that of the baseline
    is_taken = any(name == label and one["mse_scaled"] != own["mse_scaled"] for name, one in others)
    scores = {f"your {label}" if is_taken else label or first: own, **dict(others)}
    best = min((one["mse_scaled"] for one in scores.values() if math.isfinite(one["mse_scaled"])), default=None)
    lines = [head, *_lines(scores, {name for name, one in scores.items() if one["mse_scaled"] == best})]
    lines += ["", "in original units", *_lines(scores, columns=_DETAILS)] if detail else []
    left_out = max((one.get("mase_left_out", 0) for one in scores.values()), default=0)
    note = f"* lowest MSE. MSE, MAE, CRPS: standardised scale{'' if detail else '; --detail adds original units'}"
    return _noted(lines, note, left_out)


def group_table(head: str, frame: pd.DataFrame, name: str) -> str:
    """Show one predictor's scores by group, from `tsattn.evaluation.scores_by`; the mark: all baselines are worse."""
    own = frame.loc[name]
    # both have the groups in the same order
    others = [frame.loc[other]["mse_scaled"].to_numpy() for other in frame.index.unique(0) if other != name]
    is_best = np.all([own["mse_scaled"].to_numpy() < other for other in others], axis=0)
    scores = {str(label): {str(key): value for key, value in row.items()} for label, row in own.iterrows()}
    marked = {label for label, is_marked in zip(scores, np.broadcast_to(is_best, len(own)), strict=True) if is_marked}
    left_out = sum(one.get("mase_left_out", 0) for one in scores.values())
    return _noted([head, *_lines(scores, marked, str(own.index.name))], "* lower MSE than every baseline", left_out)


def verdict(tables: Mapping[str, ErrorTable], context_length: int | None) -> list[str]:
    """Compare the scaled MSE of the first predictor with the baselines, in sentences; None for a fixed context."""
    mse = {name: table.scores()["mse_scaled"] for name, table in tables.items()}
    name, *others = tables
    naive = next((one for one in others if one.startswith("seasonal naive")), "persistence")
    ridge = next((one for one in others if one.startswith("ridge (context ")), "")
    parts = []
    for one, what in {naive: naive.partition(" (")[0], ridge: "the linear model"}.items():
        if one in others and mse[one] > 0:
            percent = round(100 * abs(mse[name] / mse[one] - 1))
            than = f"{percent} % {'below' if mse[name] < mse[one] else 'above'}" if percent else "within 0.5 % of"
            parts.append(f"{than} {what}")
    if not parts:
        return []
    said, seen = [f"{name}: MSE {', '.join(parts)}."], int(ridge.split()[2].strip(",)")) if ridge else 0
    if ridge and context_length is not None and mse[ridge] < mse[name] and seen > context_length:
        said += [f"The linear model saw {seen} steps, yours {context_length}; try --data.context_length {seen}."]
    return said


def _noted(lines: list[str], note: str, left_out: float) -> str:
    """Add the meaning of the star to a table, and the targets that its MASE leaves out."""
    targets = number_of(int(left_out), "target")
    out = [f"MASE leaves out {targets} of series without a seasonal error, such as constant ones"] if left_out else []
    return "\n".join([*lines, "", note, *out])


def _lines(
    scores: Mapping[str, Mapping[str, float]], marked: Collection[str] = (), head: str = "", columns: str = _SCALED
) -> list[str]:
    """A line for each name, with the scores whose names the pattern matches; blank where a score is missing."""
    names = dict.fromkeys(name for one in scores.values() for name in one)
    cells = {
        short_name(score): [rounded(one[score]) if score in one else "" for one in scores.values()]
        for pattern in columns.split()
        for score in names
        if re.fullmatch(pattern, score)
    }
    frame = pd.DataFrame(cells, [*scores]).rename_axis(columns=head)
    lines = frame.to_string(col_space=[max(7, 1 + len(name)) for name in cells]).split("\n")
    marks = ["", *(" *" if name in marked else "" for name in scores)]
    return [f"{line}{mark}".rstrip() for line, mark in zip(lines, marks, strict=True)]


def predictor_sizes(predictor: Predictor, data: ForecastDataModule, flops_needed: bool) -> dict[str, float]:
    """Parameters and flops; flops that cannot be counted are left out, or an error if they are needed."""
    sizes: dict[str, float] = {"parameters": predictor.num_parameters}
    with contextlib.suppress(*(() if flops_needed else (UserError,))):
        sizes["flops"] = forward_flops(predictor, data)
    return sizes


@torch.no_grad()
def forward_flops(predictor: Predictor, data: ForecastDataModule) -> int:
    """Flops of a forward pass of one window on a CPU, if it runs there; the random generator is left as it was."""
    from tsattn.peers.predictors import PeerPredictor

    if any(isinstance(part, PeerPredictor) for part in predictor.modules()):
        raise UserError("the flops of a model of another library cannot be counted")
    window = data.windows("train", **predictor.cut).__getitems__([0])
    with own_random_state():
        whole = build_predictor(predictor.description)  # its weights have numbers, not only shapes
        whole.build(predictor.task, predictor.output)
        state = predictor.state_dict().items()  # of the sizes and the members that a fit chose
        sizes = {name: part.new_zeros(part.shape, device="cpu") for name, part in state if "_extra_state" not in name}
        chosen = {name: part for name, part in state if "_extra_state" in name and not part.is_meta}
        whole.load_state_dict(sizes | chosen, strict=False)
        return executed_flops(lambda: whole.eval()(window))


def device_type(experiment: Experiment) -> str:
    """The type of the device of an experiment: ``cpu``, ``cuda`` and so on."""
    return Execution(TrainerOptions.of(experiment.trainer_arguments())).device.type
