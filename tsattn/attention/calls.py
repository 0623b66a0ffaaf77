"""What the attentions of a model are called with while it forecasts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tsattn.attention.base import Attention

__all__ = ["WatchedCall", "attention_calls"]

# the axis of the batch of an argument, and of those that may serve the whole batch, from how many axes on they have it
_BATCH_AXIS = {"blocks": 1}
_OWN_AXES = {"positions": 2, "global_tokens": 2, "bias": 4}


@dataclass(frozen=True)
class WatchedCall:
    """A call of an attention.

    Attributes:
        path: of the attention among the modules of the model.
        attention: the module.
        arguments: those of `tsattn.attention.maps.attention_map` that were given, by name.
    """

    path: str
    attention: Attention
    arguments: dict[str, Tensor]

    def __len__(self) -> int:
        """B, the sequences of the call."""
        return len(self.arguments["x"])

    def row(self, number: int) -> WatchedCall:
        """The same call for one of its sequences."""
        return WatchedCall(self.path, self.attention, one_row(self.arguments, number))


def attention_calls(model: nn.Module, run: Callable[[], Any]) -> list[WatchedCall]:
    """The first call of each attention of a model while it runs in eval mode, in the order of its modules.

    Attentions that are not called, or that decode with a cache, are left out.

    Args:
        model: holds the attentions.
        run: lets the model forecast.
    """
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


def one_row(arguments: dict[str, Any], row: int) -> dict[str, Any]:
    """The arguments of `attention_map` for one sequence of the batch."""
    one = {}
    for name, value in arguments.items():
        axis = _BATCH_AXIS.get(name, 0)
        if value is not None and value.dim() >= _OWN_AXES.get(name, 0) and value.shape[axis] > 1:
            value = value.narrow(axis, row, 1)
        one[name] = value
    return one
