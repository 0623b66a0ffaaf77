"""Which transformations of PyTorch a call runs under, and which implementations of attention work there."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

Kept = TypeVar("Kept")


def is_readable(*tensors: Tensor | None) -> bool:
    """Whether the values of these tensors can be read during the call.

    Values are hidden while a graph is traced (`torch.compile`, `torch.export`), on the device ``meta``, in fake
    tensors, and inside `torch.vmap`. None counts as readable.
    """
    given = [t for t in tensors if t is not None]
    return not given or (not torch.compiler.is_compiling() and all(map(_has_numbers, given)))


def _has_numbers(tensor: Tensor) -> bool:
    while torch._C._functorch.is_gradtrackingtensor(tensor):  # gradient tracking does not hide values
        tensor = torch._C._functorch.get_unwrapped(tensor)
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return not (wrapped or tensor.is_meta or isinstance(tensor, FakeTensor))


def is_vmapped() -> bool:
    """Whether the call runs inside `torch.vmap`; unlike `is_readable`, this is known while a graph is traced."""
    transformations = torch._C._functorch.get_interpreter_stack() or ()
    return any(part.key() == torch._C._functorch.TransformType.Vmap for part in transformations)


# as `torch.compiler.assume_constant_result` does, which imports the compiler; another vmap traces the graph again
is_vmapped._dynamo_marked_constant = True  # type: ignore[attr-defined]


def needs_plain_gradients(grad_out: Tensor) -> bool:
    """Whether the backward pass of a kernel must use plain operators: for second derivatives, and in batches."""
    functorch = torch._C._functorch
    wrapped = functorch.is_functorch_wrapped_tensor(grad_out) or functorch.is_legacy_batchedtensor(grad_out)
    return torch.is_grad_enabled() or wrapped


def plain_gradients(attend: Callable[..., Tensor], inputs: Sequence[Tensor], grad_out: Tensor) -> tuple[Tensor, ...]:
    """The gradients of `attend(*inputs)` for `grad_out`: differentiable, and in batches of any kind."""
    if not torch._C._functorch.is_legacy_batchedtensor(grad_out):
        found: tuple[Tensor, ...] = torch.func.vjp(attend, *inputs)[1](grad_out)
        return found
    # autograd's own batches, with which `torch.autograd.functional` computes Jacobians where `vectorize=True`
    creates_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves = [t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in inputs]
        out = attend(*leaves)
    return torch.autograd.grad(out, leaves, grad_out, create_graph=creates_graph)


def function_of(operator: Any, *tensors: Tensor | None) -> Callable[..., Any]:
    """The function of an operator of `torch.library`; the operator itself where PyTorch must see a call with `tensors`.

    The operator takes 0.1 ms longer, and its first call imports the compiler. It is for compiled graphs, modes,
    transformations of `torch.func`, subclasses of tensors, negated views, and gradients in batches.
    """
    watched: Any = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    watched = watched or torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
    batched = torch._C._functorch.is_legacy_batchedtensor
    given = (t for t in tensors if t is not None)
    watched = watched or any(type(t) not in (Tensor, nn.Parameter) or batched(t) or t.is_neg() for t in given)
    return operator if watched else operator._init_fn  # type: ignore[no-any-return]


def is_fake(tensor: Tensor) -> bool:
    """Whether this is a tensor of a `FakeTensorMode` that rejects real tensors."""
    return isinstance(tensor, FakeTensor) and not tensor.fake_mode.allow_non_fake_inputs


@contextlib.contextmanager
def as_if_alone() -> Iterator[None]:
    """Create tensors for later calls, independent of the modes that the present call runs under."""
    with torch.inference_mode(False), _disable_current_modes(), torch.device("cpu"):
        yield


def kept_by_stream(make: Callable[..., Kept]) -> Callable[..., Kept]:
    """Cache the results of `make(*arguments, device)` on a CUDA device, for later calls on the same stream.

    A stream does not wait for another stream's results, and a captured graph computes only when it is replayed.
    """
    kept = functools.lru_cache(maxsize=16)(lambda stream, *arguments: make(*arguments))

    def find(*arguments: Any) -> Kept:
        device = arguments[-1]
        if torch._C._len_torch_dispatch_stack():  # for example of fake tensors
            return make(*arguments)
        with torch.inference_mode(False):  # a call without gradients may come first
            if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
                return make(*arguments)
            return kept(torch.cuda.current_stream(device).cuda_stream, *arguments)

    return find


def is_forward_mode() -> bool:
    """Whether derivatives in forward mode are recorded."""
    return forward_ad._current_level >= 0


def why_no_fused_derivative() -> str | None:
    """Why PyTorch's fused kernels lack a derivative that may be needed here; None if they have all."""
    if torch.compiler.is_compiling():
        return None
    if is_forward_mode():
        return "its kernel has no derivative in forward mode, which reference has"
    transformations = torch._C._functorch.get_interpreter_stack() or ()
    if sum(part.key() == torch._C._functorch.TransformType.Grad for part in transformations) > 1:
        return "its kernel has no second derivative under torch.func, which reference has"
    return None
