"""Sections of what runs came to: in short, pooled, by series, and over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from tsattn.errors import number_of, shown
from tsattn.evaluation.reductions import SCORES
from tsattn.leaderboard.report.parts import Cell, Column, ReportFigure, ReportTable, Section
from tsattn.leaderboard.report.wording import DASH, count_cell, number_cell, score, score_pair
from tsattn.leaderboard.run_page.line_figure import line_figure
from tsattn.leaderboard.run_page.reported_run import ReportedRun

__all__ = ["score_section", "series_errors", "series_section", "summary_section", "time_section"]

_SHOWN = {
    **{"mse_scaled": "MSE", "mae_scaled": "MAE", "mse_original": "MSE, units", "mae_original": "MAE, units"},
    **{"mase": "MASE", "smape": "sMAPE", "wape": "WAPE", "wql": "WQL", "crps_original": "CRPS, units"},
}
_ROWS = 200  # of series; more make a page that nobody reads


def summary_section(runs: Sequence[ReportedRun]) -> Section:
    """A sentence for each run."""
    text = []
    for run in runs:
        if not run.metrics:
            text.append(f"{run.name}: {run.predictor or 'a run'} that is not finished, so that it has no scores yet.")
            continue
        context = run.metrics.get("context_length")
        words = f"{run.name}: {run.predictor} on {run.data}, context {context}, horizon {run.horizon}"
        if not run.scores:
            text.append(f"{words}; it was not tested.")
            continue
        own = run.scores[run.predictor]
        mse, windows = _of(own, "mse_scaled"), run.metrics.get("test_windows", 0)
        words += f"; MSE / MAE {score_pair(mse, _of(own, 'mae_scaled'))} over {number_of(windows, 'test window')}"
        others = {name: _of(one, "mse_scaled") for name, one in run.scores.items() if name != run.predictor}
        name = min(others, key=others.__getitem__, default="")
        if others.get(name, 0.0) > 0 and not math.isnan(mse):
            skill = 100 * (1 - mse / others[name])
            side = f"{abs(skill):.1f} % {'below' if skill > 0 else 'above'}" if abs(skill) >= 0.05 else "as"
            words += f", {side} the best baseline ({name})"
        text.append(f"{words}.")
    return Section("summary", "In short", text)


def score_section(runs: Sequence[ReportedRun]) -> Section:
    """The scores of each run and of its baselines."""
    tested = [run for run in runs if run.scores]
    if not tested:
        return Section("scores", "Scores", ["None of these runs has test scores."])
    every = [one for run in tested for one in run.scores.values()]
    names = [name for name in _SHOWN if any(one.get(name) is not None for one in every)]
    covered = [name for name in dict.fromkeys(key for one in every for key in one) if name.startswith("coverage_")]
    covered = [name for name in covered if name.count("_") == 1]
    columns = [
        Column("run", has_filter=True),
        Column("predictor", "of the run, or a baseline on the same windows", has_filter=True),
        Column("data", has_filter=True),
        *(Column(name, is_number=True) for name in ("context", "horizon", "windows")),
        *(Column(_SHOWN[name], SCORES[name], is_number=True) for name in names),
        *(
            Column(f"% in {name.removeprefix('coverage_')} %", SCORES["coverage_80"], is_number=True)
            for name in covered
        ),
        Column("validation", "the error that weights were chosen by", is_number=True),
        Column("parameters", is_number=True),
    ]
    rows, seen = [], set()
    least = {key: min((_of(one, "mse_scaled") for one in ones), default=0.0) for key, ones in _by_data(tested).items()}
    for run in tested:
        for number, (name, one) in enumerate(run.scores.items()):
            # baselines of the same data are the same ones
            facts = run.data, run.horizon, name, one.get("mse_scaled"), one.get("windows")
            if number and facts in seen:
                continue
            seen.add(facts)
            is_least = _of(one, "mse_scaled") == least[run.data, run.horizon]
            own = run.metrics if not number else {}
            cells = [Cell(DASH if number else run.name), Cell(name), Cell(run.data)]
            cells += [count_cell(_of(own, "context_length")), count_cell(run.horizon or math.nan)]
            cells += [count_cell(_of(one, "windows"))]
            for key in names:
                mark = "chosen" if is_least and key == "mse_scaled" else ""
                cells.append(number_cell(_of(one, key), _score(_of(one, key)), mark))
            for key in covered:
                share = 100 * _of(one, key)
                cells.append(number_cell(share, DASH if math.isnan(share) else f"{share:.1f}"))
            error = _of(own, "validation_error")
            note = str(own.get("selected_by", "")) if own else ""
            cells += [number_cell(error, _score(error), note="" if math.isnan(error) else note)]
            cells += [count_cell(_of(own, "parameters"))]
            rows.append(cells)
    text = [
        "Errors over all test windows, summed and divided by the number of observed targets. MSE and MAE are on the "
        "scale that is trained on; those in units are in the units of the data. The lowest MSE of each data set and "
        "horizon is marked."
    ]
    return Section("scores", "Scores", text, [ReportTable("score-table", "Test scores", columns, rows)])


def series_errors(run: ReportedRun) -> pd.DataFrame | None:
    """The errors of each series and channel; None where a run has none.

    Returns:
        a row a series and channel, those of the highest MSE first: ``series`` (the id, of a wide table the channel),
        ``windows``, ``mse``, ``mae``, ``mae_original`` and ``mase``.
    """
    if run.errors is None:
        return None
    errors = run.errors
    divisor = errors["seasonal_error"].where(errors["seasonal_error"] > 0)
    parts = errors.assign(relative=errors["absolute_original"] / divisor, scaled=errors["count"].where(divisor.notna()))
    by = parts.groupby(["unique_id", "channel"], sort=False, observed=True)
    sums = by[["count", "squared_scaled", "absolute_scaled", "absolute_original", "relative", "scaled"]].sum()
    count = sums["count"].where(sums["count"] > 0)
    found = pd.DataFrame(
        {
            "windows": by.size(),
            "mse": sums["squared_scaled"] / count,
            "mae": sums["absolute_scaled"] / count,
            "mae_original": sums["absolute_original"] / count,
            "mase": sums["relative"] / sums["scaled"].where(sums["scaled"] > 0),
        }
    )
    ids, channels = (found.index.get_level_values(name) for name in ("unique_id", "channel"))
    names = [name for name in (ids, channels) if len(name.unique()) > 1] or [channels]
    series = [", ".join(map(shown, parts)) for parts in zip(*names, strict=True)]
    return found.assign(series=series).sort_values("mse", ascending=False, kind="stable", ignore_index=True)


def series_section(runs: Sequence[ReportedRun]) -> Section:
    """The errors of each series or channel."""
    tables = {run.name: found for run in runs if (found := series_errors(run)) is not None}
    if not tables:
        return Section("series", "By series", ["None of these runs has errors by series."])
    columns = [
        Column("run", has_filter=len(tables) > 1),
        Column("series", has_filter=len(set().union(*(table["series"] for table in tables.values()))) < 30),
        *(Column(name, is_number=True) for name in ("windows", "MSE", "MAE", "MAE, units", "MASE")),
    ]
    rows, left = [], 0
    most = max(1, _ROWS // len(tables))
    for name, table in tables.items():
        left += max(0, len(table) - most)
        for row in table.head(most).to_dict("records"):
            values = [float(row[key]) for key in ("mse", "mae", "mae_original", "mase")]
            cells = [Cell(name), Cell(str(row["series"])), count_cell(float(row["windows"]))]
            rows.append([*cells, *(number_cell(value, _score(value)) for value in values)])
    first = next(iter(tables.values()))
    text = ["Test errors of each series or channel, those of the highest MSE first."]
    if left:
        text.append(
            f"Of {number_of(sum(map(len, tables.values())), 'row')} the {most} with the highest errors of each run are "
            f"here; half of all have an MSE below {score(float(first['mse'].median()))} in {next(iter(tables))}. All "
            "are in errors.parquet of the run folders."
        )
    return Section("series", "By series", text, [ReportTable("series-table", "Errors by series", columns, rows)])


def time_section(runs: Sequence[ReportedRun]) -> Section:
    """The errors of all windows that start from one origin, over time."""
    parts = []
    for number, (data, own) in enumerate(_with_errors(runs).items(), 1):
        lines = {}
        for run in own:
            assert run.errors is not None
            by = run.errors.groupby("origin", sort=True)[["squared_scaled", "count"]].sum()
            lines[run.name] = (
                by.index.to_numpy(),
                (by["squared_scaled"] / by["count"].where(by["count"] > 0)).to_numpy(),
            )
        is_steps = next(iter(lines.values()))[0].dtype.kind != "M"
        label = f"{data}: MSE of the windows that start from one origin, over the test part"
        axes = "step" if is_steps else "last time stamp before the forecast", "MSE"
        figure = line_figure(lines, f"time-svg-{number}", label, axes, {run.name: run.colour for run in own})
        parts.append(ReportFigure(f"time-figure-{number}", label, figure))
    text = ["When the forecasts were good, and when not." if parts else "None of these runs has errors by origin."]
    return Section("time", "Over time", text, parts)


def _with_errors(runs: Sequence[ReportedRun]) -> dict[str, list[ReportedRun]]:
    found: dict[str, list[ReportedRun]] = {}
    for run in runs:
        if run.errors is not None:
            found.setdefault(f"{run.data}, horizon {run.horizon}", []).append(run)
    return found


def _by_data(runs: Sequence[ReportedRun]) -> dict[tuple[str, int | None], list[Mapping[str, float | None]]]:
    found: dict[tuple[str, int | None], list[Mapping[str, float | None]]] = {}
    for run in runs:
        known = [one for one in run.scores.values() if one.get("mse_scaled") is not None]
        found.setdefault((run.data, run.horizon), []).extend(known)
    return found


def _of(facts: Mapping[str, float | None], name: str) -> float:
    value = facts.get(name)
    return math.nan if value is None else float(value)


def _score(value: float) -> str:
    """A score of any scale: `wording.score` where it has few digits."""
    return (
        score(value) if math.isnan(value) or abs(value) < 1000 else f"{value:,.0f}" if value < 1e7 else f"{value:.3g}"
    )
