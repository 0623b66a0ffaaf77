"""The precision of a training that names none."""

from __future__ import annotations

from typing import Any, Literal

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.accelerators import CUDAAccelerator

__all__ = ["FULL_PRECISION", "default_precision"]

FULL_PRECISION: Literal["32-true"] = "32-true"

_HOPPER = (9, 0)  # compute capability; AMD's GPUs of this number are as fast in bfloat16


def default_precision(accelerator: Any, devices: Any) -> Literal["32-true", "bf16-mixed"]:
    """``bf16-mixed`` where every device of a Trainer is a CUDA device of Hopper or newer, else ``32-true``.

    bfloat16 has the range of float32, so that no loss is scaled. Weights, sums and metrics stay as they are.

    Args:
        accelerator: as Lightning's Trainer has it; a class of one's own gets ``32-true``.
        devices: as Lightning's Trainer has it: a number, a list of indices, a text of either, or ``auto``.
    """
    if accelerator not in ("auto", "gpu", "cuda") or not torch.cuda.is_available():
        return FULL_PRECISION
    try:
        used = CUDAAccelerator.parse_devices(-1 if devices == "auto" else devices)
    except (MisconfigurationException, TypeError, ValueError):
        return FULL_PRECISION  # the Trainer says what is wrong with the devices
    is_new = used and all(torch.cuda.get_device_capability(device) >= _HOPPER for device in used)
    return "bf16-mixed" if is_new else FULL_PRECISION
