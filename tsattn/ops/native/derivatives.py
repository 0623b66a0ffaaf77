"""The kernel as functions of autograd: differentiable as often as asked for, in batches of `torch.vmap` too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tsattn.ops.modes import under_vmap
from tsattn.ops.native.operators import backward_operator, forward_operator
from tsattn.ops.native.plain import plain_attention
from tsattn.ops.native.query_intervals import Intervals

__all__ = ["differentiable_attention"]

NUM_INTERVALS = 6
# ranks, scale, factors of levels and probability of dropping: what is no tensor
NUM_NUMBERS = 4


def differentiable_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    seed: Tensor | None,
    intervals: Intervals,
    ranks: Sequence[int],
    scale: float,
    level_factors: Sequence[float],
    dropout_p: float,
) -> Tensor:
    """The outputs of `forward_operator`, which describes the arguments."""
    numbers = (tuple(ranks), scale, tuple(level_factors), dropout_p)
    out: Tensor = _Attention.apply(q, k, v, bias, seed, *intervals.tensors, *numbers)[0]  # type: ignore[no-untyped-call]
    return out


def _given(numbers: Sequence[Any]) -> tuple[list[int], float, list[float] | None, float]:
    """The numbers of a call as the operators take them."""
    ranks, scale, level_factors, dropout_p = numbers
    return list(ranks), scale, list(level_factors) or None, dropout_p


class _Attention(torch.autograd.Function):
    """The outputs, and of each query the largest logit and one over the sum of its weights, which have no gradients."""

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, seed: Tensor | None, *more: Any) -> Any:
        intervals, numbers = [*more[:NUM_INTERVALS]], _given(more[NUM_INTERVALS:])
        return forward_operator(q, k, v, bias, intervals, *numbers, seed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        tensors, ctx.numbers = inputs[: 5 + NUM_INTERVALS], inputs[5 + NUM_INTERVALS :]
        ctx.mark_non_differentiable(output[1], output[2])
        ctx.save_for_backward(*output, *tensors)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        wants_bias = ctx.needs_input_grad[3]
        *grads, of_bias = under_vmap(_Gradients.apply, grad_out, *ctx.saved_tensors, *ctx.numbers, wants_bias)
        return *grads, of_bias if wants_bias else None, *[None] * (1 + NUM_INTERVALS + NUM_NUMBERS)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        if inputs[4] is not None:
            return _one_by_one(_Attention, info.batch_size, in_dims, inputs)
        outputs = _Attention.apply(*_as_more_rows(info.batch_size, in_dims, inputs, 0))  # type: ignore[no-untyped-call]
        return tuple(torch.unflatten(t, 0, (info.batch_size, -1)) for t in outputs), (0, 0, 0)


class _Gradients(torch.autograd.Function):
    """Those of queries, keys, values and bias; their own derivatives come from the plain form, with all logits."""

    @staticmethod
    def forward(
        grad_out: Tensor,
        out: Tensor,
        peak: Tensor,
        inverse_total: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        seed: Tensor | None,
        *more: Any,
    ) -> tuple[Tensor, ...]:
        intervals, numbers, wants_bias = [*more[:NUM_INTERVALS]], _given(more[NUM_INTERVALS:-1]), more[-1]
        known = (grad_out, q, k, v, bias, out, peak, inverse_total, intervals)
        *grads, of_bias = backward_operator(*known, *numbers, seed, wants_bias)
        return *(grad.to(q.dtype) for grad in grads), of_bias

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        tensors, more = inputs[:9], inputs[9:]
        ctx.numbers, ctx.wants_bias = more[NUM_INTERVALS:-1], more[-1]
        ctx.save_for_backward(tensors[0], *tensors[4:], *more[:NUM_INTERVALS])

    @staticmethod
    def backward(ctx: Any, *second: Tensor) -> tuple[Tensor | None, ...]:
        grad_out, q, k, v, bias, seed, *tensors = ctx.saved_tensors
        intervals = Intervals.of_tensors(tensors)
        differentiable = [q, k, v] + ([bias] if ctx.wants_bias else [])

        def gradients(grad_out: Tensor, *inputs: Tensor) -> Any:
            def plain(q: Tensor, k: Tensor, v: Tensor, *given: Tensor) -> Tensor:
                return plain_attention(q, k, v, given[0] if given else bias, intervals, *_given(ctx.numbers), seed)

            return torch.func.vjp(plain, *inputs)[1](grad_out)

        def pulled_back(grad_out: Tensor, *second: Tensor) -> tuple[Tensor, ...]:
            given: tuple[Tensor, ...] = torch.func.vjp(gradients, grad_out.to(v.dtype), *differentiable)[1](second)
            return given

        found = under_vmap(pulled_back, grad_out, *second[: len(differentiable)])
        of_bias = found[4] if ctx.wants_bias else None
        # what depends on the outputs and what was kept of them is counted with the queries, keys and values
        return (
            found[0].to(grad_out.dtype),
            None,
            None,
            None,
            *found[1:4],
            of_bias,
            *[None] * (2 + NUM_INTERVALS + NUM_NUMBERS),
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        size, bias = info.batch_size, inputs[7]
        if inputs[8] is not None:
            return _one_by_one(_Gradients, size, in_dims, inputs)
        *grads, of_bias = _Gradients.apply(*_as_more_rows(size, in_dims, inputs, 4))  # type: ignore[no-untyped-call]
        found = [torch.unflatten(t, 0, (size, -1)) for t in grads]
        if inputs[-1]:  # each row had a bias of its own
            shape = bias.shape if in_dims[7] is None else bias.movedim(in_dims[7], 0).shape[1:]
            of_bias = torch.stack([part.sum_to_size(shape) for part in torch.unflatten(of_bias, 0, (size, -1))])
        else:
            of_bias = of_bias.expand(size, -1)
        return (*found, of_bias), (0, 0, 0, 0)


def _one_by_one(
    function: type[torch.autograd.Function], size: int, in_dims: Sequence[int | None], inputs: Sequence[Any]
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """A call for each entry of `torch.vmap`: what is dropped depends on the numbers of rows, which stay as they are."""
    results = []
    for entry in range(size):
        own = (t.select(dim, entry) if isinstance(dim, int) else t for t, dim in zip(inputs, in_dims, strict=True))
        results.append(function.apply(*own))  # type: ignore[no-untyped-call]
    stacked = tuple(torch.stack(parts) for parts in zip(*results, strict=True))
    return stacked, (0,) * len(stacked)


def _as_more_rows(size: int, in_dims: Sequence[int | None], inputs: Sequence[Any], at: int) -> list[Any]:
    """A call over the dimension of `torch.vmap`, too, as one over more rows; the queries are input number `at`."""

    def moved(number: int) -> Tensor:
        t: Tensor = inputs[number]
        dim = in_dims[number]
        return t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)

    rows: list[Any] = [moved(number).flatten(0, 1) for number in range(at + 3)]
    q, k = rows[at], rows[at + 1]
    bias = None
    if inputs[at + 3] is not None:
        bias = moved(at + 3)
        while bias.dim() < 5:
            bias = bias[:, None]
        bias = bias.expand(size, len(q) // size, q.shape[1], q.shape[2], k.shape[2]).flatten(0, 1)
    rows += [bias, inputs[at + 4]]
    layout_of_row, *layouts = inputs[at + 5 : at + 5 + NUM_INTERVALS]
    return [*rows, layout_of_row.repeat(size), *layouts, *inputs[at + 5 + NUM_INTERVALS :]]
