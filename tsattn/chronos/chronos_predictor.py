"""Forecast with pretrained weights: unchanged, with swapped attention, or fine-tuned."""

from __future__ import annotations

import importlib.util
import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

import torch
from torch import Tensor, nn
from typing_extensions import override

from tsattn import descriptions
from tsattn.attention import complete_attention
from tsattn.backbones.base import Backbone
from tsattn.backbones.task_network import Network, load_checkpoint, refuse_imports
from tsattn.batch import Batch
from tsattn.chronos.adapted import HELD_OUT, AdaptedChronos, adapt, add_biases, open_weights, rebuilt
from tsattn.chronos.conversions import CONVERSIONS
from tsattn.chronos.families import AttentionSite, ChronosFamily, Sampling, family_of
from tsattn.chronos.swapped_attention import SwappedAttention
from tsattn.descriptions import Description
from tsattn.errors import UserError, one_of, whole_number
from tsattn.predictors.base import AnyHorizon, Attending, Predictor, last_context
from tsattn.predictors.network import NetworkPredictor
from tsattn.task import Output, Task
from tsattn.training.execution import own_random_state

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import ForecastingModule, Training

logger = logging.getLogger("tsattn")

TRAINED = ("all", "attention", "lora")
_EVERY = "encoder"  # default of `where`
_BACKBONE = "network.backbone."  # prefix of the names in a state
_LEARNED_FROM = 512  # number of training windows for conversion and calibration


@dataclass(frozen=True, kw_only=True)
class ChronosOptions:
    """Pretrained weights, their changes before a fit, and the weights that a fit trains.

    Attributes:
        weights: the folder of a Chronos model, a folder that `AdaptedChronos.save` wrote, or a name on the hub, such as
            ``amazon/chronos-bolt-small``.
        revision: the commit, tag or branch of a model on the hub.
        context_length: past steps to read if nothing is fitted; by default as many as the model can read.
        attention: the attention that replaces its self-attention, see `adapt`; None keeps the original.
        where: the layers to swap, see `adapt`, or to train if no layer is swapped. In an adapted folder the swapped
            layers are trained.
        convert: how to convert the weights of swapped layers, see `adapt`; in a fit `rotate` uses training windows.
        calibrate: number of steps in which swapped attention learns to reproduce the original's outputs on training
            windows, before any other training.
        trained: the weights to train: None keeps all, ``all`` trains all, ``attention`` only attention over time.
            ``lora`` trains low-rank adapters of its linear maps, by peft. Factors of structured scores (`btt`,
            `bilinear_mlr`, `mlbtc`) have no adapters and are trained.
        lora_rank: rank of these adapters; their outputs are doubled.
        num_samples: paths that Chronos-T5 draws for a series; the default is in the model's configuration.
        sampling_seed: seed of these paths, used for every series.

    Raises:
        UserError: for a value out of its range, or values that contradict each other.
    """

    weights: str
    revision: str | None = None
    context_length: int | None = None
    attention: Description | Sequence[Description] | None = None
    where: str | Sequence[int | str] = _EVERY
    convert: str = "copy"
    calibrate: int = 0
    trained: str | None = None
    lora_rank: int = 8
    num_samples: int | None = None
    sampling_seed: int = 1

    def __post_init__(self) -> None:
        least = {"context_length": 1, "num_samples": 1, "lora_rank": 1, "calibrate": 0, "sampling_seed": 0}
        for name, number in least.items():
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), least=number)
        if self.convert not in CONVERSIONS:
            raise UserError(f"convert must be one of {one_of(CONVERSIONS)}, not {self.convert!r}")
        if self.trained is not None and self.trained not in TRAINED:
            raise UserError(f"trained must be null or one of {one_of(TRAINED)}, not {self.trained!r}")
        if self.attention is None and (self.calibrate or self.convert != "copy"):
            name = "calibrate" if self.calibrate else "convert"
            raise UserError(f"{name} needs a swapped attention: give attention, or leave {name} out")
        if self.attention is None and self.trained not in ("attention", "lora") and self.where != _EVERY:
            raise UserError(
                "where needs attention, or trained: attention or lora; give one of these, or leave where out"
            )
        if self.attention is not None and self.convert == "fresh" and not self.is_fitted:
            raise UserError("convert: fresh starts with random attention weights: give trained or calibrate, too")
        if self.is_fitted and self.context_length is not None:
            raise UserError("a fitted Chronos takes data.context_length: leave context_length out of its description")

    @property
    def unfitted(self) -> ChronosOptions:
        """Options of the model before a fit; it keeps its attention if the swapped attention has fresh weights."""
        attention, convert = (None, "copy") if self.convert == "fresh" else (self.attention, self.convert)
        where = _EVERY if attention is None else self.where
        return replace(self, trained=None, calibrate=0, attention=attention, convert=convert, where=where)

    @property
    def is_fitted(self) -> bool:
        """Whether a fit changes weights, so that the state must be saved."""
        return self.trained is not None or self.calibrate > 0


class ChronosNetwork(Backbone):
    """A Chronos model that is fitted. Its state is the whole model, with its configuration.

    A context that is too long is cut to its last steps. Training covers the steps that the model forecasts at once; a
    longer horizon continues from the forecasts. Its arguments are `ChronosOptions`.
    """

    __signature__ = inspect.signature(ChronosOptions)  # descriptions read it

    emits_quantiles: ClassVar[bool] = True
    uses_covariates: ClassVar[bool] = True  # Chronos-2 does; for the others, the predictor has False
    has_own_loss: ClassVar[bool] = True
    record: Tensor
    # missing in an empty network
    model: nn.Module
    forecasts: ChronosFamily
    sites: list[AttentionSite]

    def __init__(self, task: Task, output: Output, **options: Any) -> None:
        super().__init__()
        self.options = ChronosOptions(**options)
        self.horizon = task.prediction_length
        self.levels = output.quantiles
        self._copies: dict[str, str] = {}
        self.register_buffer("record", torch.empty(0, dtype=torch.uint8))
        self.register_state_dict_post_hook(_without_copies)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_post_hook(_with_shared)  # type: ignore[no-untyped-call]
        if not self.record.is_meta:
            self._take(_converted(self.options))

    @classmethod
    @override
    def complete(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Complete all but attention, whose defaults depend on the model; it is only checked and gets its ``kind``."""

        def written(attention: Any) -> Any:
            if isinstance(attention, Sequence) and not isinstance(attention, str):
                return [written(one) for one in attention]
            complete_attention(attention)
            return dict(attention) if isinstance(attention, Mapping) else {"kind": attention}

        complete = {**descriptions.defaults(cls), **arguments}
        if "weights" not in complete:
            raise UserError(
                "predictor chronos needs weights: the folder of a Chronos model, or its name on the hub such as "
                "amazon/chronos-bolt-small"
            )
        attention = complete["attention"]
        return {**complete, "attention": None if attention is None else written(attention)}

    @classmethod
    @override
    def title(cls, description: Mapping[str, Any]) -> str:
        """As in `Backbone.title`, with the name of the weights instead of the kind."""
        return super().title({**description, "kind": Path(description["weights"]).name})

    @property
    def is_empty(self) -> bool:
        """Whether its state must still be loaded."""
        return "model" not in self._modules

    def prepare(self, series: Sequence[Tensor], seed: int, held_out: Sequence[Tensor] | None = None) -> None:
        """Convert and calibrate on training series `(length,)`; check on `held_out`, or on a part of the series."""
        horizon, longest = self.forecasts.steps_at_once, max(map(len, series), default=0)
        if series and longest <= horizon and self.forecasts.reads_future(self.sites):
            raise UserError(
                f"context_length + prediction_length must be more than {horizon}, the steps of the decoder of "
                f"{self.options.weights}, not {longest}: raise --data.context_length"
            )
        adapted = _converted(self.options, series, seed)
        if self.options.calibrate:
            adapted.calibrate(series, steps=self.options.calibrate, seed=seed, held_out=held_out)
        self._take(adapted)

    @override
    def own_loss(self, batch: Batch) -> Tensor:
        return self.forecasts.loss(batch)

    @override
    def forward(self, batch: Batch) -> Tensor:
        return self.forecasts.forecast(batch, self.horizon, self.levels)

    def _take(self, adapted: AdaptedChronos) -> None:
        _prepare_training(adapted, self.options)
        self.model, self.sites, self.forecasts = adapted.model, adapted.sites, _opened(adapted, self.options)
        self.forecasts.check_levels(self.levels, self.options.weights)
        first = {id(part): name for name, part in self.model.named_parameters()}
        every = self.model.named_parameters(remove_duplicate=False)
        self._copies = {name: first[id(part)] for name, part in every if first[id(part)] != name}
        self.model.train(self.training)
        self.record = torch.frombuffer(bytearray(json.dumps(adapted.record()).encode()), dtype=torch.uint8)

    @override
    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        found = state_dict.get(f"{prefix}record")
        if isinstance(found, Tensor):
            try:
                if self.is_empty:
                    record = json.loads(found.cpu().numpy().tobytes())
                    refuse_imports([swap["attention"] for swap in record["swaps"].values()], "the checkpoint")
                    self._take(rebuilt(record))
                inner = f"{prefix}model."
                add_biases(self.model, [name[len(inner) :] for name in state_dict if name.startswith(inner)])
            except UserError:
                raise
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise RuntimeError(f"its model cannot be built: {error}") from error
            state_dict |= {inner + copy: state_dict[inner + name] for copy, name in self._copies.items()}
            self.record = torch.empty_like(found)
        super()._load_from_state_dict(state_dict, prefix, *others)


class ChronosPredictor(AnyHorizon, NetworkPredictor):
    """A `ChronosNetwork` with the arguments of `ChronosOptions`.

    Without `trained` and `calibrate` it forecasts without a fit, with as much context as the model takes. Quantiles
    between the model's levels are interpolated; levels outside their range are refused. Horizons longer than the model
    forecasts at once continue from its forecasts.
    """

    def __init__(self, backbone: Description) -> None:
        super().__init__(backbone)
        descriptions.check_types(self.arguments, get_type_hints(ChronosOptions), "predictor chronos")
        self.options = ChronosOptions(**self.arguments)
        self.is_trained = self.options.trained is not None
        self.needs_fit = self.options.is_fitted
        self.reads_short = not self.needs_fit
        self.uses_covariates = True  # perhaps, until the weights are known
        self._unfitted: ChronosFamily | None = None

    @property
    def forecasts(self) -> ChronosFamily:
        """The fitted model, or the model before a fit."""
        if self._fitted is not None:
            return self._fitted.forecasts
        if self._unfitted is None:
            adapted = _converted(self.options.unfitted)
            adapted.model.eval().requires_grad_(False)
            self._unfitted = _opened(adapted, self.options)
        return self._unfitted

    @property
    def _fitted(self) -> ChronosNetwork | None:
        network = self.backbone if hasattr(self, "network") else None
        return network if isinstance(network, ChronosNetwork) and not network.is_empty else None

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
        """Number of trained parameters, or of all parameters if none is trained."""
        if not self.is_trained:
            return sum(part.numel() for part in self.forecasts.network.parameters())
        task = Task("weights", 1, 1, ("y",), "1", 1)
        network = self._fitted or ChronosNetwork(task, Output(), **self.arguments)
        return sum(part.numel() for part in network.parameters() if part.requires_grad)

    @property
    @override
    def summary(self) -> str:
        done = f", calibrated in {self.options.calibrate} steps" if self.options.calibrate else ""
        return f"{self.name}: {self.num_parameters:,} parameters, pretrained{done}"

    @override
    def pretraining(self, data: str) -> str:
        return "unknown"

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
    def forecast_to(self, batch: Batch, horizon: int) -> Tensor:
        context = last_context(batch, self.context_length)
        return self.forecasts.forecast(context, horizon, self.output.quantiles)

    @property
    @override
    def draws_paths(self) -> bool:
        return hasattr(self, "task") and self.forecasts.draws_paths

    @override
    def paths_to(self, batch: Batch, horizon: int, count: int, seeds: Sequence[int]) -> Tensor:
        return self.forecasts.paths(last_context(batch, self.context_length), horizon, count, seeds)

    @override
    def _module(self, data: ForecastDataModule, training: Training, *, empty: bool = False) -> ForecastingModule:
        module = super()._module(data, training, empty=empty)
        if not empty and isinstance(module.backbone, ChronosNetwork):
            self._prepare(module.backbone, data, training)
        return module

    @override
    def _started(self, training: Training) -> ChronosNetwork | None:
        """Build the network from the saved state only: the pretrained weights may no longer be available."""
        state = training.start
        if state is None and training.checkpoint is not None:
            state = load_checkpoint(training.checkpoint)["state_dict"]
        if state is None:
            return None
        with torch.device("meta"):
            network = ChronosNetwork(self.task, self.output, **self.arguments)
        own = {name: part for name, part in state.items() if name.startswith(_BACKBONE)}
        network.load_state_dict({name.removeprefix(_BACKBONE): part for name, part in own.items()})
        return network

    def _prepare(self, network: ChronosNetwork, data: ForecastDataModule, training: Training) -> None:
        """Convert and calibrate if either learns from training windows; not if the training continues from a state."""
        family = network.forecasts
        self._say_limits(family, training.say)
        self._find_covariates(family)
        if training.start is not None or training.checkpoint is not None:
            return
        learns = self.options.calibrate or self.options.convert == "rotate"
        if self.options.attention is None or not learns:
            return
        windows = self._windows(family, data)
        # hold out whole windows, as the channels of a window are often similar
        last = max(1, len(windows) // HELD_OUT) if self.options.calibrate and len(windows) > 1 else 0
        border = len(windows) - last
        series = [row for window in windows[:border] for row in window]
        latest = [row for window in windows[border:] for row in window]
        training.say(f"{self.name}: attention learns from {len(series)} training series")
        network.prepare(series, training.seed or 0, latest or None)

    def _windows(self, family: ChronosFamily, data: ForecastDataModule) -> list[list[Tensor]]:
        """Training windows in the order of time: for each, the rows of the channels that have values."""
        every = -(-len(data.windows("train", self.context_length)) // _LEARNED_FROM)
        windows: list[tuple[Tensor, list[Tensor]]] = []
        for batch in data.eval_dataloader("train", self.context_length, every=every):
            rows = family.rows(batch)
            times = batch.past.new_zeros(len(batch)) if batch.time is None else batch.time[:, -1]
            for time, window in zip(times, torch.cat([rows.past, rows.target], -1), strict=True):
                windows.append((time, [row for row in window if bool(row.isfinite().any())]))
        return [rows for _, rows in sorted(windows, key=lambda window: int(window[0])) if rows]

    def _say_limits(self, forecasts: ChronosFamily, say: Callable[[str], None]) -> None:
        """Say which past steps the model does not read, and whether it forecasts the horizon in parts."""
        L, T = self.task.context_length, self.task.prediction_length
        if self.needs_fit and forecasts.context_length < L:
            say(f"{self.name} uses the last {forecasts.context_length} of {L} past steps")
        if forecasts.steps_at_once < T:
            does = "is trained over" if self.is_trained else "forecasts"
            say(f"{self.name} {does} {forecasts.steps_at_once} of {T} steps at once, and continues from its forecasts")

    def _find_covariates(self, forecasts: ChronosFamily) -> None:
        self.uses_covariates = forecasts.takes_covariates
        unread = [*self.task.static]
        if forecasts.takes_covariates and self.task.covariate_categories:
            named = one_of(self.task.categories_by_covariate)
            raise UserError(f"{self.name} reads numeric covariates only, and {named} has categories: leave it out")
        if not forecasts.takes_covariates:
            unread = [*self.task.past_covariates, *self.task.future_covariates, *unread]
        if unread:
            logger.warning("%s does not use covariates: %s", self.name, one_of(unread))


def _opened(adapted: AdaptedChronos, options: ChronosOptions) -> ChronosFamily:
    if options.num_samples is not None and not adapted.family.draws_paths:
        raise UserError(
            f"num_samples is for Chronos-T5 only, and {options.weights} forecasts quantiles: leave num_samples out"
        )
    return family_of(adapted.pipeline, Sampling(options.num_samples, options.sampling_seed))


def _converted(options: ChronosOptions, series: Sequence[Tensor] | None = None, seed: int = 0) -> AdaptedChronos:
    """Open the weights, and swap the attention if `options` ask for it."""
    plain = open_weights(options.weights, options.revision)
    if options.attention is None:
        if plain.swaps and options.where != _EVERY:
            raise UserError(f"{options.weights} is adapted, so its swapped layers are trained: leave where out")
        return plain
    if plain.swaps:
        raise UserError(
            f"{options.weights} has a swapped attention already: leave attention out, or give the original weights"
        )
    data = series if options.convert == "rotate" else None
    return adapt(plain.pipeline, options.attention, options.where, options.convert, data=data, seed=seed)


def _prepare_training(adapted: AdaptedChronos, options: ChronosOptions) -> None:
    adapted.model.requires_grad_(options.trained == "all")
    if options.trained not in ("attention", "lora"):
        return
    paths = [site.path for site in adapted.sites or adapted.family.chosen_sites(options.where)]
    if options.trained == "attention":
        for path in paths:
            adapted.model.get_submodule(path).requires_grad_(True)
        return
    if importlib.util.find_spec("peft") is None:
        raise UserError("trained: lora needs peft: pip install 'tsattn[chronos]'")
    from peft import LoraConfig, inject_adapter_in_model

    maps, others = [], []
    for path in paths:
        module = adapted.model.get_submodule(path)
        for name, part in module.named_modules():
            if isinstance(part, nn.Linear):
                maps.append(f"model.{path}.{name}")
            elif isinstance(module, SwappedAttention) and name.startswith("attention"):
                # these are factors of structured scores, norms of queries and keys, and weights by position
                others += [*part.parameters(recurse=False)]
    config = LoraConfig(r=options.lora_rank, lora_alpha=2 * options.lora_rank, target_modules=maps)
    # in a container: peft asks a model of transformers for input embeddings, and some models have none
    inject_adapter_in_model(config, nn.ModuleDict({"model": adapted.model}))
    for part in others:
        part.requires_grad_(True)


def _without_copies(network: ChronosNetwork, state: dict[str, Any], prefix: str, _: Any) -> None:
    for name in network._copies:  # safetensors refuses to store a tensor twice
        del state[f"{prefix}model.{name}"]


def _with_shared(network: ChronosNetwork, _: Any) -> None:
    """Share the parameters again that an assignment of weights has separated."""
    for copy, name in network._copies.items():
        parent, _, last = copy.rpartition(".")
        setattr(network.model.get_submodule(parent), last, network.model.get_parameter(name))
