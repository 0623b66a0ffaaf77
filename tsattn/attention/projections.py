"""Projections make queries and keys from the tokens; they decide the structure of the bilinear form.

Queries and keys are normalised (`Projection.norm`) and rotated (`RotaryEmbedding`) before a pattern scores them.

Shape letters as in `tsattn.attention.base`; a query or key has W components, W_l of them at level l.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn
from typing_extensions import override

from tsattn.batch import ModuleWithConstants
from tsattn.errors import UserError, is_whole_number, whole_number
from tsattn.ops.softmax import expand_heads, wide
from tsattn.structured import BTT, MLBTC, MLR, Level, LevelShape, block_sizes


@dataclass(frozen=True)
class ProjectionCost:
    """The cost of making queries and keys, biases left out."""

    params_per_head: int  # numbers in the bilinear form of one head
    params: int  # numbers for all heads together; grouped heads have fewer than H times `params_per_head`
    key_heads: int  # number of cached key heads


class Projection(nn.Module):
    """Makes queries and keys.

    Attributes:
        width: W, components of a query or key.
        scale: factor of the logits.
        mup_scale: factor of the logits under muP, where queries and keys grow equally in training (Kuang et al., 2025).
        normalised: the sides that q/k normalisation applies to: ``query``, ``key`` or both.
    """

    width: int
    scale: float
    mup_scale: float
    normalised: tuple[str, ...] = ("query", "key")

    @abstractmethod
    def forward(self, x: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        """Queries `(B, H | 1, N, W)` of `x (B, N, D)` and keys `(B, H | G | 1, S, W)` of `source (B, S, D)`."""

    def num_params(self) -> int:
        """Number of parameters of the score, all heads together, without biases."""
        return sum(p.numel() for p in self.parameters() if p.dim() > 1)

    @abstractmethod
    def to_dense(self) -> Tensor:
        """The bilinear form M of each query head, `(H, D, D)`: `score = scale * x M x'`, without biases and norms."""

    def cost(self, d_model: int) -> ProjectionCost:
        """Number of parameters and key heads for tokens of width D (Kuang et al., section 3).

        Raises:
            UserError: if the projection has no closed form.
        """
        raise UserError(f"the cost of {type(self).__name__} is not known: it has no method cost")

    def norm(self, side: str, qk_norm: bool | str) -> nn.Module:
        """The module that normalises the components of a side, ``query`` or ``key``; see `Attention` for `qk_norm`.

        Raises:
            UserError: for an unknown `qk_norm`, ``level`` without levels, or a projection without queries and keys.
        """
        if qk_norm not in (False, True, "level"):
            raise UserError(f"qk_norm must be true, false or level, not {qk_norm!r}")
        if qk_norm and not self.normalised:
            raise UserError("this attention has no queries and keys to normalise: leave qk_norm out")
        if qk_norm == "level":
            return self._level_norm(side)
        return nn.LayerNorm(self.width) if qk_norm and side in self.normalised else nn.Identity()

    def _level_norm(self, side: str) -> nn.Module:
        raise UserError("qk_norm: level works with bilinear_mlr and mlbtc only: give true or false")

    def level_scores(self, q: Tensor, k: Tensor, scale: float) -> Tensor | None:
        """The share of each level of features in the logits, `(levels, B, H, N, S)`; None without levels."""
        return None

    def mup_fans(self) -> dict[str, tuple[int, int]]:
        """For muP: the inputs of a block and its outputs for all heads, by name of each structured factor."""
        return {}


class LowRankProjection(Projection):
    """The usual `q = x W_Q`, `k = x W_K`: a bilinear form of rank at most r = `head_dim`, `2 D r` parameters a head."""

    def __init__(self, d_model: int, num_heads: int, num_kv_heads: int | None, head_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads = key_heads(num_heads, num_kv_heads)
        self.width = head_dim
        self.scale = 1 / math.sqrt(head_dim)
        self.mup_scale = 8 / head_dim  # equal to `scale` if head_dim is 64
        self.query = nn.Linear(d_model, num_heads * head_dim)
        self.key = nn.Linear(d_model, num_kv_heads * head_dim)

    @override
    def forward(self, x: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        q = rearrange(self.query(x), "B N (H r) -> B H N r", H=self.num_heads)
        k = rearrange(self.key(source), "B S (G r) -> B G S r", G=self.num_kv_heads)
        return q, k

    @override
    def to_dense(self) -> Tensor:
        query = rearrange(self.query.weight, "(H r) D -> H r D", H=self.num_heads)
        key = rearrange(self.key.weight, "(G r) D -> G r D", G=self.num_kv_heads)
        return query.transpose(1, 2) @ key.repeat_interleave(self.num_heads // self.num_kv_heads, dim=0)

    @override
    def cost(self, d_model: int) -> ProjectionCost:
        """`2 D r` a head: `W_Q` and `W_K`."""
        side = d_model * self.width
        return ProjectionCost(2 * side, side * (self.num_heads + self.num_kv_heads), self.num_kv_heads)


class NoProjection(Projection):
    """Queries and keys without components, so that tokens are not compared."""

    def __init__(self, num_heads: int, num_kv_heads: int | None) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = key_heads(num_heads, num_kv_heads)
        self.width = 0
        self.scale = self.mup_scale = 1.0
        self.normalised = ()

    @override
    def forward(self, x: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        q = x.new_empty(x.shape[0], self.num_heads, x.shape[1], 0)
        return q, source.new_empty(source.shape[0], self.num_kv_heads, source.shape[1], 0)

    @override
    def to_dense(self) -> Tensor:
        raise UserError("without queries and keys there is no bilinear form")

    @override
    def cost(self, d_model: int) -> ProjectionCost:
        return ProjectionCost(0, 0, self.num_kv_heads)


class BTTProjection(Projection):
    """A block tensor-train bilinear form: full rank D from `D s (b + c)` parameters a head (Kuang et al., section 3).

    Args:
        d_model: D.
        num_heads: H.
        num_kv_heads: G; H if None; only the two-sided form groups heads.
        tt_rank: s.
        side: the mapped side: ``key`` (`q = x`, `k = M x`: the authors' form), ``query`` (`q = M^T x`, `k = x`,
            one key for all heads), or ``both`` (a factor on each side, width b c s).
        divisor: how to choose the divisor of D that makes the blocks, see `tsattn.structured.block_sizes`.
    """

    SIDES = ("key", "query", "both")

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int | None,
        tt_rank: int,
        side: str,
        divisor: str = "below",
    ) -> None:
        super().__init__()
        num_kv_heads = key_heads(num_heads, num_kv_heads)
        if side not in self.SIDES:
            raise UserError(f"side of btt attention must be one of {', '.join(self.SIDES)}, not {side!r}")
        tt_rank = whole_number("tt_rank", tt_rank)
        if side != "both" and num_kv_heads != num_heads:
            raise UserError(
                f"one-sided btt attention has no key heads to group: num_kv_heads must be {num_heads}, "
                f"not {num_kv_heads}, or side must be both"
            )
        self.side = side
        self.tt_rank = tt_rank
        self.divisor = divisor
        right_heads = num_kv_heads if side == "both" else num_heads
        initial = BTT.random(d_model, tt_rank, left_heads=num_heads, right_heads=right_heads, divisor=divisor)
        self.left = nn.Parameter(initial.left)
        self.right = nn.Parameter(initial.right)
        b, a, inner = self.left.shape[1:]
        self.width = b * inner if side == "both" else a * b
        self.scale = 1 / math.sqrt(d_model)
        self.mup_scale = 1 / d_model
        self.normalised = ("query", "key") if side == "both" else (side,)

    @property
    def matrix(self) -> BTT:
        """The factors as an operator; in the two-sided form the right factor has G heads."""
        return BTT(self.left, self.right)

    @override
    def forward(self, x: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        if self.side == "key":
            return x[:, None], self.matrix.matmul(source)
        if self.side == "query":
            return self.matrix.matmul_transposed(x), source[:, None]
        return self.matrix.outer_transposed(x), self.matrix.inner(source)

    @override
    def to_dense(self) -> Tensor:
        groups = self.left.shape[0] // self.right.shape[0]
        right = self.right.repeat_interleave(groups, dim=0)
        return BTT(self.left, torch.as_tensor(right)).to_dense()

    @override
    def cost(self, d_model: int) -> ProjectionCost:
        """`D s (b + c)` a head, about `2 D^1.5 s`: `D s c` in the left blocks and `D s b` in the right blocks."""
        _, b, c, _ = block_sizes(d_model, self.divisor)
        left, right = d_model * self.tt_rank * c, d_model * self.tt_rank * b
        key_heads = 1 if self.side == "query" else len(self.right)
        return ProjectionCost(left + right, left * len(self.left) + right * len(self.right), key_heads)

    @override
    def mup_fans(self) -> dict[str, tuple[int, int]]:
        """`(c s, H a)` on the left and `(d, H b s)` on the right, for every `side`."""
        outputs, inputs = self.left.shape[-2:]
        return {"left": (inputs, len(self.left) * outputs), "right": _right_fans(self.right)}


class MLBTCProjection(Projection):
    """A bilinear form that is a sum of levels of two block-diagonal factors each (Kuang et al., section 3, MLBTC).

    `q` concatenates the outputs of the left factors of all levels, and `k` the outputs of the right factors. A level of
    rank r with p' left and p right blocks takes `p r` of the W components, or `p p' r` if it is shuffled.

    Args:
        d_model: D; every number of blocks divides it.
        num_heads: H; each head has left factors.
        num_kv_heads: G; each key head has right factors; H if None.
        shapes: the levels.
        scale: factor of the logits, under muP too. By default `1 / sqrt(D)`, which suits factors that keep the scale of
            their input, and `1 / D` under muP.
        level_scales: a constant factor for each level, multiplied into the queries; ones by default.
        left_fan_ins: the fan-in of the left factors of each level at initialisation. By default the left inputs of
            all levels together, so that `M x` has the scale of `x`.

    Attributes:
        level_widths: the components of each level, which sum to W.

    Raises:
        UserError: without levels, or for blocks that do not divide D.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int | None,
        shapes: Sequence[LevelShape],
        *,
        scale: float | None = None,
        level_scales: Sequence[float] | None = None,
        left_fan_ins: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        num_kv_heads = key_heads(num_heads, num_kv_heads)
        if left_fan_ins is None:
            left_fan_ins = [sum(shape.left_inputs for shape in shapes)] * len(shapes)
        initial = MLBTC(
            tuple(
                Level.random(
                    d_model,
                    d_model,
                    shape,
                    left_fan_in=fan_in,
                    left_heads=(num_heads,),
                    right_heads=(num_kv_heads,),
                )
                for shape, fan_in in zip(shapes, left_fan_ins, strict=True)
            )
        )
        self.shapes = tuple(shapes)
        self.left_fan_ins = tuple(left_fan_ins)
        self.level_scales = (1.0,) * len(shapes) if level_scales is None else tuple(level_scales)
        self.left = nn.ParameterList(level.left for level in initial.terms)
        self.right = nn.ParameterList(level.right for level in initial.terms)
        self.level_widths = [shape.right_blocks * shape.right_outputs for shape in shapes]
        self.width = sum(self.level_widths)
        self.scale = 1 / math.sqrt(d_model) if scale is None else scale
        self.mup_scale = 1 / d_model if scale is None else scale
        self.groups = num_heads // num_kv_heads

    @property
    def matrix(self) -> MLBTC:
        """The factors as an operator; left factors have H heads, right factors have G."""
        return self._matrix(self.right)

    def _matrix(self, rights: Iterable[Tensor]) -> MLBTC:
        parts = zip(self.left, rights, self.shapes, self.level_scales, strict=True)
        return MLBTC(tuple(Level(left, right, shape.shuffled, scale) for left, right, shape, scale in parts))

    @override
    def forward(self, x: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        matrix = self.matrix
        return matrix.outer_transposed(x), matrix.inner(source)

    @override
    def to_dense(self) -> Tensor:
        return self._matrix(right.repeat_interleave(self.groups, dim=0) for right in self.right).to_dense()

    @override
    def cost(self, d_model: int) -> ProjectionCost:
        """A head has `2 D r` numbers a level, as in bilinear MLR (`2 D sum r_l`), or `D r (p + p')` if shuffled."""
        left = d_model * sum(shape.rank * (shape.right_blocks if shape.shuffled else 1) for shape in self.shapes)
        right = d_model * sum(shape.rank * (shape.left_blocks if shape.shuffled else 1) for shape in self.shapes)
        left_heads, right_heads = self.left[0].shape[0], self.right[0].shape[0]
        return ProjectionCost(left + right, left * left_heads + right * right_heads, right_heads)

    @override
    def _level_norm(self, side: str) -> nn.Module:
        factors = self.level_scales if side == "query" else [1.0] * len(self.level_widths)
        return LevelNorm(self.level_widths, factors)

    @override
    def level_scores(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        q, k, _ = expand_heads(wide(q), wide(k), wide(k))
        levels = zip(torch.split(q, self.level_widths, -1), torch.split(k, self.level_widths, -1), strict=True)
        return torch.stack([one @ other.mT for one, other in levels]) * scale

    @override
    def mup_fans(self) -> dict[str, tuple[int, int]]:
        """An output of the left factors reads the left inputs of all levels together."""
        lefts, rights = list(self.left), list(self.right)
        fans = {f"left.{i}": (self.left_fan_ins[i], len(left) * left.shape[-2]) for i, left in enumerate(lefts)}
        return fans | {f"right.{i}": _right_fans(right) for i, right in enumerate(rights)}


class BilinearMLRProjection(MLBTCProjection):
    """A multi-level low-rank bilinear form of the features (Kuang et al., section 3, bilinear MLR).

    Level l cuts the D features into `p_l` pieces and gives each a form of rank `r_l`. The score is
    `sum_l q_l . k_l / sqrt(p_l r_l)`. It is computed as one product of `W = sum_l p_l r_l` components over `sqrt(W)`,
    with `sqrt(W / (p_l r_l))` multiplied into `q_l`: q/k normalisation of all components keeps logits of usual scale.

    Args:
        d_model: D; every number of blocks divides it.
        num_heads: H.
        num_kv_heads: G; H if None.
        ranks: `r_l`.
        blocks: `p_l`; powers of two from 1 if None.
        scaling: the factor of `q_l . k_l`. ``level``: as above. ``mup_language``: `8 / (p_l r_l)`, where `8 / W` is the
            common factor of all components. ``head``: `1 / sqrt(W)` for all levels.

    Raises:
        UserError: for ranks and blocks that do not fit each other or D.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int | None,
        ranks: Sequence[int],
        blocks: Sequence[int] | None = None,
        *,
        scaling: str = "level",
    ) -> None:
        shapes = MLR.shapes(ranks, blocks)
        widths = [shape.rank * shape.left_blocks for shape in shapes]
        scale = 8 / sum(widths) if scaling == "mup_language" else 1 / math.sqrt(sum(widths))
        power = {"head": 0.0, "level": 0.5, "mup_language": 1.0}[scaling]
        super().__init__(
            d_model,
            num_heads,
            num_kv_heads,
            shapes,
            scale=scale,
            level_scales=[(sum(widths) / width) ** power for width in widths],
            # a left factor maps its piece of the features to a query, as a right factor maps it to a key
            left_fan_ins=[d_model // shape.left_blocks for shape in shapes],
        )

    @override
    def mup_fans(self) -> dict[str, tuple[int, int]]:
        """On both sides a block maps `D / p_l` features to `r_l` components of each head."""
        return {name: _right_fans(factor) for name, factor in self.named_parameters()}


class LevelNorm(nn.Module):
    """A LayerNorm over the components of each level.

    Args:
        widths: W_l, components of each level, which sum to W.
        factors: factor that the input of each level already has. The norm removes it, and the output gets it back.
    """

    def __init__(self, widths: Sequence[int], factors: Sequence[float]) -> None:
        super().__init__()
        self.widths = list(widths)
        self.factors = list(factors)
        # epsilon grows with the square of the factor, so that the norm's result does not depend on the factor
        eps = [1e-5 * factor**2 for factor in factors]
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=e) for width, e in zip(widths, eps, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, H, N, W)` to the same shape."""
        levels = zip(self.norms, torch.split(x, self.widths, -1), self.factors, strict=True)
        return torch.cat([norm(part) if factor == 1 else factor * norm(part) for norm, part, factor in levels], -1)


class RotaryEmbedding(ModuleWithConstants):
    """Rotates neighbouring components `(2 i, 2 i + 1)` of a query or key by angles proportional to its position.

    Source: Su et al., *RoFormer* (2021). Half-split pairs `(i, i + W / 2)` are not used: they would cross the
    levels of multi-level attention. Scores of the first levels alone would then depend on absolute positions.

    Args:
        width: W, components of a query or key.
        base: the slowest rotation turns once in about `2 pi base` steps.
        groups: sizes of groups of components (the ranks of multi-level attention); one group by default.
        frequencies: the order of frequencies over the pairs. ``spread``: every group has slow and fast frequencies, so
            that far tokens, which share only the first group, have both. ``fast_first``: frequencies fall from the
            first pair to the last, so that far tokens see fast rotations. ``slow_first``: they rise.

    Raises:
        UserError: for a group of odd size.
    """

    FREQUENCIES = ("spread", "fast_first", "slow_first")

    order: Tensor

    def __init__(
        self, width: int, *, base: float, groups: Sequence[int] | None = None, frequencies: str = "spread"
    ) -> None:
        super().__init__()
        groups = [width] if groups is None else list(groups)
        if any(group % 2 for group in groups):
            raise UserError(f"rotary positions (rope) need even ranks, not {groups}")
        order = [*range(width // 2)]
        if frequencies == "spread":
            # a pair's relative place in its group decides its place among all pairs
            places = [(pair + 0.5) / (group // 2) for group in groups for pair in range(group // 2)]
            by_place = sorted(order, key=lambda pair: places[pair])
            order = sorted(order, key=lambda pair: by_place[pair])
        elif frequencies == "slow_first":
            order.reverse()
        self.base = base
        # integers: a cast of the model to low precision does not round them
        self.register_constant("order", order, torch.long, cast=False)

    @property
    def frequencies(self) -> Tensor:
        """Rotation of each pair, `(W / 2,)` in radians per position, in float64 if the device has it."""
        exact = torch.float32 if self.order.device.type == "mps" else torch.float64
        frequencies: Tensor = self.base ** -(self.order.to(exact) / len(self.order))
        return frequencies

    def forward(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys `(B, H | G, N, W)` at `positions (B | 1, N)`."""
        self.fill_constants(q.device)
        frequencies = self.frequencies
        angles = positions[:, None, :, None].to(frequencies.dtype) * frequencies
        cos, sin = angles.cos(), angles.sin()
        return rotated(q, cos, sin), rotated(k, cos, sin)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs of neighbouring components by angles with these cosines and sines, rounded to the type of `x`."""
    even, odd, cos, sin = x[..., ::2], x[..., 1::2], cos.to(x.dtype), sin.to(x.dtype)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def _right_fans(factor: Tensor) -> tuple[int, int]:
    """Inputs of a block, and outputs for all heads, of a factor `(heads, blocks, inputs, outputs)`."""
    return factor.shape[-2], len(factor) * factor.shape[-1]


def key_heads(num_heads: int, num_kv_heads: int | None) -> int:
    """G, the number of key/value heads; H if `num_kv_heads` is None.

    Raises:
        UserError: if G is not a divisor of H.
    """
    num_heads = whole_number("num_heads", num_heads)
    if num_kv_heads is None:
        return num_heads
    if not is_whole_number(num_kv_heads) or num_kv_heads < 1 or num_heads % num_kv_heads:
        raise UserError(f"num_kv_heads {num_kv_heads} must divide num_heads {num_heads}")
    return num_kv_heads
