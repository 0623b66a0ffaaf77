"""Conversion to structured bilinear forms: the member of a family of matrices nearest to each head's `W_Q W_K^T`.

Rotary positions make a form of their own for each distance of two tokens; a structured form has none. It is then
fitted to their mean over the distances within a context, which is nearest to all of them together, and its error counts
what the mean leaves out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tsattn.attention.projections import BTTProjection, MLBTCProjection
from tsattn.chronos.converting.special_cases import SPECIAL_CASES
from tsattn.chronos.swapped.building import Surroundings
from tsattn.chronos.swapped.pair_rotation import distance_shares
from tsattn.chronos.swapped.swapped_attention import SwappedAttention
from tsattn.errors import UserError
from tsattn.structured import BTT, MLBTC, fit_levels

__all__ = ["mean_form", "project_scores", "share_of"]

# fits of several levels are alternated; later sweeps, and calibration, gain less than they cost at a model's width
RESTARTS = 1
SWEEPS: dict[str, Any] = {"tolerance": 1e-3, "max_sweeps": 40}


@torch.no_grad()
def project_scores(
    around: Surroundings, swapped: SwappedAttention, seed: int, special_case: str | None = None
) -> Tensor:
    """Give a structured attention scores near the original's.

    Args:
        around: the original.
        swapped: in its place.
        seed: of the restarts of fits of several levels.
        special_case: one of `SPECIAL_CASES`, a member of which the scores become; the attention holds it in factors of
            its own, which are not tied as those of the special case are. None for any member of the attention's family.

    Returns:
        `(H,)`: the Frobenius norm of the difference of the forms, as a share of that of the original's, see `share_of`.

    Raises:
        UserError: for an attention without a structured form, or whose form cannot hold the special case.
    """
    projection = swapped.attention.projection
    form, left_out, norm = mean_form(around)
    near = form if special_case is None else SPECIAL_CASES[special_case](form, around.head_dim).to_dense()
    if isinstance(projection, BTTProjection):
        fitted = BTT.project(near, projection.tt_rank, divisor=projection.divisor)
        projection.left.copy_(fitted.left)
        projection.right.copy_(fitted.right)
        held = fitted.to_dense()
    elif isinstance(projection, MLBTCProjection):
        levels, _ = fit_levels(near, projection.shapes, restarts=RESTARTS, seed=seed, **SWEEPS)
        for at, level in enumerate(levels):
            projection.left[at].copy_(level.left)
            projection.right[at].copy_(level.right)
        held = MLBTC(levels).to_dense()
    else:
        raise UserError("project is for structured forms, btt, bilinear_mlr and mlbtc: convert this by copy or fresh")
    if special_case is not None and float((held - near).abs().max()) > 1e-4 * float(near.abs().max()):
        raise UserError(
            f"project:{special_case} needs attention that can hold such a matrix, and this cannot: btt holds monarch, "
            "kronecker and butterfly ones, mlbtc of one level {rank: r} for heads of r components low_rank ones"
        )
    error = torch.linalg.matrix_norm(form - projection.to_dense().double())
    return share_of((error.square() + left_out).sqrt(), norm)


def share_of(error: Tensor, whole: Tensor) -> Tensor:
    """An error as a share of the whole: 0 where that is 0, as in a head whose queries are, and nothing can be wrong."""
    return torch.where(whole == 0, 0.0, error / whole)


def mean_form(around: Surroundings) -> tuple[Tensor, Tensor, Tensor]:
    """The bilinear form of each head of the original, its mean over distances where it has rotary positions.

    Returns:
        The forms `(H, D, D)` in float64; the mean square distance of those of single distances to it `(H,)`, 0 without
        rotary positions; and the root of their mean square norm `(H,)`.
    """
    query, key = (
        weight.detach().double().view(around.num_heads, around.head_dim, -1)
        for weight in (around.original.q.weight, around.original.k.weight)
    )
    if around.rope_base is None or around.layout is None:
        form = query.mT @ key
        norm = torch.linalg.matrix_norm(form)
        return form, torch.zeros_like(norm), norm
    half = around.head_dim // 2
    steps = torch.arange(around.layout.context_tokens, dtype=torch.float64, device=query.device)
    share = distance_shares(len(steps), query.device)
    turns = around.rope_base ** -(torch.arange(half, device=query.device).double() / half)
    angles = steps[:, None] * turns
    # sines cancel over distances of both signs
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
