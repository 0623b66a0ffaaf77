"""Counting the floating-point operations that the fast paths execute on a CPU.

PyTorch's counter sees matrix products but reads 0 for fused kernels. The formulas below count PyTorch's fused kernels,
including zero-padded components; the native kernel counts itself. A multiply-add is 2 flops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tsattn.ops.native.native_attention import FLOP_FORMULAS


def _pairs(q: torch.Size, k: torch.Size, causal: bool) -> int:
    """Pairs that the kernel scores, for all heads; if causal, up to the diagonal, which it rounds up to its blocks."""
    (B, H, N, _), S = q, k[2]
    return B * H * (sum(min(i + 1, S) for i in range(N)) if causal else N * S)


def _forward(q: torch.Size, k: torch.Size, v: torch.Size, _: float = 0.0, is_causal: bool = False, **more: Any) -> int:
    """Scores, and the mixing of values."""
    return 2 * _pairs(q, k, is_causal) * (q[-1] + v[-1])


def _backward(
    grad_out: torch.Size,
    q: torch.Size,
    k: torch.Size,
    v: torch.Size,
    out: torch.Size,
    lse: torch.Size,
    _: float = 0.0,
    is_causal: bool = False,
    **more: Any,
) -> int:
    """The scores again, and the gradients of weights, values, queries and keys."""
    return 2 * _pairs(q, k, is_causal) * (3 * q[-1] + 2 * v[-1])


_FORMULAS: dict[Any, Callable[..., int]] = {
    **FLOP_FORMULAS,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _forward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward,
}


def executed_flops(run: Callable[[], Any]) -> int:
    """Count the flops of matrix products and fused CPU kernels in a call of `run`, including backward passes.

    A multiply-add is 2 flops. CUDA kernels are not counted.
    """
    from torch.utils.flop_counter import FlopCounterMode  # this imports Triton

    with FlopCounterMode(display=False, custom_mapping=_FORMULAS) as counter:
        run()
    return int(counter.get_total_flops())
