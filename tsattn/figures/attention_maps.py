"""Figures of what an attention looks at. They are returned, never shown."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from torch import Tensor, nn

from tsattn.attention import Attention
from tsattn.attention.maps import attention_map, attention_zones
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.figures.style import HEAT, INK, NOTHING

__all__ = ["plot_attention", "plot_attention_maps"]

_COLUMNS = 4
_BRIGHTEST = 0.99  # the share of probabilities above 0 that the colours tell apart; a few peaks would hide the rest
_BORDERS = (1.7, 0.95), (0.8, 0.55)  # width and opacity of the coarsest level's borders and of the finest level's


def plot_attention(
    attention: Attention,
    x: Tensor,
    *,
    heads: str | Sequence[int] = "mean",
    row: int = 0,
    title: str | None = None,
    **given: Tensor | None,
) -> Figure:
    """Heat maps of the probabilities, queries down and keys across, with the borders of window or blocks.

    Args:
        attention: a built attention.
        x: `(B, N, D)` tokens.
        heads: ``mean`` of all heads in one map, ``all``, or the numbers of some, one map each.
        row: which of the B sequences.
        title: of the figure; the class of the attention by default.
        **given: what else `attention_map` takes, such as ``blocks (levels, B, N)`` or ``attention_mask (B, N)``.

    Raises:
        UserError: for a head or row that is not there, or arguments that the attention does not take.
    """
    if not 0 <= row < len(x):
        raise UserError(f"row must be from 0 to {len(x) - 1}, not {row}")
    arguments = _one_row({"x": x, **given}, row)
    weights = attention_map(attention, **arguments)[0].float().cpu().numpy()
    maps = _chosen_heads(weights, heads)
    context = arguments.pop("context", None)
    arguments.pop("bias", None)
    zones = attention_zones(attention, **arguments) if context is None else {}
    borders = {name: zone[0].cpu().numpy() for name, zone in zones.items()}
    return _draw(maps, borders, type(attention).__name__ if title is None else title)


def plot_attention_maps(
    model: nn.Module,
    batch: Batch,
    *,
    layer: int = 0,
    heads: str | Sequence[int] = "mean",
    window: int = 0,
    channel: int = 0,
    title: str | None = None,
) -> Figure:
    """What the attention of one layer of a model looks at in a window; see `plot_attention`.

    Args:
        model: a backbone, a built ForecastingModule, or any module from a `Batch` that holds attentions.
        batch: windows on the scale and the device of the model.
        layer: which attention of the model, in the order of its modules.
        heads: see `plot_attention`.
        window: which window of the batch.
        channel: which channel, for a backbone that reads each channel as a sequence of its own.
        title: of the figure; the class of the attention and its layer by default.

    Raises:
        UserError: for a layer, window, channel or head that is not there.
    """
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    if not attentions:
        raise UserError(f"{type(model).__name__} has no attention; a ForecastingModule has one once it is built")
    if not 0 <= layer < len(attentions):
        raise UserError(f"layer must be from 0 to {len(attentions) - 1}, not {layer}")
    if not 0 <= window < len(batch):
        raise UserError(f"window must be from 0 to {len(batch) - 1}, not {window}")
    attention = attentions[layer]
    arguments = _input_of(attention, model, batch.rows(window, window + 1))
    sequences = len(arguments["x"])
    if not 0 <= channel < sequences:
        raise UserError(f"channel must be from 0 to {sequences - 1}, the sequences of a window here, not {channel}")
    if title is None:
        title = f"{type(attention).__name__}, layer {layer}"
    return plot_attention(attention, heads=heads, row=channel, title=title, **arguments)


def _input_of(attention: Attention, model: nn.Module, batch: Batch) -> dict[str, Any]:
    """The arguments, by name, that the model calls this attention with for a batch."""
    signature = inspect.signature(attention.forward)
    seen: dict[str, Any] = {}

    def remember(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.update(signature.bind(*args, **kwargs).arguments)

    hook = attention.register_forward_pre_hook(remember, with_kwargs=True)
    was_training = [module for module in model.modules() if module.training]
    try:
        with torch.no_grad():
            model.eval()(batch)
    finally:
        hook.remove()
        for module in was_training:
            module.training = True
    return {name: value for name, value in seen.items() if value is not None}


def _one_row(arguments: dict[str, Any], row: int) -> dict[str, Any]:
    """The arguments of `attention_map` for one sequence of the batch."""
    batch_axis = {"blocks": 1}
    own_axes = {"positions": 2, "global_tokens": 2, "bias": 4}  # with fewer, they serve the whole batch
    one = {}
    for name, value in arguments.items():
        axis = batch_axis.get(name, 0)
        if value is not None and value.dim() >= own_axes.get(name, 0) and value.shape[axis] > 1:
            value = value.narrow(axis, row, 1)
        one[name] = value
    return one


def _chosen_heads(weights: np.ndarray[Any, Any], heads: str | Sequence[int]) -> dict[str, np.ndarray[Any, Any]]:
    """The maps to draw by name, of all heads `(H, N, S)`."""
    H = len(weights)
    if heads == "mean":
        return {f"mean of {H} heads" if H > 1 else "head 0": weights.mean(0)}
    numbers = range(H) if heads == "all" else heads
    valid = not isinstance(numbers, str) and len(numbers) > 0
    if not valid or not all(isinstance(number, int) and 0 <= number < H for number in numbers):
        raise UserError(f"heads must be mean, all, or some of the numbers 0 to {H - 1}, not {heads!r}")
    return {f"head {number}": weights[int(number)] for number in numbers}


def _draw(maps: dict[str, np.ndarray[Any, Any]], zones: dict[str, np.ndarray[Any, Any]], title: str) -> Figure:
    columns = min(_COLUMNS, len(maps))
    rows = math.ceil(len(maps) / columns)
    side = 3.9 if columns == 1 else 2.7
    figure = Figure(figsize=(columns * side + 1.1, rows * side + 0.6 + 0.22 * len(zones)), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    every = np.concatenate([weights.ravel() for weights in maps.values()])
    positive = every[every > 0]
    top = float(np.quantile(positive, _BRIGHTEST)) if len(positive) else 1.0
    image = None
    for ax, (name, weights) in zip(axes.flat, maps.items(), strict=False):
        shown = np.ma.masked_equal(weights, 0)
        aspect = "equal" if weights.shape[0] == weights.shape[1] else "auto"
        image = ax.imshow(shown, cmap=HEAT, vmin=0, vmax=top, interpolation="nearest", aspect=aspect)
        ax.set_title(name, fontsize=9)
        for _, zone, line in _borders(zones):
            if not zone.all():
                # on a rim of white, that is seen on dark cells
                edges, rim = _edges(zone), {"color": "white", "linewidth": line["linewidth"] + 1, "alpha": 0.6}
                for number, style in enumerate((rim, line)):
                    ax.add_collection(LineCollection(edges, zorder=2 + number, **style), autolim=False)
        ax.tick_params(labelsize=8)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(5, integer=True))
    for ax in axes.flat[len(maps) :]:
        ax.set_visible(False)
    for column in range(columns):
        lowest = axes[(len(maps) - 1 - column) // columns, column]
        lowest.set_xlabel("key token", fontsize=9)
        lowest.tick_params(labelbottom=True)
    for ax in axes[:, 0]:
        ax.set_ylabel("query token", fontsize=9)
    assert image is not None
    bar = figure.colorbar(image, ax=axes, extend="max" if every.max() > top else "neither", fraction=0.05, pad=0.02)
    bar.set_label("probability", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    handles: list[Artist] = _border_handles(zones)
    if len(positive) < len(every):
        handles.append(Patch(color=NOTHING, label="probability 0"))
    if handles:
        figure.legend(handles=handles, frameon=False, fontsize=8, loc="outside lower center", ncols=min(2, columns))
    figure.suptitle(title, fontsize=11)
    return figure


def _borders(zones: dict[str, np.ndarray[Any, Any]]) -> Iterator[tuple[str, np.ndarray[Any, Any], dict[str, Any]]]:
    """Each zone with the line that its borders are drawn by, the finer the lighter."""
    steps = np.linspace(0, 1, max(2, len(zones)))
    for (name, zone), step in zip(zones.items(), steps, strict=False):
        width, opacity = (coarse + step * (fine - coarse) for coarse, fine in zip(*_BORDERS, strict=True))
        yield name, zone, {"color": INK, "linewidth": width, "alpha": opacity}


def _border_handles(zones: dict[str, np.ndarray[Any, Any]]) -> list[Artist]:
    """What the legend says of the zones; one that holds all pairs has no borders."""
    return [
        Line2D([], [], linestyle="none", label=f"{name}, all pairs")
        if zone.all()
        else Line2D([], [], label=name, **line)
        for name, zone, line in _borders(zones)
    ]


def _edges(zone: np.ndarray[Any, Any]) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Segments between the cells of `zone (N, S)` that lie in it and their neighbours that do not."""
    across = [((j + 0.5, i - 0.5), (j + 0.5, i + 0.5)) for i, j in np.argwhere(zone[:, 1:] != zone[:, :-1])]
    down = [((j - 0.5, i + 0.5), (j + 0.5, i + 0.5)) for i, j in np.argwhere(zone[1:] != zone[:-1])]
    return [*across, *down]
