"""A network of a predictor whose attention can be looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

__all__ = ["Attending"]


@dataclass(frozen=True)
class Attending:
    """A network with attention, and what the tokens of that are.

    Attributes:
        network: a module that the predictor calls.
        token: what a token is, in one word.
        token_ends: see `tsattn.backbones.base.Backbone.token_ends`.
    """

    network: nn.Module
    token: str
    token_ends: Callable[[int], list[int | str] | None]
