"""The error of each step of the horizon, drawn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tsattn.errors import UserError, one_of
from tsattn.figures.style import ACCENT, OTHERS

__all__ = ["draw_errors", "plot_error_by_horizon"]


def plot_error_by_horizon(
    errors: Mapping[str, Tensor | ArrayLike],
    title: str,
    *,
    measure: str = "MAE",
    unit: str | None = None,
    compared_with: str | None = None,
) -> Figure:
    """Draw the error of each step of the horizon, one line a model.

    Args:
        errors: `(T,)` by model, of `error_by_horizon` for instance; the first is the model that the figure is about,
            drawn thicker than what it is compared with. Horizons may differ.
        title: of the figure.
        measure: what the errors are, for the axis.
        unit: what they are measured in, for the axis; none by default.
        compared_with: a model, to draw the differences from it in percent: lines that nearly coincide are told apart.

    Raises:
        UserError: for no model, an unknown one, or errors that are not one number a step.
    """
    lines = {name: np.asarray(values, dtype=float) for name, values in errors.items()}
    if not lines:
        raise UserError("there are no errors to draw: give at least one model")
    for name, values in lines.items():
        if values.ndim != 1 or not len(values):
            raise UserError(f"errors of {name} must be one number for each step, not of shape {values.shape}")
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    ax = figure.subplots()
    if compared_with is None:
        draw_errors(ax, lines)
        ax.set_ylabel(measure if unit is None else f"{measure} ({unit})", fontsize=10)
    else:
        if compared_with not in lines:
            raise UserError(f"compared_with must be {one_of(lines)}, not {compared_with!r}")
        base = lines[compared_with]
        steps = min(map(len, lines.values()))
        draw_errors(ax, {name: 100 * (one[:steps] / base[:steps] - 1) for name, one in lines.items()}, from_zero=False)
        ax.set_ylabel(f"{measure} compared with {compared_with} (%)", fontsize=10)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=10)
    figure.legend(*ax.get_legend_handles_labels(), frameon=False, fontsize=10, loc="outside lower left", ncols=3)
    ax.set_title(title, fontsize=12, fontweight="bold", loc="left")
    return figure


def draw_errors(ax: Axes, lines: Mapping[str, NDArray[np.float64]], from_zero: bool = True) -> None:
    """The errors of each step, `(T,)`, as lines into axes: the first in the accent, thicker than the others."""
    for number, (name, values) in enumerate(lines.items()):
        color = OTHERS[(number - 1) % len(OTHERS)] if number else ACCENT
        style = "-" if number <= len(OTHERS) else "--"
        steps = np.arange(1, len(values) + 1)
        marker = "o" if len(values) == 1 else None  # a line of one point would not be seen
        ax.plot(steps, values, color=color, ls=style, lw=1.2 if number else 2.4, marker=marker, label=name)
    longest = max(map(len, lines.values()))
    ax.set_xlim(*((1, longest) if longest > 1 else (0.5, 1.5)))
    if from_zero:
        ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 4, 5, 10]))
    ax.set_xlabel("steps ahead", fontsize=10)
    ax.grid(axis="y", color="0.9", lw=0.7)
    ax.set_axisbelow(True)
