"""Conversion to multi-level attention by rotation: far pairs keep the directions that carry most of their scores.

The score of a head, `q . k`, is the same in any basis of its r components, if queries and keys change it together:
`(A^T q) . (A^-1 k)`. Multi-level attention scores far pairs with the first components alone, so the basis decides what
they lose. Over independent tokens the loss `E (q_f . k_f)^2` of the components f that a level leaves out is least, for
every number of them at once, in the basis in which queries and keys have the same diagonal second moments: from
`L_q L_q^T = E q q^T`, `L_k L_k^T = Cov k` and the singular value decomposition `L_q^T L_k = U S V^T`,
`q' = S^(1/2) U^T L_q^-1 q` and `k' = S^(1/2) V^T L_k^-1 k` (Eckart and Young on whitened tokens). Without data, tokens
are taken as white noise, and `U S V^T` is that of `W_Q W_K^T` itself.

Keys count by their covariance: with their mean taken off by a bias, what a far pair loses is centred, and what the
near ones lose, `q . E k`, is the same for all keys of a query, to which a softmax is blind.

Rotary positions commute with a rotation within a pair of components, which changes no level, and with nothing else, as
no two pairs of a head turn equally fast. There whole pairs are reordered, by the mean square of what they add to a
score over the distances within a context.
"""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor, nn

from tsattn.attention import MLRAttention
from tsattn.attention.patterns import MultiLevelPattern
from tsattn.attention.projections import LowRankProjection
from tsattn.chronos.converting.activations import InputMoments
from tsattn.chronos.converting.copying import paired
from tsattn.chronos.converting.projecting import share_of
from tsattn.chronos.swapped.building import Surroundings
from tsattn.chronos.swapped.pair_rotation import PairRotation, distance_shares
from tsattn.chronos.swapped.swapped_attention import SwappedAttention
from tsattn.errors import UserError

__all__ = ["far_errors", "rotate_scores"]


@torch.no_grad()
def rotate_scores(around: Surroundings, swapped: SwappedAttention, moments: InputMoments | None) -> None:
    """Give a multi-level attention the original's queries and keys in the best order of components.

    Args:
        around: the original.
        swapped: in its place.
        moments: of the tokens there; None takes them as white noise.

    Raises:
        UserError: for another attention.
    """
    attention = swapped.attention
    if not isinstance(attention, MLRAttention) or not isinstance(attention.projection, LowRankProjection):
        raise UserError("rotate is for mlr, whose far pairs keep the first components: copy, project or fresh")
    query, key = _heads(around)
    known = InputMoments.of_noise(query.shape[-1]) if moments is None else moments
    known = InputMoments(known.second.to(query.device), known.mean.to(query.device))
    if isinstance(attention.rotary, PairRotation):
        order = _pair_energies(around, query, key, known).argsort(-1, descending=True)
        attention.rotary.order.copy_(order)
        query, key = paired(query, order), paired(key, order)
    else:
        query, key = _rotated(query, key, known)
        if moments is not None:
            bias = -(key @ known.mean).flatten()
            layer = attention.projection.key
            layer.bias = nn.Parameter(bias.to(layer.weight))
    attention.projection.query.weight.copy_(query.flatten(0, 1))
    attention.projection.key.weight.copy_(key.flatten(0, 1))


def far_errors(around: Surroundings, swapped: SwappedAttention, moments: InputMoments | None) -> Tensor | None:
    """`(H,)`: how far the scores of the farthest pairs are from the original's, as a share of these.

    The root of the ratio of mean squares over independent tokens, the mean of the keys left out: 1 where no level
    holds the first and the last token of the longest context in one block, so that they score nothing, and 0 where the
    original's scores are 0. None for attention that scores every pair with all components, or none.
    """
    attention = swapped.attention
    if not isinstance(attention.pattern, MultiLevelPattern) or not isinstance(attention.projection, LowRankProjection):
        return None
    kept = _shared_by_all(attention.pattern, around)
    weights = (attention.projection.query.weight, attention.projection.key.weight)
    query, key = (rearrange(w.detach().double(), "(H r) D -> H r D", H=around.num_heads) for w in weights)
    known = InputMoments.of_noise(query.shape[-1]) if moments is None else moments
    second, spread = known.second.to(query.device), known.covariance.to(query.device)
    if isinstance(attention.rotary, PairRotation):
        lost = _pair_energies(around, *_heads(around), known).gather(1, attention.rotary.order)
        return share_of(lost[:, kept // 2 :].sum(-1), lost.sum(-1)).sqrt()
    squares = (query @ second @ query.mT) * (key @ spread @ key.mT)
    return share_of(squares[:, kept:, kept:].sum((1, 2)), squares.sum((1, 2))).clamp(min=0).sqrt()


def _shared_by_all(pattern: MultiLevelPattern, around: Surroundings) -> int:
    """Components of the levels that have all tokens of the longest context in one block."""
    tokens = around.max_tokens if around.layout is None else around.layout.context_tokens
    levels = zip(pattern.ranks, pattern.whole_levels(tokens), strict=True)
    return sum(rank for rank, is_whole in levels if is_whole)


def _heads(around: Surroundings) -> tuple[Tensor, Tensor]:
    """The original's queries and keys of each head, `(H, r, D)` in float64."""
    weights = (around.original.q.weight, around.original.k.weight)
    query, key = (rearrange(w.detach().double(), "(H r) D -> H r D", H=around.num_heads) for w in weights)
    return query, key


def _rotated(query: Tensor, key: Tensor, moments: InputMoments) -> tuple[Tensor, Tensor]:
    """Queries and keys `(H, r, D)` in the basis of the module's docstring."""
    squares = query @ moments.second @ query.mT
    to_query = _root(squares, squares)
    to_key = _root(key @ moments.covariance @ key.mT, key @ moments.second @ key.mT)
    left, sizes, right = torch.linalg.svd(to_query.mT @ to_key)
    scale = sizes.sqrt()[:, :, None]
    # a direction that no score has stays as it is drawn by the decomposition, with both sides near zero
    query = scale * (left.mT @ torch.linalg.solve_triangular(to_query, query, upper=False))
    key = scale * (right @ torch.linalg.solve_triangular(to_key, key, upper=False))
    return query, key


def _root(moments: Tensor, squares: Tensor) -> Tensor:
    """L of `L L^T = moments (H, r, r)`, of full rank beside their `squares`: any such L keeps the scores exact."""
    size = squares.diagonal(dim1=1, dim2=2).mean(-1)[:, None, None].clamp(min=1e-12)
    root: Tensor = torch.linalg.cholesky(moments + 1e-9 * size * torch.eye(moments.shape[-1]).to(moments))
    return root


def _pair_energies(around: Surroundings, query: Tensor, key: Tensor, moments: InputMoments) -> Tensor:
    """`(H, r/2)`: the mean square of what each rotary pair, as the original numbers them, adds to a score."""
    assert around.rope_base is not None
    assert around.layout is not None
    pairs = query.shape[1] // 2
    queries, keys = (
        torch.stack([weight[:, :pairs], weight[:, pairs:]], 2) for weight in (query, key)
    )  # (H, pairs, 2, D)
    second = queries @ moments.second @ queries.mT
    other = keys @ moments.second @ keys.mT
    steps = torch.arange(around.layout.context_tokens, dtype=torch.float64, device=query.device)
    angles = steps[:, None] * around.rope_base ** -(torch.arange(pairs, device=query.device).double() / pairs)
    cos, sin = angles.cos(), angles.sin()
    turn = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)  # (steps, pairs, 2, 2)
    # tr(Q R K R^T), over distances of both signs, whose sines cancel where they are odd
    turned = [(r @ other[:, None] @ r.mT) for r in (turn, turn.mT)]
    energies = sum((second[:, None] * t).sum((-1, -2)) for t in turned) / 2
    return torch.einsum("t,Htp->Hp", distance_shares(len(steps), query.device), torch.as_tensor(energies))
