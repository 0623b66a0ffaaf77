"""What the attention of a fitted predictor looks at in a window, as arrays.

Shape letters: H heads, N query tokens, S key tokens.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsattn.attention import attention_kind
from tsattn.attention.maps import WatchedCall, attention_calls, attention_levels, attention_map, attention_zones
from tsattn.backbones import BACKBONES
from tsattn.batch import Batch
from tsattn.errors import UserError, one_of
from tsattn.predictors import PREDICTORS, predictor_arguments
from tsattn.predictors.attending import Attending
from tsattn.predictors.base import Predictor

__all__ = ["AttentionLayer", "attention_layers"]


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """What the heads of one attention look at in a window.

    Attributes:
        name: ``layer 0``; of an encoder and a decoder ``encoder layer 0``; after the member of an ensemble.
        kind: of attention.
        token: what a token is, in one word, such as ``patch``.
        channel: the channel of the window, or None where attention sees all of them.
        weights: `(H, N, S)`, the probability with which a query mixes the value of a key.
        levels: `(H, N, S)` by name, ``level 1`` the coarsest: what each level adds to the score before the softmax; 0
            at pairs that share no block of it. Empty for attention without levels.
        zones: `(N, S)` bool by name, the pairs that the pattern favours: those of a window, or of a block of a level.
        queries: what the N queries stand for: the time stamp of the last step of each, or a name.
        keys: what the S keys stand for.
    """

    name: str
    kind: str
    token: str
    channel: str | None
    weights: NDArray[Any]
    levels: dict[str, NDArray[Any]]
    zones: dict[str, NDArray[np.bool_]]
    queries: pd.Index[Any]
    keys: pd.Index[Any]

    def frame(self) -> pd.DataFrame:
        """A row a head, query and key.

        Returns:
            the columns ``layer``, ``attention`` (its kind), ``head``, ``query``, ``key``, ``weight``, and one for each
            of the levels.
        """
        H, N, S = self.weights.shape
        number = np.arange(H * N * S)
        columns = {
            "layer": self.name,
            "attention": self.kind,
            "head": number // (N * S),
            "query": self.queries[number // S % N],
            "key": self.keys[number % S],
            "weight": self.weights.ravel(),
        }
        return pd.DataFrame({**columns, **{name: level.ravel() for name, level in self.levels.items()}})


def attention_layers(predictor: Predictor, batch: Batch, channel: str | None = None) -> list[AttentionLayer]:
    """The attention of all layers, in the order of the members and modules, computed on the CPU in full precision.

    Args:
        predictor: built and fitted.
        batch: one window, with time stamps.
        channel: which channel, where each is a sequence of its own; the first by default.

    Raises:
        UserError: for a predictor that does not attend, naming those that do, or a channel that is not there or that
            no attention sees alone.
    """
    task = predictor.task
    assert task is not None
    if channel is not None and channel not in task.channels:
        raise UserError(f"there is no channel {channel!r}; valid: {one_of(task.channels)}")
    predictor = _on_the_host(predictor)
    found: list[AttentionLayer] = []
    networks = predictor.attending()
    for member, network in networks.items():
        calls = [
            call for call in attention_calls(network.network, lambda: predictor(batch)) if _is_over_time(call, network)
        ]
        names = _names([call.path for call in calls])
        layers = zip(names, calls, strict=True)
        found += [_layer(f"{member} {name}".strip(), call, network, batch, predictor, channel) for name, call in layers]
    # a token that can see itself alone, as that of a decoder of one token, shows nothing
    found = [layer for layer in found if layer.weights.shape[1:] != (1, 1)] or found
    if not found:
        raise UserError(_why_nothing(predictor, list(networks.values())))
    if channel is not None and all(layer.channel is None for layer in found) and task.num_channels > 1:
        raise UserError(f"attention of {predictor.name} sees all channels at once: leave the channel out")
    return found


def _on_the_host(predictor: Predictor) -> Predictor:
    """The predictor itself where it computes in full precision on the CPU, else a copy that does."""
    weights = [*predictor.parameters(), *predictor.buffers()]
    if all(one.device.type == "cpu" for one in weights) and not any(_is_narrow(one) for one in weights):
        return predictor
    return copy.deepcopy(predictor).cpu().float()


def _is_over_time(call: WatchedCall, network: Attending) -> bool:
    """Whether its tokens are of one window; those of attention among the series of a group of Chronos-2 are not."""
    around = network.network.get_submodule(call.path.rpartition(".")[0])
    return bool(getattr(around, "is_over_time", True))


def _is_narrow(weight: Tensor) -> bool:
    return weight.dtype in (torch.float16, torch.bfloat16)


def _layer(
    name: str, call: WatchedCall, network: Attending, batch: Batch, predictor: Predictor, channel: str | None
) -> AttentionLayer:
    """One layer, of the channel where it has a sequence of its own."""
    task = predictor.task
    assert task is not None
    apart = len(call) >= task.num_channels and (len(call) > 1 or task.num_channels == 1)
    number = 0 if channel is None or not apart else task.channels.index(channel)
    given = call.row(number).arguments
    weights = attention_map(call.attention, **given)[0]
    levels = {level: scores[0].numpy() for level, scores in attention_levels(call.attention, **given).items()}
    zones: dict[str, Tensor] = {}
    if "context" not in given:
        zones = attention_zones(call.attention, **{key: value for key, value in given.items() if key != "bias"})
    return AttentionLayer(
        name,
        attention_kind(call.attention),
        network.token,
        task.channels[number] if apart else None,
        weights.numpy(),
        levels,
        {zone: pairs[0].numpy() for zone, pairs in zones.items()},
        *(_labels(network, count, batch, task.counts_steps) for count in weights.shape[1:]),
    )


def _labels(network: Attending, count: int, batch: Batch, counts_steps: bool) -> pd.Index[Any]:
    """What so many tokens stand for: names, and time stamps of the steps that they end with."""
    ends = network.token_ends(count)
    if ends is None or len(ends) != count or batch.time is None:
        return pd.RangeIndex(count)
    now, last = batch.past.shape[1] - 1, batch.time.shape[1] - 1
    seconds = batch.time[0].numpy()
    stamps: Any = seconds if counts_steps else pd.DatetimeIndex(seconds.astype("datetime64[s]"))
    labels = [stamps[min(now + end, last)] if isinstance(end, int) else end for end in ends]
    return pd.Index(labels, dtype=object if any(isinstance(end, str) for end in ends) else None)


def _names(paths: Sequence[str]) -> list[str]:
    """Names of attentions by where they lie in the model: ``layer 1``, ``decoder layer 0``."""
    names: list[str] = []
    stacks = any("decoder" in path for path in paths)
    for path in paths:
        stack = ("decoder " if "decoder" in path else "encoder ") if stacks else ""
        number = re.search(r"\d+", path)
        name = f"{stack}layer {number[0]}" if number else path
        names.append(f"{name} to encoder" if path.endswith("across") else name)
    return names if len({*names}) == len(names) else [*paths]


def _why_nothing(predictor: Predictor, networks: Sequence[Attending]) -> str:
    """Why there is no attention to be seen, and of what there is."""
    if any(type(network.network).__module__.startswith(("transformers.", "chronos.")) for network in networks):
        return (
            f"the attention of {predictor.name} is that of its own library, which shows no weights; valid are "
            "chronos-tiny as it is, and Chronos models with attention of this package, as --attention standard, which "
            "computes the same"
        )
    kinds = [kind for kind in (*BACKBONES, *PREDICTORS) if "attention" in predictor_arguments(kind)]
    return f"{predictor.name} has no attention to look at; valid are {one_of(kinds)}, and ensembles of them"
