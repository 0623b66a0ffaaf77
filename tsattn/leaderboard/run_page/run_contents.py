"""The sections of the page of runs, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tsattn.leaderboard.report.parts import Cell, Column, ForecastViewer, ReportFigure, ReportTable, Section
from tsattn.leaderboard.report.wording import number_cell, score
from tsattn.leaderboard.run_page.line_figure import line_figure
from tsattn.leaderboard.run_page.reported_run import ReportedRun
from tsattn.leaderboard.run_page.run_curves import curve_section
from tsattn.leaderboard.run_page.run_forecasts import Forecasts, forecast_runs
from tsattn.leaderboard.run_page.run_scores import score_section, series_section, summary_section, time_section
from tsattn.leaderboard.run_page.run_settings import machine_section, settings_section

__all__ = ["run_sections", "run_title"]

_STEPS = 24  # rows of a run in the table of steps
_PARTS = {"test": "test", "val": "validation"}


def run_title(runs: Sequence[ReportedRun]) -> str:
    """``Run: NAME``, or ``Runs: NAME, NAME``."""
    return f"{'Runs' if len(runs) > 1 else 'Run'}: {', '.join(run.name for run in runs)}"


def run_sections(runs: Sequence[ReportedRun]) -> list[Section]:
    """All sections; the checkpoints of the runs forecast for them."""
    forecasts, lacking = forecast_runs(runs)
    return [
        summary_section(runs),
        score_section(runs),
        step_section(forecasts, lacking),
        series_section(runs),
        time_section(runs),
        forecast_viewers(forecasts, lacking),
        curve_section(runs),
        settings_section(runs),
        machine_section(runs),
    ]


def step_section(forecasts: Sequence[Forecasts], lacking: Sequence[str]) -> Section:
    """The errors of each step of the horizon."""
    parts: list[ReportFigure | ReportTable] = []
    rows = []
    for number, own in enumerate(forecasts, 1):
        lines = {}
        for one in own.runs:
            steps = np.arange(1, len(one.by_step["mse"]) + 1)
            lines[one.run.name] = steps, one.by_step["mse"]
            shown = np.unique(np.linspace(0, len(steps) - 1, min(_STEPS, len(steps))).round().astype(int))
            for step in shown:
                errors = [float(one.by_step[name][step]) for name in ("mse", "mae")]
                cells = [Cell(one.run.name), number_cell(float(steps[step]), str(steps[step]))]
                rows.append([*cells, *(number_cell(error, score(error)) for error in errors)])
        first = own.runs[0].run
        label = f"{first.data}, horizon {first.horizon}: MSE of each step of the {_PARTS[own.part]} windows"
        colours = {one.run.name: one.run.colour for one in own.runs}
        figure = line_figure(lines, f"step-svg-{number}", label, ("steps ahead", "MSE"), colours)
        parts.append(ReportFigure(f"step-figure-{number}", label, figure))
    text = ["How errors grow the further a forecast looks ahead, on the scale that is trained on."]
    thinned = [(one.run.name, one.every) for own in forecasts for one in own.runs if one.every > 1]
    text += [f"{name}: of every {every}th window, as there are many." for name, every in thinned]
    if rows:
        columns = [Column("run", has_filter=len({row[0].text for row in rows}) > 1)]
        columns += [Column(name, is_number=True) for name in ("step", "MSE", "MAE")]
        parts.append(ReportTable("step-table", "Errors by step", columns, rows))
    return Section("steps", "By step", [*(text if rows else []), *lacking], parts)


def forecast_viewers(forecasts: Sequence[Forecasts], lacking: Sequence[str]) -> Section:
    """Forecasts to step through."""
    parts = []
    for number, own in enumerate(forecasts, 1):
        first = own.runs[0].run
        caption = (
            f"{first.data}, horizon {first.horizon}: {len(own.windows)} forecasts of the {_PARTS[own.part]} windows, "
            "in the units of the data."
        )
        parts.append(ForecastViewer(f"viewer-{number}", caption, _content(own)))
    text = [
        "Series are spread over the ranks of their errors, the highest first. Of each are here the windows with the "
        "highest, the median and the lowest error, and some evenly spread over time. The arrow keys step through them: "
        "left and right to another origin, up and down to another series."
    ]
    return Section("forecasts", "Forecasts", [*(text if parts else []), *lacking], parts)


def _content(own: Forecasts) -> dict[str, Any]:
    windows = [
        {**window, "forecasts": [one.windows[number] for one in own.runs]} for number, window in enumerate(own.windows)
    ]
    return {
        "runs": [one.run.name for one in own.runs],
        "colours": [one.run.colour for one in own.runs],
        "bands": [list(one.bands) for one in own.runs],
        "steps": own.counts_steps,
        "dates": own.are_dates,
        "series": own.series,
        "windows": windows,
    }
