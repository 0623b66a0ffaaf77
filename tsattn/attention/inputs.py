"""Checks of what a call says about its tokens: masks, positions, blocks, global tokens and a bias.

Shape letters as in `tsattn.attention.base`; each function raises `UserError` for another shape or type.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tsattn.errors import UserError

__all__ = ["check_bias", "check_mask", "rows_of_blocks", "rows_of_global_tokens", "rows_of_positions"]


def check_mask(mask: Tensor | None, rows: int, length: int) -> None:
    """Refuse a mask of real tokens that is not `(B, S)` bool."""
    if mask is not None and (mask.shape != (rows, length) or mask.dtype != torch.bool):
        raise UserError(
            f"attention_mask must be bool of shape {(rows, length)}, True at real tokens, "
            f"not {mask.dtype} of shape {tuple(mask.shape)}"
        )


def check_bias(bias: Tensor | None, shape: tuple[int, int, int, int]) -> None:
    """Refuse a bias that is no numbers broadcastable to `(B, H, N, S)`."""
    if bias is None:
        return
    if not bias.is_floating_point():
        raise UserError(
            f"bias must hold floating-point numbers, which are added to the logits, not {bias.dtype}; "
            "-inf forbids a pair, and attention_mask says which tokens are real"
        )
    sizes = zip(reversed(bias.shape), reversed(shape), strict=False)
    if bias.dim() > 4 or any(size not in (1, full) for size, full in sizes):
        raise UserError(f"bias must be broadcastable to {shape}, not of shape {tuple(bias.shape)}")


def rows_of_positions(positions: Tensor, rows: int, length: int) -> Tensor:
    """Positions `(S,)` or `(B, S)` of any width as `(B | 1, S)` int64, whose products do not overflow."""
    if not _is_whole(positions) or positions.shape not in ((length,), (1, length), (rows, length)):
        raise UserError(
            f"positions must be whole numbers of shape {(length,)} or {(rows, length)}, "
            f"not {positions.dtype} of shape {tuple(positions.shape)}"
        )
    return (positions if positions.dim() == 2 else positions[None]).long()


def rows_of_global_tokens(global_tokens: Tensor, rows: int, length: int) -> Tensor:
    """Which tokens are global, `(S,)` or `(B, S)`, as `(B | 1, S)`."""
    if global_tokens.dtype != torch.bool or global_tokens.shape not in ((length,), (1, length), (rows, length)):
        raise UserError(
            f"global_tokens must be bool of shape {(length,)} or {(rows, length)}, "
            f"not {global_tokens.dtype} of shape {tuple(global_tokens.shape)}"
        )
    return global_tokens if global_tokens.dim() == 2 else global_tokens[None]


def rows_of_blocks(blocks: Tensor, rows: int, length: int) -> Tensor:
    """Blocks `(levels, B | 1, S)` of any width as int64."""
    if not _is_whole(blocks) or blocks.dim() != 3 or blocks.shape[1:] not in ((1, length), (rows, length)):
        raise UserError(
            f"blocks must be whole numbers of shape (levels, {rows}, {length}), "
            f"not {blocks.dtype} of shape {tuple(blocks.shape)}"
        )
    return blocks.long()


def _is_whole(t: Tensor) -> bool:
    return not (t.is_floating_point() or t.is_complex() or t.dtype == torch.bool)
