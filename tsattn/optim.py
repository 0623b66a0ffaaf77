"""Optimizer and learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

__all__ = ["adamw", "warmup_cosine"]


def adamw(
    modules: Iterable[nn.Module], learning_rate: float, weight_decay: float, *, fused: bool = True
) -> torch.optim.AdamW:
    """AdamW over all parameters, with weight decay on matrices only: not on biases, norms and positions."""
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=learning_rate, fused=fused)


def warmup_cosine(
    optimizer: torch.optim.Optimizer, warmup_steps: int, total_steps: float
) -> torch.optim.lr_scheduler.LambdaLR:
    """The learning rate rises linearly over `warmup_steps`, then falls along half a cosine to zero at `total_steps`.

    Where the end is not known (`total_steps` infinite, as when training is bounded by time) it stays at its peak.
    """

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / (warmup_steps + 1)
        done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
