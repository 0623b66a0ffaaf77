"""The drawings of the documentation, made of the package's own patterns and matrices: `python docs/images/draw.py`."""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from PIL import Image

from tsattn import build_attention
from tsattn.attention.maps import attention_zones
from tsattn.figures.style import ACCENT, HEAT, INK, OTHERS
from tsattn.structured import BTT, MLR, StructuredMatrix

HERE = Path(__file__).parent
TOKENS, HEAD = 16, 8
RANKS = (4, 2, 2)
SETTINGS = {"svg.hashsalt": "tsattn", "font.size": 9, "text.color": INK, "axes.edgecolor": INK}


def zones(description: object, causal: bool = False) -> list[np.ndarray]:
    """The pairs that a pattern favours, coarse to fine, each `(T, T)`."""
    attention = build_attention(description, d_model=HEAD, num_heads=1, max_length=TOKENS, causal=causal)
    found = attention_zones(attention, torch.zeros(1, TOKENS, HEAD))
    return [zone[0].numpy() for zone in found.values()]


def components(kind: str) -> np.ndarray:
    """`(T, T)`: with how many of the components of a head each pair is scored."""
    everything = np.ones((TOKENS, TOKENS), dtype=int)
    if kind in ("standard", "btt"):
        return everything * HEAD
    if kind == "swa":
        (near,) = zones({"kind": "swa", "window_size": 3})
        return near * HEAD
    if kind == "global_swa":
        (near,) = zones({"kind": "global_swa", "window_size": 3, "global_rank": HEAD // 2})
        return everything * (HEAD // 2) + near * (HEAD // 2)
    causal = kind == "mlr, causal"
    levels = zones({"kind": "mlr", "ranks": list(RANKS)}, causal)
    total = sum(rank * level for rank, level in zip(RANKS, levels, strict=True))
    return np.tril(total) if causal else total


def draw_matrix(axes: Axes, matrix: np.ndarray, title: str, top: float) -> None:
    """Cells in the colour of their value; those that are 0 in grey."""
    shown = np.ma.masked_equal(matrix, 0)
    axes.imshow(shown, cmap=HEAT, vmin=0, vmax=top, interpolation="none")
    axes.set(xticks=[], yticks=[], title=title)
    for side in axes.spines.values():
        side.set_visible(False)


def draw_patterns() -> Figure:
    """Which pairs of positions are scored, and with how many components."""
    kinds = ("standard", "swa", "global_swa", "mlr", "mlr, causal")
    figure = Figure(figsize=(10, 2.6), layout="constrained")
    panels = figure.subplots(1, len(kinds))
    for axes, kind in zip(panels, kinds, strict=True):
        draw_matrix(axes, components(kind), kind, HEAD)
    panels[0].set(ylabel="queries", xlabel="keys")
    scale = mpl.cm.ScalarMappable(mpl.colors.Normalize(0, HEAD), HEAT)
    figure.colorbar(scale, ax=panels, shrink=0.75, label="components", ticks=range(0, HEAD + 1, 2))
    return figure


def draw_levels() -> Figure:
    """What each level of MLR attention adds, and the sum."""
    levels = zones({"kind": "mlr", "ranks": list(RANKS)})
    figure = Figure(figsize=(10, 2.7), layout="constrained")
    panels = figure.subplots(1, 4)
    for number, (axes, rank, level) in enumerate(zip(panels, RANKS, levels, strict=False), 1):
        blocks = 2 ** (number - 1)
        draw_matrix(axes, level * rank, f"level {number}: {blocks} block{'s'[: blocks - 1]}, rank {rank}", HEAD)
    draw_matrix(panels[3], components("mlr"), "the sum: 8 near, 6, 4 far", HEAD)
    for axes, sign in zip(panels[1:], "++=", strict=True):
        axes.text(-0.07, 0.5, sign, transform=axes.transAxes, ha="center", va="center", size=14)
    panels[0].set(ylabel="queries", xlabel="keys")
    return figure


def sizes(matrix: StructuredMatrix) -> np.ndarray:
    """Magnitudes of the whole matrix."""
    return matrix.to_dense().abs().numpy()


def draw_projections() -> Figure:
    """The bilinear form of a head, and the factors that it is made of."""
    torch.manual_seed(3)
    width, rank = 16, 4
    low = MLR((torch.randn(1, width, rank),), (torch.randn(1, width, rank),))
    btt = BTT.random(width, 1, left_heads=1, right_heads=1)
    mlr = MLR.random(width, width, (2, 2))
    left = torch.block_diag(*btt.left[0])
    right = torch.block_diag(*btt.right[0]).mT
    coarse, fine = (MLR.from_levels([level]) for level in mlr.levels)
    rows: list[tuple[str, list[tuple[str, np.ndarray]]]] = [
        (
            "low rank\n(standard, swa, mlr)\n128 numbers, rank 4",
            [("M", sizes(low)), ("$W_Q$", low.left[0][0].abs().numpy()), ("$W_K^T$", low.right[0][0].mT.abs().numpy())],
        ),
        (
            "btt, TT-rank 1\n128 numbers, rank 16",
            [("M", sizes(btt)[0]), ("L, permuted", left.abs().numpy()), ("R, permuted", right.abs().numpy())],
        ),
        (
            "bilinear_mlr, ranks 2, 2\n128 numbers, rank 6",
            [("M", sizes(mlr)), ("level 1", sizes(coarse)), ("level 2", sizes(fine))],
        ),
    ]
    figure = Figure(figsize=(7.2, 6.2), layout="constrained")
    grid = figure.subplots(3, 3)
    for row, signs, (name, parts) in zip(grid, ("=·", "=·", "=+"), rows, strict=True):
        for axes, (title, matrix) in zip(row, parts, strict=True):
            draw_matrix(axes, matrix, title, float(np.quantile(matrix[matrix > 0], 0.95)))
        for axes, sign in zip(row[1:], signs, strict=True):
            axes.text(-0.25, 0.5, sign, transform=axes.transAxes, ha="center", va="center", size=14)
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")
    return figure


def draw_chain(steps: Sequence[tuple[str, str]], per_row: int) -> Figure:
    """Boxes with arrows between them, left to right, row by row."""
    rows = -(-len(steps) // per_row)
    figure = Figure(figsize=(9.6, 1.45 * rows))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, per_row), ylim=(-rows, 0))
    axes.set_axis_off()
    for number, (name, about) in enumerate(steps):
        row, column = divmod(number, per_row)
        x, y = column + 0.07, -row - 0.85
        style = "round,pad=0,rounding_size=0.06"
        axes.add_patch(FancyBboxPatch((x, y), 0.78, 0.7, style, facecolor="white", edgecolor=OTHERS[1], linewidth=1.4))
        axes.text(x + 0.39, y + 0.47, name, ha="center", va="center", size=11, weight="bold")
        axes.text(x + 0.39, y + 0.2, about, ha="center", va="center", size=7.5)
        if number + 1 < len(steps):
            near = (x + 0.78, y + 0.35)
            far = (x + 1.0, y + 0.35) if column + 1 < per_row else (x + 1.0 - 0.08, y + 0.35)
            if column + 1 < per_row:
                axes.add_patch(FancyArrowPatch(near, far, arrowstyle="-|>", mutation_scale=11, color=ACCENT))
            else:  # around the corner, to the row below
                corners = [(near[0], near[1]), (far[0], near[1]), (far[0], y - 0.15), (0.02, y - 0.15)]
                axes.plot(*zip(*[*corners, (0.02, y - 0.65)], strict=True), color=ACCENT, linewidth=1.2)
                end = FancyArrowPatch(
                    (0.019, y - 0.65), (0.07, y - 0.65), arrowstyle="-|>", mutation_scale=11, color=ACCENT
                )
                axes.add_patch(end)
    return figure


def draw_flow() -> Figure:
    """The way of data through the package."""
    return draw_chain(
        [
            ("source", "a file, a frame,\na public data set"),
            ("panel", "all series\non their time grids"),
            ("split rule", "training, validation,\ntest, by time"),
            ("scaler", "of training\nrows alone"),
            ("windows", "context\nand horizon"),
            ("predictor", "a network, ridge,\nnaive, an ensemble"),
            ("forecast", "(B, T, C) or\n(B, T, C, Q)"),
            ("errors", "a row a series,\norigin, channel"),
            ("run folder", "configuration, errors,\ncheckpoints"),
            ("report", "one page,\nno network needed"),
        ],
        per_row=5,
    )


def write_png(figure: Figure, path: Path, dpi: int) -> None:
    """Write a figure of few colours as a small file."""
    file = io.BytesIO()
    figure.savefig(file, dpi=dpi, facecolor="white")
    Image.open(file).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


DRAWINGS = {"patterns": draw_patterns, "levels": draw_levels, "projections": draw_projections, "flow": draw_flow}


def main() -> None:
    """Write each drawing as SVG."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=HERE, help="folder to write into")
    output = parser.parse_args().output
    with mpl.rc_context(SETTINGS):
        for name, draw in DRAWINGS.items():
            draw().savefig(output / f"{name}.svg", metadata={"Date": None}, facecolor="white", bbox_inches="tight")


if __name__ == "__main__":
    main()
