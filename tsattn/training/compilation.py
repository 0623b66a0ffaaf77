"""torch.compile of a backbone while it is trained."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from tsattn.errors import UserError, one_of

__all__ = [
    "COMPILE_MODES",
    "check_compile_device",
    "check_compile_mode",
    "compiler_errors",
    "hold_gradients",
    "start_compiled",
    "stop_compiled",
    "uses_cuda_graphs",
]

COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""The modes of torch.compile."""

_WITH_GRAPHS = ("reduce-overhead", "max-autotune")  # CUDA graphs, where there is a CUDA device


def check_compile_mode(mode: str | None) -> None:
    """Refuse what is no mode of torch.compile.

    Raises:
        UserError: saying which are valid.
    """
    if mode is not None and mode not in COMPILE_MODES:
        raise UserError(f"compile_mode must be one of {one_of(COMPILE_MODES)}, or null for none, not {mode!r}")


def check_compile_device(mode: str | None, device: torch.device) -> None:
    """Refuse a mode that does nothing on a device.

    Raises:
        UserError: saying which mode works anywhere.
    """
    if mode == "reduce-overhead" and device.type != "cuda":
        raise UserError(
            f"compile_mode reduce-overhead uses CUDA graphs, which need a CUDA device, not {device.type}; default "
            "works on any"
        )


def uses_cuda_graphs(mode: str | None, device: torch.device) -> bool:
    """Whether a mode replays CUDA graphs on a device."""
    return device.type == "cuda" and mode in _WITH_GRAPHS


def hold_gradients(backbone: nn.Module) -> None:
    """Give all parameters gradients of their own, zeros where there are none, to which a backward pass adds.

    Without, autograd takes the output of a CUDA graph for the gradient, and the next replay overwrites what was
    accumulated.
    """
    for parameter in backbone.parameters():
        if parameter.requires_grad and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def start_compiled(backbone: nn.Module, mode: str) -> None:
    """Let a backbone be compiled when it is first called, for each size of batch on its own; its weights keep names.

    What was compiled before in this process is forgotten: torch compiles the method of a class at most 8 times for all
    models together, and would run the next ones uncompiled without a word.
    """
    torch.compiler.reset()
    backbone.compile(mode=mode, dynamic=False)


def stop_compiled(backbone: nn.Module) -> None:
    """Let a backbone run as it is written again."""
    backbone._compiled_call_impl = None


@contextlib.contextmanager
def compiler_errors(mode: str | None) -> Iterator[None]:
    """Around each call of a backbone that may be compiled, and its backward pass.

    Raises:
        UserError: where it cannot be compiled.
    """
    try:
        yield
    except RuntimeError as error:
        from torch._dynamo.exc import BackendCompilerFailed

        if not isinstance(error, BackendCompilerFailed):
            raise
        why = error.inner_exception
        reason = f"{type(why).__name__}: {' '.join(str(why).split())[-200:]}"  # a loader's reason follows its path
        if type(why).__name__ == "InvalidCxxCompiler":
            reason = "it needs a C++ compiler, and none works here (g++, or what CXX names)"
        raise UserError(f"torch cannot compile the backbone: {reason}; leave compile_mode {mode} out") from error
