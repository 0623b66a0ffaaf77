"""The base class of backbones: a module from a batch to a forecast."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from tsattn import descriptions
from tsattn.attention import complete_attention
from tsattn.batch import Batch
from tsattn.errors import UserError


class Backbone(nn.Module, ABC):
    """Base class of networks that map a `Batch` to a forecast on the scale of the batch.

    Attributes:
        token: the meaning of a token of its attention, in one word.
        emits_quantiles: whether it can forecast the quantiles of its `Output`.
        emits_distributions: whether it can forecast the parameters of the distribution of its `Output`.
        uses_covariates: whether it uses all covariates and static columns of its task.
        has_own_loss: whether it is trained by `own_loss` only.
        is_pretrained: whether it starts from weights of its own.
    """

    token: ClassVar[str] = "token"
    emits_quantiles: ClassVar[bool] = False
    emits_distributions: ClassVar[bool] = False
    uses_covariates: ClassVar[bool] = False
    has_own_loss: ClassVar[bool] = False
    is_pretrained: ClassVar[bool] = False

    @classmethod
    def complete(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Complete the arguments of a description by all defaults, including the defaults of its attention."""
        complete = {**descriptions.defaults(cls), **arguments}
        if (attention := complete.get("attention")) is not None:
            is_list = isinstance(attention, Sequence) and not isinstance(attention, str)
            complete["attention"] = [*map(complete_attention, attention)] if is_list else complete_attention(attention)
        return complete

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """The forecast of each window, `(B, T, C)`, or `(B, T, C, Q)` for an output with Q quantiles.

        With a distribution, the result is its parameters `(B, T, C, P)`, see `tsattn.layers.OutputDistribution`.
        """

    @classmethod
    def title(cls, description: Mapping[str, Any]) -> str:
        """The name of a complete description in tables: its kind and the kinds of its attentions."""
        attention = description.get("attention") or []
        layers = attention if isinstance(attention, list) else [attention]
        return "_".join([description["kind"], *dict.fromkeys(layer["kind"] for layer in layers)])

    def token_ends(self, count: int) -> list[int | str] | None:
        """The last step of each of `count` tokens of its attention, or the name of a token; None if unknown.

        Step 0 is the last step of the context; earlier steps are negative.
        """
        return None

    def own_loss(self, batch: Batch) -> Tensor:
        """The training loss over the observed targets of a batch; used if `has_own_loss` is true."""
        raise NotImplementedError(f"{type(self).__name__} is trained by the losses of tsattn.training.losses")

    def warm_start(self, solve: Callable[[int], tuple[Tensor, Tensor, Tensor]]) -> None:
        """Start from a closed form; called once, before the first step.

        Args:
            solve: solves for the ridge of the training windows; see `tsattn.backbones.linear_path.Solve`.
        """


def check_sizes(*, dropout: float, **sizes: int | None) -> None:
    """Refuse sizes below 1 (None stands for a default), and a dropout that is not a probability below 1."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise UserError(f"{name} must be at least 1, not {size}")
    if not 0 <= dropout < 1:
        raise UserError(f"dropout must lie in [0, 1), not {dropout}")
