"""PyTorch's fused attention, with the second derivative that its kernel for a CPU does not have."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["fused_attention"]


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, scale: float, dropout_p: float = 0.0
) -> Tensor:
    """`scaled_dot_product_attention`, differentiable twice on a CPU.

    Args:
        q: `(B, H, N, W)` queries.
        k: `(B, H, S, W)` keys.
        v: `(B, H, S, W)` values.
        mask: broadcastable to `(B, H, N, S)`: bool, True at allowed pairs, or numbers that are added to the logits.
        scale: factor of the logits.
        dropout_p: probability of dropping a weight.

    Returns:
        `(B, H, N, W)`. Where the gradient is itself to be differentiated (`create_graph=True`), it is computed anew
        with every logit written out, in memory quadratic in the number of tokens; not under checkpointing.
    """
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout_p, scale=scale)
    if _makes_a_plain_node() and type(out.grad_fn).__name__ == "ScaledDotProductFlashAttentionForCpuBackward0":
        out.grad_fn.register_hook(_differentiable_gradients)  # type: ignore[union-attr]
    return out


def _makes_a_plain_node() -> bool:
    """Whether the node of a call runs in this same graph, and its inputs can be read twice.

    A transformation of `torch.func` ends before its gradients are differentiated; what checkpointing or other hooks
    save may be read only once. In these cases PyTorch's own error is raised: the kernel has no second derivative.
    """
    return (
        not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._autograd._top_saved_tensors_default_hooks(False) is None
    )


def _differentiable_gradients(
    gradients: tuple[Tensor | None, ...], grad_outputs: tuple[Tensor, ...]
) -> tuple[Tensor | None, ...] | None:
    """The gradients of the kernel's node as functions of its inputs; None, to leave them, where no graph is made.

    The inputs come from the node, not from a closure, which would keep them alive.
    """
    if not torch.is_grad_enabled():
        return None
    node: Any = torch._C._current_autograd_node()
    # other names, so that a key that was made from the query, or is the query, counts as itself alone
    q, k, v = (t.view_as(t) for t in (node._saved_query, node._saved_key, node._saved_value))
    mask = node._saved_attn_mask
    exact = torch.promote_types(q.dtype, torch.float32)
    logits = q.to(exact) @ k.to(exact).transpose(-1, -2) * node._saved_scale
    if mask is not None:
        logits = logits + mask if mask.is_floating_point() else logits.masked_fill(~mask, -torch.inf)
    wanted = [t for t in (q, k, v) if t.requires_grad]
    out = (logits.softmax(-1) @ v.to(exact)).to(v.dtype)
    found = iter(torch.autograd.grad(out, wanted, grad_outputs[0], create_graph=True))
    return *(next(found) if t.requires_grad else None for t in (q, k, v)), *gradients[3:]
