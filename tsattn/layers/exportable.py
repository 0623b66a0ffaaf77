"""Operations that ONNX lacks, and loops that would make an exported file large."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Tensors = tuple[Tensor, ...]


def running_maximum(places: Tensor) -> Tensor:
    """`torch.cummax` along L of `(R, L)` or `(R, L, C)` numbers of at least -1; by doubling, as ONNX lacks it."""
    step, L = 1, places.shape[1]
    while step < L:
        earlier = F.pad(places, (*[0, 0] * (places.dim() - 2), step, 0), value=-1)
        places = torch.maximum(places, earlier[:, :L])
        step *= 2
    return places


def repeated(step: Callable[..., Tensors], count: int, *state: Tensor) -> Tensors:
    """Update a state `count` times by `step(number, *state)` and return it; an exported file holds the step once."""
    numbers = torch.arange(count, device=state[0].device).unsqueeze(1)
    if torch.compiler.is_exporting():  # scan allows no changes in place and needs an output of each step
        from torch._higher_order_ops.scan import scan  # slow to import

        last: Tensors = scan(lambda state, number: (step(number, *state), number.clone()), state, numbers)[0]
        return last
    for number in numbers:
        state = step(number, *state)
    return state


def solved(matrix: Tensor, right: Tensor) -> Tensor:
    """Solve `(R, F, F)` positive definite systems for `(R, F, 1)`; in an export by elimination, as ONNX lacks it."""
    if not torch.compiler.is_exporting():
        found: Tensor = torch.linalg.solve_ex(matrix, right).result
        return found
    places = torch.arange(matrix.shape[1], device=matrix.device).unsqueeze(1)

    def eliminate(number: Tensor, both: Tensor) -> Tensors:
        row = both.index_select(1, number)
        row = row / row.index_select(2, number)
        return (torch.where(places == number, row, both - both.index_select(2, number) * row),)

    return repeated(eliminate, len(places), torch.cat([matrix, right], -1))[0][:, :, -1:]
