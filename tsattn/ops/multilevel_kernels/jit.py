# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="import-not-found,import-untyped"
"""Triton where it is installed; without it everything here still imports."""

from __future__ import annotations

from functools import lru_cache

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None
    tl = None

__all__ = ["is_interpreted", "jit", "tl", "triton", "triton_available"]


def jit(function):
    """`triton.jit`, or the plain function where Triton is not installed: it is then never called."""
    return function if triton is None else triton.jit(function)


def triton_available() -> bool:
    """Whether Triton is installed, so that `multilevel_attention_triton` can run at all."""
    return triton is not None


def is_interpreted(kernel: object) -> bool:
    """Whether a kernel runs on the CPU, by Triton's interpreter. Triton must be installed."""
    return isinstance(kernel, _interpreted())


@lru_cache(maxsize=1)
def _interpreted() -> type:
    """The type of a kernel that runs on the CPU."""
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction  # type: ignore[no-any-return, unused-ignore]
