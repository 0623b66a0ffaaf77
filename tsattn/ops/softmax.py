"""The parts of every attention: the plain softmax over logits, and PyTorch's fused kernel, differentiable twice."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

Operator = TypeVar("Operator", bound=Callable[..., Tensor])

_LOW_PRECISION = (torch.float16, torch.bfloat16)


def softmax_attention(
    logits: Tensor,
    v: Tensor,
    *,
    allowed: Tensor | None,
    bias: Tensor | None,
    dropout_p: float,
    factors: Tensor | None = None,
) -> Tensor:
    """`softmax(logits + bias) v` over the allowed pairs; logits `(B, H, N, S)`, v `(B, H, S, E)`.

    `factors`, of the shape of the logits, multiply the weights, as dropout does.
    """
    if bias is not None:
        logits = logits + finite_as(bias, logits.dtype)
        finite = ~torch.isneginf(bias)
        allowed = finite if allowed is None else allowed & finite
    if allowed is not None:
        # a finite fill keeps rows without any allowed key, and their gradients, free of NaN; in other rows it would
        # count next to allowed pairs whose bias is as low
        fill = torch.zeros((), dtype=logits.dtype, device=logits.device)
        fill = fill.masked_fill(allowed.any(-1, keepdim=True), -torch.inf)
        logits = torch.where(allowed, logits, fill)
    weights = logits.softmax(-1)
    if allowed is not None:
        weights = weights.masked_fill(~allowed, 0.0)
    weights = F.dropout(weights, dropout_p) if factors is None else weights * factors
    return (weights @ wide(v)).to(v.dtype)


def finite_as(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a bias to another type; large finite values stay finite in rounding, and -inf becomes finite."""
    exact = bias.to(torch.promote_types(bias.dtype, dtype))
    largest = torch.finfo(dtype).max
    return exact.clamp(-largest, largest).to(dtype)


def in_widest_type(attend: Operator) -> Operator:
    """Let an operator take queries, keys and values of different types: it computes in the widest, and returns v's."""

    @functools.wraps(attend)
    def attend_in_widest(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        if q.dtype == k.dtype == v.dtype:
            return attend(q, k, v, **options)
        widest = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
        return attend(q.to(widest), k.to(widest), v.to(widest), **options).to(v.dtype)

    return cast("Operator", attend_in_widest)


def expand_heads(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Expand queries, keys and values to the same number of heads; a single head becomes a view."""
    heads = max(t.shape[1] for t in (q, k, v))
    expanded = []
    for t in (q, k, v):
        if t.shape[1] == 1 and heads > 1:
            t = t.expand(-1, heads, -1, -1)
        elif t.shape[1] < heads:
            t = t.repeat_interleave(heads // t.shape[1], dim=1)
        expanded.append(t)
    return expanded[0], expanded[1], expanded[2]


def positive_scale(q: Tensor, scale: float) -> tuple[Tensor, float]:
    """Queries and a positive scale with the same logits: kernels multiply forbidden logits, minus infinity, by it."""
    if scale > 0:
        return q, scale
    return (-q, -scale) if scale < 0 else (q * 0, 1.0)


def wide(t: Tensor) -> Tensor:
    """The tensor in float32 if its own type is too narrow to sum in."""
    return t.float() if t.dtype in _LOW_PRECISION else t


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, scale: float, dropout_p: float = 0.0
) -> Tensor:
    """Call `scaled_dot_product_attention`, differentiable twice on a CPU.

    If the gradient is differentiated again (`create_graph=True`), it is recomputed with all logits written out, in
    memory quadratic in the number of tokens; not under checkpointing.
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
    """The gradients of the kernel's node as functions of its inputs; None, which keeps them, if no graph is made.

    The inputs come from the node, not from a closure, which would keep them alive.
    """
    if not torch.is_grad_enabled():
        return None
    node: Any = torch._C._current_autograd_node()
    # views, so that a key that is the query, or was made from it, counts separately
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
