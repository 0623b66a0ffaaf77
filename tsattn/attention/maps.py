"""Maps of an attention on given tokens, and the calls that a model makes of its attentions.

This module forms matrices of every pair of tokens; training and forecasting never do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from tsattn.attention.base import Attention
from tsattn.ops.softmax import wide


@torch.no_grad()
def attention_map(attention: Attention, x: Tensor, context: Tensor | None = None, **arguments: Tensor | None) -> Tensor:
    """Compute the weights with which queries mix the values of keys, by the plain reference, without dropout.

    The values are one-hot vectors of the keys, so that the output is the weights. For global + sliding window the map
    is the mean of its two parts, or with ``combine: sum`` their sum.

    Args:
        attention: a built attention.
        x: `(B, N, D)`.
        context: `(B, S, D)`.
        **arguments: ``attention_mask``, ``bias``, ``positions``, ``blocks``, ``global_tokens``, see
            `Attention.forward`.

    Returns:
        `(B, H, N, S)`, in float32 or wider. A row sums to 1, or to 2 with ``combine: sum``. Without a key that the
        query may see, its row is zero.

    Raises:
        UserError: for arguments that the attention does not take.
    """
    call, q, k, v = attention.prepare(x, context, **arguments)
    which_key = torch.eye(k.shape[2], dtype=wide(q).dtype, device=q.device).expand(*v.shape[:2], -1, -1)
    return attention.pattern(q, k, which_key, replace(call, dropout_p=0.0, impl="reference"))


@torch.no_grad()
def attention_levels(
    attention: Attention, x: Tensor, context: Tensor | None = None, **arguments: Tensor | None
) -> dict[str, Tensor]:
    """Compute the share of each level in the score of each pair: levels of blocks of tokens (``mlr``) or of features.

    The sum over the levels is the score before bias and softmax.

    Args:
        attention: a built attention.
        x: `(B, N, D)`.
        context: `(B, S, D)`.
        **arguments: as for `attention_map`; a bias belongs to no level.

    Returns:
        `(B, H, N, S)` by name, from ``level 1``, the coarsest, in float32 or wider. Pairs without a shared block of the
        level, or whose query may not see the key, have 0. An attention without levels gives an empty mapping.

    Raises:
        UserError: for arguments that the attention does not take.
    """
    call, q, k, _ = attention.prepare(x, context, **arguments)
    scores = attention.pattern.level_scores(q, k, call)
    if scores is None:
        scores = attention.projection.level_scores(q, k, call.scale)
    if scores is None:
        return {}
    seen = call.allowed
    if seen is not None:
        scores = scores.masked_fill(~seen, 0.0)
    return {f"level {number}": level for number, level in enumerate(scores, 1)}


def attention_zones(attention: Attention, x: Tensor, **arguments: Tensor | None) -> dict[str, Tensor]:
    """Find the pairs that the pattern of an attention favours: in a window, or in a block at each level.

    Args:
        attention: a built attention.
        x: `(B, N, D)`.
        **arguments: as for `attention_map`, without a bias.

    Returns:
        `(B | 1, N, N)` bool by name, coarse to fine; an empty mapping for a pattern that favours no pairs.

    Raises:
        UserError: for arguments that the attention does not take.
    """
    call, *_ = attention.prepare(x, **arguments)
    return attention.pattern.zones(call)


# axis of the batch of an argument (0 by default), and the number of axes from which on an argument has a batch axis
_BATCH_AXIS = {"blocks": 1}
_OWN_AXES = {"positions": 2, "global_tokens": 2, "bias": 4}


@dataclass(frozen=True)
class WatchedCall:
    """A call of an attention: its path in the model, the module, and the arguments by name."""

    path: str
    attention: Attention
    arguments: dict[str, Tensor]

    def __len__(self) -> int:
        """B, the sequences of the call."""
        return len(self.arguments["x"])

    def row(self, number: int) -> WatchedCall:
        """The call for sequence `number` alone."""
        one = {}
        for name, value in self.arguments.items():
            axis = _BATCH_AXIS.get(name, 0)
            has_rows = value.dim() >= _OWN_AXES.get(name, 0) and value.shape[axis] > 1
            one[name] = value.narrow(axis, number, 1) if has_rows else value
        return WatchedCall(self.path, self.attention, one)


def attention_calls(model: nn.Module, run: Callable[[], Any]) -> list[WatchedCall]:
    """Record the first call of each attention while a model runs in eval mode; calls with a cache are left out."""
    seen: dict[str, WatchedCall] = {}

    def watched(path: str, attention: Attention) -> Any:
        signature = inspect.signature(attention.forward)

        def remember(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = signature.bind(*args, **kwargs).arguments
            arguments = {name: value for name, value in given.items() if value is not None}
            if "cache" not in arguments:
                seen.setdefault(path, WatchedCall(path, attention, arguments))

        return attention.register_forward_pre_hook(remember, with_kwargs=True)

    attentions = {path: part for path, part in model.named_modules() if isinstance(part, Attention)}
    hooks = [watched(path, part) for path, part in attentions.items()]
    was_training = [module for module in model.modules() if module.training]
    try:
        with torch.no_grad():
            model.eval()
            run()
    finally:
        for hook in hooks:
            hook.remove()
        for module in was_training:
            module.training = True
    return [seen[path] for path in attentions if path in seen]
