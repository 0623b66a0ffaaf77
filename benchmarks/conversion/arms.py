"""The conversions that are compared, and the sizes of the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tsattn import PublicDataModule
from tsattn.chronos import AdaptedChronos, adapt
from tsattn.chronos.swapped.building import Surroundings
from tsattn.data.pretraining import synthetic_series

__all__ = ["FINE_TUNED", "ORIGINAL", "SIZES", "TOY", "ZERO_SHOT", "Sizes", "converted", "described", "series_of"]

ORIGINAL = "original"

ZERO_SHOT = {
    "copy": "MLR, `copy`",
    "rotate": "MLR, `rotate` by generated series",
    "rotate_noise": "MLR, `rotate` without data",
    "rotate_training": "MLR, `rotate` by the set's training part",
    "swa": "SWA, `copy`",
    "btt": "BTT, `project`",
}
"""The arms that nothing is trained of, and what they are."""

FINE_TUNED = {ORIGINAL: "original", "mlr": "MLR, `rotate`, calibrated", "swa": "SWA, `copy`, calibrated"}


@dataclass(frozen=True)
class Sizes:
    """Of the experiments.

    Attributes:
        data: public data sets.
        horizon: steps that are forecast.
        generated: series from Gaussian processes, and the steps of each.
        learned_from: windows of a training part that a conversion sees at most.
        calibrate: steps.
        fine_tuning: steps.
        val_windows: of a validation, four in a fine-tuning.
    """

    data: tuple[str, ...] = ("ETTh1", "vic_electricity", "ETTh2")
    horizon: int = 48
    generated: tuple[int, int] = (256, 1024)
    learned_from: int = 512
    calibrate: int = 300
    fine_tuning: int = 200
    val_windows: int = 1024


SIZES = Sizes()
TOY = Sizes(("national_illness",), 6, (12, 64), 12, 2, 4, 8)


def described(arm: str, around: Surroundings) -> dict[str, Any]:
    """The attention of an arm in the place of one of a model, and how it is converted.

    MLR has half of a head's width r for all pairs, and a quarter on each of two finer levels; SWA sees a window of a
    quarter of the context to either side; BTT has its default rank.
    """
    r = around.head_dim
    tokens = around.max_tokens
    if arm == "swa":
        return {"attention": {"kind": "swa", "window_size": max(1, tokens // 4)}, "convert": "copy"}
    if arm == "btt":
        return {"attention": {"kind": "btt"}, "convert": "project"}
    convert = "copy" if arm == "copy" else "rotate"
    return {"attention": {"kind": "mlr", "ranks": [r // 2, r // 4, r // 4]}, "convert": convert}


def surroundings(plain: AdaptedChronos) -> Surroundings:
    """Of the first attention of the encoder of a model."""
    model = plain.pipeline.inner_model
    return Surroundings.of(plain.family, model, plain.family.sites(model)[0], plain.family.layout(model))


def converted(plain: AdaptedChronos, arm: str, data: PublicDataModule, sizes: Sizes) -> AdaptedChronos:
    """A model with the attention of an arm, nothing trained.

    Args:
        plain: the model.
        arm: one of `ZERO_SHOT`.
        data: set up; its training part alone is read, by `rotate_training`.
        sizes: of the series that are learned from.
    """
    given = described(arm, surroundings(plain))
    known: Sequence[Tensor] | None = None
    if arm == "rotate":
        known = [*torch.from_numpy(synthetic_series(*sizes.generated, seed=1)).float()]
    elif arm == "rotate_training":
        known = series_of(data, "train", plain.pipeline.model_context_length, sizes.learned_from)
    return adapt(plain.pipeline, given["attention"], "encoder", given["convert"], data=known)


def series_of(data: PublicDataModule, part: str, length: int, most: int) -> list[Tensor]:
    """Contexts of a part, of windows spread evenly over it, each channel a series; missing values as NaN."""
    every = -(-len(data.windows(part, length)) // most)
    found: list[Tensor] = []
    for batch in data.eval_dataloader(part, length, every=every):
        past = batch.past
        if batch.past_observed is not None:
            past = past.masked_fill(~batch.past_observed, torch.nan)
        found += [row for row in past.transpose(1, 2).flatten(0, 1).float() if bool(row.isfinite().any())]
    return found
