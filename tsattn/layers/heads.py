"""From the encoder's tokens to the forecast."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

__all__ = ["DirectHead", "FlattenHead"]


class DirectHead(nn.Module):
    """All steps of the horizon at once: a linear map over time, then one over the width of the tokens.

    Args:
        context_length: L, the number of tokens.
        prediction_length: T.
        d_model: D, the width of the tokens.
        num_outputs: numbers to forecast for each step.
    """

    mup_roles: ClassVar[dict[str, str]] = {"time": "input", "value": "output"}  # see tsattn.optim

    def __init__(self, context_length: int, prediction_length: int, d_model: int, num_outputs: int) -> None:
        super().__init__()
        self.time = nn.Linear(context_length, prediction_length)
        self.value = nn.Linear(d_model, num_outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map `(B, L, D)` to `(B, T, num_outputs)`."""
        out: Tensor = self.value(self.time(tokens.transpose(1, 2)).transpose(1, 2))
        return out


class FlattenHead(nn.Module):
    """All steps of the horizon at once: one linear map of all tokens laid end to end.

    Args:
        num_tokens: N.
        prediction_length: T.
        d_model: D, the width of the tokens.
        num_outputs: numbers to forecast for each step.
    """

    mup_roles: ClassVar[dict[str, str]] = {"flat": "output"}  # see tsattn.optim

    def __init__(self, num_tokens: int, prediction_length: int, d_model: int, num_outputs: int = 1) -> None:
        super().__init__()
        self.num_outputs = num_outputs
        self.flat = nn.Linear(num_tokens * d_model, prediction_length * num_outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map `(B, N, D)` to `(B, T, num_outputs)`."""
        out: Tensor = self.flat(tokens.flatten(1)).unflatten(-1, (-1, self.num_outputs))
        return out
