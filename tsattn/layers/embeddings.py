"""From the steps or patches of a window to tokens."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from tsattn.errors import UserError
from tsattn.layers.dropout_layer import Dropout

__all__ = ["TokenEmbedding"]


class TokenEmbedding(nn.Module):
    """One token for each time step or patch: a linear map of its values, plus a learned position.

    Args:
        num_inputs: values of a step or patch.
        d_model: D, the width of the tokens.
        max_length: the most tokens.
        positions: ``learned`` adds a vector for each place; ``rotary`` (left to the attention) and ``none`` add none.
        dropout: probability of dropping a number of a token in training.
        mask: probability of hiding the values of a whole step or patch in training: its token is that of zeros, at its
            position and with its `term`, and the others are not made larger for it.

    Raises:
        UserError: for positions that are none of these, or a mask outside [0, 1).
    """

    POSITIONS = ("learned", "rotary", "none")
    mup_roles: ClassVar[dict[str, str]] = {"value": "input", "position": "input"}  # see tsattn.optim

    def __init__(
        self, num_inputs: int, d_model: int, max_length: int, positions: str, dropout: float, mask: float = 0.0
    ) -> None:
        super().__init__()
        if not 0 <= mask < 1:
            raise UserError(f"the share of patches that are masked must lie in [0, 1), not {mask}")
        if positions not in self.POSITIONS:
            raise UserError(f"positions must be one of {', '.join(self.POSITIONS)}, not {positions!r}")
        self.value = nn.Linear(num_inputs, d_model)
        self.position = nn.Parameter(0.02 * torch.randn(max_length, d_model)) if positions == "learned" else None
        self.dropout = Dropout(dropout)
        self.mask = mask

    def forward(self, x: Tensor, term: Tensor | None = None) -> Tensor:
        """Tokens `(B G, N, D)`.

        Args:
            x: `(B G, N, num_inputs)` steps or patches; G series of each of B windows, those of a window in a row.
            term: `(B, N, D)` or `(B, 1, D)`, added to the tokens of all series of a window, see `Covariates`.
        """
        tokens = self.value(x)
        if self.training and self.mask > 0:
            # of each series by itself, by the generator that a checkpoint keeps
            hidden = torch.rand(tokens.shape[:2], device=tokens.device) < self.mask
            tokens = torch.where(hidden[..., None], self.value.bias, tokens)
        if self.position is not None:
            tokens = tokens + self.position[-x.shape[1] :]
        if term is not None:
            tokens = (tokens.unflatten(0, (term.shape[0], -1)) + term[:, None]).flatten(0, 1)
        out: Tensor = self.dropout(tokens)
        return out
