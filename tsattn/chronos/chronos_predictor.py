"""Forecasts by pretrained weights: as they are, with their attention swapped, or fine-tuned."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_type_hints

import torch
from torch import Tensor
from typing_extensions import override

from tsattn import descriptions
from tsattn.backbones.task_network import Network, load_checkpoint
from tsattn.batch import Batch
from tsattn.chronos.bolt.bolt_file import read_model
from tsattn.chronos.calibration import HELD_OUT
from tsattn.chronos.chronos_network import ChronosNetwork, ChronosOptions, open_unfitted
from tsattn.chronos.families import ChronosFamily
from tsattn.chronos.open_models import OpenModel, Sampling
from tsattn.chronos.opening import NamedWeights
from tsattn.descriptions import Description
from tsattn.errors import UserError, one_of
from tsattn.predictors.base import AnyHorizon, Attending, Predictor, last_context
from tsattn.predictors.network import NetworkPredictor
from tsattn.task import Output, Task
from tsattn.training.execution import own_random_state

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Execution, ForecastingModule, Training

__all__ = ["ChronosPredictor"]

logger = logging.getLogger("tsattn")

_BACKBONE = "network.backbone."  # what the names of a state begin with
_LEARNED_FROM = 512  # training windows that conversion and calibration see


class ChronosPredictor(NetworkPredictor, AnyHorizon):
    """A `ChronosNetwork` with the arguments of `ChronosOptions`.

    Without `trained` and `calibrate` it forecasts without a fit, with as much context as the model takes. Quantiles
    between the model's levels are interpolated, and those beyond the outermost refused. Its family continues horizons
    beyond what it forecasts at once.
    """

    def __init__(self, backbone: Description) -> None:
        super().__init__(backbone)
        descriptions.check_types(self.arguments, get_type_hints(ChronosOptions), "predictor chronos")
        self.options = ChronosOptions(**self.arguments)
        self.is_trained = self.options.trained is not None
        self.needs_fit = self.options.is_fitted
        self.uses_covariates = False  # until the weights are known
        self._unfitted: OpenModel | None = None

    @property
    def forecasts(self) -> OpenModel:
        """The open model, or what it is before anything is fitted."""
        network = self._chronos
        if network is not None and network.model is not None:
            return network.forecasts
        if self._unfitted is None:
            self._unfitted = open_unfitted(self.options.unfitted)
        return self._unfitted

    @property
    def _chronos(self) -> ChronosNetwork | None:
        """The network, once built; there is one only where something is fitted."""
        if not hasattr(self, "network"):
            return None
        assert isinstance(self.backbone, ChronosNetwork)
        return self.backbone

    @property
    @override
    def context_length(self) -> int:
        if self.needs_fit:
            return self.task.context_length
        own = self.options.context_length
        return self.forecasts.context_length if own is None else own

    @override
    def with_context(self, context_length: int) -> Predictor:
        if self.needs_fit or self.options.context_length is not None:
            return self
        return type(self)({**self.description, "context_length": context_length})

    @property
    @override
    def steps_at_once(self) -> int:
        return self.forecasts.steps_at_once

    @property
    @override
    def num_parameters(self) -> int:
        """Of the whole network, or those that are trained."""
        network = self._chronos
        if not self.is_trained:
            return sum(part.numel() for part in self.forecasts.network.parameters())
        if network is None or network.model is None:
            network = ChronosNetwork(Task("weights", 1, 1, ("y",), "1", 1), Output(), **self.arguments)
        return sum(part.numel() for part in network.parameters() if part.requires_grad)

    @property
    @override
    def summary(self) -> str:
        done = f", calibrated in {self.options.calibrate} steps" if self.options.calibrate else ""
        return f"{self.name}: {self.num_parameters:,} parameters, pretrained{done}"

    @override
    def pretraining(self, data: str) -> str:
        try:
            file = NamedWeights.of(self.options.weights).file
            known = None if file is None else read_model(file).trained_on
        except UserError:  # a predictor that was saved outlives the file that it began with
            known = None
        if known is None:
            return "unknown"
        return "seen" if data in known else "unseen"

    @override
    def attending(self) -> dict[str, Attending]:
        forecasts = self.forecasts
        return {"": Attending(forecasts.network, forecasts.token, forecasts.token_ends)}

    @override
    def check_output(self, output: Output) -> None:
        super().check_output(output)
        if not self.needs_fit:
            self.forecasts.check_levels(output.quantiles, self.name)

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        if self.needs_fit:
            self.check_output(output)
            super().build(task, output, empty=empty)
            return
        Predictor.build(self, task, output)
        most = self.forecasts.context_length
        if self.context_length > most:
            raise UserError(f"context_length of {self.name} must be at most {most}, not {self.context_length}")
        self._find_covariates(self.forecasts)

    @override
    def check_export(self) -> None:
        self.refuse_export()

    @override
    def check_fit(self, data: ForecastDataModule, training: Training) -> None:
        if self.is_trained:
            super().check_fit(data, training)
        else:
            Predictor.check_fit(self, data, training)

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        if self.is_trained:
            return super().fit(data, training)
        if self.needs_fit:
            with own_random_state(training.seed):
                network = ChronosNetwork(self.task, self.output, **self.arguments)
                self._prepare(network, data, training)
            self.network = Network(self.description, self.task, self.output, network)
        else:
            self._say_limits(self.forecasts, training.say)
        return {}

    @override
    def on(self, execution: Execution, forecast: Callable[[Batch], Tensor] | None = None) -> Callable[[Batch], Tensor]:
        """On the device of the execution, trained or not."""
        return execution.forecaster(self, forecast)

    @override
    def forward(self, batch: Batch) -> Tensor:
        return self.forecast_to(batch, self.task.prediction_length)

    @override
    def forecast_to(self, batch: Batch, horizon: int) -> Tensor:
        context = last_context(batch, self.context_length)
        return self.forecasts.forecast(context, horizon, self.output.quantiles)

    @property
    @override
    def draws_paths(self) -> bool:
        return hasattr(self, "task") and self.forecasts.draws_paths

    @override
    def paths_to(self, batch: Batch, horizon: int, count: int, seed: int) -> Tensor:
        context = last_context(batch, self.context_length)
        return self.forecasts.paths(context, horizon, Sampling(count, seed))

    @override
    def _module(self, data: ForecastDataModule, training: Training, *, empty: bool = False) -> ForecastingModule:
        module = super()._module(data, training, empty=empty)
        if not empty:
            assert isinstance(module.backbone, ChronosNetwork)
            self._prepare(module.backbone, data, training)
        return module

    @override
    def _started(self, training: Training) -> ChronosNetwork | None:
        """Build from the state alone, since the weights that it began with may be gone."""
        state = training.start
        if state is None and training.checkpoint is not None:
            state = load_checkpoint(training.checkpoint)["state_dict"]
        if state is None:
            return None
        with torch.device("meta"):
            network = ChronosNetwork(self.task, self.output, **self.arguments)
        network.load_state_dict(
            {name.removeprefix(_BACKBONE): part for name, part in state.items() if name.startswith(_BACKBONE)}
        )
        return network

    def _prepare(self, network: ChronosNetwork, data: ForecastDataModule, training: Training) -> None:
        """Convert and calibrate on training windows, if either learns from them, unless that was done before."""
        family = network.forecasts
        self._say_limits(family, training.say)
        self._find_covariates(family)
        if training.start is not None or training.checkpoint is not None:
            return
        learns = self.options.calibrate or self.options.convert == "rotate"
        if self.options.attention is None or not learns:
            return
        windows = self._windows(family, data)
        # whole windows, since the channels of one are often alike
        last = max(1, len(windows) // HELD_OUT) if self.options.calibrate and len(windows) > 1 else 0
        border = len(windows) - last
        series = [row for window in windows[:border] for row in window]
        latest = [row for window in windows[border:] for row in window]
        training.say(f"{self.name}: attention learns from {len(series)} training series")
        network.prepare(series, training.seed or 0, latest or None)

    def _windows(self, family: ChronosFamily, data: ForecastDataModule) -> list[list[Tensor]]:
        """Training windows in the order of time, each with the rows of its channels that hold a value."""
        every = -(-len(data.windows("train", self.context_length)) // _LEARNED_FROM)
        windows = []
        for batch in data.eval_dataloader("train", self.context_length, every=every):
            rows = family.rows(batch)
            known = torch.cat([rows.past] if rows.target is None else [rows.past, rows.target], -1)
            assert batch.time is not None
            for time, window in zip(batch.time[:, -1].tolist(), known, strict=True):
                windows.append((time, [row for row in window if bool(row.isfinite().any())]))
        windows.sort(key=lambda window: window[0])
        return [rows for _, rows in windows if rows]

    def _say_limits(self, forecasts: OpenModel, say: Callable[[str], None]) -> None:
        """Tell what of the task the model does not read, or does in several steps."""
        task = self.task
        L, T = task.context_length, task.prediction_length
        if self.pretraining(task.data) == "seen":
            say(f"the pretraining of {self.name} saw the training part of the public data set {task.data}")
        if self.needs_fit and forecasts.context_length < L:
            say(f"{self.name} looks at the last {forecasts.context_length} of {L} past steps")
        if forecasts.steps_at_once < T:
            does = "is trained over" if self.is_trained else "forecasts"
            say(f"{self.name} {does} {forecasts.steps_at_once} of {T} steps at once, and goes on from its forecasts")

    def _find_covariates(self, forecasts: OpenModel) -> None:
        """Note whether covariates are used, and log those that are not."""
        self.uses_covariates = forecasts.takes_covariates
        unread = [*self.task.static]
        if forecasts.takes_covariates and self.task.covariate_categories:
            named = one_of(self.task.categories_by_covariate)
            raise UserError(f"{self.name} reads covariates of numbers alone, and {named} has categories: leave it out")
        if not forecasts.takes_covariates:
            unread = [*self.task.past_covariates, *self.task.future_covariates, *unread]
        if unread:
            logger.warning("%s leaves covariates unread: %s", self.name, one_of(unread))
