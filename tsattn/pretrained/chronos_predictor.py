"""Forecasts of a pretrained model, which needs no fit."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from einops import rearrange
from torch import Tensor
from typing_extensions import override

from tsattn.backbones.bolt import ChronosBolt
from tsattn.batch import Batch
from tsattn.errors import UserError, whole_number
from tsattn.predictors.any_horizon import AnyHorizon
from tsattn.predictors.contexts import last_context
from tsattn.pretrained.bolt_file import BoltModel, find_weights, load_bolt, read_model
from tsattn.pretrained.continued_quantiles import at_levels, continued_quantiles
from tsattn.task import MEDIAN, Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training

__all__ = ["ChronosPredictor"]

_ROWS = 1024  # series that are forecast at once: what bounds the memory


class ChronosPredictor(AnyHorizon):
    """A pretrained model forecasts every channel by itself, without a fit and without covariates.

    Horizons beyond its own are continued from its own quantiles; quantiles between its levels are interpolated, and
    those beyond the outermost refused; quantiles that cross are put in order. Contexts are padded and cut as it needs
    them.

    Args:
        weights: the name of a model that comes with the package, ``chronos-tiny``, or the path of a ``.safetensors``
            file as `tsattn.pretrained.bolt_file` writes it.
        context_length: past steps that it looks at; as many as it can by default.

    Raises:
        UserError: for a context of no step, or of more than the model takes.
    """

    needs_fit = False
    emits_quantiles = True
    takes_short_contexts = True

    def __init__(self, *, weights: str = "chronos-tiny", context_length: int | None = None) -> None:
        super().__init__(weights=weights, context_length=context_length)
        self.weights = weights
        self._own_length = None if context_length is None else whole_number("context_length", context_length)
        self._loaded: tuple[ChronosBolt, ...] = ()  # no submodule: nothing of it is fitted, so no state holds it

    @cached_property
    def path(self) -> Path:
        """The file of the weights."""
        return find_weights(self.weights)

    @cached_property
    def model(self) -> BoltModel:
        """What the file says of the model."""
        model = read_model(self.path)
        if self._own_length is not None and self._own_length > model.context_length:
            raise UserError(
                f"context_length of {self.name} must be at most {model.context_length}, not {self._own_length}"
            )
        return model

    @property
    @override
    def name(self) -> str:
        """That of the weights."""
        return re.sub(r"[^\w.-]", "_", Path(self.weights).name.removesuffix(".safetensors"))

    @property
    @override
    def context_length(self) -> int:
        return self.model.context_length if self._own_length is None else self._own_length

    @property
    @override
    def steps_at_once(self) -> int:
        return self.model.prediction_length

    @property
    @override
    def num_parameters(self) -> int:
        """Of the pretrained network."""
        return sum(part.numel() for part in self.network.parameters())

    @property
    @override
    def summary(self) -> str:
        return f"{self.name}: {self.num_parameters:,} parameters, pretrained"

    @property
    def network(self) -> ChronosBolt:
        """The network, read when it is first asked for."""
        if not self._loaded:
            self._loaded = (load_bolt(self.path),)
        return self._loaded[0]

    @override
    def check_output(self, output: Output) -> None:
        super().check_output(output)
        own = self.model.quantiles
        outside = [level for level in output.quantiles if not own[0] <= level <= own[-1]]
        if outside:
            raise UserError(f"{self.name} forecasts quantiles from {own[0]} to {own[-1]}: {outside[0]} lies outside")

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        super().build(task, output)

    @override
    def fit(self, data: ForecastDataModule, training: Training | None = None) -> dict[str, Any]:
        return {}

    @override
    @torch.no_grad()
    def forecast_to(self, batch: Batch, horizon: int) -> Tensor:
        assert self.output is not None, "build(task, output) comes first"
        batch = last_context(batch, self.context_length)
        network = self.network.to(batch.past.device, batch.past.dtype)
        context = rearrange(batch.past, "B L C -> (B C) L")
        observed = None if batch.past_observed is None else rearrange(batch.past_observed, "B L C -> (B C) L")
        asked = self.output.quantiles or (MEDIAN,)
        parts = []
        for first in range(0, len(context), _ROWS):
            rows = slice(first, first + _ROWS)
            known = None if observed is None else observed[rows]
            own, most = self.model.quantiles, self.model.context_length
            raw = continued_quantiles(network, own, *_from_first(context[rows], known), most, horizon)
            parts.append(at_levels(raw.sort(1).values, own, asked))
        forecast = rearrange(torch.cat(parts), "(B C) Q T -> B T C Q", C=batch.past.shape[-1]).to(batch.past.dtype)
        return forecast if self.output.quantiles else forecast[..., 0]


def _from_first(context: Tensor, observed: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The same without the steps at the front in which no series was observed, but for one: they decide nothing."""
    if observed is None:
        return context, None
    seen = observed.any(0)
    first = int(seen.int().argmax()) if bool(seen.any()) else len(seen) - 1
    return context[:, first:], observed[:, first:]
