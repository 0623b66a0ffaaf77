"""One case a class of the family: how to make a random member, rebuild it from its factors, and count its numbers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial

import torch
from torch import Tensor

from tsattn.structured import BTT, MLBTC, MLR, Level, LevelShape, StructuredMatrix, block_sizes

Heads = Sequence[int]


@dataclass(frozen=True)
class Case:
    """`random(heads, generator)` makes a member, `rebuild(*factors)` makes it again, `params` counts one head."""

    name: str
    random: Callable[[Heads, torch.Generator], StructuredMatrix]
    rebuild: Callable[..., StructuredMatrix]
    params: int
    # the rank that random members reach
    rank: int


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator(seed))


def factors_of(part: object) -> list[Tensor]:
    """The tensors that a matrix stores, in the order of its fields."""
    if isinstance(part, Tensor):
        return [part]
    if isinstance(part, tuple):
        return [factor for item in part for factor in factors_of(item)]
    if is_dataclass(part):
        return [factor for field in fields(part) for factor in factors_of(getattr(part, field.name))]
    return []


def random_btt(heads: Heads, rng: torch.Generator, width: int, rank: int) -> BTT:
    """BTT takes one head axis: made with that and folded into the axes asked for."""
    count = math.prod(heads)
    made = BTT.random(width, rank, left_heads=count, right_heads=count, generator=rng, dtype=torch.float64)
    left, right = (x.reshape(*heads, *x.shape[1:]) for x in (made.left, made.right))
    return BTT(left, right)


def make(kind: type, *args: object) -> Callable[[Heads, torch.Generator], StructuredMatrix]:
    return lambda heads, rng: kind.random(*args, heads=heads, generator=rng, dtype=torch.float64)


def rebuild_levels(*factors: Tensor, shuffled: Sequence[bool]) -> MLBTC:
    pairs = zip(factors[::2], factors[1::2], shuffled, strict=True)
    return MLBTC(tuple(Level(left, right, mixed) for left, right, mixed in pairs))


def rebuild_mlr(*factors: Tensor) -> MLR:
    half = len(factors) // 2
    return MLR(factors[:half], factors[half:])


def mlr(m: int, n: int, ranks: Sequence[int], blocks: Sequence[int] | None = None) -> Case:
    counts = blocks or [2**level for level in range(len(ranks))]
    rank = min(m, n, sum(p * r for p, r in zip(counts, ranks, strict=True)))
    label = "-".join(f"{p}by{r}" for p, r in zip(counts, ranks, strict=True))
    return Case(f"mlr-{m}x{n}-{label}", make(MLR, m, n, ranks, blocks), rebuild_mlr, (m + n) * sum(ranks), rank)


def btt(width: int, s: int) -> Case:
    _, b, c, _ = block_sizes(width)
    params = width * s * (b + c)
    return Case(f"btt-{width}-{s}", partial(random_btt, width=width, rank=s), BTT, params, width)


def mlbtc(m: int, n: int, shapes: Sequence[LevelShape], rank: int) -> Case:
    params = sum(s.left_inputs * m + s.right_outputs * n for s in shapes)
    rebuild = partial(rebuild_levels, shuffled=[s.shuffled for s in shapes])
    name = f"mlbtc-{m}x{n}-" + "-".join(f"{s.left_blocks}{'x' if s.shuffled else '='}{s.right_blocks}" for s in shapes)
    return Case(name, make(MLBTC, m, n, shapes), rebuild, params, rank)


CASES = [
    mlr(12, 7, (3,)),
    # more components than columns: the bound is the width
    mlr(6, 6, (8,)),
    mlr(48, 12, (2, 1, 1)),
    mlr(7, 7, (2, 1), (1, 7)),
    btt(7, 2),
    btt(12, 2),
    mlbtc(12, 6, [LevelShape(1), LevelShape(2, 3, 2, shuffled=True)], 6),
    mlbtc(48, 48, [LevelShape(2), LevelShape(1, 4, 4), LevelShape(1, 2, 6, shuffled=True)], 18),
]
