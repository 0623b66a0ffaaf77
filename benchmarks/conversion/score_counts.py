"""The products of components that score pairs, counted on the reference path."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from tsattn.chronos import AdaptedChronos
from tsattn.chronos.swapped_attention import SwappedAttention

__all__ = ["counted_components", "flops_by_layer"]


class _Ones(nn.Module):
    """Queries and keys of ones, so that the score of a pair is the number of components that it is scored with."""

    def __init__(self, projection: Any, heads: tuple[int, int]) -> None:
        super().__init__()
        self.width, self.heads, self.scale = projection.width, heads, 1.0

    def forward(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(  # type: ignore[return-value]
            x.new_ones(len(x), heads, tokens.shape[1], self.width)
            for heads, tokens in zip(self.heads, (x, context), strict=True)
        )


class _EachToken(nn.Module):
    """Values by which the output of a head is the row of its weights."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        return torch.eye(x.shape[1]).to(x).repeat(1, self.heads).expand(len(x), -1, -1)


@torch.no_grad()
def counted_components(module: SwappedAttention, tokens: int) -> Tensor:
    """`(H, N, N)` int64: with how many components each pair of a whole context is scored, 0 for one that is not seen.

    The reference is computed with queries and keys of ones; the logarithm of its weights, up to a constant of each
    query, is the number of products in a score. A token is scored beside itself with all components.
    """
    probe = copy.deepcopy(module).double().eval()
    attention: Any = probe.attention
    width, heads = attention.projection.width, attention.num_heads
    attention.projection = _Ones(attention.projection, (heads, attention.num_kv_heads))
    attention.query_norm = attention.key_norm = nn.Identity()
    attention.value, attention.output = _EachToken(attention.num_kv_heads), nn.Identity()
    attention.rotary, attention.impl, attention.scale = None, "reference", 1.0
    rows = probe.attend(torch.zeros(1, tokens, attention.d_model, dtype=torch.float64), key_mask=None, bias=None)
    weights = rows.view(tokens, heads, tokens).transpose(0, 1)
    own = weights.diagonal(dim1=1, dim2=2)[:, :, None]
    found = torch.where(weights > 0, (weights / own).log() + width, 0.0)
    counts = found.round()
    assert torch.allclose(found, counts, atol=1e-6), "scores that are no whole numbers of products"
    return counts.long()


def flops_by_layer(adapted: AdaptedChronos) -> list[dict[str, Any]]:
    """Of each swapped attention of an encoder at the whole context, special tokens included.

    A row a layer: `layer`, `tokens`, the flops of all scores as `closed_form`, `counted` and of the `original`, those
    of mixing the values, the same for both, as `mixing`, and the shares of the original's: `closed_form_share`,
    `counted_share`, and `with_mixing`, counted, of scores and mixing together.
    """
    rows = []
    for row in adapted.cost().to_dict("records"):
        module = adapted.swapped[row["layer"]]
        counts = counted_components(module, row["tokens"])
        counted = 2 * int(counts.sum())
        mixing = 2 * int((counts > 0).sum()) * module.attention.head_dim
        original, whole = row["original_flops"], 2 * counts.numel() * module.attention.head_dim
        rows.append(
            {
                "layer": row["layer"],
                "tokens": row["tokens"],
                "closed_form": row["score_flops"],
                "counted": counted,
                "original": original,
                "mixing": mixing,
                "closed_form_share": row["share"],
                "counted_share": counted / original,
                "with_mixing": (counted + mixing) / (original + whole),
            }
        )
    return rows
