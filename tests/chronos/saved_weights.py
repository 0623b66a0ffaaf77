"""Tiny models in folders, as somebody has them who downloaded or saved them."""

from __future__ import annotations

import atexit
import functools
import tempfile
from pathlib import Path

import torch

from tests.chronos.tiny_models import QUANTILES, tiny_pipeline


@functools.cache
def weights_of(family: str) -> str:
    """The folder of a tiny model, which is there as long as the tests run."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = Path(folder.name) / f"tiny-{family}"
    model = tiny_pipeline(family).inner_model
    if family != "t5":  # levels that lie far apart do not cross, and so need not be put in order
        steps = {"bolt": 8, "chronos2": 4}[family]
        head = model.output_patch_embedding
        with torch.no_grad():
            for layer in (head.output_layer, head.residual_layer):
                layer.weight.mul_(0.1)
            apart = {"bolt": 80, "chronos2": 4}[family]  # Chronos-2 gives the arsinh
            head.output_layer.bias.copy_(apart * (torch.tensor(QUANTILES) - 0.5).repeat_interleave(steps))
    model.save_pretrained(path)
    return str(path)
