"""The base class of backbones: a module from a batch to a forecast."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from tsattn import descriptions
from tsattn.attention import complete_attention
from tsattn.batch import Batch
from tsattn.errors import UserError


class Backbone(nn.Module, ABC):
    """Base class of networks that map a `Batch` to a forecast on the scale of the batch.

    Attributes:
        token: what a token of its attention is, in one word.
        emits_quantiles: whether it forecasts the quantiles of its `Output`, where that has some.
        emits_distributions: whether it forecasts the parameters of the distribution of its `Output`, where that has
            one.
        uses_covariates: whether it uses all covariates and static columns of its task, where that has some.
        has_own_loss: whether it is trained by `own_loss`, and by no other.
    """

    token: ClassVar[str] = "token"
    emits_quantiles: ClassVar[bool] = False
    emits_distributions: ClassVar[bool] = False
    uses_covariates: ClassVar[bool] = False
    has_own_loss: ClassVar[bool] = False

    @classmethod
    def complete(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a description with all defaults written out, those of its attention included."""
        complete = {**descriptions.defaults(cls), **arguments}
        if (attention := complete.get("attention")) is not None:
            is_list = isinstance(attention, Sequence) and not isinstance(attention, str)
            complete["attention"] = [*map(complete_attention, attention)] if is_list else complete_attention(attention)
        return complete

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """The forecast of each window, `(B, T, C)`; `(B, T, C, Q)` where Q quantiles are asked for.

        Where a distribution is asked for, its parameters `(B, T, C, P)`, see `tsattn.layers.OutputDistribution`.
        """

    @classmethod
    def title(cls, description: Mapping[str, Any]) -> str:
        """The kind and attention of a complete description, as tables show them."""
        attention = description.get("attention") or []
        layers = attention if isinstance(attention, list) else [attention]
        return "_".join([description["kind"], *dict.fromkeys(layer["kind"] for layer in layers)])

    def token_ends(self, count: int) -> list[int | str] | None:
        """The step with which each of `count` tokens of its attention ends, or the name of a token; None if unknown.

        Steps count from the last one of the context, which is 0; earlier ones are negative.
        """
        return None

    def own_loss(self, batch: Batch) -> Tensor:
        """The training loss over the observed targets of a batch, where `has_own_loss` is true."""
        raise NotImplementedError(f"{type(self).__name__} is trained by the losses of tsattn.training.losses")

    def warm_start(self, batches: Iterable[Batch]) -> None:
        """Start from a closed-form solution on the training windows; called once, before the first step."""


def check_sizes(*, dropout: float, **sizes: int | None) -> None:
    """Refuse sizes below 1 (None is a default), and a dropout that is no probability below 1."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise UserError(f"{name} must be at least 1, not {size}")
    if not 0 <= dropout < 1:
        raise UserError(f"dropout must lie in [0, 1), not {dropout}")
