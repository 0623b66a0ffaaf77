"""A bias of the logits by the distance of two tokens, in buckets."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tsattn.errors import UserError

__all__ = ["DistanceBias", "distance_buckets"]


class DistanceBias(nn.Module):
    """A learned bias for each head and bucket of distances; one serves all layers of a stack.

    The nearest distances have a bucket each, further ones share buckets that grow in proportion to the distance, and
    all from `max_distance` on share the last. Source: Raffel et al., *Exploring the Limits of Transfer Learning with a
    Unified Text-to-Text Transformer* (JMLR 2020), T5.

    Args:
        num_heads: H.
        num_buckets: of both directions together, or of the past alone.
        max_distance: in tokens.
        both_ways: whether later tokens have buckets of their own; else each counts as the token itself.

    Raises:
        UserError: for buckets too few to tell distances apart, or a distance that is no further than those with a
            bucket each.
    """

    def __init__(
        self, num_heads: int, num_buckets: int = 32, max_distance: int = 128, *, both_ways: bool = True
    ) -> None:
        super().__init__()
        of_one_way = num_buckets // 2 if both_ways else num_buckets
        if of_one_way < 2 or num_buckets % 2:
            raise UserError(f"num_buckets must be an even number from 4 on, not {num_buckets}")
        if max_distance <= of_one_way // 2:
            raise UserError(f"max_distance must be above {of_one_way // 2} with {num_buckets} buckets: {max_distance}")
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.both_ways = both_ways
        self.weight = nn.Parameter(torch.empty(num_buckets, num_heads).normal_(std=0.02))

    def forward(self, num_tokens: int) -> Tensor:
        """The bias `(1, H, N, N)` of N neighbouring tokens: `[..., i, j]` of token i that looks at token j."""
        place = torch.arange(num_tokens, device=self.weight.device)
        return self.weight[self.buckets(place[None, :] - place[:, None])].permute(2, 0, 1)[None]

    @torch.no_grad()
    def look_at_distances_(self, peak: float) -> None:
        """Start with heads that look back: the first at the token before, the second at the one before that, and so on.

        Args:
            peak: the bias there; it is 0 elsewhere.
        """
        heads = torch.arange(self.weight.shape[1], device=self.weight.device)
        self.weight.zero_()
        self.weight[self.buckets(-1 - heads), heads] = peak

    def buckets(self, ahead: Tensor) -> Tensor:
        """The bucket of each whole number of tokens that a key lies ahead of its query, in any shape."""
        return distance_buckets(ahead, self.num_buckets, self.max_distance, both_ways=self.both_ways)


def distance_buckets(ahead: Tensor, num_buckets: int, max_distance: int, *, both_ways: bool) -> Tensor:
    """The bucket of each whole number of tokens that a key lies ahead of its query, in any shape (`DistanceBias`)."""
    first = torch.zeros_like(ahead)
    if both_ways:
        num_buckets //= 2
        first = (ahead > 0).long() * num_buckets
        distance = ahead.abs()
    else:
        distance = (-ahead).clamp(min=0)
    exact = num_buckets // 2
    # in float32, in which the pretrained weights were assigned to their buckets
    share = (distance.float().clamp(min=1) / exact).log() / math.log(max_distance / exact)
    far = exact + (share * (num_buckets - exact)).long()
    return first + torch.where(distance < exact, distance, far.clamp(max=num_buckets - 1))
