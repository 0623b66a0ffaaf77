"""A small `tiny` in a file, with random weights, for tests of what forecasts with one."""

from __future__ import annotations

import atexit
import functools
import tempfile
from pathlib import Path

import torch

from tsattn.pretrained.tiny import save_tiny
from tsattn.pretrained.tiny_network import TinyNetwork

SIZES = {"d_model": 16, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2}


def save_small(path: Path) -> Path:
    """A model whose forecasts are not the mean of the guesses alone."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = TinyNetwork(**SIZES)
        torch.nn.init.normal_(network.head.weight, std=0.05)
    save_tiny(path, network, SIZES, {"trained_on": ["weather"]})
    return path


@functools.cache
def small_weights() -> str:
    """The path of such a file, which is there as long as the tests run."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return str(save_small(Path(folder.name) / "small.safetensors"))
