"""What the experiment of a record says, which is kept as text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import yaml

__all__ = ["backbone_of", "experiment_content"]


@lru_cache(maxsize=4096)
def experiment_content(text: str) -> Mapping[str, Any]:
    """All of it, which is not to be changed; nothing of an empty text."""
    content = yaml.load(text, yaml.CSafeLoader)
    return content if isinstance(content, Mapping) else {}


def backbone_of(text: str) -> Mapping[str, Any]:
    """The description of its predictor; with an empty kind where it says none."""
    backbone = experiment_content(text).get("model", {}).get("backbone")
    return backbone if isinstance(backbone, Mapping) else {"kind": str(backbone or "")}
