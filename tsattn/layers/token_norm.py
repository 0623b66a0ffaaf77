"""What normalises the tokens of an encoder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from tsattn.errors import UserError, one_of

__all__ = ["TOKEN_NORMS", "TokenBatchNorm", "computing_anew", "token_norm"]

TOKEN_NORMS = ("layer", "batch")
"""``layer``: each token by the mean and variance of its own D numbers. ``batch``: each of the D features by its mean
and variance over all tokens of a batch, and in eval mode by their running averages, as PatchTST has it (Nie et al.,
2023)."""

_ANEW = ContextVar("_ANEW", default=False)


def token_norm(kind: str, d_model: int) -> nn.Module:
    """A normalisation of `(..., D)`.

    Args:
        kind: one of `TOKEN_NORMS`.
        d_model: D.

    Raises:
        UserError: for another kind.
    """
    if kind not in TOKEN_NORMS:
        raise UserError(f"norm must be one of {one_of(TOKEN_NORMS)}, not {kind!r}")
    return nn.LayerNorm(d_model) if kind == "layer" else TokenBatchNorm(d_model)


@contextlib.contextmanager
def computing_anew() -> Iterator[None]:
    """Within it, what is computed was computed before: it counts in no running average."""
    token = _ANEW.set(True)
    try:
        yield
    finally:
        _ANEW.reset(token)


class TokenBatchNorm(nn.Module):
    """`torch.nn.BatchNorm1d` over all tokens, `(..., D)`.

    Of several devices each normalises by its own tokens, unless ``trainer.sync_batchnorm`` is true.

    Args:
        d_model: D.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(d_model)

    @override
    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        out: Tensor = self._without_counting(tokens) if self.training and _ANEW.get() else self.norm(tokens)
        return out.view_as(x)

    def _without_counting(self, tokens: Tensor) -> Tensor:
        norm = self.norm
        assert norm.running_mean is not None
        assert norm.running_var is not None
        # with averages, as the first pass, so that the same is kept for the backward pass
        averages = norm.running_mean.clone(), norm.running_var.clone()
        return F.batch_norm(tokens, *averages, norm.weight, norm.bias, training=True, eps=norm.eps)
