"""The three families of Chronos models: where their self-attention lies, and how many tokens it sees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from typing_extensions import override

from tsattn.chronos.models.token_layout import TokenLayout
from tsattn.errors import UserError, is_whole_number, one_of, shown

__all__ = [
    "FAMILIES",
    "IMPLEMENTATIONS",
    "AttentionSite",
    "ChronosFamily",
    "check_implementations",
    "chosen_sites",
    "configured_family",
    "family_of",
]

IMPLEMENTATIONS = ("sdpa", "eager")
STACKS = ("encoder", "decoder")
BETWEEN = ("group", "cross")  # attention among series, and of a decoder to its encoder: swapped only where it is named

_DECODERS_ONLY = "Chronos models that are decoders only cannot be adapted; those of T5, Bolt and 2 can"


@dataclass(frozen=True)
class AttentionSite:
    """One attention of a model.

    Attributes:
        stack: ``encoder`` or ``decoder``, of attention over time; ``group``, among the series of a group at one place
            in time; ``cross``, of a decoder to the states of its encoder.
        layer: its number there, from 0.
        path: the name of the module in the model.
    """

    stack: str
    layer: int
    path: str

    @property
    def name(self) -> str:
        """``encoder.0``, as people and files name it."""
        return f"{self.stack}.{self.layer}"

    @property
    def is_over_time(self) -> bool:
        """Whether its tokens are those of one series, which stand at positions."""
        return self.stack not in BETWEEN


class ChronosFamily(ABC):
    """What differs between the families.

    Attributes:
        name: ``t5``, ``bolt`` or ``chronos2``.
    """

    name: str

    @abstractmethod
    def sites(self, model: nn.Module) -> list[AttentionSite]:
        """Every self-attention over time, the encoder's first."""

    @abstractmethod
    def sites_between(self, model: nn.Module) -> list[AttentionSite]:
        """Every attention that is not over time."""

    @abstractmethod
    def layout(self, model: Any) -> TokenLayout:
        """The tokens of the encoder at the longest context."""

    @abstractmethod
    def decoder_tokens(self, model: Any) -> int:
        """The most tokens of the decoder; 0 without one."""

    @abstractmethod
    def run(self, pipeline: Any, windows: Tensor, future: bool) -> None:
        """Give the model of a pipeline contexts `(B, length)`, whose last values are what is to come if `future`."""

    @abstractmethod
    def special_tokens(self, pipeline: Any) -> int:
        """Tokens that follow the context of the encoder in `run`."""

    @abstractmethod
    def model_class(self) -> Any:
        """The class of the models, of transformers or chronos-forecasting."""

    @abstractmethod
    def around(self, model: Any) -> Any:
        """The pipeline of a model."""

    def unloaded(self, config: dict[str, Any], implementation: str) -> Any:
        """Return a pipeline of a configuration, whose weights are still to be filled in.

        Raises:
            ValueError: if the configuration names an implementation that transformers would download and run.
        """
        cls = self.model_class()
        made = cls.config_class.from_dict(dict(config), attn_implementation=implementation)
        check_implementations(made)
        return self.around(cls(made))

    def rope_base(self, model: Any) -> float | None:
        """The base of rotary positions, None without them."""
        return None


class T5Family(ChronosFamily):
    """Chronos-T5: a token for each value; samples."""

    name = "t5"

    @override
    def sites(self, model: Any) -> list[AttentionSite]:
        return [
            AttentionSite(stack, layer, f"{stack}.block.{layer}.layer.0.SelfAttention")
            for stack in STACKS
            for layer in range(len(getattr(model, stack).block))
        ]

    @override
    def sites_between(self, model: Any) -> list[AttentionSite]:
        layers = range(len(model.decoder.block))
        return [AttentionSite("cross", at, f"decoder.block.{at}.layer.1.EncDecAttention") for at in layers]

    @override
    def layout(self, model: Any) -> TokenLayout:
        chronos = model.config.chronos_config
        return TokenLayout(chronos["context_length"], int(chronos["use_eos_token"]))

    @override
    def decoder_tokens(self, model: Any) -> int:
        # the token that starts it, then all but the last value, or the end of the sequence in training
        chronos = model.config.chronos_config
        return int(chronos["prediction_length"]) + int(chronos["use_eos_token"])

    @override
    def special_tokens(self, pipeline: Any) -> int:
        return self.layout(pipeline.inner_model).special_tokens

    @override
    def run(self, pipeline: Any, windows: Tensor, future: bool) -> None:
        tokenizer, model = pipeline.tokenizer, pipeline.inner_model
        cut = windows.shape[1] - (pipeline.model_prediction_length if future else 0)
        if cut < 1:
            raise UserError(f"the decoder learns from series of more than {pipeline.model_prediction_length} values")
        ids, mask, scale = tokenizer.context_input_transform(windows[:, :cut])
        ids, mask = ids.to(model.device), mask.to(model.device)
        if not future:
            model.encoder(input_ids=ids, attention_mask=mask)
            return
        labels, _ = tokenizer.label_input_transform(windows[:, cut:], scale)
        model(input_ids=ids, attention_mask=mask, labels=labels.to(model.device), use_cache=False)

    @override
    def model_class(self) -> Any:
        from transformers import T5ForConditionalGeneration

        return T5ForConditionalGeneration

    @override
    def around(self, model: Any) -> Any:
        from chronos import ChronosConfig, ChronosPipeline
        from chronos.chronos import ChronosModel

        settings = ChronosConfig(**model.config.chronos_config)
        return ChronosPipeline(settings.create_tokenizer(), ChronosModel(settings, model))


class BoltFamily(T5Family):
    """Chronos-Bolt: a token for each patch of values, and REG; quantiles from a decoder of one token."""

    name = "bolt"

    @override
    def layout(self, model: Any) -> TokenLayout:
        chronos = model.chronos_config
        return TokenLayout(_patches(chronos), int(chronos.use_reg_token))

    @override
    def decoder_tokens(self, model: Any) -> int:
        return 1

    @override
    def run(self, pipeline: Any, windows: Tensor, future: bool) -> None:
        pipeline.inner_model(context=windows.to(pipeline.inner_model.device))

    @override
    def model_class(self) -> Any:
        from chronos.chronos_bolt import ChronosBoltModelForForecasting

        return ChronosBoltModelForForecasting

    @override
    def around(self, model: Any) -> Any:
        from chronos import ChronosBoltPipeline

        return ChronosBoltPipeline(model)


class Chronos2Family(ChronosFamily):
    """Chronos-2: an encoder of patches, REG and patches of the future, with rotary positions."""

    name = "chronos2"

    @override
    def sites(self, model: Any) -> list[AttentionSite]:
        layers = range(len(model.encoder.block))
        return [AttentionSite("encoder", at, f"encoder.block.{at}.layer.0.self_attention") for at in layers]

    @override
    def sites_between(self, model: Any) -> list[AttentionSite]:
        layers = range(len(model.encoder.block))
        return [AttentionSite("group", at, f"encoder.block.{at}.layer.1.self_attention") for at in layers]

    @override
    def layout(self, model: Any) -> TokenLayout:
        chronos = model.chronos_config
        return TokenLayout(_patches(chronos), int(chronos.use_reg_token) + chronos.max_output_patches)

    @override
    def decoder_tokens(self, model: Any) -> int:
        return 0

    @override
    def special_tokens(self, pipeline: Any) -> int:
        return int(pipeline.inner_model.chronos_config.use_reg_token) + _future_patches(pipeline)

    @override
    def run(self, pipeline: Any, windows: Tensor, future: bool) -> None:
        model = pipeline.inner_model
        model(context=windows.to(model.device), num_output_patches=_future_patches(pipeline))

    @override
    def model_class(self) -> Any:
        from chronos.chronos2 import Chronos2Model

        return Chronos2Model

    @override
    def around(self, model: Any) -> Any:
        from chronos import Chronos2Pipeline

        return Chronos2Pipeline(model)

    @override
    def rope_base(self, model: Any) -> float:
        return float(model.config.rope_theta)


FAMILIES: dict[str, ChronosFamily] = {family.name: family for family in (T5Family(), BoltFamily(), Chronos2Family())}
"""By name."""


def _future_patches(pipeline: Any) -> int:
    """Patches of a forecast of usual length."""
    return min(4, int(pipeline.inner_model.chronos_config.max_output_patches))


def _patches(chronos: Any) -> int:
    """The most patches of a context, which is padded to whole ones."""
    length = -(-chronos.context_length // chronos.input_patch_size) * chronos.input_patch_size
    return int((length - chronos.input_patch_size) // chronos.input_patch_stride + 1)


def check_implementations(config: Any) -> None:
    """Refuse a configuration whose kernels transformers would download and run.

    Raises:
        ValueError: naming the implementation.
    """
    for name in (config._attn_implementation, config._experts_implementation):
        if name not in (None, *IMPLEMENTATIONS):
            raise ValueError(f"{shown(name)} is no attention_implementation; valid: {one_of(IMPLEMENTATIONS)}")


def configured_family(config: Any) -> ChronosFamily:
    """The family of the model that a configuration of transformers describes.

    Raises:
        UserError: for one of another kind.
    """
    if not isinstance(getattr(config, "chronos_config", None), dict):
        raise UserError("its config.json has no chronos_config, as that of every Chronos model does")
    named = getattr(config, "chronos_pipeline_class", "ChronosPipeline")  # of the first models, which do not say
    classes = {"ChronosPipeline": "t5", "ChronosBoltPipeline": "bolt", "Chronos2Pipeline": "chronos2"}
    if named not in classes:
        raise UserError(f"its pipeline is {named!r}; valid: {one_of(classes)}")
    family = FAMILIES[classes[named]]
    if config.chronos_config.get("model_type") == "causal":
        raise UserError(_DECODERS_ONLY)
    if config.model_type != family.model_class().config_class.model_type:
        raise UserError(f"its model_type is {config.model_type!r}, which is none of {named}")
    return family


def family_of(pipeline: Any) -> ChronosFamily:
    """The family of a pipeline.

    Raises:
        UserError: for what is no pipeline of chronos-forecasting, or a model of another kind.
    """
    from chronos import Chronos2Pipeline, ChronosBoltPipeline, ChronosPipeline

    if isinstance(pipeline, Chronos2Pipeline):
        return FAMILIES["chronos2"]
    if isinstance(pipeline, ChronosBoltPipeline):
        return FAMILIES["bolt"]
    if isinstance(pipeline, ChronosPipeline):
        if pipeline.model.config.model_type != "seq2seq":
            raise UserError(_DECODERS_ONLY)
        return FAMILIES["t5"]
    raise UserError(f"a pipeline of chronos-forecasting is needed, or its name or folder, not a {type(pipeline)}")


def chosen_sites(family: ChronosFamily, model: nn.Module, where: str | Sequence[int | str]) -> list[AttentionSite]:
    """The sites of a model that `where` names: those of a list in its order, else in that of the model.

    Args:
        family: the model's.
        model: the model.
        where: ``encoder``, ``decoder``, ``all`` of both, ``group``, ``cross``, or a list of layers: numbers of the
            encoder's, ``decoder.0``, ``group.0``, ``cross.0``.

    Raises:
        UserError: for a layer that is not there or named twice, none, or anything else.
    """
    sites = [*family.sites(model), *family.sites_between(model)]
    stacks = [stack for stack in (*STACKS, *BETWEEN) if any(site.stack == stack for site in sites)]
    if where == "all":
        return [site for site in sites if site.is_over_time]
    if isinstance(where, str) and where in stacks:
        return [site for site in sites if site.stack == where]
    if isinstance(where, str) or not isinstance(where, Sequence) or not where:
        raise UserError(f"where must be one of {one_of([*stacks, 'all'])} or a list of layers, not {where!r}")
    valid = [site.name for site in sites]
    names = [f"encoder.{layer}" if is_whole_number(layer) else str(layer) for layer in where]
    for name in names:
        if name not in valid:
            raise UserError(f"where names the layer {name}, which this model does not have; valid: {one_of(valid)}")
        if names.count(name) > 1:
            raise UserError(f"where names the layer {name} more than once")
    return [sites[valid.index(name)] for name in names]
