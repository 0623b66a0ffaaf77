"""The inputs of the tiles, as their kernel takes them."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

__all__ = ["one_width", "positive_scale", "scales_of_levels"]


def one_width(*tensors: Tensor) -> list[Tensor]:
    """The tensors as the kernel takes them, which checks nothing: contiguous components, the same number in each."""
    width = max(t.shape[-1] for t in tensors)
    padded = [F.pad(t, (0, width - t.shape[-1])) if t.shape[-1] < width else t for t in tensors]
    return [t if t.stride(-1) == 1 else t.contiguous() for t in padded]


def positive_scale(q: Tensor, scale: float) -> tuple[Tensor, float]:
    """Queries and a scale of the same logits; the kernel multiplies what causality forbids, minus infinity, by it."""
    if scale > 0:
        return q, scale
    return (-q, -scale) if scale < 0 else (q * 0, 1.0)


def scales_of_levels(num_levels: int, scale: float, divide_by_active: bool) -> tuple[float, ...]:
    """Factor of the logits of pairs that share 0, 1, ... levels."""
    return tuple(scale / max(1, shared) if divide_by_active else scale for shared in range(num_levels + 1))
