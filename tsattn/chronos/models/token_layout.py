"""Where the tokens of a Chronos encoder stand: those of the context, then special ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["TokenLayout"]


@dataclass
class TokenLayout:
    """The tokens of an encoder: of the context, time by time, then special ones (end of sequence, REG, future).

    A context has a place for every time step or patch, missing and padded ones too, and ends at the same place however
    long it is. Special tokens see and are seen by everything.

    Attributes:
        context_tokens: P, the most tokens of a context; its last one has position `P - 1`.
        special_tokens: those that follow it in the present call.
    """

    context_tokens: int
    special_tokens: int

    def places(self, length: int, device: torch.device) -> dict[str, Any]:
        """The arguments `positions (S,)` and `global_tokens (S,)` of an attention to `length` tokens."""
        first = self.context_tokens - (length - self.special_tokens)
        positions = torch.arange(first, first + length, device=device)
        if not self.special_tokens:
            return {"positions": positions}
        return {"positions": positions, "global_tokens": positions >= self.context_tokens}
