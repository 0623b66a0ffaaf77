"""Covariates as tokens of their own, for encoders whose tokens are whole series.

Shape letters as in `tsattn.layers.covariates`.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.layers.calendar_features import CalendarFeatures
from tsattn.layers.category_vectors import count_numbers
from tsattn.layers.covariates import Covariates
from tsattn.layers.dropout_layer import Dropout
from tsattn.task import Task

__all__ = ["CovariateTokens"]


class CovariateTokens(Covariates):
    """As `Covariates`, but the context of each covariate and calendar feature is a token beside those of the channels.

    The token is a linear map of its L steps, one for all covariates, plus a learned vector for each. Source: Liu et
    al., *iTransformer* (ICLR 2024), who embed the calendar so, by the map of the channels and without such vectors.
    Categories of the series and the horizon act as in `Covariates`.

    Args:
        task: names the P and F covariates, and the static columns with their categories.
        calendar: add the K `CalendarFeatures` of the task's frequency to the known-future covariates.
        d_model: D, the width of the tokens.
        num_outputs: numbers that the head gives for each step.
        dropout: probability of dropping a number of a token in training; see `HorizonEffect` too.

    Raises:
        UserError: for calendar features of a frequency that has none.
    """

    mup_roles: ClassVar[dict[str, str]] = {**Covariates.mup_roles, "which": "input"}

    def __init__(self, task: Task, calendar: bool, d_model: int, num_outputs: int, dropout: float) -> None:
        super().__init__(task, calendar, d_model, num_outputs, dropout)
        count = self.count(task, calendar)
        self.which = nn.Parameter(0.02 * torch.randn(count, d_model)) if count else None
        self.dropout = Dropout(dropout)

    @staticmethod
    def count(task: Task, calendar: bool) -> int:
        """Tokens that are added: P + F + K; of a covariate of categories one for each number of its vector."""
        features = CalendarFeatures(task.frequency).count if calendar else 0
        columns = len(task.past_covariates) + len(task.future_covariates)
        return count_numbers(task.covariate_categories, columns) + features

    @property
    def names(self) -> list[str]:
        """Of these tokens, in their order."""
        features = [] if self.calendar is None else self.calendar.names
        return [*self.task.past_covariates, *self.task.future_covariates, *features]

    def append(self, tokens: Tensor, batch: Batch) -> Tensor:
        """The tokens `(B, N, D)` and those of the covariates after them.

        Raises:
            UserError: for a batch without what the task names, or without time stamps for calendar features.
        """
        if self.value is None or self.which is None:
            return tokens
        further = self.dropout(self.value(self.context(batch).transpose(1, 2)) + self.which)
        return torch.cat([tokens, further], 1)

    @override
    def _embedding(self, num_context: int, d_model: int) -> nn.Linear:
        return nn.Linear(self.task.context_length, d_model, bias=False)
