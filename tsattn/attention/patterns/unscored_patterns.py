"""Patterns that do not compare tokens: equal weights for all allowed keys, each token alone, or weights by position.

Their queries and keys have no components.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from tsattn.attention.patterns.pattern import DecodingStep, FullPattern, Pattern, PatternCall, PatternCost, Tokens
from tsattn.attention.patterns.window_patterns import WindowCache
from tsattn.errors import UserError
from tsattn.ops.full import full_attention_reference
from tsattn.ops.masks import first_position, without_padding
from tsattn.ops.modes import is_readable
from tsattn.ops.softmax import finite_as, softmax_attention, wide

UNSCORED_IMPLS = ("auto", "reference", "direct")


class UniformPattern(FullPattern):
    """Every pair with the same weight: a query gets the mean of the values of its allowed keys.

    A bias is added to logits of zero.
    """

    impls = UNSCORED_IMPLS

    @override
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, call: PatternCall) -> Tensor:
        heads, mask, allowed = q.shape[1], call.tokens.mask, call.allowed
        direct, exact = _is_direct(call, bias=call.bias is not None), wide(v)
        if direct and not call.causal:
            count = max(1, v.shape[2]) if mask is None else mask.sum(-1).clamp(min=1)[:, None, None, None]
            mean = without_padding(mask, exact)[0].sum(2, keepdim=True) / count
            return with_heads(mean.to(v.dtype), heads).expand(-1, -1, q.shape[2], -1)
        if direct and call.tokens.by_default:  # keys are in the order of their positions
            numbers = torch.arange(1, v.shape[2] + 1, device=v.device, dtype=exact.dtype)[:, None]
            return with_heads((exact.cumsum(2) / numbers).to(v.dtype), heads)
        if direct and allowed is not None:
            return _mean_over(allowed, v, heads)
        return _reference(q, k, v, call, allowed, call.bias)


class IdentityPattern(Pattern):
    """Each token sees itself and global tokens, and a global token sees all tokens, all with equal weights."""

    impls = UNSCORED_IMPLS

    def pairs(self, call: PatternCall) -> Tensor:
        """Whether a query mixes a key, `(B | 1, 1, N, N)` bool."""
        at, special = call.tokens.key_positions, call.tokens.global_tokens
        allowed = torch.eye(at.shape[1], dtype=torch.bool, device=at.device)[None]
        if special is not None:
            allowed = allowed | special[:, :, None] | special[:, None, :]
        earlier = call.allowed
        return allowed[:, None] if earlier is None else allowed[:, None] & earlier

    @override
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, call: PatternCall) -> Tensor:
        direct = _is_direct(call, bias=call.bias is not None)
        if direct and call.tokens.global_tokens is None:
            return with_heads(without_padding(call.tokens.mask, v)[0], q.shape[1])
        allowed = self.pairs(call)
        if direct:
            return _mean_over(allowed, v, q.shape[1])
        return _reference(q, k, v, call, allowed, call.bias)

    @override
    def new_cache(self, batch_size: int, max_length: int | None) -> WindowCache:
        return WindowCache(batch_size, 1, max_length)

    @override
    def decode(self, q: Tensor, k: Tensor, v: Tensor, step: DecodingStep) -> Tensor:
        """A new token sees no other token; the cache only counts tokens."""
        step.cache.store(k, v, step.new)
        mixed = with_heads(v, q.shape[1])
        if step.dropout_p:
            mixed = mixed * F.dropout(mixed.new_ones(*mixed.shape[:3], 1), step.dropout_p)
        if step.bias is None:
            return mixed
        own = step.new.positions.clamp(min=0)[:, None, :, None].expand(*mixed.shape[:3], 1)
        bias = step.bias.expand(*mixed.shape[:3], max(step.new.after)).gather(-1, own)
        return mixed.masked_fill(torch.isneginf(bias), 0.0)

    @override
    def cost(self, width: int, tokens: int, *, causal: bool, max_length: int) -> PatternCost:
        """Nothing is scored."""
        return PatternCost(0, 0)

    @override
    def zones(self, call: PatternCall) -> dict[str, Tensor]:
        return {"each token itself": self.pairs(call)[:, 0]}


class FixedMixingPattern(nn.Module, FullPattern):
    """Each pair of positions has a learned logit; a softmax over the allowed keys gives the weights.

    Args:
        num_heads: H; each head has a table.
        max_length: N; positions run from 0 to N - 1.
        align: ``end`` (encoders: the last token has the last position) or ``start`` (decoding).

    Raises:
        UserError: for an unknown `align`, or positions outside the table.
    """

    impls = UNSCORED_IMPLS
    takes_context = False
    needs_max_length = True
    mup_roles: ClassVar[dict[str, str]] = {"table": "input"}  # see tsattn.layers.optim

    def __init__(self, num_heads: int, max_length: int, align: str = "end") -> None:
        super().__init__()
        if align not in ("start", "end"):
            raise UserError(f"align must be start or end, not {align!r}")
        self.align = align
        # small values, so that training starts from almost equal weights
        self.table = nn.Parameter(torch.randn(num_heads, max_length, max_length).mul_(0.02))

    @override
    def num_params(self) -> int:
        return self.table.numel()

    def logits(self, queries: Tensor, keys: Tensor) -> Tensor:
        """`(B | 1, H, N, S)` at positions `(B | 1, N)` and `(B | 1, S)`; padded positions may be outside the table."""
        last = self.table.shape[1] - 1
        queries, keys = queries.clamp(0, last), keys.clamp(0, last)
        return self.table[:, queries[:, :, None], keys[:, None, :]].transpose(0, 1)

    @override
    def forward(self, q: Tensor, k: Tensor, v: Tensor, call: PatternCall) -> Tensor:
        direct = _is_direct(call, bias=False)
        # positions without gaps are a view of the table; an exported program needs any length, so not there
        if call.tokens.by_default and not torch.compiler.is_exporting():
            first = first_position(q.shape[2], align=self.align, max_length=self.table.shape[1])
            here = slice(first, first + q.shape[2])
            logits = self.table[None, :, here, here]
        else:
            self._check(call.tokens)
            logits = self.logits(call.tokens.query_positions, call.tokens.key_positions)
        logits = logits.to(wide(v).dtype)
        allowed = call.allowed
        if call.bias is not None:
            logits = logits + finite_as(call.bias, logits.dtype)
            finite = ~torch.isneginf(call.bias)
            allowed = finite if allowed is None else allowed & finite
        return _mixed(logits, v, allowed) if direct else _reference(q, k, v, call, allowed, logits)

    @override
    def decode(self, q: Tensor, k: Tensor, v: Tensor, step: DecodingStep) -> Tensor:
        k, v = step.cache.extend(k, v, step.new)
        keys = torch.arange(v.shape[2], device=v.device)[None]
        logits = wide(self.logits(step.new.positions, keys)).expand(v.shape[0], -1, -1, -1)
        return step.mixed(logits, v, step.seen(keys), step.bias)

    @override
    def cost(self, width: int, tokens: int, *, causal: bool, max_length: int) -> PatternCost:
        """No multiply-adds and no cached keys; a head learns a table of all pairs of positions."""
        return PatternCost(0, 0, params=self.num_params() // len(self.table))

    def _check(self, tokens: Tokens) -> None:
        """Refuse positions of real tokens outside the table, if the values can be read."""
        positions, length = tokens.key_positions, self.table.shape[1]
        if tokens.counted or not is_readable(positions, tokens.mask):
            return
        outside = (positions < 0) | (positions >= length)
        if bool((outside if tokens.mask is None else outside & tokens.mask).any()):
            raise UserError(f"positions must lie from 0 to {length - 1}, the places of the learned table")


def _is_direct(call: PatternCall, *, bias: bool) -> bool:
    """Whether to mix values directly, which allows no bias or dropout; `UserError` if ``direct`` is not possible."""
    reason = "bias" if bias else "dropout of weights" if call.dropout_p else None
    if call.impl == "direct" and reason is not None:
        raise UserError(f"impl direct cannot compute this attention with {reason}: give impl reference")
    return call.impl != "reference" and reason is None


def _mean_over(allowed: Tensor, v: Tensor, heads: int) -> Tensor:
    """The mean value `(B, H, N, E)` of the allowed keys `(B | 1, 1, N, S)`; zeros for a query without allowed keys."""
    weights = allowed.to(wide(v).dtype) / allowed.sum(-1, keepdim=True).clamp(min=1)
    return with_heads((weights @ wide(v)).to(v.dtype), heads)


def with_heads(mixed: Tensor, heads: int) -> Tensor:
    """Repeat the output of value heads `(B, G, N, E)` for the H query heads that share them."""
    groups = heads // mixed.shape[1]
    return mixed if groups == 1 else mixed.repeat_interleave(groups, dim=1)


def _reference(
    q: Tensor, k: Tensor, v: Tensor, call: PatternCall, allowed: Tensor | None, bias: Tensor | None
) -> Tensor:
    return full_attention_reference(q, k, v, allowed=allowed, bias=bias, scale=call.scale, dropout_p=call.dropout_p)


def _mixed(logits: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
    """`softmax(logits) v` over the allowed pairs; the weights are computed once if all rows share them."""
    heads, queries = logits.shape[1:3]
    shared = logits.shape[0] == 1 and (allowed is None or allowed.dim() < 4 or allowed.shape[0] == 1)
    if heads > v.shape[1]:
        v = v.repeat_interleave(heads // v.shape[1], dim=1)
    if not shared:
        logits = logits.expand(v.shape[0], -1, -1, -1)
        return softmax_attention(logits, v, allowed=allowed, bias=None, dropout_p=0.0)
    # join the rows of the batch as components of one value
    values = v.permute(1, 2, 0, 3)
    mixed = softmax_attention(logits, values.flatten(2)[None], allowed=allowed, bias=None, dropout_p=0.0)
    return mixed[0].view(heads, queries, *values.shape[2:]).permute(2, 0, 1, 3)
