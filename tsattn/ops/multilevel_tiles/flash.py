"""PyTorch's flash kernel for a CPU, which gives the log-sum-exp of its rows, and its backward."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["flash", "flash_backward"]


def flash(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Output `(Z, n, N, W)` and log-sum-exp `(Z, n, N)` of `q (Z, n, N, W)`, `k` and `v (Z, n, S, W)`."""
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale)
    return out, lse


def flash_backward(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `q`, `k` and `v`, given output and log-sum-exp of all keys of a query, other calls' too."""
    grads: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, q, k, v, out, lse, 0.0, causal, scale=scale
    )
    return grads
