"""Weights by name, opened as a model whose attention may be swapped already."""

from __future__ import annotations

from tsattn.chronos.adapted_chronos import AdaptedChronos
from tsattn.chronos.models.families import family_of
from tsattn.chronos.models.named_weights import NamedWeights
from tsattn.chronos.models.pipelines import open_pipeline
from tsattn.chronos.saving import load_adapted

__all__ = ["open_weights"]


def open_weights(weights: str, revision: str | None = None) -> AdaptedChronos:
    """The model of these weights in float32: adapted already, or with its own attention; without an original.

    Raises:
        UserError: if there is none, it cannot be read, or the extra `chronos` is not installed.
    """

    named = NamedWeights.of(weights, revision)
    if named.folder is not None and named.is_adapted:
        adapted = load_adapted(named.folder)
        adapted.model.float()
        return adapted
    pipeline = open_pipeline(weights, revision=revision, dtype="float32")
    return AdaptedChronos(pipeline, None, family_of(pipeline), {})
