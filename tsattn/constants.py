"""Constant tensors of a module that follow it to its device, and that no way of loading leaves unfilled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

__all__ = ["ModuleWithConstants"]


class ModuleWithConstants(nn.Module):
    """A module with buffers that its arguments decide, so that no state dict holds them.

    `to_empty` and `load_state_dict(assign=True)` of a model made on the device ``meta`` fill only what a state dict
    holds; the constants are filled in again here.
    """

    def __init__(self) -> None:
        super().__init__()
        self._constants: dict[str, list[float] | list[int]] = {}

    def register_constant(self, name: str, values: Sequence[float] | Sequence[int], dtype: torch.dtype) -> None:
        """A buffer of these numbers `(len(values),)`; floating-point ones are cast with the module."""
        self._constants[name] = [*values]
        self.register_buffer(name, torch.tensor(self._constants[name], dtype=dtype), persistent=False)

    def fill_constants(self, device: torch.device) -> None:
        """Fill in on this device the constants that hold nothing, being on ``meta``."""
        for name in self._constants:
            if self.get_buffer(name).is_meta and device.type != "meta":
                self._fill(name, device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        moved: nn.Module = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in self._constants:
            if not self.get_buffer(name).is_meta:
                self._fill(name, self.get_buffer(name).device)
        return moved

    def _fill(self, name: str, device: torch.device) -> None:
        values, dtype = self._constants[name], self.get_buffer(name).dtype
        self.register_buffer(name, torch.tensor(values, dtype=dtype, device=device), persistent=False)
