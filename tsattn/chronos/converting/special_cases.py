"""The special cases of block tensor contractions that scores are projected onto."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from tsattn.structured import Butterfly, Kronecker, LowRank, Monarch, StructuredMatrix, block_sizes, prime_factors

__all__ = ["SPECIAL_CASES", "butterfly_radices"]


def butterfly_radices(width: int) -> tuple[int, ...]:
    """The primes of a width, those of `a` first: such a butterfly is a Monarch matrix of the blocks that BTT has."""
    a, b, _, _ = block_sizes(width)
    return tuple(prime for part in (a, b) if part > 1 for prime in prime_factors(part)) or (1,)


SPECIAL_CASES: dict[str, Callable[[Tensor, int], StructuredMatrix]] = {
    "low_rank": lambda form, rank: LowRank.project(form, rank),
    "monarch": lambda form, rank: Monarch.project(form),
    "kronecker": lambda form, rank: Kronecker.project(form, (block_sizes(form.shape[-1])[0],) * 2),
    "butterfly": lambda form, rank: Butterfly.project(form, butterfly_radices(form.shape[-1])),
}
"""By name, what gives a member near forms `(H, D, D)`; the rank, that of the original's heads, is of `low_rank`."""
