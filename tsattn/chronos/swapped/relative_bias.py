"""The relative position bias of T5, which its first layer owns and all layers add to their scores."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from tsattn.chronos.bolt.t5_layers import distance_buckets

__all__ = ["RelativeBias"]


class RelativeBias(nn.Module):
    """A bias for each head and bucket of distances (Raffel et al., 2020), with the original's table and buckets.

    Args:
        original: the `T5Attention` that has the table; it is copied.
    """

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.table = copy.deepcopy(original.relative_attention_bias)
        self.both_ways = not original.is_decoder
        self.num_buckets = original.relative_attention_num_buckets
        self.max_distance = original.relative_attention_max_distance

    def forward(self, queries: int, keys: int, seen: int) -> Tensor:
        """`(1, H, N, S)` of the last `queries` tokens, before which `seen` came, and the first `keys`."""
        # of each distance once, from the last query's first key to the first query's last: rows are stretches of these
        ahead = torch.arange(1 - seen - queries, keys - seen, device=self.table.weight.device)
        buckets = distance_buckets(ahead, self.num_buckets, self.max_distance, both_ways=self.both_ways)
        line: Tensor = self.table(buckets).T
        return line.unfold(1, keys, 1).flip(1)[None]
