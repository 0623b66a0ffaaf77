"""Dropout; on a CPU by a generator of this package, in one pass over memory, with no mask kept for the backward pass.

PyTorch draws each number of a mask from one sequential generator, writes the mask, and multiplies by it. Here one seed
is drawn from PyTorch's generator a call, so that a seed, a saved state, or a pass that is computed anew repeats it. The
mask is a function of that seed and of the place of each number: it is found again in the backward pass, and is the same
for any number of threads and any instruction set.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from tsattn.ops.native.dropping import dropout_operator, takes_native_dropout
from tsattn.ops.native.philox import keep_threshold, kept_numbers

__all__ = ["dropout", "dropout_reference"]

_DTYPES = (torch.float32, torch.bfloat16)
_KINDS = (Tensor, nn.Parameter, FakeTensor)


def dropout(x: Tensor, p: float, training: bool = True, *, residual: Tensor | None = None) -> Tensor:
    """`x` with each number set to zero with probability `p`, and the others divided by `1 - p`.

    The kernel takes float32 and bfloat16 on a CPU, in compiled graphs too. All else is `torch.nn.functional.dropout`:
    other devices and types, the transformations of `torch.func`, derivatives in forward mode, `torch.export`, and a
    machine without kernels.
    Where the kernel computes, p is rounded to a multiple of 2^-32.

    Args:
        x: any shape.
        p: a probability in [0, 1).
        training: if false, or p is 0, nothing is dropped, and `x` itself is the result.
        residual: broadcastable with `x`, added to the result.

    Raises:
        ValueError: for another p.
    """
    if not 0 <= p < 1:
        raise ValueError(f"the probability of dropping must lie in [0, 1), not {p}")
    if not training or p == 0:
        return x if residual is None else residual + x
    if not _is_native(x):
        dropped = F.dropout(x, p)
        return dropped if residual is None else residual + dropped
    seed = torch.randint(2**62, (), device="cpu")
    if residual is None:
        out: Tensor = dropout_operator(x, None, p, seed, x.dtype)
    elif residual.shape == x.shape and residual.device == x.device and residual.dtype in _DTYPES:
        dtype = torch.promote_types(x.dtype, residual.dtype)
        out = dropout_operator(x, residual.to(dtype), p, seed, dtype)
    else:
        out = residual + dropout_operator(x, None, p, seed, x.dtype)
    return out


def _is_native(x: Tensor) -> bool:
    if x.device.type != "cpu" or x.dtype not in _DTYPES or type(x) not in _KINDS or x.layout != torch.strided:
        return False
    if torch.compiler.is_exporting() or forward_ad._current_level >= 0:
        return False
    if not torch.compiler.is_compiling() and torch._C._functorch.maybe_current_level() is not None:
        return False
    return takes_native_dropout()


def dropout_reference(x: Tensor, p: float, seed: int, residual: Tensor | None = None) -> Tensor:
    """What the kernel computes from a seed, with the mask written out; see `dropout`."""
    kept = torch.from_numpy(kept_numbers(seed, x.numel(), p)).view(x.shape)
    factors = kept.to(torch.float32) * keep_threshold(p)[1]
    dropped = x.to(torch.promote_types(x.dtype, torch.float32)) * factors
    if residual is None:
        return dropped.to(x.dtype)
    return (residual + dropped).to(torch.promote_types(x.dtype, residual.dtype))
