"""Figures of what an attention looks at. They are returned, never shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor, nn

from tsattn.attention import Attention
from tsattn.attention.maps import attention_calls, attention_map, attention_zones, one_row
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.figures.attention_grid import PairMap, draw_grid
from tsattn.figures.layer_maps import maps_by_head

__all__ = ["plot_attention", "plot_attention_maps"]

_COLUMNS = 4


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
    arguments = one_row({"x": x, **given}, row)
    weights = attention_map(attention, **arguments)[0].float().cpu().numpy()
    maps = maps_by_head(weights, heads)
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
    calls = attention_calls(model, lambda: model(batch.rows(window, window + 1)))
    arguments = next((call.arguments for call in calls if call.attention is attention), None)
    if arguments is None:
        raise UserError(f"layer {layer} of {type(model).__name__} attends to nothing in this window")
    sequences = len(arguments["x"])
    if not 0 <= channel < sequences:
        raise UserError(f"channel must be from 0 to {sequences - 1}, the sequences of a window here, not {channel}")
    if title is None:
        title = f"{type(attention).__name__}, layer {layer}"
    return plot_attention(attention, heads=heads, row=channel, title=title, **arguments)


def _draw(maps: dict[str, np.ndarray[Any, Any]], zones: dict[str, np.ndarray[Any, Any]], title: str) -> Figure:
    drawn = [PairMap(weights, name, zones=zones) for name, weights in maps.items()]
    rows = [drawn[start : start + _COLUMNS] for start in range(0, len(drawn), _COLUMNS)]
    return draw_grid(rows, title=title, quantity="probability", nothing="probability 0")
