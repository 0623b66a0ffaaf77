"""Backbones: from a batch to a forecast. The table of trainable ones, and building one from its description.

To add a backbone, write one file with a subclass of `Backbone` that takes a `Task`, an `Output` and keyword arguments,
and name it in `BACKBONES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_type_hints

from tsattn import descriptions
from tsattn.attention import complete_attention
from tsattn.backbones.base import Backbone
from tsattn.backbones.linear import Ridge
from tsattn.backbones.naive import Persistence, SeasonalNaive
from tsattn.backbones.patchtst import PatchTST
from tsattn.backbones.transformer import Transformer
from tsattn.descriptions import Description
from tsattn.errors import UserError, one_of
from tsattn.task import Output, Task

__all__ = [
    "BACKBONES",
    "Backbone",
    "PatchTST",
    "Persistence",
    "Ridge",
    "SeasonalNaive",
    "Transformer",
    "build_backbone",
    "complete_backbone",
]

BACKBONES: dict[str, type[Backbone]] = {"transformer": Transformer, "patchtst": PatchTST}


def build_backbone(description: Description, task: Task, output: Output = Output()) -> Backbone:
    """The backbone that a description means, for a task.

    Args:
        description: a kind's name, or ``{kind: ..., argument: value, ...}``.
        task: the sizes to build it for.
        output: what is asked of it; a point forecast by default.

    Raises:
        UserError: for a wrong kind, argument or value, with a message that lists the valid ones; for a kind that cannot
            forecast quantiles, where some are asked for, or use covariates, where the task has some.
    """
    kind, cls, chosen = _parse(description)
    if output.quantiles and not cls.emits_quantiles:
        raise UserError(f"backbone {kind} forecasts points only: it takes no quantiles")
    covariates = [*task.past_covariates, *task.future_covariates, *task.static]
    if covariates and not cls.uses_covariates:
        able = one_of(name for name, other in BACKBONES.items() if other.uses_covariates)
        raise UserError(
            f"backbone {kind} uses no covariates, and the data has {one_of(covariates)}; those that do: {able}"
        )
    descriptions.check_types(chosen, get_type_hints(cls.__init__), f"backbone {kind}")
    return cls(task, output, **chosen)


def complete_backbone(description: Description) -> dict[str, Any]:
    """The description with the defaults of its kind written out, those of its attention too."""
    kind, cls, chosen = _parse(description)
    complete = {"kind": kind, **descriptions.defaults(cls), **chosen}
    if "attention" in complete:
        attention = complete["attention"]
        is_list = isinstance(attention, Sequence) and not isinstance(attention, str)
        complete["attention"] = [*map(complete_attention, attention)] if is_list else complete_attention(attention)
    return complete


def _parse(description: Description) -> tuple[str, type[Backbone], dict[str, Any]]:
    return descriptions.parse(
        description, what="backbone", table=BACKBONES, base=Backbone, arguments=descriptions.keyword_arguments
    )
