"""The networks that are compared: the same sizes, dropout and levels of windows, each as its library makes it.

So PatchTST of neuralforecast has residual attention scores and normalises after its branches, and ours does neither;
theirs learns at a constant rate, and ours at one that rises and falls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["RECIPES", "Recipe", "small"]


@dataclass(frozen=True)
class Recipe:
    """One network, as we and as neuralforecast describe it.

    Attributes:
        ours: description of our backbone.
        model: the class of neuralforecast.
        theirs: its arguments.
        faster: how many times as fast our training step is to be.
        hoped: how many times it is hoped to be.
        context_length: L of both.
        batch_size: windows in a batch, each of seven channels.
    """

    ours: dict[str, Any]
    model: str
    theirs: dict[str, Any]
    faster: float
    hoped: float
    context_length: int = 512
    batch_size: int = 32
    prediction_length: int = field(default=96)


RECIPES = {
    "patchtst": Recipe(
        ours={
            "kind": "patchtst",
            "d_model": 16,
            "num_layers": 3,
            "num_heads": 4,
            "d_ff": 128,
            "dropout": 0.2,
            "norm": "batch",
            "pad_end": True,
            "subtract_last": True,
        },
        model="PatchTST",
        theirs={
            **{"hidden_size": 16, "encoder_layers": 3, "n_heads": 4, "linear_hidden_size": 128, "dropout": 0.2},
            **{"fc_dropout": 0.2, "head_dropout": 0.0, "attn_dropout": 0.0, "patch_len": 16, "stride": 8},
        },
        faster=2.3,
        hoped=3.0,
    ),
    "itransformer": Recipe(
        ours={"kind": "itransformer", "d_model": 128, "num_layers": 2, "num_heads": 8, "d_ff": 128, "dropout": 0.1},
        model="iTransformer",
        theirs={"hidden_size": 128, "e_layers": 2, "n_heads": 8, "d_ff": 128, "dropout": 0.1},
        faster=1.3,
        hoped=1.6,
    ),
    "dlinear": Recipe(
        ours={"kind": "dlinear", "kernel_size": 25},
        model="DLinear",
        theirs={"moving_avg_window": 25},
        faster=20,
        hoped=50,
    ),
}


def small(recipe: Recipe) -> Recipe:
    """The same in a size that is trained at once, to try the benchmark out."""
    sizes = {"context_length": 48, "batch_size": 4, "prediction_length": 8}
    return Recipe(**{**vars(recipe), **sizes})
