"""Figures of what all layers of a fitted predictor look at in a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure
from numpy.typing import NDArray

from tsattn.errors import UserError
from tsattn.figures.attention_grid import PairMap, draw_grid
from tsattn.predictors.attention_layers import AttentionLayer

__all__ = ["maps_by_head", "plot_layers"]

_COLUMNS, _HEADS = 4, 8  # maps in a row of the grid: of different layers, of the heads of one


def plot_layers(
    layers: Sequence[AttentionLayer],
    *,
    chosen: str | Sequence[int] = "all",
    heads: str | Sequence[int] = "all",
    levels: str | Sequence[int] | None = None,
    title: str = "attention",
) -> Figure:
    """Heat maps by layer and head, with the borders of windows or blocks, on one scale of colours.

    Args:
        layers: of one window.
        chosen: ``all`` layers, or the numbers of some.
        heads: ``all``, ``mean`` of all heads of a layer in one map, or the numbers of some.
        levels: None draws probabilities; ``all``, or the numbers of some, from 1, draw what these levels add to the
            score before the softmax.
        title: of the figure.

    Raises:
        UserError: for a layer, head or level that is not there.
    """
    numbers = _numbers("layers", chosen, len(layers))
    rows: list[list[PairMap]] = []
    for number in numbers:
        layer = layers[number]
        for name, values in _parts(layer, levels).items():
            what = ", ".join(filter(None, (f"{layer.name}: {layer.kind}", name)))
            empty = PairMap(values[0], "", what, layer.zones, layer.queries, layer.keys, layer.token)
            maps = [replace(empty, values=one, title=head) for head, one in maps_by_head(values, heads).items()]
            rows += [maps[start : start + _HEADS] for start in range(0, len(maps), _HEADS)]
    if all(len(row) == 1 for row in rows):
        single = [replace(row[0], title=f"{row[0].row}\n{row[0].title}", row="") for row in rows]
        rows = [single[start : start + _COLUMNS] for start in range(0, len(single), _COLUMNS)]
    if levels is None:
        return draw_grid(rows, title=title, quantity="probability", nothing="probability 0")
    return draw_grid(rows, title=title, quantity="added to the score", nothing="adds nothing", signed=True)


def _parts(layer: AttentionLayer, levels: str | Sequence[int] | None) -> dict[str, NDArray[Any]]:
    """What is drawn of a layer, `(H, N, S)` by name."""
    if levels is None:
        return {"": layer.weights}
    if not layer.levels:
        raise UserError(
            f"{layer.name} has attention {layer.kind}, which has no levels; those of mlr, bilinear_mlr and mlbtc do: "
            "leave levels out, or name layers that have some"
        )
    names = [*layer.levels]
    return {names[number]: layer.levels[names[number]] for number in _numbers("levels", levels, len(names), first=1)}


def maps_by_head(values: NDArray[Any], heads: str | Sequence[int]) -> dict[str, NDArray[Any]]:
    """The maps `(N, S)` of `values (H, N, S)` that are asked for, by their titles; see `plot_layers`."""
    H = len(values)
    if isinstance(heads, str) and heads == "mean":
        return {f"mean of {H} heads" if H > 1 else "head 0": values.mean(0)}
    return {f"head {number}": values[number] for number in _numbers("heads", heads, H, "mean, ")}


def _numbers(name: str, given: str | Sequence[int], count: int, also: str = "", first: int = 0) -> list[int]:
    """The places that are asked for, of `count` that are numbered from `first`."""
    valid = range(first, first + count)
    numbers = [*valid] if given == "all" else [] if isinstance(given, str | int) else [*given]
    if not numbers or any(isinstance(one, bool) or not isinstance(one, int) or one not in valid for one in numbers):
        some = f"some of the numbers {first} to {valid[-1]}, such as [{first}]"
        raise UserError(f"{name} must be {also}all, or {some}, not {given!r}")
    return [number - first for number in numbers]
