"""Weights that come from files, held to what a training leaves."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from tsattn.errors import UserError

__all__ = ["check_weights"]


def check_weights(weights: Mapping[str, Tensor], source: str) -> None:
    """Refuse weights that no training leaves.

    Args:
        weights: by name.
        source: where they are from, as the message says it.

    Raises:
        UserError: naming the first weight that is not finite.
    """
    for name, weight in weights.items():
        if not bool(weight.isfinite().all()):
            raise UserError(f"{source} is damaged: its weight {name} holds numbers that are not finite")
