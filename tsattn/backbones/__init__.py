"""Networks from a batch to a forecast: the table of kinds, and building a backbone from its description.

To add a backbone, write a file with a subclass of `Backbone` that takes a `Task`, an `Output` and keyword arguments,
and enter it in `BACKBONES`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_type_hints

from tsattn import descriptions
from tsattn.descriptions import Description
from tsattn.errors import UserError, one_of
from tsattn.task import Output, Task

if TYPE_CHECKING:
    from tsattn.backbones.base import Backbone

__all__ = ["BACKBONES", "PRETRAINED_NETWORKS", "Backbone", "backbone_class", "build_backbone", "complete_backbone"]

BACKBONES = {
    "transformer": "tsattn.backbones.transformer.Transformer",
    "patchtst": "tsattn.backbones.patchtst.PatchTST",
    "itransformer": "tsattn.backbones.itransformer.ITransformer",
    "dlinear": "tsattn.backbones.ltsf_linear.DLinear",
    "nlinear": "tsattn.backbones.ltsf_linear.NLinear",
}
"""Import path of each kind, imported on first use. Each class can also be imported from this package."""

PRETRAINED_NETWORKS = {
    "tiny": "tsattn.pretrained.tiny.TinyBackbone",
    "chronos": "tsattn.chronos.chronos_predictor.ChronosNetwork",
}
"""Networks of predictors that have a class in `tsattn.predictors`, by kind."""


def build_backbone(description: Description, task: Task, output: Output = Output()) -> Backbone:
    """Build a backbone from its description, for a task.

    Args:
        description: a kind's name, or ``{kind: ..., argument: value, ...}``.
        task: the sizes to build it for.
        output: the form of the forecast; a point forecast by default.

    Raises:
        UserError: for a wrong kind, argument or value; the message lists the valid ones. Also if `output` has quantiles
            or the task has covariates, and the kind does not support them.
    """
    kind, cls, chosen = _parse(description)
    if output.quantiles and not cls.emits_quantiles:
        raise UserError(f"backbone {kind} forecasts points only: leave quantiles out")
    if output.distribution is not None and not cls.emits_distributions:
        able = one_of(name for name in BACKBONES if backbone_class(name).emits_distributions)
        raise UserError(f"backbone {kind} cannot forecast distribution {output.distribution}; valid backbones: {able}")
    covariates = [*task.past_covariates, *task.future_covariates, *task.static]
    if covariates and not cls.uses_covariates:
        able = one_of(name for name in BACKBONES if backbone_class(name).uses_covariates)
        raise UserError(
            f"backbone {kind} uses no covariates, but the data has {one_of(covariates)}; backbones with them: {able}"
        )
    from tsattn.attention import Attention

    descriptions.check_types(chosen, get_type_hints(cls.__init__), f"backbone {kind}")
    backbone: Backbone = cls(task, output, **chosen)
    patterns = [part.pattern for part in backbone.modules() if isinstance(part, Attention)]
    if task.counts_steps and any(one.data_blocks is not None and not one.reads_values for one in patterns):
        raise UserError("blocks by the calendar need time stamps, but the series count steps: give lengths")
    return backbone


def network_name(description: Mapping[str, Any]) -> str:
    """The name of a network in tables and run folders: kinds of backbone and attention, e.g. ``transformer_mlr``.

    Args:
        description: a complete description, see `complete_backbone`.
    """
    return re.sub(r"[^\w.-]", "_", backbone_class(description["kind"]).title(description))


def complete_backbone(description: Description) -> dict[str, Any]:
    """Complete a description by the defaults of its kind and of its attention."""
    kind, cls, chosen = _parse(description)
    return {"kind": kind, **cls.complete(chosen)}


def backbone_class(kind: str) -> type[Backbone]:
    """The class of a kind or at an import path.

    Raises:
        UserError: for an unknown kind; the message lists the valid kinds.
    """
    from tsattn.backbones.base import Backbone

    return descriptions.class_of(kind, Backbone, what="backbone", table=_table(kind))


def _parse(description: Description) -> tuple[str, type[Any], dict[str, Any]]:
    kind, chosen = descriptions.named(description, what="backbone", table=BACKBONES)
    cls = backbone_class(kind)
    descriptions.check_names(chosen, descriptions.keyword_arguments(cls), f"backbone {kind}")
    return kind, cls, chosen


def _table(kind: str) -> dict[str, str]:
    """The table to look `kind` up in: backbones, or the network of a predictor, which messages do not list."""
    return {kind: PRETRAINED_NETWORKS[kind]} if kind in PRETRAINED_NETWORKS else BACKBONES


__getattr__ = descriptions.late(__name__, (*BACKBONES.values(), "tsattn.backbones.base.Backbone"))


def __dir__() -> list[str]:
    return __all__
