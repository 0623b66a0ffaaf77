"""A trained network: a backbone in the place of a predictor."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.backbones import backbone_class, build_backbone, complete_backbone, network_name
from tsattn.backbones.base import Backbone
from tsattn.batch import Batch
from tsattn.descriptions import Description
from tsattn.errors import UserError
from tsattn.layers import OutputDistribution, distribution
from tsattn.predictors.attending import Attending
from tsattn.predictors.base import Predictor
from tsattn.predictors.contexts import last_context
from tsattn.task import Output, Task
from tsattn.training.random_state import own_random_state

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import ForecastingModule, Training

__all__ = ["NetworkPredictor"]


class NetworkPredictor(Predictor):
    """A backbone and its weights.

    Args:
        backbone: its description.

    Attributes:
        backbone: None before `build`.
        family: of the distribution that it forecasts; None where it forecasts none.

    Raises:
        UserError: for a wrong kind or argument of the backbone or its attention.
    """

    is_trained = True

    def __init__(self, backbone: Description) -> None:
        self._description = complete_backbone(backbone)
        kind, *_ = self._description.values()
        super().__init__(**{name: value for name, value in self._description.items() if name != "kind"})
        cls = backbone_class(kind)
        self.emits_quantiles = cls.emits_quantiles
        self.emits_distributions = cls.emits_distributions
        self.uses_covariates = cls.uses_covariates
        self.family: OutputDistribution | None = None
        self.uses_weights = not cls.has_own_loss
        self.backbone: Backbone | None = None

    @property
    @override
    def description(self) -> dict[str, Any]:
        return self._description

    @property
    @override
    def name(self) -> str:
        """Kind of backbone and attention, e.g. ``transformer_mlr``."""
        return network_name(self.description)

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        if torch.get_default_dtype() != torch.float32:
            raise UserError(
                f"PyTorch's default dtype is {torch.get_default_dtype()}, but networks are trained and forecast in "
                "float32: call torch.set_default_dtype(torch.float32); trainer.precision chooses another for training"
            )
        # on the device meta weights have shapes alone; constants, which no state holds, are filled in when first used
        with torch.device("meta") if empty else nullcontext():
            backbone = build_backbone(self.description, task, output)
        self.task, self.output, self.backbone, self.family = task, output, backbone, distribution(output)

    @property
    @override
    def forecasts_counts(self) -> bool:
        return self.family is not None and self.family.are_counts and bool(self.output and self.output.quantiles)

    @property
    @override
    def num_parameters(self) -> int:
        return sum(weight.numel() for weight in self.parameters() if weight.requires_grad)

    @override
    def attending(self) -> dict[str, Attending]:
        assert self.backbone is not None, "build(task, output) comes first"
        return {"": Attending(self.backbone, self.backbone.token, self.backbone.token_ends)}

    @override
    def check_fit(self, data: ForecastDataModule, training: Training) -> None:
        from tsattn.data.counts import check_distribution
        from tsattn.training import check_training

        super().check_fit(data, training)
        assert self.output is not None
        check_distribution(self.output, data)
        # the plan of a training is noted in its data
        check_training(self._module(data, training, empty=True), data.with_context(data.context_length), training)

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        from tsattn.training import train  # what is only loaded needs no Lightning

        with own_random_state(training.seed):
            module = self._module(data, training)
            if training.start is not None:
                module.load_state_dict(training.start)
            facts = train(module, data, training)
        self.backbone = module.backbone
        return facts

    @override
    def forward(self, batch: Batch) -> Tensor:
        assert self.output is not None
        made = self.parameters_of(batch)
        return made if self.family is None else self.family.forecast(made, self.output.quantiles, batch)

    def parameters_of(self, batch: Batch) -> Tensor:
        """What its backbone gives: the parameters `(B, T, C, P)` of its distribution; the forecast without one."""
        assert self.backbone is not None, "build(task, output) comes first"
        made: Tensor = self.backbone(last_context(batch, self.context_length))
        return made

    def _module(self, data: ForecastDataModule, training: Training, *, empty: bool = False) -> ForecastingModule:
        """What is trained, with new weights, or shapes alone."""
        from tsattn.training import ForecastingModule

        assert self.task is not None, "build(task, output) comes first"
        assert data.scaler is not None
        module = ForecastingModule(self.description, **training.options)
        with torch.device("meta") if empty else nullcontext():
            module.build(self.task, data.scaler, None if empty else self._started(training))
        return module

    def _started(self, training: Training) -> Backbone | None:
        """The network with the weights that a training starts from, where a new one costs more than to fill it."""
        return None
