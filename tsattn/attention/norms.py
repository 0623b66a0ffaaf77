"""Normalisation of queries and keys.

Shape letters as in `tsattn.attention.base`; W components of a query or key, W_l those of level l.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tsattn.attention.projections import MLBTCProjection, Projection
from tsattn.errors import UserError

__all__ = ["LevelNorm", "component_norm"]


class LevelNorm(nn.Module):
    """A LayerNorm over the components of each level.

    Args:
        widths: W_l, components of each level, which sum to W.
        factors: what each level of the input has been multiplied by. The norm removes it, so it is multiplied in again.
    """

    def __init__(self, widths: Sequence[int], factors: Sequence[float]) -> None:
        super().__init__()
        self.widths = list(widths)
        self.factors = list(factors)
        # an epsilon that grows with the square of the input: the result is that of an input that was not multiplied
        eps = [1e-5 * factor**2 for factor in factors]
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=e) for width, e in zip(widths, eps, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, H, N, W)` to the same shape."""
        levels = zip(self.norms, torch.split(x, self.widths, -1), self.factors, strict=True)
        return torch.cat([norm(part) if factor == 1 else factor * norm(part) for norm, part, factor in levels], -1)


def component_norm(projection: Projection, side: str, qk_norm: bool | str) -> nn.Module:
    """What normalises the components of a side, ``query`` or ``key``, of a projection.

    Args:
        projection: makes the components.
        side: which ones.
        qk_norm: false, true for all components of a head together, or ``level``.

    Raises:
        UserError: another `qk_norm`, ``level`` for a projection without levels, or one without queries and keys.
    """
    if qk_norm not in (False, True, "level"):
        raise UserError(f"qk_norm must be true, false or level, not {qk_norm!r}")
    if qk_norm == "level" and not isinstance(projection, MLBTCProjection):
        raise UserError("qk_norm: level is for bilinear_mlr and mlbtc, whose components come from levels of features")
    if qk_norm and not projection.normalised:
        raise UserError("qk_norm is for queries and keys, which this attention does not have")
    if not qk_norm or side not in projection.normalised:
        return nn.Identity()
    if qk_norm == "level":
        assert isinstance(projection, MLBTCProjection)
        widths = projection.level_widths
        return LevelNorm(widths, projection.level_scales if side == "query" else [1.0] * len(widths))
    return nn.LayerNorm(projection.width)
