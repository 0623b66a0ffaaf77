"""What forecasts by a Chronos model, whoever computes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn

from tsattn.batch import Batch
from tsattn.errors import UserError

__all__ = ["ROWS_AT_ONCE", "ChronosForecasts"]

ROWS_AT_ONCE = 1024  # series that are forecast at once: what bounds the memory


class ChronosForecasts(ABC):
    """Quantiles of any horizon.

    Args:
        context_length: the most past steps that the model looks at; of a longer context it sees the last ones.
        steps_at_once: the longest horizon of one pass; a longer one is continued from the forecasts themselves.
        levels: the quantile levels that the model forecasts, between which others are interpolated; None for a model
            that draws samples, and so has every level.
        takes_covariates: whether past and future covariates are used; static columns never are.
    """

    def __init__(
        self, context_length: int, steps_at_once: int, levels: tuple[float, ...] | None, *, takes_covariates: bool
    ) -> None:
        self.context_length = context_length
        self.steps_at_once = steps_at_once
        self.levels = levels
        self.takes_covariates = takes_covariates

    @property
    @abstractmethod
    def network(self) -> nn.Module:
        """What forecasts."""

    @property
    @abstractmethod
    def token(self) -> str:
        """What a token of its attention is, in one word."""

    @abstractmethod
    def token_ends(self, count: int) -> list[int | str] | None:
        """See `tsattn.backbones.base.Backbone.token_ends`."""

    @property
    def num_parameters(self) -> int:
        """Of the network."""
        return sum(part.numel() for part in self.network.parameters())

    @abstractmethod
    def quantiles(self, batch: Batch, horizon: int, levels: Sequence[float]) -> Tensor:
        """`(B, horizon, C, Q)` on the scale of the batch, rising with the levels."""

    @property
    def draws_paths(self) -> bool:
        """Whether its forecasts are those of paths that it draws."""
        return False

    def paths(self, batch: Batch, horizon: int, count: int, seed: int) -> Tensor:
        """Paths `(B, horizon, C, count)` on the scale of the batch, of a model that draws some."""
        raise NotImplementedError(f"{type(self).__name__} draws no paths")

    def check_levels(self, asked: Sequence[float], name: str) -> None:
        """Refuse levels beyond the outermost of the model's own.

        Raises:
            UserError: naming the first.
        """
        own = self.levels
        if own is None:
            return
        outside = [level for level in asked if not own[0] <= level <= own[-1]]
        if outside:
            raise UserError(f"{name} forecasts quantiles from {own[0]} to {own[-1]}: {outside[0]} lies outside")
