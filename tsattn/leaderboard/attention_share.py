"""Which part of a forecast comes from networks that hold an attention: what an ensemble weighs of such members."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tsattn.leaderboard.experiment_text import backbone_of

__all__ = ["ABLATIONS", "attention_share", "is_ablation"]

ABLATIONS = ("identity", "uniform", "fixed_mixing")
"""What stands in the place of an attention to show what it is worth: kinds that look at no token's content."""


def is_ablation(kinds: Iterable[str]) -> bool:
    """Whether an attention whose layers are of these kinds is none."""
    kinds = [*kinds]
    return bool(kinds) and all(kind in ABLATIONS for kind in kinds)


def attention_share(experiment: str, trained: float) -> float:
    """The weight of trained networks with an attention, from 0 to 1.

    Args:
        experiment: of a record, as text.
        trained: the weight of all that is trained, which it is where the experiment says nothing of its predictor.
    """
    backbone = backbone_of(experiment)
    if not backbone["kind"]:
        return trained
    if backbone["kind"] != "ensemble":
        return trained if _holds_attention(backbone) else 0.0
    members = backbone["members"]
    weights = backbone.get("weights") or [1.0] * len(members)
    held = [weight for weight, member in zip(weights, members, strict=True) if _holds_attention(member)]
    return min(trained, math.fsum(held) / math.fsum(weights))


def _holds_attention(predictor: Any) -> bool:
    given = predictor.get("attention") if isinstance(predictor, Mapping) else None
    layers = given if isinstance(given, list) else [] if given is None else [given]
    kinds = [str(layer["kind"] if isinstance(layer, Mapping) else layer) for layer in layers]
    return bool(kinds) and not is_ablation(kinds)
