"""A network as a predictor."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.backbones import Backbone, backbone_class, complete_backbone, network_name
from tsattn.backbones.task_network import Network
from tsattn.batch import Batch
from tsattn.descriptions import Description
from tsattn.errors import UserError
from tsattn.layers import distribution
from tsattn.predictors.base import Attending, Predictor, last_context
from tsattn.task import Output, Task
from tsattn.training.execution import own_random_state

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Execution, ForecastingModule, Training


class NetworkPredictor(Predictor):
    """Network that a `ForecastingModule` trains; it is built from the description of its backbone."""

    is_trained = True
    network: Network  # once built

    def __init__(self, backbone: Description) -> None:
        self._description = complete_backbone(backbone)
        super().__init__(**{name: value for name, value in self._description.items() if name != "kind"})
        self._class = backbone_class(self._description["kind"])
        self.emits_quantiles = self._class.emits_quantiles
        self.uses_covariates = self._class.uses_covariates

    @property
    @override
    def description(self) -> dict[str, Any]:
        return self._description

    @property
    @override
    def name(self) -> str:
        return network_name(self.description)

    @override
    def check_output(self, output: Output) -> None:
        super().check_output(replace(output, distribution=None) if self._class.emits_distributions else output)

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        if torch.get_default_dtype() != torch.float32:
            raise UserError(
                f"PyTorch's default dtype is {torch.get_default_dtype()}, but networks are trained and forecast in "
                "float32: call torch.set_default_dtype(torch.float32); for training, see --trainer.precision"
            )
        # on the device meta weights have shapes alone; constants, which no state holds, are filled in when first used
        with torch.device("meta") if empty else nullcontext():
            self.network = Network(self.description, task, output)
        self.task, self.output = task, output

    @property
    def backbone(self) -> Backbone:
        """Backbone of the network, once built."""
        return self.network.backbone

    @property
    @override
    def forecasts_counts(self) -> bool:
        family = distribution(self.output)
        return family is not None and family.are_counts and bool(self.output.quantiles)

    @property
    @override
    def num_parameters(self) -> int:
        return sum(weight.numel() for weight in self.parameters() if weight.requires_grad)

    @override
    def attending(self) -> dict[str, Attending]:
        return {"": Attending(self.backbone, self.backbone.token, self.backbone.token_ends)}

    @override
    def check_weights(self, data: ForecastDataModule) -> None:
        if self._class.has_own_loss:
            super().check_weights(data)

    @override
    def check_fit(self, data: ForecastDataModule, training: Training) -> None:
        super().check_fit(data, training)
        if self.is_trained:
            from tsattn.training.train import plan_training  # a network that is only loaded needs no Lightning

            plan_training(data, training, self._module(data, training, empty=True))

    @override
    def on(self, execution: Execution, forecast: Callable[[Batch], Tensor] | None = None) -> Callable[[Batch], Tensor]:
        return execution.forecaster(self, forecast)  # on its device, trained or not

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        from tsattn.training.train import train

        super().check_fit(data, training)
        with own_random_state(training.seed):
            module = self._module(data, training)
            if training.start is not None:
                module.start_from(training.start)
            facts = train(module, data, training)
        self.network = module.network
        return facts if module.maps is None else {**facts, "chosen": {"maps": module.maps}}

    @override
    def forward(self, batch: Batch) -> Tensor:
        return self.network.forward(last_context(batch, self.context_length))

    def _module(self, data: ForecastDataModule, training: Training, *, empty: bool = False) -> ForecastingModule:
        from tsattn.training import ForecastingModule

        module = ForecastingModule(self.description, **training.options)
        with torch.device("meta") if empty else nullcontext():
            started = None if empty else self._started(training)
            network = Network(self.description, self.task, self.output, started)
            module.build(self.task, data.contents[2], network)
        return module

    def _started(self, training: Training) -> Backbone | None:
        """Return the backbone with the weights that a training starts from, if building a new one costs too much."""
        return None
