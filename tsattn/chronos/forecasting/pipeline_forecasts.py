"""Forecasts and training losses of a pipeline of chronos-forecasting, adapted or plain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.chronos.bolt.continued_quantiles import at_levels
from tsattn.chronos.forecasting.channel_rows import ChannelRows
from tsattn.chronos.forecasting.chronos_forecasts import ChronosForecasts
from tsattn.chronos.forecasting.family_tasks import TASKS
from tsattn.chronos.forecasting.path_sampling import Sampling
from tsattn.chronos.models.families import ChronosFamily
from tsattn.chronos.swapped.swapped_attention import SwappedAttention

__all__ = ["PipelineForecasts"]


class PipelineForecasts(ChronosForecasts):
    """What a pipeline's own `predict_quantiles` gives; quantiles that cross are sorted.

    Args:
        pipeline: of a family; its model goes to the device of what it is given.
        family: its family.
        sampling: of the paths, where the family draws some.
        context_length: past steps to look at; as many as the model can by default.
    """

    def __init__(
        self, pipeline: Any, family: ChronosFamily, sampling: Sampling, context_length: int | None = None
    ) -> None:
        task = TASKS[family.name]
        most = int(pipeline.model_context_length)
        length = most if context_length is None else context_length
        steps, levels = task.steps_at_once(pipeline), task.levels(pipeline)
        super().__init__(length, steps, levels, takes_covariates=task.takes_covariates)
        self.pipeline, self.task, self.sampling = pipeline, task, sampling

    @property
    @override
    def network(self) -> nn.Module:
        model: nn.Module = self.pipeline.inner_model
        return model

    @property
    @override
    def token(self) -> str:
        return self.task.token

    @override
    def token_ends(self, count: int) -> list[int | str] | None:
        """Of the encoder, where its attention is one of this package, which knows its special tokens."""
        swapped = (part for part in self.network.modules() if isinstance(part, SwappedAttention))
        layout = next((part.layout for part in swapped if part.layout is not None), None)
        if layout is None or count <= layout.special_tokens:
            return None
        steps, context = self.task.token_steps(self.pipeline), count - layout.special_tokens
        special = self.task.special_ends(self.pipeline, layout.special_tokens)
        return [*(steps * place for place in range(1 - context, 1)), *special]

    @override
    @torch.no_grad()
    def quantiles(self, batch: Batch, horizon: int, levels: Sequence[float]) -> Tensor:
        self.pipeline.inner_model.to(batch.past.device)
        rows = self.rows(batch)
        own = levels if self.levels is None else self.levels
        found = self.task.quantiles(self.pipeline, rows, horizon, own, self.sampling).sort(-1).values
        return rows.on_batch_scale(at_levels(found, own, levels), batch)

    @property
    @override
    def draws_paths(self) -> bool:
        return self.task.draws_paths

    @override
    @torch.no_grad()
    def paths(self, batch: Batch, horizon: int, count: int, seed: int) -> Tensor:
        self.pipeline.inner_model.to(batch.past.device)
        rows = self.rows(batch)
        drawn = self.task.paths(self.pipeline, rows, horizon, Sampling(count, seed))
        return rows.on_batch_scale(drawn, batch)

    def loss(self, batch: Batch) -> Tensor:
        """See `FamilyTask.loss`."""
        return self.task.loss(self.pipeline, self.rows(batch))

    def rows(self, batch: Batch) -> ChannelRows:
        """The series of a batch as the model takes them."""
        task = self.task
        return ChannelRows.of(batch, self.context_length, covariates=task.takes_covariates, level=task.depends_on_level)
