"""Two-layer networks on each token, and the functions between their layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from tsattn.errors import UserError, one_of
from tsattn.layers.dropout_layer import Dropout

__all__ = ["FEED_FORWARDS", "ResidualMLP", "TokenNetwork", "activation_of"]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}
FEED_FORWARDS = (*_ACTIVATIONS, *(f"gated-{name}" for name in _ACTIVATIONS))


def activation_of(feed_forward: str) -> Callable[[Tensor], Tensor]:
    """The function that a name of `FEED_FORWARDS` has, gated or not.

    Raises:
        UserError: for another name.
    """
    if feed_forward not in FEED_FORWARDS:
        raise UserError(f"feed_forward must be one of {one_of(FEED_FORWARDS)}, not {feed_forward!r}")
    return _ACTIVATIONS[feed_forward.removeprefix("gated-")]


class ResidualMLP(nn.Module):
    """A hidden layer beside a linear map, added up; it may change the width.

    Source: Das et al., *A decoder-only foundation model for time-series forecasting* (ICML 2024), and the Chronos-Bolt
    models.

    Args:
        num_inputs: width of what comes in.
        d_ff: hidden width.
        num_outputs: width of what goes out.
        feed_forward: names the function of the hidden layer, see `activation_of`.
        dropout: probability of dropping a number of the hidden branch in training.
        mup_roles: of its layers, ``hidden``, ``output`` and ``skip``, see `tsattn.optim`.
    """

    def __init__(
        self,
        num_inputs: int,
        d_ff: int,
        num_outputs: int,
        feed_forward: str,
        dropout: float,
        mup_roles: Mapping[str, str],
    ) -> None:
        super().__init__()
        self.mup_roles = dict(mup_roles)
        self.hidden = nn.Linear(num_inputs, d_ff)
        self.output = nn.Linear(d_ff, num_outputs)
        self.skip = nn.Linear(num_inputs, num_outputs)
        self.dropout = Dropout(dropout)
        self._activation = activation_of(feed_forward)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Map `(..., num_inputs)` to `(..., num_outputs)`."""
        out: Tensor = self.dropout(self.output(self._activation(self.hidden(x))), self.skip(x))
        return out


class TokenNetwork(nn.Module):
    """A hidden layer without biases, gated by a second one or not.

    Source: Raffel et al. (JMLR 2020), T5; gated: Shazeer, *GLU Variants Improve Transformer* (2020).

    Args:
        d_model: D.
        d_ff: hidden width.
        feed_forward: the function of the hidden layer, and whether it is gated: one of `FEED_FORWARDS`.
        dropout: probability of dropping a number of the hidden layer in training.
    """

    def __init__(self, d_model: int, d_ff: int, feed_forward: str, dropout: float) -> None:
        super().__init__()
        self.hidden = nn.Linear(d_model, d_ff, bias=False)
        self.gate = nn.Linear(d_model, d_ff, bias=False) if feed_forward.startswith("gated-") else None
        self.output = nn.Linear(d_ff, d_model, bias=False)
        self.dropout = Dropout(dropout)
        self._activation = activation_of(feed_forward)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Map `(..., D)` to `(..., D)`."""
        hidden = self._activation(self.hidden(x))
        if self.gate is not None:
            hidden = hidden * self.gate(x)
        out: Tensor = self.output(self.dropout(hidden))
        return out
