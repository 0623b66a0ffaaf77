"""The description of a predictor as a user of the Forecaster gives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tsattn.descriptions import Description

__all__ = ["described"]


def described(backbone: Description, attention: Description | Sequence[Description] | None) -> dict[str, Any]:
    """A description with its attention replaced, if one is given."""
    description = {"kind": backbone} if isinstance(backbone, str) else dict(backbone)
    return description if attention is None else {**description, "attention": attention}
