"""A Chronos model as a network that the engine trains and keeps, with its attention swapped or as it is."""

from __future__ import annotations

import importlib.util
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from tsattn import descriptions
from tsattn.attention import complete_attention
from tsattn.backbones.base import Backbone
from tsattn.batch import Batch
from tsattn.chronos.adapted import AdaptedChronos, adapt, add_biases, open_weights, rebuilt
from tsattn.chronos.conversions import CONVERSIONS
from tsattn.chronos.families import AttentionSite, ChronosFamily, family_of
from tsattn.chronos.open_models import OpenModel, OwnBolt, Sampling
from tsattn.chronos.opening import NamedWeights
from tsattn.chronos.swapped_attention import SwappedAttention
from tsattn.descriptions import Description, refuse_imports
from tsattn.errors import UserError, one_of, whole_number
from tsattn.task import Output, Task

__all__ = ["ChronosNetwork", "ChronosOptions", "open_unfitted"]

TRAINED = ("all", "attention", "lora")
_EVERY = "encoder"  # what `where` is by default


@dataclass(frozen=True, kw_only=True)
class ChronosOptions:
    """Pretrained weights, what happens to them before a fit, and what a fit changes.

    Attributes:
        weights: a shipped name, ``chronos-tiny``; the path of a ``.safetensors`` file of
            `tsattn.chronos.bolt.bolt_file`; the folder of a Chronos model, or of `AdaptedChronos.save`; or a name on
            the hub. All but the first two, and all that is adapted or fitted, need the extra `chronos`.
        revision: the commit, tag or branch of a model on the hub.
        context_length: past steps to read if nothing is fitted; as many as the model can by default.
        attention: replaces its self-attention, see `adapt`; None keeps that.
        where: the layers whose attention is swapped, see `adapt`, or trained if none is; of an adapted folder the
            swapped ones are trained.
        convert: what happens to their weights, see `adapt`; in a fit, `rotate` learns from training windows.
        calibrate: steps in which swapped attention learns to give the original's outputs on training windows, before
            any other training.
        trained: None keeps the weights; ``all`` trains them, ``attention`` those of attention over time alone, and
            ``lora`` low-rank adapters of its linear maps, by peft, and the factors of structured scores (`btt`,
            `bilinear_mlr`, `mlbtc`), which have no adapters.
        lora_rank: of these adapters, whose outputs are doubled.
        num_samples: paths that Chronos-T5 draws for a series; as many as the model says by default.
        sampling_seed: of these, the same for every series.

    Raises:
        UserError: for one out of its range, or several that do not go together.
    """

    weights: str = "chronos-tiny"
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
        optional = [name for name in ("context_length", "num_samples") if getattr(self, name) is not None]
        for name in (*optional, "lora_rank"):
            whole_number(name, getattr(self, name))
        for name in ("calibrate", "sampling_seed"):
            whole_number(name, getattr(self, name), least=0)
        if self.convert not in CONVERSIONS:
            raise UserError(f"convert must be one of {one_of(CONVERSIONS)}, not {self.convert!r}")
        if self.trained is not None and self.trained not in TRAINED:
            raise UserError(f"trained must be null or one of {one_of(TRAINED)}, not {self.trained!r}")
        if self.attention is None and (self.calibrate or self.convert != "copy"):
            name = "calibrate" if self.calibrate else "convert"
            raise UserError(f"{name} is of a swapped attention: give attention, or leave {name} out")
        if self.attention is None and self.trained not in ("attention", "lora") and self.where != _EVERY:
            raise UserError(
                "where is of a swapped attention, or of trained: attention or lora; give one of these, or leave it out"
            )
        if self.attention is not None and self.convert == "fresh" and not self.is_fitted:
            raise UserError("attention that starts afresh forecasts nothing of use: give trained or calibrate")
        if self.is_fitted and self.context_length is not None:
            raise UserError(
                "context_length is of a model that is used as it is: one that is fitted has that of the data"
            )

    @property
    def unfitted(self) -> ChronosOptions:
        """The model before anything is fitted, with its own attention if the other starts afresh."""
        attention, convert = (None, "copy") if self.convert == "fresh" else (self.attention, self.convert)
        where = _EVERY if attention is None else self.where
        return replace(self, trained=None, calibrate=0, attention=attention, convert=convert, where=where)

    @property
    def is_fitted(self) -> bool:
        """Whether a fit changes weights, so that there is a state to keep."""
        return self.trained is not None or self.calibrate > 0

    @property
    def sampling(self) -> Sampling:
        """Of the paths."""
        return Sampling(self.num_samples, self.sampling_seed)


class ChronosNetwork(Backbone):
    """A Chronos model that is fitted. Its state is the whole model, with its configuration.

    A longer context is cut to its last steps; a longer horizon is trained over the steps that the model forecasts at
    once, and continued from its forecasts. Its arguments are `ChronosOptions`.
    """

    __signature__ = inspect.signature(ChronosOptions)  # which descriptions read

    emits_quantiles: ClassVar[bool] = True
    uses_covariates: ClassVar[bool] = True  # Chronos-2 does; for the others, their predictor says that they do not
    has_own_loss: ClassVar[bool] = True
    record: Tensor

    def __init__(self, task: Task, output: Output, **options: Any) -> None:
        super().__init__()
        self.options = ChronosOptions(**options)
        self.horizon = task.prediction_length
        self.levels = output.quantiles
        self.model: nn.Module | None = None
        self._family: ChronosFamily | None = None
        self._sites: list[AttentionSite] = []
        self._copies: dict[str, str] = {}
        self.register_buffer("record", torch.empty(0, dtype=torch.uint8))
        self.register_state_dict_post_hook(_without_copies)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_post_hook(_with_shared)  # type: ignore[no-untyped-call]
        if not self.record.is_meta:
            self._take(_converted(self.options))

    @classmethod
    @override
    def complete(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Attention stays as it is written, with its ``kind``: a model decides more of it than the defaults would."""
        complete = {**descriptions.defaults(cls), **arguments}
        return {**complete, "attention": _plain_attention(complete["attention"])}

    @classmethod
    @override
    def title(cls, description: Mapping[str, Any]) -> str:
        """The name of the weights in the place of the kind."""
        own = Path(description["weights"]).name.removesuffix(".safetensors")
        return super().title({**description, "kind": own})

    @property
    def forecasts(self) -> ChronosFamily:
        """The open model; an empty network has none before its state is loaded."""
        assert self._family is not None, "load a state first"
        return self._family

    def prepare(self, series: Sequence[Tensor], seed: int, held_out: Sequence[Tensor] | None = None) -> None:
        """Convert and calibrate on series `(length,)` of the training part, checked on `held_out` or a part of them.

        Raises:
            UserError: if a decoder learns from values to come, and the series have none.
        """
        family = self.forecasts
        horizon, longest = family.steps_at_once, max(map(len, series), default=0)
        if series and longest <= horizon and family.reads_future(self._sites):
            raise UserError(
                f"context_length + prediction_length must be more than {horizon}, the steps that the decoder of "
                f"{self.options.weights} forecasts, for it to learn from training windows; they have {longest}"
            )
        adapted = _converted(self.options, series, seed)
        if self.options.calibrate:
            adapted.calibrate(series, steps=self.options.calibrate, seed=seed, held_out=held_out)
        self._take(adapted)

    @override
    def own_loss(self, batch: Batch) -> Tensor:
        """The original's: cross-entropy of tokens for Chronos-T5, quantile loss of all its levels for the others."""
        return self.forecasts.loss(batch)

    @override
    def forward(self, batch: Batch) -> Tensor:
        return self.forecasts.forecast(batch, self.horizon, self.levels)

    def _take(self, adapted: AdaptedChronos) -> None:
        self.model = adapted.model
        _prepare_training(adapted, self.options)
        family = family_of(adapted.pipeline, self.options.sampling)
        _check_paths(family, self.options)
        family.check_levels(self.levels, self.options.weights)
        self._family, self._sites = family, adapted.sites
        self._copies = _shared_names(adapted.model)
        adapted.model.train(self.training)
        self.record = torch.frombuffer(bytearray(json.dumps(adapted.record()).encode()), dtype=torch.uint8)

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


def open_unfitted(options: ChronosOptions) -> OpenModel:
    """Open the weights of options that fit nothing."""
    file = NamedWeights.of(options.weights, options.revision).file
    opened: OpenModel
    if file is not None and options.attention is None:
        opened = OwnBolt(file)
    else:
        adapted = _converted(options)
        adapted.model.eval().requires_grad_(False)
        opened = family_of(adapted.pipeline, options.sampling)
    _check_paths(opened, options)
    return opened


def _converted(options: ChronosOptions, series: Sequence[Tensor] | None = None, seed: int = 0) -> AdaptedChronos:
    """The weights with the attention swapped that is asked for, as `adapt` leaves them."""
    plain = open_weights(options.weights, options.revision)
    if options.attention is None:
        if plain.swaps and options.where != _EVERY:
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


def _prepare_training(adapted: AdaptedChronos, options: ChronosOptions) -> None:
    """Let the weights be trained that `trained` names, and no others."""
    adapted.model.requires_grad_(options.trained == "all")
    if options.trained not in ("attention", "lora"):
        return
    attentions = {
        site.path: adapted.model.get_submodule(site.path)
        for site in adapted.sites or adapted.family.chosen_sites(options.where)
    }
    if options.trained == "attention":
        for module in attentions.values():
            module.requires_grad_(True)
        return
    if importlib.util.find_spec("peft") is None:
        raise UserError("trained: lora needs peft: pip install 'tsattn[chronos]'")
    from peft import LoraConfig, inject_adapter_in_model

    maps, others = [], []
    for path, module in attentions.items():
        for name, part in module.named_modules():
            if isinstance(part, nn.Linear):
                maps.append(f"model.{path}.{name}")
            elif isinstance(module, SwappedAttention) and name.startswith("attention"):
                # factors of structured scores, norms of queries and keys, and weights by position
                others += [*part.parameters(recurse=False)]
    config = LoraConfig(r=options.lora_rank, lora_alpha=2 * options.lora_rank, target_modules=maps)
    # in a container, since of a model of transformers peft asks for input embeddings, which not all have
    inject_adapter_in_model(config, nn.ModuleDict({"model": adapted.model}))
    for part in others:
        part.requires_grad_(True)


def _check_paths(opened: OpenModel, options: ChronosOptions) -> None:
    if options.num_samples is not None and not opened.draws_paths:
        raise UserError(
            f"num_samples is of Chronos-T5, which draws paths: {options.weights} gives quantiles; leave num_samples out"
        )


def _plain_attention(attention: Description | Sequence[Description] | None) -> Any:
    """Attention as it is written, each with its ``kind``."""
    if attention is None:
        return None
    if isinstance(attention, Sequence) and not isinstance(attention, str):
        return [_plain_attention(one) for one in attention]
    complete_attention(attention)
    return dict(attention) if isinstance(attention, Mapping) else {"kind": attention}


def _shared_names(model: nn.Module) -> dict[str, str]:
    """The names of parameters that have others too, and the first name of each."""
    first = {id(part): name for name, part in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    return {name: first[id(part)] for name, part in every if first[id(part)] != name}


def _without_copies(network: ChronosNetwork, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Keep a parameter once: files of safetensors hold no tensor twice."""
    for name in network._copies:
        del state[f"{prefix}model.{name}"]


def _with_shared(network: ChronosNetwork, _: Any) -> None:
    """Tie the parameters again that assigned weights untied."""
    for copy, name in network._copies.items():
        assert network.model is not None
        parent, _, last = copy.rpartition(".")
        setattr(network.model.get_submodule(parent), last, network.model.get_parameter(name))
