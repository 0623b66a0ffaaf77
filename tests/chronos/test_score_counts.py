"""Flops of swapped attentions in closed form are those of the products that the reference path takes."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from tests.chronos.tiny_models import tiny_pipeline
from tsattn.chronos import adapt


class Ones(nn.Module):
    """Queries and keys of ones, so that the score of a pair is the number of components that it is scored with."""

    def __init__(self, width: int, heads: tuple[int, int]) -> None:
        super().__init__()
        self.width, self.heads, self.scale = width, heads, 1.0

    def forward(self, x: Tensor, context: Tensor) -> Any:
        both = zip(self.heads, (x, context), strict=True)
        return tuple(x.new_ones(len(x), heads, tokens.shape[1], self.width) for heads, tokens in both)


class EachToken(nn.Module):
    """Values by which the output of a head is the row of its weights."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        return torch.eye(x.shape[1]).to(x).repeat(1, self.heads).expand(len(x), -1, -1)


@torch.no_grad()
def counted_components(module: Any, tokens: int) -> Tensor:
    """`(H, N, N)`: with how many components each pair is scored, 0 for one that is not seen.

    With queries and keys of ones the logarithm of weights is, up to a constant of each query, the number of products in
    a score. A token is scored with itself by all components.
    """
    probe = copy.deepcopy(module).double().eval()
    attention = probe.attention
    width, heads = attention.projection.width, attention.num_heads
    attention.projection = Ones(width, (heads, attention.num_kv_heads))
    attention.query_norm = attention.key_norm = nn.Identity()
    attention.value, attention.output = EachToken(attention.num_kv_heads), nn.Identity()
    attention.rotary, attention.impl, attention.scale = None, "reference", 1.0
    rows = probe.attend(torch.zeros(1, tokens, attention.d_model, dtype=torch.float64), key_mask=None, bias=None)
    weights = rows.view(tokens, heads, tokens).transpose(0, 1)
    own = weights.diagonal(dim1=1, dim2=2)[:, :, None]
    found = torch.where(weights > 0, (weights / own).log() + width, 0.0)
    torch.testing.assert_close(found, found.round(), atol=1e-6, rtol=0)
    return found.round().long()


def counted(adapted: Any) -> list[dict[str, Any]]:
    rows = adapted.cost().to_dict("records")
    return [{**row, "counts": counted_components(adapted.swapped[row["layer"]], row["tokens"])} for row in rows]


def test_components_are_counted_on_the_reference() -> None:
    for row in counted(adapt(tiny_pipeline("chronos2"), {"kind": "mlr", "ranks": [4, 2, 2], "blocks": [1, 2, 8]})):
        assert 2 * int(row["counts"].sum()) == row["score_flops"] < row["original_flops"]
    swa = adapt(tiny_pipeline("chronos2"), {"kind": "swa", "window_size": 4})
    (row, *_) = counted(swa)
    special, at = swa.swapped["encoder.0"].layout.special_tokens, torch.arange(row["tokens"])
    sees = (at[:, None] - at).abs() < 4
    sees[-special:] = True
    sees[:, -special:] = True
    assert torch.equal(row["counts"], 8 * sees.expand(3, -1, -1))
    said = "the closed form counts windows that reach beyond the ends"
    assert 2 * int(row["counts"].sum()) <= row["score_flops"], said
