"""The section of a report that puts published numbers beside those that were measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.report.parts import Cell, Column, ReportTable, Section
from tsattn.leaderboard.report.wording import (
    DASH,
    PAIR,
    each_row,
    listed,
    number_cell,
    score_pair,
)
from tsattn.leaderboard.standings import RIDGE, RankedArm

__all__ = ["published_section"]


def published_section(analysis: Analysis) -> Section:
    """What others published beside what was run here."""
    published = [one for one in analysis.published if one.dataset in analysis.deciding.datasets]
    datasets = [name for name in analysis.deciding.datasets if name in {one.dataset for one in published}]
    if not published:
        return Section("published", "Published numbers", ["No published numbers are known of these data sets."])
    horizons = sorted({horizon for name in datasets for horizon in analysis.deciding.horizons(name)})
    columns = [
        Column("data set", has_filter=True),
        Column("model"),
        Column("from", "measured here, or published elsewhere", has_filter=True),
        Column("look-back", "context length in steps, or how it was chosen"),
        Column("all windows", "whether every test window was scored", has_filter=True),
        *(Column(str(horizon), f"{PAIR}, horizon {horizon}", is_number=True) for horizon in horizons),
        Column("mean", "over these horizons, where all are there", is_number=True),
        Column("source", is_prose=True),
    ]
    rows = []
    for dataset in datasets:
        for arm, word in _shown_arms(analysis, dataset):
            own = analysis.scores
            own = own[
                (own["dataset"] == dataset) & (own["predictor"] == arm.predictor) & (own["attention"] == arm.attention)
            ]
            scores = {row.horizon: (row.mse, row.mae) for row in each_row(own)}
            contexts = listed(sorted({f"{value}" for value in own["context_length"].dropna()}))
            cells = _published_cells(scores, analysis.deciding.horizons(dataset), horizons)
            source = Cell(word, mark="chosen" if "chosen" in word else "")
            whole = Cell("yes") if _has_all_windows(analysis, own) else Cell("no", mark="warning")
            name = analysis.deciding.label(arm, dataset)
            here = [Cell(dataset), Cell(name, mark="strong"), Cell("here"), Cell(contexts or DASH), whole]
            rows.append([*here, *cells, source])
        for one in published:
            if one.dataset == dataset:
                nan = math.nan
                pairs = {
                    horizon: (nan if mse is None else mse, nan if mae is None else mae)
                    for horizon, (mse, mae) in one.scores.items()
                }
                cells = _published_cells(pairs, analysis.deciding.horizons(dataset), horizons)
                whole = Cell("yes") if one.complete_test else Cell("no", mark="warning")
                rows.append(
                    [
                        *(Cell(dataset), Cell(one.model), Cell("published"), Cell(one.context_length), whole),
                        *(*cells, Cell(one.source)),
                    ]
                )
    text = [
        "Nobody ran the published ones here: look-backs, ways of tuning and test windows differ, and only what is "
        "measured here is paired. Where not all windows were scored, the last batch was left out, which alone moved "
        "one fixed model from 0.271 to 0.216 on ETTh2. Published figures are mostly the best of several settings."
    ]
    caption = "Published numbers beside those measured here, MSE / MAE"
    return Section("published", "Published numbers", text, [ReportTable("published-table", caption, columns, rows)])


def _shown_arms(analysis: Analysis, dataset: str) -> list[tuple[RankedArm, str]]:
    """What of this board stands beside published numbers, and why."""
    best = analysis.chosen(dataset)
    shown = [] if best is None else [(RankedArm(best["predictor"], best["attention"]), "chosen by validation")]
    known = {
        arm
        for name, horizon in analysis.deciding.tables
        if name == dataset
        for arm in analysis.deciding.arms_of(name, horizon)
    }
    if RankedArm(RIDGE) in known:
        shown.append((RankedArm(RIDGE), "closed form"))
    return shown


def _has_all_windows(analysis: Analysis, own: pd.DataFrame) -> bool:
    """Whether nothing else was scored on more windows of the same data set at the same horizon."""
    most = analysis.scores.groupby(["dataset", "horizon"])["windows"].max()
    return all(row.windows == most[row.dataset, row.horizon] for row in each_row(own))


def _published_cells(scores: dict[int, tuple[float, float]], own: Sequence[int], horizons: Sequence[int]) -> list[Cell]:
    nothing = math.nan, math.nan
    pairs = [scores.get(horizon, nothing) for horizon in horizons]
    mean = [float(np.mean([scores.get(horizon, nothing)[part] for horizon in own])) for part in (0, 1)]
    return [number_cell(mse, score_pair(mse, mae)) for mse, mae in [*pairs, (mean[0], mean[1])]]
