"""Linear attention, a reference arm: `benchmarks.paper.linear_attention.LinearAttention` in the place of a kind.

Source: Katharopoulos et al., *Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention* (ICML
2020): a query and a key weigh `phi(q) . phi(k)` with `phi(x) = elu(x) + 1`, divided by the sum of a query's weights.
There is no softmax, and no factor of the logits.
"""

from __future__ import annotations

from typing import Unpack

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor
from typing_extensions import override

from tsattn.attention import Attention, AttentionOptions
from tsattn.attention.base import head_size
from tsattn.attention.patterns import Pattern, PatternCall
from tsattn.attention.projections import LowRankProjection
from tsattn.errors import UserError
from tsattn.ops.masks import without_padding
from tsattn.ops.softmax import expand_heads, wide

CHUNK = 64  # tokens whose pairs are formed by a causal pass, which carries sums over all keys from chunk to chunk


class LinearAttention(Attention):
    """Every pair, by products of positive features of queries and keys: time and memory linear in the tokens."""

    def __init__(self, d_model: int, num_heads: int, **options: Unpack[AttentionOptions]) -> None:
        if options.get("dropout"):
            raise UserError("linear attention forms no weights that could be dropped: leave dropout out")
        head_dim = head_size(d_model, num_heads, options.get("head_dim"))
        projection = LowRankProjection(d_model, num_heads, options.get("num_kv_heads"), head_dim)
        super().__init__(d_model, num_heads, projection=projection, pattern=LinearPattern(), **options)


class LinearPattern(Pattern):
    """Weights `phi(q) . phi(k)` over their sum; a query with no allowed key gets zeros."""

    impls: tuple[str, ...] = ("auto", "reference", "linear")
    takes_context = True

    @override
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, call: PatternCall) -> Tensor:
        tokens, causal, impl = call.tokens, call.causal, call.impl
        if call.bias is not None or call.dropout_p:
            raise UserError("linear attention has no logits: it takes no bias and no dropout")
        q, k, v = expand_heads(q, k, v)
        ordered = tokens.counted or not causal  # the real tokens stand in the order of their positions
        if impl == "linear" and not ordered:
            raise UserError("impl linear of causal attention takes tokens in order: leave positions out")
        features, keys = F.elu(wide(q)) + 1, F.elu(wide(k)) + 1
        keys, values = without_padding(tokens.mask, keys, F.pad(wide(v), (0, 1), value=1.0))  # the last sums weights
        if impl == "reference" or not ordered:
            allowed = call.allowed
            weights = features @ keys.mT
            mixed = (weights if allowed is None else weights.masked_fill(~allowed, 0.0)) @ values
        else:
            mixed = _causal_sums(features, keys, values) if causal else features @ (keys.mT @ values)
        total = mixed[..., -1:]
        return torch.where(total > 0, mixed[..., :-1] / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0).to(v.dtype)


def _causal_sums(features: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """`sum over j' <= j of (features_j . keys_j') values_j'` of `(B, H, T, r)` and values `(B, H, T, E)`, as these."""
    T = features.shape[2]
    features, keys, values = (
        rearrange(F.pad(t, (0, 0, 0, -T % CHUNK)), "B H (n c) r -> B H n c r", c=CHUNK)
        for t in (features, keys, values)
    )
    own = keys.mT @ values
    before = own.cumsum(2) - own
    mixed = features @ before + (features @ keys.mT).tril() @ values
    return mixed.flatten(2, 3)[:, :, :T]
