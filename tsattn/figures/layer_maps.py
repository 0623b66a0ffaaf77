"""Draw the attention of a fitted predictor's layers in a window, as heat maps on one scale of colours.

Shape letters: H heads, N query tokens, S key tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection
from matplotlib.dates import AutoDateLocator, date2num, num2date
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from tsattn.errors import UserError, is_whole_number
from tsattn.figures.style import BOTH_SIDES, HEAT, INK, NOTHING
from tsattn.predictors.attention_layers import AttentionLayer

_COLUMNS, _HEADS = 4, 8  # maps in a row of the grid: of different layers, of the heads of one
_BRIGHTEST = 0.99  # share of numbers above 0 that get different colours; a few peaks would hide the rest
_BORDERS = (1.7, 0.95), (0.8, 0.55)  # width and opacity of the coarsest level's borders and of the finest level's
_MOST_NAMES = 24  # of tokens that an axis can hold


@dataclass(frozen=True, eq=False)
class _Map:
    """A number for each pair of tokens of a layer, `(N, S)`, queries down and keys across."""

    layer: AttentionLayer
    values: NDArray[Any]
    title: str
    row: str = ""  # what its row of the grid shows


def plot_layers(
    layers: Sequence[AttentionLayer],
    *,
    chosen: str | Sequence[int] = "all",
    heads: str | Sequence[int] = "all",
    levels: str | Sequence[int] | None = None,
    title: str = "attention",
) -> Figure:
    """Draw heat maps by layer and head, with the borders of windows or blocks, on one scale of colours.

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
    rows = _maps_in_rows(layers, chosen, heads, levels)
    signed = levels is not None  # then 0 is in mid-scale
    columns, maps = max(map(len, rows)), [one for row in rows for one in row]
    zones = {name: zone for one in maps for name, zone in one.layer.zones.items()}
    side = 4.6 if len(maps) == 1 else 3.0 if columns <= 2 else 2.6 if columns <= 4 else 2.0
    size = columns * side + 1.6, len(rows) * side + 0.9 + 0.2 * len(zones)
    figure = Figure(figsize=size, layout="compressed")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    every = np.concatenate([one.values.ravel() for one in maps])
    sizes = np.abs(every[every != 0])
    top = float(np.quantile(sizes, _BRIGHTEST)) if len(sizes) else 1.0
    colours = {"cmap": BOTH_SIDES if signed else HEAT, "vmin": -top if signed else 0.0, "vmax": top}
    for row, under, line in zip(rows, [*rows[1:], ()], axes, strict=True):
        for column, (ax, one) in enumerate(zip(line, row, strict=False)):
            image = _draw_map(ax, one, colours)
            before, below = row[column - 1] if column else None, under[column] if column < len(under) else None
            _label(ax, one, before, below, 4 if columns > 1 else 7)
        for ax in line[len(row) :]:
            ax.set_visible(False)
    shape: dict[str, Any] = {"fraction": 0.05, "pad": 0.02, "aspect": 30, "shrink": min(1.0, 6 / size[1])}
    has_lower, has_higher = bool(signed and every.min() < -top), bool(every.max() > top)
    extend = ("neither", "max", "min", "both")[2 * has_lower + has_higher]
    bar = figure.colorbar(image, ax=axes, extend=extend, **shape)
    bar.set_label("added to the score" if signed else "probability", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    handles: list[Any] = [  # a zone that holds all pairs has no borders
        Line2D([], [], ls="none", label=f"{name}, all pairs") if zone.all() else Line2D([], [], label=name, **line)
        for name, zone, line in _borders(zones)
    ]
    if len(sizes) < len(every):
        handles.append(Patch(color=NOTHING, label="adds nothing" if signed else "probability 0"))
    if handles:
        ncols = min(4, max(1, int(size[0] // 3)))
        figure.legend(handles=handles, frameon=False, fontsize=8, loc="outside lower center", ncols=ncols)
    figure.suptitle(title, fontsize=11)
    return figure


def _maps_in_rows(
    layers: Sequence[AttentionLayer], chosen: str | Sequence[int], heads: str | Sequence[int], levels: Any
) -> list[list[_Map]]:
    rows: list[list[_Map]] = []
    for number in _numbers("layers", chosen, len(layers)):
        layer = layers[number]
        parts = {"": layer.weights} if levels is None else layer.levels
        if not parts:
            what = f"{layer.name} has attention {layer.kind}, which has no levels; those of mlr, bilinear_mlr and mlbtc"
            raise UserError(f"{what} do: leave levels out, or name layers that have some")
        named = [*parts] if levels is None else [[*parts][at] for at in _numbers("levels", levels, len(parts), first=1)]
        for name in named:
            values, shown = parts[name], ", ".join(filter(None, (f"{layer.name}: {layer.kind}", name)))
            H = len(values)
            if isinstance(heads, str) and heads == "mean":
                maps = [_Map(layer, values.mean(0), f"mean of {H} heads" if H > 1 else "head 0", shown)]
            else:
                maps = [_Map(layer, values[one], f"head {one}", shown) for one in _numbers("heads", heads, H, "mean, ")]
            rows += [maps[start : start + _HEADS] for start in range(0, len(maps), _HEADS)]
    if all(len(row) == 1 for row in rows):
        single = [_Map(one.layer, one.values, f"{one.row}\n{one.title}") for (one,) in rows]
        rows = [single[start : start + _COLUMNS] for start in range(0, len(single), _COLUMNS)]
    return rows


def _numbers(name: str, given: str | Sequence[int], count: int, also: str = "", first: int = 0) -> list[int]:
    valid = range(first, first + count)
    named = [*valid] if isinstance(given, str) and given == "all" else []
    numbers = named if isinstance(given, str) or is_whole_number(given) else [*given]
    if not numbers or not all(is_whole_number(one) and one in valid for one in numbers):
        some = f"some of the numbers {first} to {valid[-1]}, such as [{first}]"
        raise UserError(f"{name} must be {also}all, or {some}, not {given!r}")
    return [number - first for number in numbers]


def _draw_map(ax: Axes, one: _Map, colours: Mapping[str, Any]) -> Any:
    shown = np.ma.masked_equal(one.values, 0)
    aspect: Any = "equal" if one.values.shape[0] == one.values.shape[1] else "auto"
    image = ax.imshow(shown, interpolation="nearest", aspect=aspect, **colours)
    ax.set_title(one.title, fontsize=9)
    ax.spines[:].set_visible(True)  # the house style hides two
    for _, zone, line in _borders(one.layer.zones):
        if not zone.all():
            # segments between the cells in the zone and their neighbours outside
            edges = [((j + 0.5, i - 0.5), (j + 0.5, i + 0.5)) for i, j in np.argwhere(zone[:, 1:] != zone[:, :-1])]
            edges += [((j - 0.5, i + 0.5), (j + 0.5, i + 0.5)) for i, j in np.argwhere(zone[1:] != zone[:-1])]
            # on a white rim, which is visible on dark cells
            rim = {"color": "white", "linewidth": line["linewidth"] + 1, "alpha": 0.6}
            for number, style in enumerate((rim, line)):
                ax.add_collection(LineCollection(edges, zorder=2 + number, **style), autolim=False)
    return image


def _borders(zones: Mapping[str, NDArray[np.bool_]]) -> Iterator[tuple[str, NDArray[np.bool_], dict[str, Any]]]:
    steps = np.linspace(*_BORDERS, max(2, len(zones)))
    for (name, zone), (width, opacity) in zip(zones.items(), steps, strict=False):
        yield name, zone, {"color": INK, "linewidth": width, "alpha": opacity}


def _label(ax: Axes, one: _Map, before: _Map | None, below: _Map | None, ticks: int) -> None:
    ax.tick_params(labelsize=8, length=2.5)
    layer, keys, queries = one.layer, _mark(ax.xaxis, one.layer.keys, ticks), _mark(ax.yaxis, one.layer.queries, ticks)
    if below is not None and below.layer.keys.equals(layer.keys):
        ax.tick_params(labelbottom=False)
    else:
        ax.set_xlabel(f"key {layer.token}{keys}", fontsize=9)
        if sum(isinstance(label, str) for label in layer.keys) > 1:
            ax.tick_params(axis="x", labelrotation=90)
    if before is not None and before.layer.queries.equals(layer.queries):
        ax.tick_params(labelleft=False)
    else:
        ax.set_ylabel(f"{one.row}\n" * bool(one.row) + f"query {layer.token}{queries}", fontsize=9)


def _mark(axis: Axis, labels: pd.Index[Any], most: int) -> str:
    """Put ticks on an axis of tokens, and return what its name must add to them."""
    named = [place for place, label in enumerate(labels) if isinstance(label, str)]
    stamped = np.setdiff1d(np.arange(len(labels)), named)
    ticks, more = _time_ticks(labels[stamped], stamped, most) if len(stamped) else ([], "")
    # the label of a time would overlap the label of a named token nearby
    ticks = [tick for tick in ticks if all(abs(tick[0] - place) >= 0.12 * len(labels) for place in named)]
    ticks += [(place, str(labels[place])) for place in named[:: -(-len(named) // _MOST_NAMES) or 1]]
    axis.set_ticks([place for place, _ in ticks], [text for _, text in ticks])
    return more


def _time_ticks(stamps: pd.Index[Any], places: NDArray[Any], most: int) -> tuple[list[tuple[float, str]], str]:
    are_steps = not isinstance(stamps[0], pd.Timestamp)
    numbers = np.asarray(stamps, float) if are_steps else date2num(pd.DatetimeIndex(stamps).to_pydatetime())  # type: ignore[no-untyped-call]
    locator: Any = MaxNLocator(most, integer=True) if are_steps else AutoDateLocator(minticks=2, maxticks=most)  # type: ignore[no-untyped-call]
    ticks = locator.tick_values(*(numbers[[0, -1]] if are_steps else num2date(numbers[[0, -1]])))  # type: ignore[no-untyped-call]
    wanted = [tick for tick in ticks if numbers[0] <= tick <= numbers[-1]] or numbers[:1]
    texts, year = [f"{number:g}" for number in wanted], ""
    if not are_steps:
        dates, form = pd.DatetimeIndex(num2date(wanted)), "%Y"  # type: ignore[no-untyped-call]
        in_one_year = dates[0].year == dates[-1].year
        if (dates != dates.normalize()).any():
            form = "%H:%M\n%b %d"
        elif (dates.day != 1).any():
            form = "%b %d" if in_one_year else "%Y-%m-%d"
        elif (dates.month != 1).any():
            form = "%b" if in_one_year else "%b %Y"
        texts = [text.replace(" 0", " ") for text in dates.strftime(form)]
        year = f", {dates[0].year}" if in_one_year and form != "%Y" else ""
    return [*zip(np.interp(wanted, numbers, places).tolist(), texts, strict=True)], year
