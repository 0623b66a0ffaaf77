"""Every pair of tokens, with weights that are learned by position and do not depend on the tokens."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from tsattn.attention.caches import Cache, FullCache, NewTokens, own_cache
from tsattn.attention.patterns.decoding import mix, seen_by
from tsattn.attention.patterns.full_pattern import FullPattern
from tsattn.attention.patterns.pattern import Tokens
from tsattn.errors import UserError
from tsattn.ops.full import full_attention_reference
from tsattn.ops.masks import allowed_pairs
from tsattn.ops.modes import is_readable
from tsattn.ops.softmax import finite_as, softmax_attention, wide
from tsattn.ops.unscored import UNSCORED_IMPLS, is_direct

__all__ = ["FixedMixingPattern"]


class FixedMixingPattern(nn.Module, FullPattern):
    """Every pair with a learned logit of its two positions, and a softmax over the allowed keys.

    It goes with queries and keys of no component.

    Args:
        num_heads: H, each with a table of its own.
        max_length: N; positions run from 0 to N - 1.
        align: ``end`` (encoders: the last token has the last place) or ``start`` (decoding).

    Raises:
        UserError: another `align`, or positions outside the table.
    """

    impls = UNSCORED_IMPLS
    takes_context = False
    needs_max_length = True
    mup_roles: ClassVar[dict[str, str]] = {"table": "input"}  # see tsattn.optim

    def __init__(self, num_heads: int, max_length: int, align: str = "end") -> None:
        super().__init__()
        if align not in ("start", "end"):
            raise UserError(f"align must be start or end, not {align!r}")
        self.align = align
        # near zero: training starts from almost equal weights
        self.table = nn.Parameter(0.02 * torch.randn(num_heads, max_length, max_length))

    @override
    def num_params(self) -> int:
        return self.table.numel()

    def logits(self, queries: Tensor, keys: Tensor) -> Tensor:
        """`(B | 1, H, N, S)` at positions `(B | 1, N)` and `(B | 1, S)`; padding may lie outside the table."""
        last = self.table.shape[1] - 1
        queries, keys = queries.clamp(0, last), keys.clamp(0, last)
        return self.table[:, queries[:, :, None], keys[:, None, :]].transpose(0, 1)

    @override
    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        tokens: Tokens,
        causal: bool,
        bias: Tensor | None,
        scale: float,
        dropout_p: float,
        impl: str,
    ) -> Tensor:
        direct = is_direct(impl, bias=False, dropout=dropout_p > 0)
        # neighbouring places, which a view of the table holds; an exported program takes any number of them
        if tokens.by_default and not torch.compiler.is_exporting():
            first = 0 if self.align == "start" else self.table.shape[1] - q.shape[2]
            here = slice(first, first + q.shape[2])
            logits = self.table[None, :, here, here]
        else:
            self._check(tokens)
            logits = self.logits(tokens.query_positions, tokens.key_positions)
        logits = logits.to(wide(v).dtype)
        allowed = allowed_pairs(tokens.query_positions, tokens.key_positions, causal=causal, key_mask=tokens.mask)
        if bias is not None:
            logits = logits + finite_as(bias, logits.dtype)
            finite = ~torch.isneginf(bias)
            allowed = finite if allowed is None else allowed & finite
        if not direct:
            return full_attention_reference(q, k, v, allowed=allowed, bias=logits, scale=scale, dropout_p=dropout_p)
        return _mixed(logits, v, allowed)

    @override
    def decode(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        new: NewTokens,
        cache: Cache,
        scale: float,
        dropout_p: float,
        bias: Tensor | None = None,
    ) -> Tensor:
        k, v = own_cache(cache, FullCache).extend(k, v, new)
        keys = torch.arange(v.shape[2], device=v.device)[None]
        logits = wide(self.logits(new.positions, keys)).expand(v.shape[0], -1, -1, -1)
        return mix(logits, v, allowed=seen_by(new, keys), dropout_p=dropout_p, bias=bias)

    def _check(self, tokens: Tokens) -> None:
        """Refuse positions of real tokens outside the table, where they can be looked at."""
        positions, length = tokens.key_positions, self.table.shape[1]
        if tokens.counted or not is_readable(positions, tokens.mask):
            return
        outside = (positions < 0) | (positions >= length)
        if bool((outside if tokens.mask is None else outside & tokens.mask).any()):
            raise UserError(f"positions must lie from 0 to {length - 1}, the places of the learned table")


def _mixed(logits: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
    """`softmax(logits) v` over the allowed pairs, with weights that are computed once where no row has its own."""
    heads, queries = logits.shape[1:3]
    shared = logits.shape[0] == 1 and (allowed is None or allowed.dim() < 4 or allowed.shape[0] == 1)
    if heads > v.shape[1]:
        v = v.repeat_interleave(heads // v.shape[1], dim=1)
    if not shared:
        logits = logits.expand(v.shape[0], -1, -1, -1)
        return softmax_attention(logits, v, allowed=allowed, bias=None, dropout_p=0.0)
    # all rows side by side, as components of one value
    values = v.permute(1, 2, 0, 3)
    mixed = softmax_attention(logits, values.flatten(2)[None], allowed=allowed, bias=None, dropout_p=0.0)
    return mixed[0].view(heads, queries, *values.shape[2:]).permute(2, 0, 1, 3)
