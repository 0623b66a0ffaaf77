"""Figures of a board: differences with their intervals, accuracy against cost, and ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from tsattn.leaderboard.rank_tests import Ranking
from tsattn.leaderboard.report.inline_svg import PALETTE, figure_style, inline_svg, page_colour
from tsattn.leaderboard.report.wording import each_row, percent, score, size
from tsattn.leaderboard.standings import RankedArm

__all__ = ["cost_figure", "difference_figure", "rank_figure"]

_MARKERS = "osD^vP*X"
_WIDTH = 6.0  # inches
_COSTS = {"flops": ("flops of a forward pass of one window", ""), "seconds": ("seconds of training", "s")}


def difference_figure(comparisons: pd.DataFrame, name: str, label: str) -> str:
    """A line a comparison: by how many percent the MSE differs, with its interval.

    Args:
        comparisons: rows of `compare_all`, of one data set.
        name: of the figure.
        label: what it shows.
    """
    rows = list(each_row(comparisons.sort_values(["predictor", "attention", "horizon"], kind="stable")))
    titles = {}
    with figure_style():
        figure = Figure(figsize=(_WIDTH, 0.9 + 0.21 * len(rows)), layout="constrained")
        ax = figure.subplots()
        ends = comparisons[["percent_low", "percent_high"]].abs().to_numpy().ravel()
        limit = min(float(np.nanmax(ends)), 2.5 * float(np.nanquantile(ends, 0.75))) * 1.05
        ax.axvline(0, color=page_colour("dim"), lw=0.8)
        group, labels = "", []
        for place, row in enumerate(rows):
            arm = f"{row.predictor}, {row.attention}"
            labels.append(f"{arm} · {row.horizon}" if arm != group else f"{row.horizon}")
            if arm != group and place:
                ax.axhline(place - 0.5, color=page_colour("line"), lw=0.6)
            group = arm
            colour = page_colour("dim" if row.verdict == "one seed" else row.verdict)
            low, high = max(row.percent_low, -limit), min(row.percent_high, limit)
            ax.plot([low, high], [place, place], color=colour, lw=1.6, solid_capstyle="butt")
            middle = min(max(row.percent, -limit), limit)
            marker = "o" if abs(row.percent) <= limit else ">" if row.percent > 0 else "<"
            ax.plot([middle], [place], marker, color=colour, ms=5, gid=f"row{place}", clip_on=False)
            interval = f"{percent(row.percent_low)} to {percent(row.percent_high)}"
            titles[f"row{place}"] = f"{arm}, horizon {row.horizon}: {percent(row.percent)} ({interval}), {row.verdict}"
        ax.set_title(rows[0].dataset, fontsize=11, fontweight="bold", loc="left")
        ax.set_yticks(range(len(rows)), labels)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.set_xlim(-limit, limit)
        ax.set_xlabel("MSE beside standard attention, %: less to the left, more to the right", fontsize=8.5)
        ax.tick_params(axis="y", length=0, labelsize=8.5)
        ax.spines[["top", "right", "left"]].set_visible(False)
        return inline_svg(figure, name, label, titles)


def cost_figure(means: pd.DataFrame, cost: str, name: str, label: str) -> str:
    """A point an arm: its MSE against what it costs, with axes for each data set.

    Args:
        means: rows of `horizon_means` that have both.
        cost: ``flops`` or ``seconds``.
        name: of the figure.
        label: what it shows.
    """
    datasets = list(dict.fromkeys(means["dataset"]))
    predictors = list(dict.fromkeys(means["predictor"]))
    attentions = list(dict.fromkeys(means["attention"]))
    colours = dict(zip(attentions, _cycled(PALETTE, len(attentions)), strict=True)) | {"": page_colour("dim")}
    markers = dict(zip(predictors, _cycled(_MARKERS, len(predictors)), strict=True))
    columns = min(2, len(datasets))
    lines = math.ceil(len(datasets) / columns)
    titles = {}
    word, unit = _COSTS[cost]
    with figure_style():
        figure = Figure(figsize=(_WIDTH, 0.9 + 2.5 * lines), layout="constrained")
        for ax, dataset in zip(figure.subplots(lines, columns, squeeze=False).ravel(), datasets, strict=False):
            for number, row in enumerate(each_row(means[means["dataset"] == dataset])):
                gid = f"{datasets.index(dataset)}-{number}"
                colour, marker = colours[row.attention], markers[row.predictor]
                value = getattr(row, cost)
                ax.plot([value], [row.mse], marker, color=colour, ms=6, alpha=0.85, mew=0, gid=gid)
                titles[gid] = f"{RankedArm(row.predictor, row.attention)}: MSE {score(row.mse)}, {size(value, unit)}"
            ax.set_title(dataset, fontsize=10)
            _tidy_scatter(ax)
        for ax in figure.axes[len(datasets) :]:
            ax.set_visible(False)
        figure.supxlabel(word, fontsize=10, color=page_colour("ink"))
        figure.supylabel("MSE", fontsize=10, color=page_colour("ink"))
        dim = page_colour("dim")
        handles = [Line2D([], [], color=dim, marker=markers[one], ls="", ms=6, label=one) for one in predictors]
        handles += [Line2D([], [], color=colours[one], marker="s", ls="", label=one) for one in attentions if one]
        figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
        return inline_svg(figure, name, label, titles)


def rank_figure(ranking: Ranking, posthocs: ModuleType, name: str, label: str) -> str:
    """Mean ranks on a line; bars join arms that Nemenyi's test does not tell apart.

    Args:
        ranking: of the arms.
        posthocs: the package that draws it.
        name: of the figure.
        label: what it shows.
    """
    ink = page_colour("ink")
    with figure_style():
        figure = Figure(figsize=(_WIDTH, 1.1 + 0.17 * len(ranking.ranks)), layout="constrained")
        ax = figure.subplots()
        posthocs.critical_difference_diagram(
            ranking.ranks,
            ranking.pairs,
            ax=ax,
            label_fmt_left="{label}  {rank:.2f}",
            label_fmt_right="{rank:.2f}  {label}",
            text_h_margin=0.02 * float(np.ptp(ranking.ranks)),
            color_palette=dict.fromkeys(ranking.ranks.index, ink),
            label_props={"fontsize": 9},
            marker_props={"marker": "o", "s": 18, "color": page_colour("accent")},
            elbow_props={"linewidth": 0.7},
            crossbar_props={"color": ink, "linewidth": 2.5},
        )
        return inline_svg(figure, name, label)


def _cycled(values: Sequence[str], length: int) -> list[str]:
    return [values[number % len(values)] for number in range(length)]


def _tidy_scatter(ax: Axes) -> None:
    ax.set_xscale("log")
    if math.dist(np.log10(ax.get_xlim()[:1]), np.log10(ax.get_xlim()[1:])) >= 1:  # powers of ten say enough
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, lw=0.5)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=8.5)
