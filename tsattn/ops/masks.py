"""Which pairs of tokens are scored, and which blocks they lie in: all computed from positions.

Positions decide, not the order of the tensor, so a part of a sequence is scored as within the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class RegularBlocks:
    """Nested blocks of tokens at the positions `first`, `first + 1`, ...: the same for all rows of a batch.

    Attributes:
        first: position of the first token.
        length: number of tokens.
        numbers: see `level_block_ids`. Without `numbers` and `lengths`, all tokens share the only block.
        lengths: see `level_block_ids`.
        max_length: see `level_block_ids`.
    """

    first: int
    length: int
    numbers: tuple[int, ...] | None = None
    lengths: tuple[int, ...] | None = None
    max_length: int | None = None

    @property
    def levels(self) -> list[tuple[int, int]]:
        """`(number, span)` of each level: a position lies in block `position * number // span`.

        Raises:
            ValueError: for `numbers` without the `max_length` that they divide.
        """
        if self.numbers is None:
            return [(1, size) for size in self.lengths or ()]
        if self.max_length is None:
            raise ValueError("blocks by number need max_length")
        return [(number, self.max_length) for number in self.numbers]


def real_positions(attention_mask: Tensor, *, align: str, max_length: int | None = None) -> Tensor:
    """Count positions over the real tokens of each row, so that padding never shifts them.

    Args:
        attention_mask: `(B, S)` bool, True at real tokens.
        align: ``start`` puts the first real token at 0; ``end`` the last one at ``max_length - 1``.
        max_length: the length that ``end`` aligns to.

    Returns:
        `(B, S)` int64. Padded tokens get the position of the real token before them (or one less than the
        first).
    """
    count = attention_mask.long().cumsum(-1) - 1
    if align == "start":
        return count
    if align != "end" or max_length is None:
        raise ValueError(f"align must be 'start', or 'end' with max_length, not {align!r} with {max_length}")
    return count + (max_length - 1 - count[..., -1:])


def first_position(length: int, *, align: str, max_length: int | None) -> int:
    """The position of the first of `length` tokens without padding, see `real_positions`."""
    return 0 if align == "start" or max_length is None else max_length - length


def default_positions(
    length: int, *, align: str, max_length: int | None = None, device: torch.device | None = None
) -> Tensor:
    """`real_positions` of rows without padding, `(1, length)` for all of them."""
    first = first_position(length, align=align, max_length=max_length)
    return torch.arange(first, first + length, device=device)[None]


def without_padding(key_mask: Tensor | None, *tensors: Tensor) -> list[Tensor]:
    """The tensors `(B, H, S, W)` with zeros at tokens that are not real.

    Zero weights would not remove infinities and NaN there, from values or gradients.
    """
    if key_mask is None:
        return [*tensors]
    return [t.masked_fill(~key_mask[:, None, :, None], 0.0) for t in tensors]


def allowed_pairs(
    query_positions: Tensor, key_positions: Tensor, *, causal: bool = False, key_mask: Tensor | None = None
) -> Tensor | None:
    """Find the pairs of a query and a key that it may see; None if every query may see every key.

    Args:
        query_positions: `(B | 1, N)` int.
        key_positions: `(B | 1, S)` int.
        causal: drop keys at later positions than the query.
        key_mask: `(B, S)` bool, True at real keys.

    Returns:
        bool, broadcastable to `(B, H, N, S)`.
    """
    allowed = None
    if causal:
        allowed = (key_positions[:, None, :] <= query_positions[:, :, None])[:, None]
    if key_mask is not None:
        real = key_mask[:, None, None, :]
        allowed = real if allowed is None else allowed & real
    return allowed


def window_pairs(
    query_positions: Tensor,
    key_positions: Tensor,
    window_size: int,
    *,
    global_queries: Tensor | None = None,
    global_keys: Tensor | None = None,
) -> Tensor:
    """Find the pairs within a sliding window: `|i - j| < window_size`, or one of the two is a global token.

    Args:
        query_positions: `(B | 1, N)` int.
        key_positions: `(B | 1, S)` int.
        window_size: keys on a side, including the position itself.
        global_queries: `(B | 1, N)` bool.
        global_keys: `(B | 1, S)` bool.

    Returns:
        `(B | 1, 1, N, S)` bool.
    """
    distance = query_positions[:, :, None] - key_positions[:, None, :]
    near = distance.abs() < window_size
    if global_queries is not None:
        near = near | global_queries[:, :, None]
    if global_keys is not None:
        near = near | global_keys[:, None, :]
    return near[:, None]


def level_block_ids(
    positions: Tensor,
    *,
    numbers: Sequence[int] | None = None,
    lengths: Sequence[int] | None = None,
    max_length: int | None = None,
) -> Tensor:
    """Find the block of every token at every level (spec of multi-level patterns, Kuang et al. section 4).

    Args:
        positions: `(B | 1, S)` int.
        numbers: blocks that `max_length` is cut into, level by level: `id = position * number // max_length`.
        lengths: steps in a block, level by level: `id = position // length`.
        max_length: the length that `numbers` divide.

    Returns:
        `(L, B | 1, S)` int64.
    """
    if (numbers is None) == (lengths is None):
        raise ValueError("give exactly one of numbers and lengths")
    if numbers is None:
        return torch.stack([floor_divide(positions, length) for length in lengths or ()])
    if max_length is None:
        raise ValueError("blocks by number need max_length")
    return torch.stack([floor_divide(positions * n, max_length) for n in numbers])


def distinct_rows(*tensors: Tensor | None) -> tuple[list[Any], Tensor]:
    """Find the distinct rows of a batch: rows that differ in a tensor `(B | 1, ...)` of whole numbers or bool.

    Returns:
        The tensors `(R, ...)` of the R distinct rows, on the CPU; and for each row, its distinct row, `(B | 1,)`.
    """
    given = [t for t in tensors if t is not None]
    rows = max(map(len, given))
    table = torch.cat([t.flatten(1).long().expand(rows, -1) for t in given], 1).cpu()
    which = torch.zeros(rows, dtype=torch.long)
    if (table == table[0]).all():
        table = table[:1]
    else:
        table, which = torch.unique(table, dim=0, return_inverse=True)
    parts = iter(torch.split(table, [t[0].numel() for t in given], 1))
    shaped: list[Any] = [None] * len(tensors)
    for number, t in enumerate(tensors):
        if t is not None:  # whole numbers of any width are given in 64 bits
            part = torch.unflatten(next(parts), 1, t.shape[1:])
            shaped[number] = part.bool() if t.dtype == torch.bool else part
    return shaped, which


def floor_divide(numbers: Tensor, by: int) -> Tensor:
    """The whole numbers `floor(numbers / by)`, for whole numbers below 2^52 in size."""
    if torch.compiler.is_compiling() and numbers.device.type == "cpu":
        # code compiled for a CPU leaves parts of a whole-number division unwritten (PyTorch issue 195582); the
        # quotient of numbers of this size, rounded to float64, never passes a whole number
        return (numbers.double() / by).floor().to(numbers.dtype)
    return torch.div(numbers, by, rounding_mode="floor")
