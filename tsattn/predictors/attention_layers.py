"""Attention weights of a fitted predictor in a window, as arrays.

Shape letters: H heads, N query tokens, S key tokens.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from tsattn.attention import attention_kind
from tsattn.attention.maps import WatchedCall, attention_calls, attention_levels, attention_map, attention_zones
from tsattn.batch import Batch
from tsattn.data import Panel
from tsattn.errors import UserError, one_of
from tsattn.predictors import predictor_arguments, predictor_kinds
from tsattn.predictors.base import Attending, Predictor
from tsattn.predictors.fitted import FittedPredictor


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """Attention of one layer in a window."""

    name: str  # layer 0; of an encoder and a decoder: encoder layer 0; after the member of an ensemble
    kind: str
    token: str  # what a token is, in one word, such as patch
    channel: str | None  # of the window; None if attention sees all channels
    weights: NDArray[Any]  # (H, N, S), the probability with which a query mixes the value of a key
    # (H, N, S) by name, level 1 the coarsest: the part of each level in the score; 0 at pairs that share no block of it
    levels: dict[str, NDArray[Any]]
    zones: dict[str, NDArray[np.bool_]]  # (N, S) by name, pairs of a window, or of a block of a level
    queries: pd.Index[Any]  # time stamp of the last step of each token, or its name
    keys: pd.Index[Any]

    def frame(self) -> pd.DataFrame:
        """Return rows of ``layer``, ``attention``, ``head``, ``query``, ``key``, ``weight``, and each level."""
        H, N, S = self.weights.shape
        number = np.arange(H * N * S)
        columns: dict[str, Any] = {"layer": self.name, "attention": self.kind, "head": number // (N * S)}
        columns |= {"query": self.queries[number // S % N], "key": self.keys[number % S]}
        columns["weight"] = self.weights.ravel()
        return pd.DataFrame({**columns, **{name: level.ravel() for name, level in self.levels.items()}})


def attention_layers(predictor: Predictor, batch: Batch, channel: str | None = None) -> list[AttentionLayer]:
    """Compute the attention of all layers in a window, of one channel if each is a sequence; in full precision."""
    task = predictor.task
    if channel is not None and channel not in task.channels:
        raise UserError(f"there is no channel {channel!r}; valid: {one_of(task.channels)}")
    weights = [*predictor.parameters(), *predictor.buffers()]
    if any(one.device.type != "cpu" or one.dtype in (torch.float16, torch.bfloat16) for one in weights):
        predictor = copy.deepcopy(predictor).cpu().float()
    found: list[AttentionLayer] = []
    networks = predictor.attending()
    for member, network in networks.items():
        calls = attention_calls(network.network, lambda: predictor(batch))
        around = [network.network.get_submodule(call.path.rpartition(".")[0]) for call in calls]
        # attention among the series of a group (Chronos-2) has tokens of several windows
        calls = [call for call, part in zip(calls, around, strict=True) if getattr(part, "is_over_time", True)]
        for name, call in zip(_names([call.path for call in calls]), calls, strict=True):
            found.append(_layer(f"{member} {name}".strip(), call, network, batch, predictor, channel))
    # a token that sees only itself, as in a decoder of one token, shows nothing
    found = [layer for layer in found if layer.weights.shape[1:] != (1, 1)] or found
    if not found:
        if any(type(one.network).__module__.startswith(("transformers.", "chronos.")) for one in networks.values()):
            raise UserError(
                f"the library of {predictor.name} does not return attention weights: "
                "give --attention standard, which computes the same with tsattn's attention"
            )
        kinds = [kind for kind in predictor_kinds() if "attention" in predictor_arguments(kind)]
        raise UserError(f"{predictor.name} has no attention to show; valid are {one_of(kinds)}, and ensembles of them")
    if channel is not None and all(layer.channel is None for layer in found) and task.num_channels > 1:
        raise UserError(f"attention of {predictor.name} sees all channels at once: leave the channel out")
    return found


def _layer(
    name: str, call: WatchedCall, network: Attending, batch: Batch, predictor: Predictor, channel: str | None
) -> AttentionLayer:
    task = predictor.task
    apart = len(call) >= task.num_channels and (len(call) > 1 or task.num_channels == 1)
    number = 0 if channel is None or not apart else task.channels.index(channel)
    given = call.row(number).arguments
    weights = attention_map(call.attention, **given)[0]
    levels = {level: scores[0].numpy() for level, scores in attention_levels(call.attention, **given).items()}
    of_zones = {key: value for key, value in given.items() if key != "bias"}
    zones: dict[str, Any] = {} if "context" in given else attention_zones(call.attention, **of_zones)
    labels = (_labels(network, count, batch, task.counts_steps) for count in weights.shape[1:])
    zones = {zone: pairs[0].numpy() for zone, pairs in zones.items()}
    alone, kind = task.channels[number] if apart else None, attention_kind(call.attention)
    return AttentionLayer(name, kind, network.token, alone, weights.numpy(), levels, zones, *labels)


def _labels(network: Attending, count: int, batch: Batch, counts_steps: bool) -> pd.Index[Any]:
    """Return labels of tokens: names, or time stamps of the steps that they end with."""
    ends = network.token_ends(count)
    if ends is None or len(ends) != count or batch.time is None:
        return pd.RangeIndex(count)
    now, last = batch.past.shape[1] - 1, batch.time.shape[1] - 1
    seconds = batch.time[0].numpy()
    stamps: Any = seconds if counts_steps else pd.DatetimeIndex(seconds.astype("datetime64[s]"))
    labels = [stamps[min(now + end, last)] if isinstance(end, int) else end for end in ends]
    return pd.Index(labels, dtype=object if any(isinstance(end, str) for end in ends) else None)


def window_title(fitted: FittedPredictor, panel: Panel, batch: Batch, layers: Iterable[AttentionLayer]) -> str:
    """Return the predictor, the series and channel, and the last step of the context of a window."""
    task = fitted.predictor.task
    names = [] if panel.is_wide or batch.series_id is None else [str(panel.ids[int(batch.series_id[0])])]
    channels = dict.fromkeys(layer.channel for layer in layers if layer.channel is not None)
    names += [*channels] if task.num_channels > 1 else []
    now = int(batch.time[0, batch.past.shape[1] - 1])  # type: ignore[index]  # windows of a panel have time
    stamp = pd.Timestamp(now, unit="s")
    until = now if task.counts_steps else stamp.date() if stamp == stamp.normalize() else f"{stamp:%Y-%m-%d %H:%M}"
    return ", ".join([fitted.predictor.title, *names, f"context up to {until}"])


def _names(paths: Sequence[str]) -> list[str]:
    """Name attentions by their place in the model: ``layer 1``, ``decoder layer 0``."""
    names: list[str] = []
    stacks = any("decoder" in path for path in paths)
    for path in paths:
        stack = ("decoder " if "decoder" in path else "encoder ") if stacks else ""
        number = re.search(r"\d+", path)
        name = f"{stack}layer {number[0]}" if number else path
        names.append(f"{name} to encoder" if path.endswith("across") else name)
    return names if len({*names}) == len(names) else [*paths]
