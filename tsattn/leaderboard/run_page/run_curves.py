"""The section of trainings: their losses and validation errors by step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tsattn.leaderboard.report.parts import ReportFigure, Section
from tsattn.leaderboard.run_page.line_figure import line_figure
from tsattn.leaderboard.run_page.reported_run import ReportedRun

__all__ = ["curve_section"]

_LOSS = "train_loss"
_SHOWN = ("mse_scaled", "mae_scaled", "crps_scaled")  # of the validation errors


def curve_section(runs: Sequence[ReportedRun]) -> Section:
    """A figure of the losses, and one for each validation error."""
    curves, colours = {}, {}
    for run in runs:
        for member, curve in run.curves.items():
            name = f"{run.name}, {member}" if member else run.name
            curves[name], colours[name] = curve, run.colour
    wanted = dict.fromkeys([f"val_{name}" for name in _SHOWN])
    # what weights were chosen by is shown, whatever it is
    wanted |= dict.fromkeys(f"val_{run.metrics['selected_by']}" for run in runs if run.metrics.get("selected_by"))
    titles = {_LOSS: "Training loss", **{name: f"Validation {_words(name)}" for name in wanted}}
    parts = []
    for number, (column, title) in enumerate(titles.items(), 1):
        lines = {}
        for name, curve in curves.items():
            if column in curve and "step" in curve:
                rows = curve[["step", column]].apply(pd.to_numeric, errors="coerce").dropna()
                if len(rows):  # steps are counted from 0
                    lines[name] = rows["step"].to_numpy() + 1, rows[column].to_numpy(np.float64)
        if lines:
            figure = line_figure(lines, f"curve-svg-{number}", title, ("optimizer steps", title), colours)
            parts.append(ReportFigure(f"curve-figure-{number}", title, figure))
    text = []
    for run in runs:
        best, steps = run.metrics.get("best_step"), (run.metrics.get("training") or {}).get("steps")
        if best is not None:
            words = f"{run.name}: the weights are those after step {best:,}"
            text.append(f"{words} of {steps:,}." if isinstance(steps, int) else f"{words}.")
    if not parts:
        text = ["None of these runs has a training curve: what they run is fitted without steps."]
    return Section("curves", "Training", text, parts)


def _words(name: str) -> str:
    error, _, scale = name.removeprefix("val_").partition("_")
    return f"{error.upper()}, {scale}" if scale else error.upper()
