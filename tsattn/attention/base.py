"""The attention module: one class with two slots, a projection and a pattern.

The module has the parts of every attention: value and output projections, q/k normalisation, rotary positions,
dropout, grouped heads. The projection makes queries and keys. The pattern decides which pairs are scored, and with
how many components. Named kinds are short subclasses that fill the slots.

Shape letters: B batch, N query tokens, S key tokens, H query heads, G key/value heads, D model width.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import ClassVar, TypedDict

import torch
from einops import rearrange
from torch import Tensor, nn

from tsattn.attention.caches import Cache
from tsattn.attention.patterns import DecodingStep, Pattern, PatternCall, Tokens
from tsattn.attention.projections import Projection, RotaryEmbedding, key_heads
from tsattn.errors import UserError, is_whole_number, one_of, whole_number
from tsattn.ops.masks import default_positions, real_positions

# Most tokens of one decoding step: it holds all scores of its tokens at once.
MAX_STEP = 256


class AttentionOptions(TypedDict, total=False):
    """Keyword arguments that every attention kind takes; see `Attention`."""

    num_kv_heads: int | None
    head_dim: int | None
    max_length: int | None
    causal: bool
    rope: bool | float
    rope_frequencies: str
    qk_norm: bool | str
    dropout: float
    impl: str


class Attention(nn.Module):
    """Base class of attentions. A projection and a pattern shape the score (Kuang et al., sections 3 and 4).

    Args:
        d_model: D, the width of the tokens.
        num_heads: H, the number of query heads.
        projection: makes queries and keys.
        pattern: scores them.
        num_kv_heads: G, a divisor of H; H by default.
        head_dim: components of a value head (and of a low-rank query or key); D / H by default.
        max_length: the length that blocks by number and `align="end"` refer to.
        causal: a token sees no later position.
        rope: rotate queries and keys by their positions; a number is the base, see `RotaryEmbedding`.
        rope_frequencies: the order of fast and slow rotations over the components: ``spread``, ``fast_first`` or
            ``slow_first``, see `RotaryEmbedding`.
        qk_norm: whether to apply LayerNorm to the components of each query and key head. ``level`` applies it to the
            components of each level, if the projection has levels.
        scaling: factor of the logits. ``head``: the projection's factor, `1 / sqrt(r)` for a low-rank projection.
            ``mup``: its factor under muP, `8 / r` (Kuang et al., ICML 2025). Or a number.
        dropout: probability of dropping an attention weight in training.
        impl: how the pattern is computed. ``auto`` chooses an implementation; a named one runs or raises.
    """

    mup_roles: ClassVar[dict[str, str]] = {"output": "output"}  # see tsattn.layers.optim

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        projection: Projection,
        pattern: Pattern,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        max_length: int | None = None,
        causal: bool = False,
        rope: bool | float = False,
        rope_frequencies: str = "spread",
        qk_norm: bool | str = False,
        scaling: str | float = "head",
        dropout: float = 0.0,
        impl: str = "auto",
    ) -> None:
        super().__init__()
        self.d_model = whole_number("d_model", d_model)
        self.num_heads = whole_number("num_heads", num_heads)
        self.num_kv_heads = key_heads(num_heads, num_kv_heads)
        self.head_dim = head_size(d_model, num_heads, head_dim)
        if not isinstance(dropout, float | int) or not 0 <= dropout < 1:
            raise UserError(f"attention dropout must lie in [0, 1), not {dropout!r}")
        if impl not in pattern.impls:
            raise UserError(f"attention impl {impl!r} is unknown here; valid: {', '.join(pattern.impls)}")
        if pattern.needs_max_length and max_length is None:
            raise UserError(f"{type(pattern).__name__} needs max_length here")
        self.max_length = None if max_length is None else whole_number("max_length", max_length)
        self.causal = causal
        self.dropout = dropout
        self.impl = impl
        self.projection = projection
        self.pattern = pattern
        self.value = nn.Linear(d_model, self.num_kv_heads * self.head_dim)
        self.output = nn.Linear(num_heads * self.head_dim, d_model)
        self.query_norm = projection.norm("query", qk_norm)
        self.key_norm = projection.norm("key", qk_norm)
        if rope_frequencies not in RotaryEmbedding.FREQUENCIES:
            valid = one_of(RotaryEmbedding.FREQUENCIES)
            raise UserError(f"rope_frequencies must be one of {valid}, not {rope_frequencies!r}")
        self.rotary: RotaryEmbedding | None = None
        if rope and projection.width:
            base, groups = 10_000.0 if rope is True else rope, pattern.component_groups
            self.rotary = RotaryEmbedding(projection.width, base=base, groups=groups, frequencies=rope_frequencies)
        check_scaling(scaling, ("head", "mup"))
        by_name = {"head": projection.scale, "mup": projection.mup_scale}
        self.scale = by_name[scaling] if isinstance(scaling, str) else float(scaling)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        positions: Tensor | None = None,
        blocks: Tensor | None = None,
        global_tokens: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Attend from `x` to itself, or to `context`.

        Args:
            x: `(B, N, D)`.
            context: `(B, S, D)` for cross-attention.
            attention_mask: `(B, S)` bool, True at real tokens. Outputs at padded tokens have no meaning. With a cache,
                the mask marks the real tokens of `x`; each sequence continues at its next position.
            bias: broadcastable to `(B, H, N, S)`, added to the logits; -inf forbids a pair. With a cache, S includes
                the cached tokens, and column p of the bias belongs to the key at position p.
            positions: `(N,)` or `(B, N)`, whole numbers, from which causality, windows, blocks and rotations come.
                By default they count the real tokens of each row.
            blocks: `(levels, B, S)` int, explicit blocks; for the multi-level pattern only.
            global_tokens: `(S,)` or `(B, S)` bool: tokens that are inside every window and share every level.
                Causality and padding apply to them, too.
            cache: the earlier tokens, from this attention's `new_cache`. `x` has at least one token; the call adds
                the tokens of `x` to the cache. `impl` applies to the prompt, not to later tokens.

        Returns:
            `(B, N, D)`. A token that may see no key gets the output projection of zeros. With a cache, these
            are the last N outputs of a causal pass over the whole sequence.

        Raises:
            UserError: for a wrong shape or type, or an argument that this attention or a cache does not support.
        """
        if cache is not None:
            self._check_width(x, "x")
            others = {"context": context, "positions": positions, "blocks": blocks, "global_tokens": global_tokens}
            self._check_cache(x, cache, attention_mask, bias, [name for name in others if others[name] is not None])
            if cache.length or x.shape[1] == 1:
                return self._decode(x, cache, attention_mask, bias)
        call, q, k, v = self.prepare(x, context, attention_mask, bias, positions, blocks, global_tokens)
        mixed = self.pattern(q, k, v, call)
        if cache is not None:
            cache.append(k, v, attention_mask)
        out: Tensor = self.output(rearrange(mixed, "B H N e -> B N (H e)"))
        return out

    def prepare(
        self,
        x: Tensor,
        context: Tensor | None = None,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        positions: Tensor | None = None,
        blocks: Tensor | None = None,
        global_tokens: Tensor | None = None,
    ) -> tuple[PatternCall, Tensor, Tensor, Tensor]:
        """Check the arguments of `forward`, and make the call, queries, keys and values for the pattern."""
        self._check_width(x, "x")
        source = x if context is None else context
        if context is not None:
            self._check_width(context, "context")
            if context.shape[0] != x.shape[0]:
                raise UserError(f"context must have {x.shape[0]} rows, as x has, not {context.shape[0]}")
            if not self.pattern.takes_context:
                raise UserError(f"{type(self).__name__} cannot attend to a context: use another attention")
            if self.causal or positions is not None or self.rotary is not None or global_tokens is not None:
                unfit = "leave out causal, rope, positions and global_tokens"
                raise UserError(f"cross-attention takes no positions: {unfit}")
        if blocks is not None and not self.pattern.takes_blocks:
            raise UserError(f"{type(self).__name__} takes no blocks; only the multi-level pattern does")
        B, S = source.shape[:2]
        check_mask(attention_mask, B, S)
        if global_tokens is not None:
            is_bool = global_tokens.dtype == torch.bool
            global_tokens = _rows("global_tokens", global_tokens, "bool", is_bool, B, S)
        blocks = None if blocks is None else rows_of_blocks(blocks, B, S)
        key_positions = self._key_positions(source, attention_mask, positions)
        query_positions = key_positions
        if context is not None:
            query_positions = default_positions(x.shape[1], align="start", device=x.device)
        check_bias(bias, (B, self.num_heads, x.shape[1], S))
        if attention_mask is not None:
            # a weight of zero at a padded token would not remove an infinity or NaN in it: 0 * inf is NaN
            source = source.masked_fill(~attention_mask[..., None], 0.0)
            x = source if context is None else x
        counted = positions is None and blocks is None
        tokens = Tokens(query_positions, key_positions, attention_mask, global_tokens, blocks, self.max_length, counted)
        call = PatternCall(tokens, self.scale, self.causal, bias, self._dropout_p, self.impl)
        return call, *self._project(x, source, key_positions)

    @property
    def _dropout_p(self) -> float:
        return self.dropout if self.training else 0.0

    def _key_positions(self, source: Tensor, attention_mask: Tensor | None, positions: Tensor | None) -> Tensor:
        """`(B | 1, S)`: the given positions, or positions counted over the real tokens."""
        B, S = source.shape[:2]
        if positions is not None:
            # int64: products of narrower integers would overflow
            return _rows("positions", positions, "whole numbers", _is_whole(positions), B, S).long()
        if self.pattern.needs_max_length:
            self._check_length(S)
        align = self.pattern.align
        if attention_mask is None:  # one row serves the whole batch
            return default_positions(S, align=align, max_length=self.max_length, device=source.device)
        return real_positions(attention_mask, align=align, max_length=self.max_length)

    def new_cache(self, batch_size: int) -> Cache:
        """An empty cache for decoding `batch_size` sequences step by step, see `forward`.

        Raises:
            UserError: if this attention cannot decode: because it is not causal, aligns positions to the end, or
                its pattern has no cache.
        """
        self._check_decodes()
        if not is_whole_number(batch_size) or batch_size < 1:
            raise UserError(f"batch_size of a cache must be at least 1, not {batch_size!r}")
        cache = self.pattern.new_cache(operator.index(batch_size), self.max_length)
        cache.claim(self)
        return cache

    def _check_decodes(self) -> None:
        if not self.causal:
            raise UserError(f"{type(self).__name__} cannot decode step by step: it needs causal=True")
        if self.pattern.align != "start":
            raise UserError(
                f"{type(self).__name__} cannot decode step by step with align={self.pattern.align}, because each new "
                "token moves the others: give align=start"
            )

    def _check_cache(self, x: Tensor, cache: Cache, mask: Tensor | None, bias: Tensor | None, given: list[str]) -> None:
        """Refuse arguments that a cache does not support; `given` names the extra arguments that were passed."""
        self._check_decodes()
        if given:
            raise UserError(f"leave out {', '.join(given)}: these do not work with a cache")
        if not isinstance(cache, Cache):
            raise UserError(f"cache must come from new_cache(), not be a {type(cache).__name__}")
        B, N = x.shape[:2]
        if not cache.belongs_to(self):
            own = self.pattern.new_cache(cache.batch_size, self.max_length)
            if cache.kind != own.kind:
                raise UserError(
                    f"{type(self).__name__} needs a {own.kind} from its own new_cache(), not a {cache.kind}"
                )
            if not cache.claim(self):
                raise UserError(f"this cache belongs to another {type(self).__name__}: call new_cache() of each layer")
        if cache.batch_size != B or N < 1:
            raise UserError(f"x must hold new tokens of the cache's {cache.batch_size} sequences, not {B} x {N} tokens")
        check_mask(mask, B, N)
        if bias is not None and mask is not None:
            raise UserError("bias and attention_mask do not work together with a cache: leave one out")
        check_bias(bias, (B, self.num_heads, N, cache.length + N))
        if self.pattern.needs_max_length:
            self._check_length(max(cache.new_tokens(N, mask, x.device).after))

    def _check_length(self, length: int) -> None:
        if self.max_length is not None and self.max_length < length:
            raise UserError(f"{length} tokens are more than max_length {self.max_length}: give a larger max_length")

    def _decode(self, x: Tensor, cache: Cache, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        """Outputs for the tokens of `x`, which follow the cached tokens."""
        parts = torch.split(x, MAX_STEP, dim=1)
        masks = [None] * len(parts) if mask is None else torch.split(mask, MAX_STEP, dim=1)
        by_rows = bias is not None and bias.dim() > 1 and bias.shape[-2] > 1
        biases = torch.split(bias, MAX_STEP, dim=-2) if bias is not None and by_rows else [bias] * len(parts)
        return torch.cat([self._step(*step, cache) for step in zip(parts, masks, biases, strict=True)], 1)

    def _step(self, x: Tensor, mask: Tensor | None, bias: Tensor | None, cache: Cache) -> Tensor:
        """Outputs for at most `MAX_STEP` tokens that follow the cached tokens."""
        new = cache.new_tokens(x.shape[1], mask, x.device)
        q, k, v = self._project(x, x, new.positions)
        if bias is not None and bias.dim():
            bias = bias[..., : max(new.after)]
        mixed = self.pattern.decode(q, k, v, DecodingStep(new, cache, self.scale, self._dropout_p, bias))
        out: Tensor = self.output(rearrange(mixed, "B H N e -> B N (H e)"))
        return out

    def _project(self, x: Tensor, source: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Normalised and rotated queries and keys, and values, in the shapes that `Pattern` takes."""
        q, k = self.projection(x, source)
        q, k = self.query_norm(q), self.key_norm(k)
        if self.rotary is not None:
            q, k = self.rotary(q, k, positions)
        return q, k, rearrange(self.value(source), "B S (G e) -> B G S e", G=self.num_kv_heads)

    def _check_width(self, tokens: Tensor, name: str) -> None:
        """Refuse tokens whose shape or type does not fit the weights."""
        if tokens.dim() != 3 or tokens.shape[-1] != self.d_model:
            raise UserError(f"{name} must be of shape (batch, tokens, {self.d_model}), not {tuple(tokens.shape)}")
        if not tokens.is_floating_point():
            raise UserError(f"{name} must hold floating-point numbers, not {tokens.dtype}")
        # a wrapper of the layer, or autocast, may convert the type
        device = tokens.device.type
        casts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        if type(self.value) is nn.Linear and not casts:
            dtype = self.value.weight.dtype
            if tokens.dtype != dtype:
                raise UserError(f"{name} must be {dtype} as this attention's weights are, not {tokens.dtype}")


def head_size(d_model: int, num_heads: int, head_dim: int | None) -> int:
    """Components of a head: `head_dim` if given, else `d_model / num_heads`."""
    d_model, num_heads = whole_number("d_model", d_model), whole_number("num_heads", num_heads)
    if head_dim is not None:
        return whole_number("head_dim", head_dim)
    if d_model % num_heads:
        raise UserError(f"num_heads {num_heads} must divide d_model {d_model}, or give head_dim")
    return d_model // num_heads


def check_scaling(scaling: str | float, names: Sequence[str]) -> None:
    """Refuse a `scaling` that is neither one of `names` nor a factor."""
    is_number = isinstance(scaling, float | int) and not isinstance(scaling, bool)
    known = scaling in names if isinstance(scaling, str) else is_number and 0 < scaling < math.inf
    if not known:
        raise UserError(f"scaling must be {', '.join(names)} or a number above 0, not {scaling!r}")


def check_mask(mask: Tensor | None, rows: int, length: int) -> None:
    """Refuse a mask of real tokens that is not `(B, S)` bool."""
    if mask is not None and (mask.shape != (rows, length) or mask.dtype != torch.bool):
        raise UserError(
            f"attention_mask must be bool of shape {(rows, length)}, True at real tokens, "
            f"not {mask.dtype} of shape {tuple(mask.shape)}"
        )


def check_bias(bias: Tensor | None, shape: tuple[int, int, int, int]) -> None:
    """Refuse a bias that is not a tensor of numbers broadcastable to `(B, H, N, S)`."""
    if bias is None:
        return
    if not bias.is_floating_point():
        raise UserError(
            f"bias must hold floating-point numbers, which are added to the logits, not {bias.dtype}; "
            "-inf forbids a pair, and attention_mask says which tokens are real"
        )
    sizes = zip(reversed(bias.shape), reversed(shape), strict=False)
    if bias.dim() > 4 or any(size not in (1, full) for size, full in sizes):
        raise UserError(f"bias must be broadcastable to {shape}, not of shape {tuple(bias.shape)}")


def _rows(name: str, t: Tensor, numbers: str, fits: bool, rows: int, length: int) -> Tensor:
    """Convert a tensor `(S,)` or `(B, S)` to `(B | 1, S)`."""
    if not fits or t.shape not in ((length,), (1, length), (rows, length)):
        raise UserError(
            f"{name} must be {numbers} of shape {(length,)} or {(rows, length)}, "
            f"not {t.dtype} of shape {tuple(t.shape)}"
        )
    return t if t.dim() == 2 else t[None]


def rows_of_blocks(blocks: Tensor, rows: int, length: int) -> Tensor:
    """Convert blocks `(levels, B | 1, S)` of any integer type to int64."""
    if not _is_whole(blocks) or blocks.dim() != 3 or blocks.shape[1:] not in ((1, length), (rows, length)):
        raise UserError(
            f"blocks must be whole numbers of shape (levels, {rows}, {length}), "
            f"not {blocks.dtype} of shape {tuple(blocks.shape)}"
        )
    return blocks.long()


def _is_whole(t: Tensor) -> bool:
    return not (t.is_floating_point() or t.is_complex() or t.dtype == torch.bool)
