"""A Chronos model as a network that the engine trains and keeps, with its attention swapped or as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from tsattn import descriptions
from tsattn.backbones.base import Backbone
from tsattn.batch import Batch
from tsattn.chronos.adapted_chronos import AdaptedChronos
from tsattn.chronos.adapting import adapt
from tsattn.chronos.bolt.bolt_file import read_model
from tsattn.chronos.converting.activations import reads_future
from tsattn.chronos.forecasting.chronos_forecasts import ChronosForecasts
from tsattn.chronos.forecasting.chronos_options import EVERY, ChronosOptions, plain_attention
from tsattn.chronos.forecasting.native_bolt import NativeBolt
from tsattn.chronos.forecasting.path_sampling import Sampling
from tsattn.chronos.forecasting.pipeline_forecasts import PipelineForecasts
from tsattn.chronos.forecasting.trained_parts import prepare_training
from tsattn.chronos.models.named_weights import bolt_file
from tsattn.chronos.opened_weights import open_weights
from tsattn.chronos.saving import add_biases, plain_record, rebuilt
from tsattn.descriptions import Description, refuse_imports
from tsattn.errors import UserError
from tsattn.task import MEDIAN, Output, Task

__all__ = ["ChronosNetwork"]


class ChronosNetwork(Backbone):
    """Pretrained weights, what is done to them before a fit, and what a fit changes.

    Its state is empty where nothing is fitted: the weights are those of their file or folder. Else it is the whole
    model, with the swap and the configuration as a text beside the weights: it is built again from that alone.

    Args:
        task: the sizes. A longer context than the model's is cut to its last steps; a longer horizon is trained over
            the steps that the model forecasts at once, and forecast by going on from its forecasts.
        output: the quantiles to forecast; none for the median.
        weights: the name of a model that comes with the package, ``chronos-tiny``; the path of a ``.safetensors`` file
            of `tsattn.chronos.bolt.bolt_file`; the folder of a Chronos model, or one of `AdaptedChronos.save`; or a
            name on the hub. All but the first two, and all that is adapted or fitted, need the extra `chronos`.
        revision: the commit, tag or branch of a model on the hub.
        context_length: past steps that it looks at, where nothing is fitted; as many as it can by default.
        attention: takes the place of its self-attention, see `adapt`; None leaves that as it is.
        where: the layers whose attention is swapped, see `adapt`, or trained where none is; of an adapted folder the
            swapped ones are trained.
        convert: what becomes of their weights, see `adapt`; `rotate` learns from training windows where it is fitted.
        calibrate: steps in which swapped attention learns to give the original's outputs on training windows, before
            anything else is trained.
        trained: None leaves the weights as they are; ``all`` trains them, ``attention`` those of attention over time
            alone, and ``lora`` low-rank adapters of its linear maps, by peft, and what of it is none: the factors of
            structured scores (`btt`, `bilinear_mlr`, `mlbtc`), which no adapter stands beside.
        lora_rank: of these adapters, whose outputs are doubled.
        num_samples: paths that Chronos-T5 draws for a series; as many as the model says by default.
        sampling_seed: of these, for every series anew: other series beside it decide nothing.

    Raises:
        UserError: for weights that are not there, or arguments that do not go with them.
    """

    emits_quantiles: ClassVar[bool] = True
    uses_covariates: ClassVar[bool] = True  # Chronos-2 does; that the others do not, their predictor says
    has_own_loss: ClassVar[bool] = True
    record: Tensor

    def __init__(
        self,
        task: Task,
        output: Output,
        *,
        weights: str = "chronos-tiny",
        revision: str | None = None,
        context_length: int | None = None,
        attention: Description | Sequence[Description] | None = None,
        where: str | Sequence[int | str] = "encoder",
        convert: str = "copy",
        calibrate: int = 0,
        trained: str | None = None,
        lora_rank: int = 8,
        num_samples: int | None = None,
        sampling_seed: int = 1,
    ) -> None:
        super().__init__()
        self.options = ChronosOptions(
            weights=weights,
            revision=revision,
            context_length=context_length,
            attention=attention,
            where=where,
            convert=convert,
            calibrate=calibrate,
            trained=trained,
            lora_rank=lora_rank,
            num_samples=num_samples,
            sampling_seed=sampling_seed,
        )
        self.horizon = task.prediction_length
        self.levels = output.quantiles
        self.model: nn.Module | None = None
        self._forecasts: tuple[ChronosForecasts, ...] = ()  # no submodule: what is not fitted is in no state
        self._adapted: tuple[AdaptedChronos, ...] = ()
        self._copies: dict[str, str] = {}
        if self.options.is_fitted:
            self.register_buffer("record", torch.empty(0, dtype=torch.uint8))
            self.register_state_dict_post_hook(_without_copies)  # type: ignore[no-untyped-call]
            self.register_load_state_dict_post_hook(_with_shared)  # type: ignore[no-untyped-call]
            if not self.record.is_meta:
                self._take(opened(self.options))

    @classmethod
    @override
    def complete(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Attention stays as it is written, with its ``kind``."""
        complete = {**descriptions.defaults(cls), **arguments}
        return {**complete, "attention": plain_attention(complete["attention"])}

    @classmethod
    @override
    def title(cls, description: Mapping[str, Any]) -> str:
        """The name of the weights in the place of the kind."""
        own = Path(description["weights"]).name.removesuffix(".safetensors")
        return super().title({**description, "kind": own})

    @property
    def forecasts(self) -> ChronosForecasts:
        """What forecasts; where nothing is fitted, the weights are opened now.

        Raises:
            UserError: where the weights are not there.
        """
        if not self._forecasts:
            if self.options.is_fitted:
                raise UserError("the model is not fitted yet")
            self._forecasts = (unfitted(self.options),)
        return self._forecasts[0]

    def share(self, *opened: ChronosForecasts) -> None:
        """Take weights that are open already, if there are any, where nothing is fitted."""
        self._forecasts = opened

    def prepare(self, series: Sequence[Tensor], seed: int, held_out: Sequence[Tensor] | None = None) -> None:
        """Convert and calibrate on series of the training part.

        Args:
            series: each `(length,)`, missing values as NaN.
            seed: of what is drawn.
            held_out: series that calibration is checked on; by default a part of the others.

        Raises:
            UserError: where a decoder learns from values to come, and the series have none.
        """
        self._check_lengths(series)
        adapted = opened(self.options, series, seed)
        if self.options.calibrate:
            adapted.calibrate(series, steps=self.options.calibrate, seed=seed, held_out=held_out)
        self._take(adapted)

    def _check_lengths(self, series: Sequence[Tensor]) -> None:
        (adapted,), horizon = self._adapted, self.forecasts.steps_at_once
        longest = max(map(len, series), default=0)
        if series and longest <= horizon and reads_future(adapted.family, adapted.sites):
            raise UserError(
                f"context_length + prediction_length must be more than {horizon}, the steps that the decoder of "
                f"{self.options.weights} forecasts, for it to learn from training windows; they have {longest}"
            )

    @override
    def own_loss(self, batch: Batch) -> Tensor:
        """The original's: cross-entropy of tokens for Chronos-T5, quantile loss of all its levels for the others."""
        forecasts = self.forecasts
        assert isinstance(forecasts, PipelineForecasts)
        return forecasts.loss(batch)

    @override
    def forward(self, batch: Batch) -> Tensor:
        return self.forecast_to(batch, self.horizon)

    def forecast_to(self, batch: Batch, horizon: int) -> Tensor:
        """The forecast of `horizon` steps, see `forward`."""
        forecast = self.forecasts.quantiles(batch, horizon, self.levels or (MEDIAN,))
        return forecast if self.levels else forecast[..., 0]

    def _take(self, adapted: AdaptedChronos) -> None:
        """Make a model that is whole one's own."""
        self.model = adapted.model
        adapted.original = None
        prepare_training(adapted, self.options.trained, self.options.where, self.options.lora_rank)
        forecasts = PipelineForecasts(adapted.pipeline, adapted.family, _sampling(self.options))
        _check_paths(forecasts, self.options)
        forecasts.check_levels(self.levels, self.options.weights)
        self._adapted, self._forecasts = (adapted,), (forecasts,)
        self._copies = shared_names(adapted.model)
        adapted.model.train(self.training)
        text = json.dumps(plain_record(adapted)).encode()
        self.record = torch.frombuffer(bytearray(text), dtype=torch.uint8)

    @override
    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        found = state_dict.get(f"{prefix}record")
        if isinstance(found, Tensor):
            try:
                if self.model is None:
                    record = json.loads(found.cpu().numpy().tobytes())
                    refuse_imports([swap["attention"] for swap in record["swaps"].values()], "the checkpoint")
                    self._take(rebuilt(record))
                assert self.model is not None
                inner = f"{prefix}model."
                add_biases(self.model, [name[len(inner) :] for name in state_dict if name.startswith(inner)])
            except UserError:
                raise
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise RuntimeError(f"its model cannot be built: {error}") from error
            state_dict |= {
                f"{prefix}model.{copy}": state_dict[f"{prefix}model.{name}"] for copy, name in self._copies.items()
            }
            self.record = torch.empty_like(found)
        super()._load_from_state_dict(state_dict, prefix, *others)


def opened(options: ChronosOptions, series: Sequence[Tensor] | None = None, seed: int = 0) -> AdaptedChronos:
    """The weights with the attention swapped that is asked for, as the adapter leaves them."""
    plain = open_weights(options.weights, options.revision)
    if options.attention is None:
        if plain.swaps and options.where != EVERY:
            raise UserError(
                f"{options.weights} is adapted: its swapped layers are those that are trained; leave where out"
            )
        return plain
    if plain.swaps:
        raise UserError(
            f"{options.weights} is adapted already, by attention of its own: leave attention out, or give the weights "
            "that it was made of"
        )
    data = series if options.convert == "rotate" else None
    return adapt(plain.pipeline, options.attention, options.where, options.convert, data=data, seed=seed)


def unfitted(options: ChronosOptions) -> ChronosForecasts:
    """Forecasts by weights that nothing changes.

    Raises:
        UserError: where the weights are not there, or do not look back so far.
    """
    file = bolt_file(options.weights, options.revision)
    forecasts: ChronosForecasts
    if file is not None and options.attention is None:
        forecasts = NativeBolt(file, read_model(file))
    else:
        adapted = opened(options)
        adapted.model.eval().requires_grad_(False)
        forecasts = PipelineForecasts(adapted.pipeline, adapted.family, _sampling(options))
    _check_paths(forecasts, options)
    return forecasts


def _check_paths(forecasts: ChronosForecasts, options: ChronosOptions) -> None:
    """Refuse a number of paths for a model that draws none."""
    if options.num_samples is not None and forecasts.levels is not None:
        raise UserError(
            f"num_samples is of Chronos-T5, which draws paths: {options.weights} gives quantiles; leave num_samples out"
        )


def shared_names(model: nn.Module) -> dict[str, str]:
    """The names of parameters that are others' too, and the first name of each."""
    first = {id(part): name for name, part in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    return {name: first[id(part)] for name, part in every if first[id(part)] != name}


def _sampling(options: ChronosOptions) -> Sampling:
    return Sampling(options.num_samples, options.sampling_seed)


def _without_copies(network: ChronosNetwork, state: dict[str, Any], prefix: str, _: Any) -> None:
    """A parameter is kept once: files of safetensors hold no tensor twice."""
    for name in network._copies:
        del state[f"{prefix}model.{name}"]


def _with_shared(network: ChronosNetwork, _: Any) -> None:
    """What was one parameter before weights were assigned is one again."""
    for copy, name in network._copies.items():
        assert network.model is not None
        parent, _, last = copy.rpartition(".")
        setattr(network.model.get_submodule(parent), last, network.model.get_parameter(name))
