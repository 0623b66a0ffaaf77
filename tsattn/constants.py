"""The precision of sums and units, and constants of a module that are filled however its weights are loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["EXACT", "ModuleWithConstants"]

# long sums of small numbers need float64, which Apple's GPUs lack
EXACT = torch.float32 if torch.backends.mps.is_available() else torch.float64


class ModuleWithConstants(nn.Module):
    """A module with buffers that its arguments decide, so that no state dict holds them.

    `to_empty` and `load_state_dict(assign=True)` of a model made on the device ``meta`` fill only what a state dict
    holds; the constants are filled in again here.
    """

    def __init__(self) -> None:
        super().__init__()
        self._constants: dict[str, tuple[Any, torch.dtype, bool]] = {}

    def register_constant(self, name: str, values: Any, dtype: torch.dtype, *, cast: bool) -> None:
        """A buffer of these numbers, a list or an array.

        Args:
            name: of the buffer.
            values: its numbers.
            dtype: their type.
            cast: whether the type changes with that of the module.
        """
        self._constants[name] = np.asarray(values), dtype, cast
        self.register_buffer(name, torch.tensor(self._constants[name][0], dtype=dtype), persistent=False)

    def fill_constants(self, device: torch.device) -> None:
        """Bring constants to this device that were left on ``meta`` by an assignment of weights."""
        for name in self._constants:
            if self.get_buffer(name).is_meta != (device.type == "meta"):
                self._fill(name, device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        for name in self._constants:
            if self.get_buffer(name).is_meta:
                try:
                    fn(self.get_buffer(name))
                except NotImplementedError:  # what holds no numbers cannot be moved, only made
                    self._fill(name, torch.device("cpu"))
        moved: nn.Module = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in self._constants:
            self._fill(name, self.get_buffer(name).device)
        return moved

    def _fill(self, name: str, device: torch.device) -> None:
        values, dtype, cast = self._constants[name]
        dtype = self.get_buffer(name).dtype if cast else dtype
        self.register_buffer(name, torch.tensor(values, dtype=dtype, device=device), persistent=False)
