"""One level of the MLBTC form, and the fitting of a sum of levels to a dense matrix.

Shape letters here: an `m x n` matrix, p' left blocks and p right blocks, r the rank of a level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import torch
from einops import rearrange
from torch import Tensor

from tsattn.errors import UserError
from tsattn.structured.linear_operators import AxisSplit, BlockFactor, BlockProduct, normal, piece


class Fitting(TypedDict, total=False):
    """Options of `fit_levels`."""

    tolerance: float
    max_sweeps: int
    restarts: int
    seed: int


@dataclass(frozen=True)
class LevelShape:
    """Shape of a level, as plain data.

    Attributes:
        rank: rank of the level's parts of the matrix: of the blocks of MLR; for BTT, the TT-rank.
        left_blocks: p'.
        right_blocks: p.
        shuffled: whether every right block feeds every left block (BTT); otherwise block k feeds block k alone (MLR),
            and `left_blocks` must equal `right_blocks`.
    """

    rank: int
    left_blocks: int = 1
    right_blocks: int = 1
    shuffled: bool = False

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise UserError(f"the rank of a level must be at least 1, not {self.rank}")
        if not self.shuffled and self.left_blocks != self.right_blocks:
            raise UserError(
                f"a level that is not shuffled has as many left as right blocks, "
                f"not {self.left_blocks} and {self.right_blocks}"
            )

    @property
    def left_inputs(self) -> int:
        """Inputs of a left block."""
        return self.rank * (self.right_blocks if self.shuffled else 1)

    @property
    def right_outputs(self) -> int:
        """Outputs of a right block."""
        return self.rank * (self.left_blocks if self.shuffled else 1)


@dataclass(frozen=True, eq=False)
class Level:
    """`scale * P_L diag(L_1 .. L_p') P_R diag(R_1^T .. R_p^T)`.

    If not shuffled, both permutations are the identity, and the level is block-diagonal with blocks `L_k R_k^T`. If
    shuffled, P_R hands each left block an equal share of every right block's outputs, and P_L strides the outputs.

    Attributes:
        left: `(..., p', m/p', p r)`, or `(..., p, m/p, r)` if not shuffled.
        right: `(..., p, n/p, p' r)`, or `(..., p, n/p, r)` if not shuffled.
        shuffled: see `LevelShape`.
        scale: alpha, a constant.

    Raises:
        UserError: the outputs of `right` are not the inputs of `left`.
    """

    left: Tensor
    right: Tensor
    shuffled: bool
    scale: float = 1.0

    def __post_init__(self) -> None:
        left_blocks, right_blocks = self.left.shape[-3], self.right.shape[-3]
        rank = self.left.shape[-1] // (right_blocks if self.shuffled else 1)
        shape = LevelShape(rank, left_blocks, right_blocks, self.shuffled)
        if (self.left.shape[-1], self.right.shape[-1]) != (shape.left_inputs, shape.right_outputs):
            raise UserError(
                f"left blocks {tuple(self.left.shape[-3:])} and right blocks {tuple(self.right.shape[-3:])} "
                f"do not make a level"
            )

    @property
    def right_factor(self) -> BlockFactor:
        """`P_R diag(R^T)`."""
        p, size, outputs = self.right.shape[-3:]
        run = outputs // self.left.shape[-3] if self.shuffled else outputs
        target = AxisSplit.strided(p, outputs, run) if self.shuffled else AxisSplit.neighbours(p, outputs)
        return BlockFactor(self.right.transpose(-1, -2), AxisSplit.neighbours(p, size), target)

    @property
    def left_factor(self) -> BlockFactor:
        """`P_L diag(L)`."""
        p, size, inputs = self.left.shape[-3:]
        target = AxisSplit.strided(p, size) if self.shuffled else AxisSplit.neighbours(p, size)
        return BlockFactor(self.left, AxisSplit.neighbours(p, inputs), target)

    @property
    def product(self) -> BlockProduct:
        """The whole level."""
        return BlockProduct((self.right_factor, self.left_factor), self.scale)

    @classmethod
    def random(
        cls,
        out_features: int,
        in_features: int,
        shape: LevelShape,
        *,
        left_fan_in: int,
        left_heads: Sequence[int],
        right_heads: Sequence[int],
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> Level:
        """Draw normal factors; `left_fan_in` counts what an output reads from *all* levels of the matrix."""
        outputs, fan_in = piece(out_features, shape.left_blocks), piece(in_features, shape.right_blocks)
        left_shape = (*left_heads, shape.left_blocks, outputs, shape.left_inputs)
        left = normal(*left_shape, fan_in=left_fan_in, generator=generator, dtype=dtype)
        right_shape = (*right_heads, shape.right_blocks, fan_in, shape.right_outputs)
        right = normal(*right_shape, fan_in=fan_in, generator=generator, dtype=dtype)
        return cls(left, right, shape.shuffled)

    @classmethod
    def nearest(cls, dense: Tensor, shape: LevelShape) -> Level:
        """Find the nearest level to `(..., m, n)` in the Frobenius norm, in closed form: a truncated SVD of each block.

        Shuffled, entry `((i, k'), (k, j))` of the level is `sum_s L_k'[i, (k, s)] R_k[j, (k', s)]`. So a permutation of
        rows gives a block of entries for each pair `(k', k)`. Its factors occur in no other block, and its only limit
        is a rank of at most r. The squared error is a sum over blocks, each least at its truncated SVD (Eckart and
        Young). Not shuffled, the same holds of the diagonal blocks; other entries are zero in every member. Source: Qiu
        et al. (2024). For `r = 1` see Dao et al. (2022), section 3.

        Raises:
            UserError: the blocks do not divide the matrix.
        """
        p_left, p_right = shape.left_blocks, shape.right_blocks
        piece(dense.shape[-2], p_left)
        piece(dense.shape[-1], p_right)
        if shape.shuffled:
            parts = rearrange(dense, "... (i k) (h j) -> ... k h i j", k=p_left, h=p_right)
            left, right = truncated_svd(parts, shape.rank)
            left = rearrange(left, "... k h i s -> ... k i (h s)")
            right = rearrange(right, "... k h j s -> ... h j (k s)")
        else:
            parts = rearrange(dense, "... (k i) (h j) -> ... i j k h", k=p_left, h=p_right)
            left, right = truncated_svd(parts.diagonal(dim1=-2, dim2=-1).movedim(-1, -3), shape.rank)
        return cls(left, right, shape.shuffled)


def truncated_svd(matrices: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Factors `(..., m, rank)` and `(..., n, rank)` of the best approximations of rank `rank`; zeros beyond full rank.

    Each factor carries the square roots of the singular values. Half precisions are decomposed in float32.
    """
    precise = matrices.detach().to(torch.promote_types(matrices.dtype, torch.float32))
    u, s, vh = torch.linalg.svd(precise, full_matrices=False)
    root = s[..., None, :rank].sqrt()
    missing = (0, rank - root.shape[-1])
    left, right = u[..., :rank] * root, vh[..., :rank, :].transpose(-1, -2) * root
    pad = torch.nn.functional.pad
    return pad(left, missing).to(matrices.dtype), pad(right, missing).to(matrices.dtype)


def fit_levels(
    dense: Tensor,
    shapes: Sequence[LevelShape],
    *,
    tolerance: float = 1e-4,
    max_sweeps: int = 500,
    restarts: int = 0,
    seed: int = 0,
) -> tuple[tuple[Level, ...], Tensor]:
    """Fit levels by block coordinate descent: each in turn becomes the nearest to what the others leave of `dense`.

    The error never grows, since each step is the best choice of its level (Parshakova et al. 2023, factor fitting by
    block coordinate descent). One level is fitted in closed form; with more, the result is a fixed point of the
    alternation that need not be the global optimum. Other starts may end at other points; each head keeps the nearest.

    Args:
        dense: `(*heads, m, n)`.
        shapes: the levels, in the order in which they are fitted.
        tolerance: stop when a sweep lowers no head's error by more than this share of the error.
        max_sweeps: the most sweeps, 1 or more.
        restarts: further starts, from random levels; the first start is from zeros. More starts are never worse.
        seed: of the random levels; the first starts are the same however many follow.

    Returns:
        The levels, and the Frobenius error of each head after each step of the start that it keeps, `(steps, *heads)`.
        A start with fewer steps repeats its last error.

    Raises:
        UserError: no levels, or blocks that do not divide the matrix.
    """
    if not shapes:
        raise UserError("at least one level is needed")
    dense = dense.detach()
    if len(shapes) == 1:
        max_sweeps, restarts = 1, 0
    nothing = [torch.zeros_like(dense)] * len(shapes)
    best, errors = _alternate(dense, shapes, nothing, tolerance, max_sweeps)
    generator = torch.Generator(dense.device).manual_seed(seed)
    for _ in range(restarts):
        start = [_random_part(dense, shape, generator) for shape in shapes]
        levels, others = _alternate(dense, shapes, start, tolerance, max_sweeps)
        nearer = others[-1] < errors[-1]
        best = [_choose(nearer, new, old) for new, old in zip(levels, best, strict=True)]
        steps = max(len(errors), len(others))
        errors, others = (torch.cat([e, e[-1:].expand(steps - len(e), *e.shape[1:])]) for e in (errors, others))
        errors = torch.where(nearer, others, errors)
    return tuple(best), errors


def _alternate(
    dense: Tensor, shapes: Sequence[LevelShape], start: Sequence[Tensor], tolerance: float, max_sweeps: int
) -> tuple[list[Level], Tensor]:
    """`fit_levels` from one start, a dense matrix for each level: the levels, and the error after each step."""
    parts, residual = [*start], dense
    levels: list[Level] = []
    for part in parts:
        residual = residual - part
    rounding = 10 * torch.finfo(dense.dtype).eps * torch.linalg.matrix_norm(dense)
    errors = [torch.linalg.matrix_norm(residual)]
    for _ in range(max_sweeps):
        before, levels = errors[-1], []
        for index, shape in enumerate(shapes):
            target = residual + parts[index]
            levels.append(Level.nearest(target, shape))
            parts[index] = _dense(levels[index])
            residual = target - parts[index]
            errors.append(torch.linalg.matrix_norm(residual))
        unfinished = (before - errors[-1] > tolerance * before) & (errors[-1] > rounding)
        if not unfinished.any():
            break
    return levels, torch.stack(errors[1:])


def _random_part(dense: Tensor, shape: LevelShape, generator: torch.Generator) -> Tensor:
    """A random level as a dense matrix, with the norm of `dense (*heads, m, n)`."""
    heads, (rows, columns) = dense.shape[:-2], dense.shape[-2:]
    level = Level.random(
        rows,
        columns,
        shape,
        left_fan_in=shape.left_inputs,
        left_heads=heads,
        right_heads=heads,
        generator=generator,
        dtype=dense.dtype,
    )
    scale = torch.linalg.matrix_norm(dense) / torch.linalg.matrix_norm(_dense(level))
    return _dense(Level(level.left * scale[..., None, None, None], level.right, level.shuffled))


def _choose(nearer: Tensor, new: Level, old: Level) -> Level:
    """The new level for the heads that are `nearer (*heads)`, else the old one."""
    pick = nearer[..., None, None, None]
    return Level(torch.where(pick, new.left, old.left), torch.where(pick, new.right, old.right), old.shuffled)


def _dense(level: Level) -> Tensor:
    """`(*heads, m, n)`."""
    size = level.right.shape[-3] * level.right.shape[-2]
    eye = torch.eye(size, dtype=level.right.dtype, device=level.right.device)
    return level.product.apply(eye).transpose(-1, -2)
