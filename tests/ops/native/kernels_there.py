"""Whether the native kernels can be had here."""

import pytest

from tsattn.ops.native.library import why_no_kernels

__all__ = ["needs_kernels"]

needs_kernels = pytest.mark.skipif(why_no_kernels() is not None, reason=f"no native kernels: {why_no_kernels()}")
