"""Sections of scores: what validation chose, means over horizons, each horizon, ablations, costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tsattn.errors import number_of
from tsattn.leaderboard.own_seconds import known_seconds
from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.report.board_figures import cost_figure
from tsattn.leaderboard.report.parts import Cell, Column, ReportFigure, ReportTable, Section
from tsattn.leaderboard.report.wording import (
    DASH,
    PAIR,
    count_cell,
    each_row,
    listed,
    number_cell,
    percent,
    percent_cell,
    score,
    score_pair,
    seed_counts,
    size,
    with_spread,
)
from tsattn.leaderboard.standings import RIDGE, STANDARD, RankedArm
from tsattn.leaderboard.summaries import beside_the_ridge

__all__ = [
    "ablation_section",
    "cost_section",
    "headline_section",
    "horizon_section",
]

_SCALED = {
    "mase": Column(
        "MASE",
        "absolute errors over the seasonal error of the history, mean and standard deviation over seeds",
        is_number=True,
    ),
    "wql": Column(
        "WQL", "weighted quantile loss in original units, mean and standard deviation over seeds", is_number=True
    ),
}
_MEMORY = (
    "most bytes that the process held while it fitted and tested, with Python, torch and the data among them, or those "
    "of tensors on a GPU; of a mix those of the member that held most"
)
_PRETRAINING = {"seen": "its training part seen in pretraining", "unknown": "perhaps seen in pretraining"}
_ARM = (Column("predictor", has_filter=True), Column("attention", has_filter=True))
_TABLE = (Column("data set", has_filter=True), Column("horizon", is_number=True, has_filter=True))


def headline_section(analysis: Analysis) -> Section:
    """Arms by data set, means over horizons."""
    datasets = analysis.deciding.datasets
    columns = [*_ARM, *(Column(name, f"{PAIR}, mean over horizons and seeds", is_number=True) for name in datasets)]
    rows: list[list[Cell]] = []
    partial: list[list[Cell]] = []
    for arm in analysis.deciding.arms:
        found = [analysis.mean_of(dataset, arm) for dataset in datasets]
        cells = [_mean_cell(analysis, dataset, arm, mean) for dataset, mean in zip(datasets, found, strict=True)]
        row = [Cell(arm.predictor), Cell(arm.attention or DASH), *cells]
        is_whole = any(mean is not None and not mean["missing"] for mean in found)
        (rows if is_whole else partial).append(row)
    text = [
        "MSE / MAE, the mean over all horizons of a data set and over seeds. An arm that lacks a horizon has no "
        "mean, as it would not be comparable. Under a mean stands how it differs from standard attention of the same "
        "predictor and from the ridge, in MSE at each horizon; a difference that cannot be told from none is a tie. "
        "What validation chose is highlighted.",
        _horizons_text(analysis),
        _seeds_text(analysis),
    ]
    tables = [
        ReportTable("headline-table", "Means over horizons and seeds, by arm and data set", columns, rows + partial)
    ]
    if known := _known_scaled(analysis.means):
        tables.append(_scaled_table(analysis, known))
    return Section("headline", "Means over horizons", text, tables)


def horizon_section(analysis: Analysis) -> Section:
    """Every arm at every horizon."""
    table = analysis.scores
    scaled = _known_scaled(table)
    columns = [
        *_TABLE,
        *_ARM,
        Column("MSE", "mean and standard deviation over seeds, on the train-standardised scale", is_number=True),
        Column("MAE", "mean and standard deviation over seeds, on the train-standardised scale", is_number=True),
        *(_SCALED[name] for name in scaled),
        Column("skill", "by how much the MSE lies below that of the ridge of the same table", is_number=True),
        Column("validation MSE", "mean over seeds", is_number=True),
        Column("seeds", "runs", is_number=True),
        Column("context", "steps of look-back", is_number=True),
        Column("parameters", "that are fitted", is_number=True),
        Column("flops", "of a forward pass of one window", is_number=True),
        Column("seconds", "of training, with that of the members of a mix, mean over seeds", is_number=True),
        Column("memory", _MEMORY, is_number=True),
        Column("trained on", "which training windows", has_filter=True),
    ]
    if has_pretraining := bool(table["pretraining"].any()):
        columns.append(Column("pretraining", "whether it had this data set's training part", has_filter=True))
    best = table.groupby(["dataset", "horizon"])["mse"].transform("min")
    rows = []
    for row, lowest in zip(each_row(table), best, strict=True):
        rows.append(
            [
                Cell(row.dataset),
                number_cell(row.horizon, str(row.horizon)),
                Cell(row.predictor if row.attention else _label(analysis, row)),
                Cell(row.attention or DASH),
                number_cell(row.mse, with_spread(row.mse, row.mse_spread), "strong" if row.mse == lowest else ""),
                number_cell(row.mae, with_spread(row.mae, row.mae_spread)),
                *(_spread_cell(row, name) for name in scaled),
                percent_cell(row.skill),
                number_cell(row.validation_mse, score(row.validation_mse)),
                count_cell(row.seeds),
                count_cell(_float(row.context_length)),
                count_cell(row.parameters),
                number_cell(row.flops, size(row.flops)),
                number_cell(row.seconds, f"{row.seconds:,.3g}" if not math.isnan(row.seconds) else DASH),
                number_cell(row.peak_memory, size(row.peak_memory, "B")),
                Cell(row.trained_windows or DASH),
                *([Cell(row.pretraining or DASH)] if has_pretraining else []),
            ]
        )
    text = [
        "Errors over all test windows, mean ± standard deviation over seeds (of a single seed there is none). The "
        "lowest MSE of each table is bold, whether or not it differs from the next one."
    ]
    done = analysis.deciding.done
    if lost := int((known_seconds(done).isna() & done["seconds"].notna()).sum()):
        text.append(
            f"Seconds are unknown where one of the seeds has none: the records of {number_of(lost, 'run')} of mixes "
            "say fewer than those of the trainings that they are made of."
        )
    others = table[~beside_the_ridge(table)]
    if len(others):
        tables = dict.fromkeys(others[["dataset", "horizon"]].itertuples(index=False, name=None))
        where = listed([f"{name} {horizon}" for name, horizon in tables])
        text.append(f"Arms that were tested on other windows than the ridge have no skill beside it: on {where}.")
    return Section(
        "horizons", "Each horizon", text, [ReportTable("horizon-table", "Every arm at every horizon", columns, rows)]
    )


def _label(analysis: Analysis, row: Any) -> str:
    return analysis.deciding.label(RankedArm(row.predictor), row.dataset, row.horizon)


def ablation_section(analysis: Analysis) -> Section:
    """What is left without an attention that looks at tokens."""
    table = analysis.scores
    is_one = np.array([analysis.board.is_ablation(RankedArm("", name)) for name in table["attention"]], bool)
    tables = set(table.loc[is_one, ["dataset", "horizon", "predictor"]].itertuples(index=False, name=None))
    names = [*dict.fromkeys(table.loc[is_one, "attention"])]
    columns = [
        *_TABLE,
        Column("predictor", has_filter=True),
        Column(STANDARD, f"{PAIR}, mean over seeds", is_number=True),
        *(Column(name, f"{PAIR}, mean over seeds; under it the verdict", is_number=True) for name in names),
        Column(RIDGE, "alone", is_number=True),
    ]
    known = {(row.dataset, row.horizon, row.predictor, row.attention): row for row in each_row(table)}
    compared = analysis.comparisons[analysis.comparisons["metric"] == "mse"]
    judged = {
        (row.dataset, row.horizon, row.predictor, row.attention): row
        for row in each_row(compared[compared["against"] == STANDARD])
    }
    rows = []
    for dataset, horizon, predictor in sorted(
        tables, key=lambda one: (analysis.deciding.datasets.index(one[0]), one[1:])
    ):
        cells = []
        for name in (STANDARD, *names):
            key = dataset, horizon, predictor, name
            note = ""
            if (one := judged.get(key)) is not None:
                note = f"{one.verdict}, {percent(one.percent)}"
            cells.append(_pair_cell(known.get(key), note))
        ridge = _pair_cell(known.get((dataset, horizon, RIDGE, "")), "")
        rows.append([Cell(dataset), number_cell(horizon, str(horizon)), Cell(predictor), *cells, ridge])
    text = [
        "In the place of the attention stand: identity, where each token sees itself alone; uniform, the mean of all "
        "tokens; fixed_mixing, a learned matrix that is the same for every input. What ties with them does not need to "
        "look at what its tokens hold. The ridge alone has no network at all."
        if rows
        else "No ablations are among these records."
    ]
    parts = [ReportTable("ablation-table", "Ablations beside standard attention", columns, rows)] if rows else []
    return Section("ablations", "Ablations", text, parts)


def cost_section(analysis: Analysis) -> Section:
    """Accuracy against flops and seconds."""
    parts = []
    for cost in ("flops", "seconds"):
        means = analysis.means
        shown = means[means["mse"].notna() & (means[cost] > 0)]
        if len(shown):
            word = {"flops": "flops of a forward pass", "seconds": "seconds of training"}[cost]
            label = f"MSE against {word}, means over horizons and seeds"
            parts.append(ReportFigure(f"{cost}-figure", label, cost_figure(shown, cost, f"{cost}-svg", label)))
    text = [
        "A forward pass of one window, and the training of one seed, with that of the members of a mix, by one thread "
        "of the machine that the records name. Machines may differ between data sets: see how it was run. What neither "
        "computes nor is trained, such as persistence, is not drawn."
    ]
    if not parts:
        text = ["No arm has all horizons of its data set yet, so that there are no means to draw."]
    return Section("cost", "Accuracy and cost", text, parts)


def _mean_cell(analysis: Analysis, dataset: str, arm: RankedArm, mean: pd.Series | None) -> Cell:
    if mean is None:
        return Cell(DASH, math.nan)
    if math.isnan(mean["mse"]):
        return Cell(DASH, math.nan, note=f"without {listed(mean['missing'])}")
    notes = []
    if arm.attention:
        beside = "" if arm.attention == STANDARD else analysis.verdict(dataset, arm, STANDARD)
        notes += [f"standard: {beside}"] if beside else []
        ridge = analysis.verdict(dataset, arm, RIDGE)
        notes += [f"ridge: {ridge}"] if ridge else []
    if mean["pretraining"] in _PRETRAINING:
        notes.append(_PRETRAINING[mean["pretraining"]])
    best = analysis.chosen(dataset)
    is_chosen = best is not None and arm == RankedArm(best["predictor"], best["attention"])
    pair = score_pair(mean["mse"], mean["mae"])
    return Cell(pair, mean["mse"], "chosen" if is_chosen else "", " · ".join(notes))


def _scaled_table(analysis: Analysis, known: Sequence[str]) -> ReportTable:
    """Arms by data set: what forecasters are compared by whose scales and histories differ, pretrained ones above all.

    Args:
        analysis: of the records.
        known: the errors that any record has, of `_SCALED`.
    """
    pair = " / ".join(_SCALED[name].name for name in known)
    help = f"{pair}, mean over horizons and seeds"
    columns = [*_ARM, *(Column(name, help, is_number=True) for name in analysis.deciding.datasets)]
    rows = []
    for arm in analysis.deciding.arms:
        found = [analysis.mean_of(dataset, arm) for dataset in analysis.deciding.datasets]
        means = [[math.nan if mean is None else float(mean[name]) for name in known] for mean in found]
        if not np.isnan(means).all():
            notes = ["" if mean is None else _PRETRAINING.get(mean["pretraining"], "") for mean in found]
            firsts = [next((value for value in each if not math.isnan(value)), math.nan) for each in means]
            cells = [
                Cell(_joined(each), first, note="" if math.isnan(first) else note)
                for each, first, note in zip(means, firsts, notes, strict=True)
            ]
            rows.append([Cell(arm.predictor), Cell(arm.attention or DASH), *cells])
    caption = f"{pair}, means over horizons and seeds, by arm and data set"
    return ReportTable("scaled-table", caption, columns, rows)


def _known_scaled(table: pd.DataFrame) -> list[str]:
    """MASE and WQL, as far as any row has them: records from before they were kept have none."""
    return [name for name in _SCALED if table[name].notna().any()]


def _spread_cell(row: Any, name: str) -> Cell:
    value, spread = getattr(row, name), getattr(row, f"{name}_spread")
    return number_cell(value, with_spread(value, spread))


def _joined(values: Sequence[float]) -> str:
    return DASH if np.isnan(values).all() else " / ".join(map(score, values))


def _pair_cell(row: Any, note: str) -> Cell:
    return Cell(DASH, math.nan) if row is None else Cell(score_pair(row.mse, row.mae), row.mse, note=note)


def _horizons_text(analysis: Analysis) -> str:
    by: dict[tuple[int, ...], list[str]] = {}
    for dataset in analysis.deciding.datasets:
        if horizons := tuple(analysis.deciding.horizons(dataset)):
            by.setdefault(horizons, []).append(dataset)
    return f"Horizons: {'; '.join(f'{listed(names)} {listed(horizons)}' for horizons, names in by.items())}."


def _seeds_text(analysis: Analysis) -> str:
    """How many seeds the means are over."""
    by: dict[str, list[str]] = {}
    for dataset, part in analysis.means.groupby("dataset", sort=False):
        trained = part[part["weight"] > 0]
        if len(trained):
            least, most = trained["seeds"].min(), trained["most_seeds"].max()
            by.setdefault(seed_counts(least, most), []).append(str(dataset))
    counts = "; ".join(f"{listed(names)} {count}" for count, names in by.items())
    return f"Seeds of what is trained, at each horizon: {counts}." if counts else "Nothing here is trained."


def _float(value: object) -> float:
    return math.nan if value is None or value is pd.NA else float(value)  # type: ignore[arg-type]
