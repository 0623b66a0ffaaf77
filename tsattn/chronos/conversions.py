"""Conversions make weights of a swapped attention from the trained weights. All but ``fresh`` keep values and outputs.

``copy`` keeps queries and keys.

``rotate`` (multi-level attention): the score of a head, `q . k`, does not change in another basis of its r components:
`(A^T q) . (A^-1 k)`. Multi-level attention scores far pairs with the first components only, so the basis decides how
much they lose. For independent tokens the loss of left-out components f is `E (q_f . k_f)^2`. It is least, for every
number of them, if queries and keys have equal diagonal second moments. With `L_q L_q^T = E q q^T`,
`L_k L_k^T = Cov k` and `L_q^T L_k = U S V^T`, these are `q' = S^(1/2) U^T L_q^-1 q` and
`k' = S^(1/2) V^T L_k^-1 k` (Eckart and Young on whitened tokens). Without data, tokens count as white noise. Keys
enter by their covariance: a bias removes their mean, and the softmax ignores `q . E k`, which is equal for all keys.
Rotary pairs turn at different speeds, so only their order is free. It follows their mean squared contribution to
the scores, over the distances in a context.

``project`` (structured forms): the nearest matrix of a family to each head's `W_Q W_K^T`. Under rotary positions each
distance has a form. The fit is to their mean over the distances in a context, and the error includes their deviations.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from tsattn.attention import MLRAttention
from tsattn.attention.patterns import MultiLevelPattern
from tsattn.attention.projections import BTTProjection, LowRankProjection, MLBTCProjection, NoProjection
from tsattn.chronos.swapped_attention import PairRotation, Surroundings, SwappedAttention
from tsattn.errors import UserError
from tsattn.structured import BTT, fit_levels

CONVERSIONS = ("copy", "rotate", "project", "fresh")


@dataclass(frozen=True)
class InputMoments:
    """Moments of the input tokens of an attention, in float64: the means of `x x^T (D, D)` and of `x (D,)`."""

    second: Tensor
    mean: Tensor

    @property
    def covariance(self) -> Tensor:
        """Covariance of the tokens, `(D, D)`."""
        return self.second - self.mean[:, None] * self.mean


@torch.no_grad()
def convert_weights(
    around: Surroundings, swapped: SwappedAttention, convert: str, moments: InputMoments | None, seed: int
) -> Tensor | None:
    """Set the weights of a swapped attention by a conversion.

    `moments` describe its input tokens; None assumes white noise. Returns the errors of scores `(H,)`, see
    `AdaptedChronos.score_errors`. None if all pairs keep all components, or no original score is used.
    """
    if convert == "fresh":
        return None
    attention, projection, rotary = swapped.attention, swapped.attention.projection, swapped.attention.rotary
    attention.value.weight.copy_(around.original.v.weight)
    attention.output.weight.copy_(around.original.o.weight)
    if convert == "project":
        return _project(around, swapped, seed)
    query, key = _heads(around)
    D, place = query.shape[-1], query.device
    known = moments or InputMoments(torch.eye(D).double(), torch.zeros(D).double())
    known = InputMoments(known.second.to(place), known.mean.to(place))
    if convert == "rotate" and not (isinstance(attention, MLRAttention) and isinstance(projection, LowRankProjection)):
        raise UserError("convert=rotate works with mlr only: give copy, project or fresh")
    if isinstance(projection, NoProjection):
        return None
    if not isinstance(projection, LowRankProjection):
        raise UserError(
            "convert=copy does not work with this attention, which has no query and key matrices: give project or fresh"
        )
    if isinstance(rotary, PairRotation):
        if convert == "rotate":
            energies = _pair_energies(rotary, around.context_tokens, query, key, known)
            rotary.order.copy_(energies.argsort(-1, descending=True))
        query, key = _paired(query, rotary.order), _paired(key, rotary.order)
    elif convert == "rotate":
        query, key = _rotated(query, key, known)
        if moments is not None:
            projection.key.bias = nn.Parameter((-(key @ known.mean).flatten()).to(projection.key.weight))
    projection.query.weight.copy_(query.flatten(0, 1))
    projection.key.weight.copy_(key.flatten(0, 1))
    return _far_errors(around, swapped, known)


def _rotated(query: Tensor, key: Tensor, known: InputMoments) -> tuple[Tensor, Tensor]:
    """Queries and keys `(H, r, D)` in the basis that the module's docstring describes."""
    squares = query @ known.second @ query.mT
    to_query = _root(squares, squares)
    to_key = _root(key @ known.covariance @ key.mT, key @ known.second @ key.mT)
    left, sizes, right = torch.linalg.svd(to_query.mT @ to_key)
    scale = sizes.sqrt()[:, :, None]
    # a direction that no score uses is arbitrary, with both sides near zero
    query = scale * (left.mT @ torch.linalg.solve_triangular(to_query, query, upper=False))
    return query, scale * (right @ torch.linalg.solve_triangular(to_key, key, upper=False))


def _root(moments: Tensor, squares: Tensor) -> Tensor:
    """L of full rank with `L L^T` near `moments (H, r, r)`, regularised by `squares`; any L keeps the scores exact."""
    size = squares.diagonal(dim1=1, dim2=2).mean(-1)[:, None, None].clamp(min=1e-12)
    root: Tensor = torch.linalg.cholesky(moments + 1e-9 * size * torch.eye(moments.shape[-1]).to(moments))
    return root


def _far_errors(around: Surroundings, swapped: SwappedAttention, known: InputMoments) -> Tensor | None:
    """Error of the scores of the farthest pairs, as a share of the original's scores, without the mean of the keys.

    It assumes independent tokens. It is 1 if no level has the first and last token of the longest context in a block.
    """
    attention = swapped.attention
    pattern, projection = attention.pattern, attention.projection
    if not isinstance(pattern, MultiLevelPattern) or not isinstance(projection, LowRankProjection):
        return None
    tokens, rotary = around.context_tokens, attention.rotary
    levels = zip(pattern.ranks, pattern.whole_levels(tokens), strict=True)
    kept = sum(rank for rank, is_whole in levels if is_whole)
    if isinstance(rotary, PairRotation):
        lost = _pair_energies(rotary, tokens, *_heads(around), known).gather(1, rotary.order)
        return _share_of(lost[:, kept // 2 :].sum(-1), lost.sum(-1)).sqrt()
    query, key = _heads(around, projection.query, projection.key)
    squares = (query @ known.second @ query.mT) * (key @ known.covariance @ key.mT)
    return _share_of(squares[:, kept:, kept:].sum((1, 2)), squares.sum((1, 2))).clamp(min=0).sqrt()


def _pair_energies(rotary: PairRotation, tokens: int, query: Tensor, key: Tensor, moments: InputMoments) -> Tensor:
    """`(H, r/2)`: the mean squared contribution of each rotary pair to a score, in the original's order."""
    pairs = query.shape[1] // 2
    queries, keys = (torch.stack([weight[:, :pairs], weight[:, pairs:]], 2) for weight in (query, key))
    second = queries @ moments.second @ queries.mT  # (H, pairs, 2, 2)
    other = keys @ moments.second @ keys.mT
    angles, shares = _angles(rotary.base, tokens, pairs, query.device)
    cos, sin = angles.cos(), angles.sin()
    turn = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)  # (steps, pairs, 2, 2)
    # tr(Q R K R^T), over distances of both signs, so that odd powers of the sines cancel
    turned = [(r @ other[:, None] @ r.mT) for r in (turn, turn.mT)]
    energies = sum((second[:, None] * t).sum((-1, -2)) for t in turned) / 2
    return torch.einsum("t,Htp->Hp", shares, torch.as_tensor(energies))


def _angles(base: float, tokens: int, pairs: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Angles `(tokens, pairs)` at each distance from 0, and the share `(tokens,)` of token pairs at each distance."""
    steps = torch.arange(tokens, dtype=torch.float64, device=device)
    shares = (tokens - steps) / tokens**2
    shares[1:] *= 2  # both signs of a distance
    return steps[:, None] * base ** -(torch.arange(pairs, device=device).double() / pairs), shares


def _project(around: Surroundings, swapped: SwappedAttention, seed: int) -> Tensor:
    """Fit a structured attention; return Frobenius norms of the difference of forms, as shares of the original's."""
    projection = swapped.attention.projection
    form, left_out, norm = mean_form(around)
    if isinstance(projection, BTTProjection):
        fitted = BTT.project(form, projection.tt_rank, divisor=projection.divisor)
        projection.left.copy_(fitted.left)
        projection.right.copy_(fitted.right)
    elif isinstance(projection, MLBTCProjection):
        # more sweeps and restarts cost more than they gain at the width of a model
        levels, _ = fit_levels(form, projection.shapes, restarts=1, seed=seed, tolerance=1e-3, max_sweeps=40)
        for at, level in enumerate(levels):
            projection.left[at].copy_(level.left)
            projection.right[at].copy_(level.right)
    else:
        raise UserError("convert=project works with btt, bilinear_mlr and mlbtc only: give copy or fresh")
    error = torch.linalg.matrix_norm(form - projection.to_dense().double())
    return _share_of((error.square() + left_out).sqrt(), norm)


def mean_form(around: Surroundings) -> tuple[Tensor, Tensor, Tensor]:
    """Average the bilinear form of each head of the original over distances between tokens.

    Returns the mean forms `(H, D, D)` in float64, the mean squared deviations `(H,)` of the forms from them, and the
    root mean squares `(H,)` of the norms of the forms. Without rotary positions the deviations are 0.
    """
    query, key = _heads(around)
    if around.rope_base is None:
        form = query.mT @ key
        norm = torch.linalg.matrix_norm(form)
        return form, torch.zeros_like(norm), norm
    half = query.shape[1] // 2
    angles, share = _angles(around.rope_base, around.context_tokens, half, query.device)
    # the sines of opposite distances cancel
    cosines = (share[:, None] * angles.cos()).sum(0).repeat(2)
    form = query.mT @ (cosines[:, None] * key)
    own, other = query @ query.mT, key @ key.mT
    squares = torch.zeros(around.num_heads, dtype=torch.float64, device=query.device)
    eye = torch.eye(half, dtype=torch.float64, device=query.device)
    for weight, angle in zip(share, angles, strict=True):
        cos, sin = eye * angle.cos(), eye * angle.sin()
        turn = torch.cat([torch.cat([cos, -sin], 1), torch.cat([sin, cos], 1)], 0)
        both = sum((own * (r @ other @ r.T)).sum((1, 2)) for r in (turn, turn.T)) / 2
        squares += weight * both
    left_out = (squares - torch.linalg.matrix_norm(form).square()).clamp(min=0)
    return form, left_out, squares.sqrt()


def _heads(around: Surroundings, *maps: nn.Linear) -> tuple[Tensor, Tensor]:
    """The weights `(H, r, D)` of the maps to queries and to keys; by default of the original."""
    maps = maps or (around.original.q, around.original.k)
    query, key = (rearrange(one.weight.detach().double(), "(H r) D -> H r D", H=around.num_heads) for one in maps)
    return query, key


def _paired(weight: Tensor, order: Tensor) -> Tensor:
    """Reorder rows `(H, r, D)` of rotary pairs (p, p + r/2) to (2p, 2p + 1), with pairs in the order `(H, r/2)`."""
    halves = torch.stack([order, order + weight.shape[1] // 2], -1).flatten(1)
    return weight.gather(1, halves[..., None].expand(-1, -1, weight.shape[2]))


def _share_of(error: Tensor, whole: Tensor) -> Tensor:
    return torch.where(whole == 0, 0.0, error / whole)  # 0 for a head with zero queries
