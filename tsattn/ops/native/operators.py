"""The two passes of the kernel as operators of PyTorch: nodes of a compiled graph, counted and profiled by name."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tsattn.ops.modes import as_if_alone
from tsattn.ops.native.chunking import chunk_sizes, key_parts
from tsattn.ops.native.kernel_problem import KernelProblem, numbers, openmp_team, strided
from tsattn.ops.native.library import load_kernels, why_no_kernels

__all__ = ["FLOP_FORMULAS", "backward_operator", "empty_results", "forward_operator", "takes_bfloat16"]


@torch.library.custom_op("tsattn::native_attention", mutates_args=(), device_types="cpu")
def forward_operator(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    intervals: list[Tensor],
    ranks: list[int],
    scale: float,
    level_factors: list[float] | None,
    dropout_p: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, and of each query the largest logit and one over the sum of its weights: see `native_attention`.

    Args:
        q: `(B, H, N, r)`, in float32, or in bfloat16 where `takes_bfloat16`.
        k: `(B, G, S, r)`, of the same type.
        v: `(B, G, S, E)`, of the same type.
        bias: float32, broadcastable to `(B, H, N, S)`.
        intervals: `Intervals.tensors`.
        ranks: components of each level.
        scale: factor of the logits.
        level_factors: further factors of pairs that share 0, 1, ... levels; None for none.
        dropout_p: probability of dropping a weight.
        seed: `()` int64, of what is dropped; None where nothing is.
    """
    q, k, v = (_as_words(t) for t in (q, k, v))
    problem, kept = _problem(q, k, v, bias, intervals, ranks, scale, level_factors, dropout_p, seed)
    out, peak, inverse_total = empty_results(q, v)
    problem.out = strided(out)
    problem.peak, problem.inverse_total = numbers(peak), numbers(inverse_total)
    _run("tsattn_forward", problem)
    del kept
    return out, peak, inverse_total


@torch.library.custom_op("tsattn::native_attention_backward", mutates_args=(), device_types="cpu")
def backward_operator(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    out: Tensor,
    peak: Tensor,
    inverse_total: Tensor,
    intervals: list[Tensor],
    ranks: list[int],
    scale: float,
    level_factors: list[float] | None,
    dropout_p: float,
    seed: Tensor | None,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values, and the bias (empty where it is not wanted)."""
    q, k, v, grad_out = (_as_words(t) for t in (q, k, v, grad_out.to(q.dtype)))
    problem, kept = _problem(q, k, v, bias, intervals, ranks, scale, level_factors, dropout_p, seed)
    (B, H, N, r), (_, G, S, E) = q.shape, v.shape
    parts = key_parts(B * G, S)
    problem.shared_blocks = chunk_sizes().shared_blocks
    single = torch.float32  # whatever the default type is
    grad_q = q.new_empty(parts, B, N, H, r, dtype=single).transpose(2, 3)
    grad_k, grad_v = (q.new_empty(B, S, G, width, dtype=single).transpose(1, 2) for width in (r, E))
    grad_bias = q.new_empty(0, dtype=single)
    peak, inverse_total = peak.contiguous(), inverse_total.contiguous()  # torch.vmap repeats rows without a copy
    problem.out, problem.grad_out = strided(out), strided(grad_out)
    problem.peak, problem.inverse_total = numbers(peak), numbers(inverse_total)
    problem.grad_q, problem.grad_q_part, problem.key_parts = strided(grad_q[0]), grad_q.stride(0), parts
    problem.grad_k, problem.grad_v = strided(grad_k), strided(grad_v)
    if wants_bias and bias is not None:
        own_rows = bias.dim() == 4 and bias.shape[0] > 1
        grad_bias = q.new_zeros(B if own_rows else 1, H, N, S, dtype=single)
        problem.grad_bias, problem.grad_bias_batch = numbers(grad_bias), H * N * S if own_rows else 0
    _run("tsattn_backward", problem)
    del kept
    if wants_bias and bias is not None:
        grad_bias = grad_bias.sum_to_size(bias.shape)
    if parts > 1:  # laid out as that of one part is, on which a compiled graph relies
        return grad_q.sum(0).transpose(1, 2).contiguous().transpose(1, 2), grad_k, grad_v, grad_bias
    return grad_q[0], grad_k, grad_v, grad_bias


def takes_bfloat16(ranks: Sequence[int], value_width: int) -> bool:
    """Whether the kernel computes in bfloat16 with so many components, which it takes two by two."""
    kernels = load_kernels()
    even = value_width % 2 == 0 and all(rank % 2 == 0 for rank in ranks)
    return even and kernels is not None and bool(kernels.tsattn_takes_bfloat16())


def _run(name: str, problem: KernelProblem) -> None:
    kernels = load_kernels()
    if kernels is None:
        raise RuntimeError(f"the native kernel has gone: {why_no_kernels()}")
    code = getattr(kernels, name)(ctypes.byref(problem))
    if code == 1:
        raise MemoryError("there is not enough memory for the native attention kernel, or no thread more")
    assert not code, f"{name} does not take this problem"


def _problem(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    intervals: list[Tensor],
    ranks: list[int],
    scale: float,
    level_factors: list[float] | None,
    dropout_p: float,
    seed: Tensor | None,
) -> tuple[KernelProblem, list[Any]]:
    """The problem of a call, and what must live as long as it does."""
    problem, kept = _pairs(q, k, v, intervals, ranks)
    problem.scale, problem.bfloat16 = scale, q.dtype == torch.bfloat16
    problem.q, problem.k, problem.v = strided(q), strided(k), strided(v)
    if level_factors:
        kept.append(torch.tensor(level_factors, dtype=torch.float32))
        problem.level_factors = numbers(kept[-1])
    if bias is not None:
        spread = bias.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        problem.bias = numbers(bias, contiguous=False)
        problem.bias_batch, problem.bias_head, problem.bias_query, problem.bias_key = spread.stride()
    problem.dropout, problem.seed = dropout_p, 0 if seed is None else int(seed)
    sizes = chunk_sizes()
    key_bytes = k.shape[2] * (k.shape[3] + v.shape[3]) * k.element_size()
    problem.chunk_keys, problem.shared_blocks = sizes.chunk_keys, sizes.forward(key_bytes)
    problem.threads, problem.parallel = torch.get_num_threads(), openmp_team()
    return problem, kept


def _pairs(
    q: Tensor, k: Tensor, v: Tensor, intervals: list[Tensor], ranks: list[int]
) -> tuple[KernelProblem, list[Any]]:
    """The part of a problem that says which pairs are scored with how many components."""
    problem = KernelProblem()
    (B, H, N, r), (_, G, S, E) = q.shape, v.shape
    problem.batch, problem.heads, problem.key_heads, problem.queries, problem.keys = B, H, G, N, S
    problem.width, problem.value_width, problem.levels = r, E, len(ranks)
    kept: list[Any] = [torch.tensor(ranks, dtype=torch.int32), [t.contiguous() for t in intervals]]
    problem.ranks = numbers(kept[0], torch.int32)
    names = ("layout_of_row", "global_queries", "block_first", "block_end", "seen_first", "seen_end")
    for name, tensor in zip(names, kept[1], strict=True):
        setattr(problem, name, numbers(tensor, torch.int32))
    problem.layouts = len(kept[1][1])
    return problem, kept


def _as_words(t: Tensor) -> Tensor:
    """The tensor with its components next to each other; in bfloat16, two of them in a word that can be read."""
    per_word = 4 // t.element_size()
    whole = t.data_ptr() % 4 == 0 and all(stride % per_word == 0 for stride in t.stride()[:-1])
    return t if whole and t.stride(-1) == 1 else t.contiguous()


def empty_results(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Tensors of the shapes and types that `forward_operator` gives; the heads of a token follow each other."""
    B, H, N, _ = q.shape
    out = q.new_empty(B, N, H, v.shape[-1], dtype=torch.float32).transpose(1, 2)
    return out, q.new_empty(B, H, N, dtype=torch.float32), q.new_empty(B, H, N, dtype=torch.float32)


@forward_operator.register_fake
def _(q, k, v, bias, intervals, ranks, scale, level_factors, dropout_p, seed):  # type: ignore[no-untyped-def]
    return empty_results(q, v)


@backward_operator.register_fake
def _(grad_out, q, k, v, bias, *others):  # type: ignore[no-untyped-def]
    shapes = [(t.shape[0], t.shape[2], t.shape[1], t.shape[3]) for t in (q, k, v)]
    grads = [q.new_empty(shape, dtype=torch.float32).transpose(1, 2) for shape in shapes]
    return (*grads, q.new_empty(bias.shape if others[-1] and bias is not None else 0, dtype=torch.float32))


def _work(backward: bool) -> Callable[..., int]:
    """The formula of a pass for PyTorch's counter of flops: what the kernel says that it executes."""

    def count(*arguments: Any, out_val: Any = None, **_: Any) -> int:
        q, k, v = arguments[1:4] if backward else arguments[:3]
        with as_if_alone():
            problem, kept = _pairs(q, k, v, *(arguments[8:10] if backward else arguments[4:6]))
        kernels = load_kernels()
        if kernels is None:
            return 0
        work = int(kernels.tsattn_work(ctypes.byref(problem), int(backward)))
        del kept
        return work

    count._get_raw = True  # type: ignore[attr-defined]  # the tensors themselves, not their shapes alone
    return count


FLOP_FORMULAS = {
    torch.ops.tsattn.native_attention: _work(backward=False),
    torch.ops.tsattn.native_attention_backward: _work(backward=True),
}
