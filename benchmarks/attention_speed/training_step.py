"""A training step of a whole forecaster: PatchTST with multi-level attention over the same with standard attention."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml

from attention_speed.rows import Row, rows_beside
from attention_speed.timing import Timing, cpu_clock, take_turns
from tsattn.backbones import Backbone, build_backbone
from tsattn.batch import Batch
from tsattn.optim import adamw
from tsattn.task import Task
from tsattn.training.losses import masked_loss

__all__ = ["step_rows"]

CONFIG = Path(__file__).parents[2] / "configs" / "etth1_patchtst.yaml"
CHANNELS, PREDICTION_LENGTH = 7, 96
STANDARD = "standard by sdpa"


def step_rows(timing: Timing, *, context_length: int = 512, batch_size: int = 32, num_layers: int = 3) -> list[Row]:
    """Loss, gradients and AdamW of a batch, by the network of `etth1_patchtst.yaml` with one layer more."""
    names = tuple(f"channel {number}" for number in range(CHANNELS))
    task = Task("none", context_length, PREDICTION_LENGTH, names, "h", 24)
    torch.manual_seed(0)
    past, target = (torch.randn(batch_size, length, CHANNELS) for length in (context_length, PREDICTION_LENGTH))
    batch = Batch(past, target)
    backbone = yaml.safe_load(CONFIG.read_text())["model"]["backbone"] | {"num_layers": num_layers}
    attentions = {
        STANDARD: {"kind": "standard", "impl": "sdpa"},
        "mlr by native": {**backbone["attention"], "impl": "native"},
    }
    runs = {}
    for name, attention in attentions.items():
        model = build_backbone(copy.deepcopy(backbone) | {"attention": attention}, task).train()
        runs[name] = partial(step, model, adamw([model], 1e-4, 0.01), batch)
    tokens = model.patches.count
    medians, turns = take_turns(runs, timing, cpu_clock)
    shape = {"T": tokens, "batch": batch_size * CHANNELS, "heads": backbone["num_heads"]}
    width = backbone["d_model"] // backbone["num_heads"]
    beside = {"mlr by native": STANDARD}
    return rows_beside("patchtst", medians, beside, turns, **shape, width=width, which="training step")


def step(model: Backbone, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    target: Any = batch.target
    optimizer.zero_grad()
    masked_loss("mse", model(batch), target, None).backward()
    optimizer.step()
