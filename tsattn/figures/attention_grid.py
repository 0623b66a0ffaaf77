"""A grid of heat maps of pairs of tokens, with one scale of colours for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib.dates
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from tsattn.figures.style import BOTH_SIDES, HEAT, INK, NOTHING

__all__ = ["PairMap", "draw_grid"]

_dates: Any = matplotlib.dates  # which has no types
_BRIGHTEST = 0.99  # the share of numbers above 0 that the colours tell apart; a few peaks would hide the rest
_BORDERS = (1.7, 0.95), (0.8, 0.55)  # width and opacity of the coarsest level's borders and of the finest level's
_MOST_NAMES = 24  # of tokens that an axis can hold


@dataclass(frozen=True, eq=False)
class PairMap:
    """A number for each pair of tokens.

    Attributes:
        values: `(N, S)`, queries down and keys across; of what is exactly 0 no colour is shown.
        title: above it; empty for none.
        row: what its row of the grid shows; empty for nothing.
        zones: `(N, S)` bool by name, coarse to fine, whose borders are drawn.
        queries: what the N queries stand for; counted by default.
        keys: what the S keys stand for.
        token: what a token is, in one word.
    """

    values: NDArray[Any]
    title: str = ""
    row: str = ""
    zones: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    queries: pd.Index[Any] | None = None
    keys: pd.Index[Any] | None = None
    token: str = "token"


def draw_grid(
    rows: Sequence[Sequence[PairMap]], *, title: str, quantity: str, nothing: str, signed: bool = False
) -> Figure:
    """A row of heat maps for each row.

    Args:
        rows: the maps; rows may have fewer than the first.
        title: of the figure.
        quantity: what the colours mean.
        nothing: what 0 means.
        signed: whether numbers may be below 0; then 0 is in the middle of the colours.
    """
    columns = max(map(len, rows))
    maps = [one for row in rows for one in row]
    zones = {name: zone for one in maps for name, zone in one.zones.items()}
    side = 4.6 if len(maps) == 1 else 3.0 if columns <= 2 else 2.6 if columns <= 4 else 2.0
    size = columns * side + 1.6, len(rows) * side + 0.9 + 0.2 * len(zones)
    figure = Figure(figsize=size, layout="compressed")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    every = np.concatenate([one.values.ravel() for one in maps])
    sizes = np.abs(every[every != 0])
    top = float(np.quantile(sizes, _BRIGHTEST)) if len(sizes) else 1.0
    colours = {"cmap": BOTH_SIDES if signed else HEAT, "vmin": -top if signed else 0.0, "vmax": top}
    image: Any = None
    for number, row in enumerate(rows):
        for column in range(columns):
            ax = axes[number, column]
            if column >= len(row):
                ax.set_visible(False)
                continue
            image = _draw_map(ax, row[column], colours)
            below = rows[number + 1][column] if number + 1 < len(rows) and column < len(rows[number + 1]) else None
            ticks = 4 if columns > 1 else 7
            _label(ax, row[column], row[column - 1] if column else None, below, ticks)
    beyond = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
    extend = beyond[bool(signed and every.min() < -top), bool(every.max() > top)]
    bar = figure.colorbar(
        image, ax=axes, extend=extend, fraction=0.05, pad=0.02, aspect=30, shrink=min(1.0, 6 / size[1])
    )
    bar.set_label(quantity, fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    handles = _border_handles(zones)
    if len(sizes) < len(every):
        handles.append(Patch(color=NOTHING, label=nothing))
    if handles:
        width = max(1, int(size[0] // 3))
        figure.legend(handles=handles, frameon=False, fontsize=8, loc="outside lower center", ncols=min(4, width))
    figure.suptitle(title, fontsize=11)
    return figure


def _draw_map(ax: Axes, one: PairMap, colours: Mapping[str, Any]) -> Any:
    shown = np.ma.masked_equal(one.values, 0)
    aspect: Any = "equal" if one.values.shape[0] == one.values.shape[1] else "auto"
    image = ax.imshow(shown, interpolation="nearest", aspect=aspect, **colours)
    ax.set_title(one.title, fontsize=9)
    ax.spines[:].set_visible(True)  # the house style hides two
    for _, zone, line in _borders(one.zones):
        if not zone.all():
            # on a rim of white, that is seen on dark cells
            edges, rim = _edges(zone), {"color": "white", "linewidth": line["linewidth"] + 1, "alpha": 0.6}
            for number, style in enumerate((rim, line)):
                ax.add_collection(LineCollection(edges, zorder=2 + number, **style), autolim=False)
    return image


def _label(ax: Axes, one: PairMap, before: PairMap | None, below: PairMap | None, ticks: int) -> None:
    """Ticks and names of both axes, where the map before or below it does not say the same."""
    ax.tick_params(labelsize=8, length=2.5)
    keys = _mark(ax.xaxis, one.keys, one.values.shape[1], ticks)
    queries = _mark(ax.yaxis, one.queries, one.values.shape[0], ticks)
    if below is not None and _same(below.keys, one.keys, below.values.shape[1], one.values.shape[1]):
        ax.tick_params(labelbottom=False)
    else:
        ax.set_xlabel(f"key {one.token}{keys}", fontsize=9)
        if _is_named(one.keys):
            ax.tick_params(axis="x", labelrotation=90)
    if before is None or not _same(before.queries, one.queries, before.values.shape[0], one.values.shape[0]):
        ax.set_ylabel(f"{one.row}\n" * bool(one.row) + f"query {one.token}{queries}", fontsize=9)
    else:
        ax.tick_params(labelleft=False)


def _mark(axis: Axis, labels: pd.Index[Any] | None, count: int, most: int) -> str:
    """Put ticks on an axis of tokens, and give what its name must say of them as well."""
    if labels is None:
        axis.set_major_locator(MaxNLocator(5, integer=True))
        return ""
    stamped = [place for place, label in enumerate(labels) if not isinstance(label, str)]
    named = [place for place, label in enumerate(labels) if isinstance(label, str)]
    places: list[float] = []
    texts: list[str] = []
    more = ""
    if stamped:
        places, texts, more = _time_ticks(labels[stamped], np.array(stamped), most)
    step = -(-len(named) // _MOST_NAMES) if named else 1
    kept = [place for place in places if not _is_near(place, named, count)]
    texts = [text for place, text in zip(places, texts, strict=True) if place in kept]
    axis.set_ticks([*kept, *named[::step]], [*texts, *(str(labels[place]) for place in named[::step])])
    return more


def _is_near(place: float, named: Sequence[int], count: int) -> bool:
    """Whether the label of a time would lie under that of a named token."""
    return any(abs(place - other) < 0.12 * count for other in named)


def _time_ticks(stamps: pd.Index[Any], places: NDArray[Any], most: int) -> tuple[list[float], list[str], str]:
    """Places between the first and last token, their labels, and what is common to all of these."""
    if not isinstance(stamps[0], pd.Timestamp):
        numbers = np.asarray(stamps, dtype=np.float64)
        ticks = np.array(MaxNLocator(most, integer=True).tick_values(numbers[0], numbers[-1]))
        wanted = _within(ticks, numbers)
        return np.interp(wanted, numbers, places).tolist(), [f"{number:g}" for number in wanted], ""
    numbers = _dates.date2num(pd.DatetimeIndex(stamps).to_pydatetime())
    locator = _dates.AutoDateLocator(minticks=2, maxticks=most)
    ends = _dates.num2date(numbers[0]), _dates.num2date(numbers[-1])
    wanted = _within(np.array(locator.tick_values(*ends)), numbers)
    texts, common = _written(pd.DatetimeIndex(_dates.num2date(wanted)))
    return np.interp(wanted, numbers, places).tolist(), texts, common


def _within(wanted: NDArray[Any], numbers: NDArray[Any]) -> NDArray[Any]:
    """Those of the ticks between the first and the last number; the first number itself where there are none."""
    within = wanted[(wanted >= numbers[0]) & (wanted <= numbers[-1])]
    return within if len(within) else numbers[:1]


def _written(ticks: pd.DatetimeIndex) -> tuple[list[str], str]:
    """Labels that are as short as they can be, and the year where it is the same in all."""
    same_year = ticks[0].year == ticks[-1].year
    year = f", {ticks[0]:%Y}" if same_year else ""
    if (ticks != ticks.normalize()).any():
        return [f"{tick:%H:%M}\n{tick:%b} {tick.day}" for tick in ticks], year
    if (ticks.day != 1).any():
        return [f"{tick:%b} {tick.day}" if same_year else f"{tick:%Y-%m-%d}" for tick in ticks], year
    if (ticks.month != 1).any():
        return [f"{tick:%b}" if same_year else f"{tick:%b %Y}" for tick in ticks], year
    return [f"{tick:%Y}" for tick in ticks], ""


def _same(one: pd.Index[Any] | None, other: pd.Index[Any] | None, count: int, other_count: int) -> bool:
    """Whether two axes show the same tokens."""
    if one is None or other is None:
        return one is other and count == other_count
    return one is other or one.equals(other)


def _is_named(labels: pd.Index[Any] | None) -> bool:
    return labels is not None and sum(isinstance(label, str) for label in labels) > 1


def _borders(zones: Mapping[str, NDArray[np.bool_]]) -> Iterator[tuple[str, NDArray[np.bool_], dict[str, Any]]]:
    """Each zone with the line that its borders are drawn by, the finer the lighter."""
    steps = np.linspace(0, 1, max(2, len(zones)))
    for (name, zone), step in zip(zones.items(), steps, strict=False):
        width, opacity = (coarse + step * (fine - coarse) for coarse, fine in zip(*_BORDERS, strict=True))
        yield name, zone, {"color": INK, "linewidth": width, "alpha": opacity}


def _border_handles(zones: Mapping[str, NDArray[np.bool_]]) -> list[Artist]:
    """What the legend says of the zones; one that holds all pairs has no borders."""
    return [
        Line2D([], [], linestyle="none", label=f"{name}, all pairs")
        if zone.all()
        else Line2D([], [], label=name, **line)
        for name, zone, line in _borders(zones)
    ]


def _edges(zone: NDArray[np.bool_]) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Segments between the cells of `zone (N, S)` that lie in it and their neighbours that do not."""
    across = [((j + 0.5, i - 0.5), (j + 0.5, i + 0.5)) for i, j in np.argwhere(zone[:, 1:] != zone[:, :-1])]
    down = [((j - 0.5, i + 0.5), (j + 0.5, i + 0.5)) for i, j in np.argwhere(zone[1:] != zone[:-1])]
    return [*across, *down]
