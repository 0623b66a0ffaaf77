"""A small pretrained model in a file, with random weights, for tests of what forecasts with one."""

from __future__ import annotations

import atexit
import functools
import tempfile
from pathlib import Path
from typing import Any

import torch

from tsattn.chronos.bolt.bolt_file import BoltModel, save_bolt

LEVELS = tuple(number / 10 for number in range(1, 10))
SMALL = {"kind": "chronos_bolt", "patch_len": 4, "d_model": 16, "num_heads": 2, "d_ff": 16, "dropout": 0.0}


def small_model(**changes: Any) -> BoltModel:
    sizes = {"context_length": 24, "prediction_length": 6, "quantiles": LEVELS, **changes}
    return BoltModel({**SMALL, **sizes.pop("description", {})}, trained_on=("weather",), **sizes)


def save_small(path: Path, model: BoltModel | None = None, *, seed: int = 0) -> Path:
    """A model with weights that make its forecasts differ from step to step."""
    model = small_model() if model is None else model
    generator = torch.Generator().manual_seed(seed)
    state = {
        name: 0.3 * torch.randn(part.shape, generator=generator) + name.endswith("norm.weight")
        for name, part in model.build().state_dict().items()
    }
    save_bolt(path, model, state)
    return path


@functools.cache
def small_weights() -> str:
    """The path of such a file, which is there as long as the tests run."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return str(save_small(Path(folder.name) / "small.safetensors"))
