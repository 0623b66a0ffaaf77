"""The families of Chronos models, T5, Bolt and 2: forecasts, training losses and the places of their attention.

Shape letters as in `tsattn.chronos.channel_rows`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from tsattn import descriptions
from tsattn.batch import Batch
from tsattn.chronos.channel_rows import ChannelRows, is_constant
from tsattn.errors import UserError, is_whole_number, one_of, shown
from tsattn.layers import at_levels
from tsattn.task import MEDIAN

IMPLEMENTATIONS = ("sdpa", "eager")
ROWS_AT_ONCE = 1024  # series forecast at once; limits the memory
_NOT_A_LABEL = -100  # the cross-entropy of transformers ignores it
_DECODERS_ONLY = "decoder-only Chronos models cannot be used; valid are Chronos-T5, Chronos-Bolt and Chronos-2"


@dataclass(frozen=True)
class Sampling:
    """Number of paths for a series (None: the model's default) whose quantiles are forecast, and the seed of each.

    Each series gets the paths that the pipeline draws for this series alone after `torch.manual_seed(seed)`.
    """

    paths: int | None = None
    seed: int = 1


@dataclass(frozen=True)
class AttentionSite:
    """An attention of a model: the name of its stack, its number in the stack and the path of its module.

    ``encoder`` and ``decoder`` attend over time. ``group`` attends among the series of a group at one place in time.
    ``cross`` attends from a decoder to the states of its encoder.
    """

    stack: str
    layer: int
    path: str

    @property
    def name(self) -> str:
        """The name, such as ``encoder.0``."""
        return f"{self.stack}.{self.layer}"

    @property
    def is_over_time(self) -> bool:
        """Whether its tokens belong to one series and have positions."""
        return self.stack not in ("group", "cross")


@dataclass
class TokenLayout:
    """The tokens of an encoder: the context, then special tokens (end of sequence, REG, patches of the future).

    A context of any length ends at position `context_tokens - 1`. Special tokens see all tokens, and all tokens see
    them; `special_tokens` is their number in the current call.
    """

    context_tokens: int
    special_tokens: int

    def places(self, length: int, device: torch.device) -> dict[str, Any]:
        """The arguments `positions (S,)` and `global_tokens (S,)` for an attention over `length` tokens."""
        first = self.context_tokens - (length - self.special_tokens)
        positions = torch.arange(first, first + length, device=device)
        special = {"global_tokens": positions >= self.context_tokens} if self.special_tokens else {}
        return {"positions": positions, **special}


class ChronosFamily(ABC):
    """A model of chronos-forecasting, adapted or not: it forecasts quantiles of any horizon, sorted if they cross.

    Args:
        pipeline: its pipeline; the model moves to the device of its batches.
        sampling: settings of its paths, if it draws paths.

    Attributes:
        network: the module that forecasts.
        context_length: largest number of past steps that it reads; from a longer context it reads the last steps.
        steps_at_once: the longest horizon of one pass; longer horizons continue from the forecasts.
        levels: its quantile levels, between which other levels are interpolated; None for a model that draws paths.
        token: the word for a token of its attention.
        takes_covariates: whether it reads past and future covariates; no model reads static columns.
        draws_paths: whether it forecasts by drawing paths.
        attentions: path of the modules of each stack, with ``{}`` for the layer; stacks over time come first.
        depends_on_level: whether the forecast of the changes depends on the level of a series.
        longest: the largest numbers of tokens of the encoder: context and special tokens.
        special_tokens: number of tokens after the context in `run`.
        decoder_tokens: largest number of tokens of the decoder; 0 without a decoder.
        token_steps: steps from one token of the context to the next.
        special_end: name of the special tokens.
        rope_base: the base of rotary positions, None without rotary positions.
    """

    name: ClassVar[str]
    model_path: ClassVar[str]
    pipeline_path: ClassVar[str]
    token: ClassVar[str] = "patch"
    takes_covariates: ClassVar[bool] = False
    draws_paths: ClassVar[bool] = False
    attentions: ClassVar[Mapping[str, str]]
    depends_on_level: ClassVar[bool] = False
    special_end: ClassVar[str] = "window"
    longest: TokenLayout
    special_tokens: int
    decoder_tokens: int = 0
    token_steps: int = 1
    rope_base: float | None = None

    def __init__(self, pipeline: Any, sampling: Sampling) -> None:
        self.levels = None if self.draws_paths else tuple(map(float, pipeline.quantiles))
        self.context_length = int(pipeline.model_context_length)
        self.steps_at_once = int(pipeline.model_prediction_length)
        self.pipeline, self.sampling = pipeline, sampling
        self.network: Any = pipeline.inner_model

    @classmethod
    def model_class(cls) -> Any:
        """Import the class of the models."""
        return descriptions.imported(cls.model_path)

    @classmethod
    def pipeline_of(cls, model: Any) -> Any:
        """Wrap a model into its pipeline."""
        return descriptions.imported(cls.pipeline_path)(model)

    @classmethod
    def unloaded(cls, config: dict[str, Any], implementation: str) -> Any:
        """Build a pipeline from a configuration, see `check_implementations`; weights must be loaded afterwards."""
        model = cls.model_class()
        made = model.config_class.from_dict(dict(config), attn_implementation=implementation)
        check_implementations(made)
        return cls.pipeline_of(model(made))

    def sites(self) -> list[AttentionSite]:
        """All attentions of the model."""
        return [
            AttentionSite(stack, layer, path.format(layer))
            for stack, path in self.attentions.items()
            for layer in range(len(self.network.get_submodule(path.partition(".{}")[0])))
        ]

    @abstractmethod
    def run(self, windows: Tensor, future: bool) -> None:
        """Call the model on contexts `(B, length)`, whose last values are the future if `future`."""

    def reads_future(self, sites: Sequence[AttentionSite]) -> bool:
        """Whether a site lies in a decoder that is given the future values."""
        return False

    def chosen_sites(self, where: object) -> list[AttentionSite]:
        """Find the sites that `where` names, see `adapt`; in the order of a list, otherwise in the model's order."""
        by_name, stacks = {site.name: site for site in self.sites()}, [*self.attentions]
        if isinstance(where, str) and where in (*stacks, "all"):
            return [site for site in by_name.values() if (site.is_over_time if where == "all" else site.stack == where)]
        if isinstance(where, str) or not isinstance(where, Sequence) or not where:
            raise UserError(f"where must be one of {one_of([*stacks, 'all'])} or a list of layers, not {where!r}")
        names = [f"encoder.{layer}" if is_whole_number(layer) else str(layer) for layer in where]
        for name in names:
            if name not in by_name:
                raise UserError(
                    f"where names the layer {name}, which this model does not have; valid: {one_of(by_name)}"
                )
            if names.count(name) > 1:
                raise UserError(f"where names the layer {name} more than once")
        return [by_name[name] for name in names]

    def token_ends(self, count: int) -> list[int | str] | None:
        """The last steps of the encoder's tokens; None unless its attention was swapped, as the layout is unknown.

        See `tsattn.backbones.base.Backbone.token_ends`.
        """
        layout: TokenLayout | None = getattr(self.network, "token_layout", None)
        if layout is None or count <= layout.special_tokens:
            return None
        ends = (self.token_steps * place for place in range(1 - count + layout.special_tokens, 1))
        return [*ends, *self.special_ends(layout.special_tokens)]

    def special_ends(self, count: int) -> list[int | str]:
        """Name the tokens after the context, or their steps, see `Backbone.token_ends`."""
        return [self.special_end] * count

    def rows(self, batch: Batch) -> ChannelRows:
        """Take the series of a batch."""
        return ChannelRows.of(batch, self.context_length, covariates=self.takes_covariates, level=self.depends_on_level)

    def check_levels(self, asked: Sequence[float], name: str) -> None:
        """Refuse levels outside the range of the model's levels; messages call the model `name`."""
        first, *_, last = self.levels or (0.0, 1.0)
        for level in asked:
            if not first <= level <= last:
                raise UserError(f"{name} forecasts quantiles from {first} to {last}: {level} is outside")

    def forecast(self, batch: Batch, horizon: int, levels: Sequence[float]) -> Tensor:
        """The `quantiles` at `levels`, or without levels the median `(B, horizon, C)`."""
        found = self.quantiles(batch, horizon, levels or (MEDIAN,))
        return found if levels else found[..., 0]

    def paths(self, batch: Batch, horizon: int, count: int, seeds: Sequence[int]) -> Tensor:
        """Paths `(B, horizon, C, count)` on the scale of the batch, `B C` seeds; if the model draws paths."""
        raise NotImplementedError(f"{type(self).__name__} draws no paths")

    @torch.no_grad()
    def quantiles(self, batch: Batch, horizon: int, levels: Sequence[float]) -> Tensor:
        """Quantiles `(B, horizon, C, Q)` on the scale of the batch, sorted."""
        self.network.to(batch.past.device)
        rows = self.rows(batch)
        own = levels if self.levels is None else self.levels
        found = self.quantiles_of(rows, horizon, own).sort(-1).values
        return rows.on_batch_scale(at_levels(found, own, levels), batch)

    @abstractmethod
    def quantiles_of(self, rows: ChannelRows, horizon: int, levels: Sequence[float]) -> Tensor:
        """Quantiles `(B, C, horizon, Q)` as the pipeline's `predict_quantiles` gives them, not sorted."""

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """The loss of the original training, over the observed targets of the first `steps_at_once` steps."""


_ENCODER_DECODER = {
    "encoder": "encoder.block.{}.layer.0.SelfAttention",
    "decoder": "decoder.block.{}.layer.0.SelfAttention",
    "cross": "decoder.block.{}.layer.1.EncDecAttention",
}


class T5(ChronosFamily):
    """Chronos-T5: a token for each value divided by the mean absolute value; draws paths; cross-entropy."""

    name, token, special_end = "t5", "step", "end"
    draws_paths = depends_on_level = True
    model_path = "transformers.T5ForConditionalGeneration"
    pipeline_path = "chronos.ChronosPipeline"
    attentions = _ENCODER_DECODER
    most_rows: ClassVar[int] = 64

    def __init__(self, pipeline: Any, sampling: Sampling) -> None:
        super().__init__(pipeline, sampling)
        chronos = self.network.config.chronos_config
        self.special_tokens = int(chronos["use_eos_token"])
        self.longest = TokenLayout(chronos["context_length"], self.special_tokens)
        # the decoder gets a start token and all but the last label, which in training is the end of the sequence
        self.decoder_tokens = int(chronos["prediction_length"]) + self.special_tokens

    @classmethod
    @override
    def pipeline_of(cls, model: Any) -> Any:
        from chronos import ChronosConfig, ChronosPipeline
        from chronos.chronos import ChronosModel

        settings = ChronosConfig(**model.config.chronos_config)
        return ChronosPipeline(settings.create_tokenizer(), ChronosModel(settings, model))

    @override
    def reads_future(self, sites: Sequence[AttentionSite]) -> bool:
        return any(site.stack in ("decoder", "cross") for site in sites)

    @override
    def run(self, windows: Tensor, future: bool) -> None:
        cut = windows.shape[1] - (self.steps_at_once if future else 0)
        if cut < 1:
            raise UserError(f"the decoder needs training series of more than {self.steps_at_once} values")
        self._call(windows[:, :cut], windows[:, cut:] if future else None)

    def _call(self, past: Tensor, target: Tensor | None) -> tuple[Any, Tensor]:
        """Call the encoder on contexts `(R, L)`, or with targets `(R, T)` the whole model; return output and labels."""
        tokenizer, model = self.pipeline.tokenizer, self.network
        ids, mask, scale = tokenizer.context_input_transform(past.cpu())
        ids, mask = ids.to(model.device), mask.to(model.device)
        if target is None:
            return model.encoder(input_ids=ids, attention_mask=mask), ids
        labels, is_label = tokenizer.label_input_transform(target.cpu(), scale)
        labels = labels.masked_fill(~is_label, _NOT_A_LABEL).to(model.device)
        return model(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False), labels

    @override
    def quantiles_of(self, rows: ChannelRows, horizon: int, levels: Sequence[float]) -> Tensor:
        paths = self._paths_of(rows, horizon, self.sampling.paths)
        at = torch.tensor(levels, dtype=paths.dtype)
        # row by row, as torch.quantile takes at most 2^24 numbers
        found = torch.stack([torch.quantile(row, at, dim=-1).T for row in paths.flatten(0, 1)])
        return found.reshape(*paths.shape[:2], horizon, len(levels))

    @override
    @torch.no_grad()
    def paths(self, batch: Batch, horizon: int, count: int, seeds: Sequence[int]) -> Tensor:
        self.network.to(batch.past.device)
        rows = self.rows(batch)
        return rows.on_batch_scale(self._paths_of(rows, horizon, count, iter(seeds)), batch)

    def _paths_of(
        self, rows: ChannelRows, horizon: int, count: int | None, seeds: Iterator[int] | None = None
    ) -> Tensor:
        """Draw paths `(B, C, horizon, N)`, by default all from one seed; warn of changes smaller than a token."""
        centers = self.pipeline.tokenizer.centers
        size = float(centers[1] - centers[0])
        if bool(((rows.spread > 0) & (rows.spread < size * rows.past.abs().nanmean(-1))).any()):
            warnings.warn(
                f"Chronos-T5 resolves steps of {100 * size:.2g} % of the level of a series, and some series change "
                "by less: subtract their level first, or use Chronos-Bolt or Chronos-2",
                stacklevel=2,
            )

        def drawn(part: Tensor) -> Tensor:
            own = [self.sampling.seed] if seeds is None else [*itertools.islice(seeds, len(part))]
            with _SeededDraws(own, len(part), self.network.device):
                paths = self.pipeline.predict(part.cpu(), prediction_length=horizon, num_samples=count)
            return paths.transpose(1, 2)  # type: ignore[no-any-return]

        return _in_parts(drawn, rows, self.most_rows)

    @override
    def loss(self, batch: Batch) -> Tensor:
        rows, steps = self.rows(batch), self.steps_at_once
        target = rows.target.flatten(0, 1)[:, :steps]
        out, labels = self._call(rows.by_channel, F.pad(target, (0, steps - target.shape[1]), value=torch.nan))
        loss: Tensor = out.loss
        return loss if bool((labels != _NOT_A_LABEL).any()) else out.logits.sum() * 0


class Bolt(ChronosFamily):
    """Chronos-Bolt: a token for each patch of values, and REG; a decoder with one token forecasts all quantiles."""

    name = "bolt"
    model_path = "chronos.chronos_bolt.ChronosBoltModelForForecasting"
    pipeline_path = "chronos.ChronosBoltPipeline"
    attentions = _ENCODER_DECODER
    decoder_tokens = 1

    def __init__(self, pipeline: Any, sampling: Sampling) -> None:
        super().__init__(pipeline, sampling)
        chronos = self.network.chronos_config
        self.token_steps, self.special_tokens = int(chronos.input_patch_stride), int(chronos.use_reg_token)
        self.longest = TokenLayout(_patches(chronos), self.special_tokens)

    @override
    def run(self, windows: Tensor, future: bool) -> None:
        self.network(context=windows.to(self.network.device))

    @override
    def quantiles_of(self, rows: ChannelRows, horizon: int, levels: Sequence[float]) -> Tensor:
        def forecast(part: Tensor) -> Tensor:
            found, _ = self.pipeline.predict_quantiles(part.cpu(), prediction_length=horizon, quantile_levels=[*levels])
            return found  # type: ignore[no-any-return]

        # the pipeline continues by torch.quantile, which takes at most 2^24 numbers
        at_once = max(1, 2**24 // (self.steps_at_once * len(levels) ** 2))
        return _in_parts(forecast, rows, min(ROWS_AT_ONCE, at_once))

    @override
    def loss(self, batch: Batch) -> Tensor:
        rows = self.rows(batch)
        target = rows.target.flatten(0, 1)[:, : self.steps_at_once]
        # the loss divides changes by the spread: in a constant context they would be about 100,000, and outweigh all
        target = target.masked_fill(is_constant(rows.by_channel), torch.nan)
        loss: Tensor = self.network(context=rows.by_channel, target=target).loss
        return loss


class Chronos2(ChronosFamily):
    """Chronos-2: tokens are patches, REG and patches of the future, with rotary positions.

    Channels and covariates of a series form a group; members of a group see each other.
    """

    name = "chronos2"
    takes_covariates = True
    model_path = "chronos.chronos2.Chronos2Model"
    pipeline_path = "chronos.Chronos2Pipeline"
    attentions: ClassVar[Mapping[str, str]] = {
        "encoder": "encoder.block.{}.layer.0.self_attention",
        "group": "encoder.block.{}.layer.1.self_attention",
    }

    def __init__(self, pipeline: Any, sampling: Sampling) -> None:
        super().__init__(pipeline, sampling)
        chronos = self.network.chronos_config
        reg, most = int(chronos.use_reg_token), int(chronos.max_output_patches)
        self.token_steps, self.future_patches = int(chronos.input_patch_stride), min(4, most)
        self.special_tokens = reg + self.future_patches
        self.longest = TokenLayout(_patches(chronos), reg + most)
        self.rope_base = float(self.network.config.rope_theta)

    @override
    def run(self, windows: Tensor, future: bool) -> None:
        self.network(context=windows.to(self.network.device), num_output_patches=self.future_patches)

    @override
    def special_ends(self, count: int) -> list[int | str]:
        special, length = self.special_tokens - self.future_patches, int(self.network.chronos_config.output_patch_size)
        return ["window"] * special + [length * number for number in range(1, count - special + 1)]

    @override
    def quantiles_of(self, rows: ChannelRows, horizon: int, levels: Sequence[float]) -> Tensor:
        inputs: Any = rows.past.cpu()
        if rows.past_covariates is not None or rows.future_covariates is not None:
            inputs = [self._with_covariates(rows, number, horizon) for number in range(len(rows.past))]
        with _silent():
            found, _ = self.pipeline.predict_quantiles(inputs, prediction_length=horizon, quantile_levels=[*levels])
        return torch.stack(list(found))

    def _with_covariates(self, rows: ChannelRows, number: int, horizon: int) -> dict[str, Any]:
        L = rows.past.shape[-1]
        known, ahead = (
            {} if part is None else {f"{name} {place}": row for place, row in enumerate(part[number].cpu())}
            for name, part in (("past", rows.past_covariates), ("future", rows.future_covariates))
        )
        past = known | {name: row[:L] for name, row in ahead.items()}
        future = {name: row[L : L + horizon] for name, row in ahead.items()}
        return {"target": rows.past[number].cpu(), "past_covariates": past, "future_covariates": future}

    @override
    def loss(self, batch: Batch) -> Tensor:
        rows, model = self.rows(batch), self.network
        (B, C, L), T = rows.past.shape, min(rows.target.shape[-1], self.steps_at_once)
        parts = [part for part in (rows.past, rows.past_covariates, rows.future_covariates) if part is not None]
        contexts = torch.cat([part[..., :L] for part in parts], 1)
        members = contexts.shape[1]
        future, target = (contexts.new_full((B, members, T), torch.nan) for _ in range(2))
        target[:, :C] = rows.target[..., :T]
        if rows.future_covariates is not None:
            future[:, -rows.future_covariates.shape[1] :] = rows.future_covariates[..., L : L + T]
        loss: Tensor = model(
            context=contexts.flatten(0, 1),
            group_ids=torch.arange(B, device=contexts.device).repeat_interleave(members),
            future_covariates=future.flatten(0, 1),
            future_target=target.flatten(0, 1),
            num_output_patches=math.ceil(T / model.chronos_config.output_patch_size),
        ).loss
        return loss


FAMILIES: dict[str, type[ChronosFamily]] = {family.name: family for family in (T5, Bolt, Chronos2)}
"""Families by name."""


def check_implementations(config: Any) -> None:
    """Raise `ValueError` for a configuration whose kernels transformers would download and run."""
    for name in (config._attn_implementation, config._experts_implementation):
        if name not in (None, *IMPLEMENTATIONS):
            raise ValueError(f"{shown(name)} is no attention_implementation; valid: {one_of(IMPLEMENTATIONS)}")


def configured_family(config: Any) -> type[ChronosFamily]:
    """Find the family of the model that a configuration of transformers describes."""
    if not isinstance(getattr(config, "chronos_config", None), dict):
        raise UserError("its config.json has no chronos_config, so it is no Chronos model")
    named = getattr(config, "chronos_pipeline_class", "ChronosPipeline")  # the first models do not name their class
    classes = {family.pipeline_path.rpartition(".")[2]: family for family in FAMILIES.values()}
    if named not in classes:
        raise UserError(f"its pipeline is {named!r}; valid: {one_of(classes)}")
    family = classes[named]
    if config.chronos_config.get("model_type") == "causal":
        raise UserError(_DECODERS_ONLY)
    if config.model_type != family.model_class().config_class.model_type:
        raise UserError(f"its model_type is {config.model_type!r}, which does not fit {named}")
    return family


def family_of(pipeline: Any, sampling: Sampling | None = None) -> ChronosFamily:
    """Find the family of a pipeline."""
    for family in FAMILIES.values():
        if isinstance(pipeline, descriptions.imported(family.pipeline_path)):
            if family is T5 and pipeline.model.config.model_type != "seq2seq":
                raise UserError(_DECODERS_ONLY)
            return family(pipeline, sampling or Sampling())
    raise UserError(f"give a pipeline of chronos-forecasting, or its name or folder, not a {type(pipeline)}")


def _patches(chronos: Any) -> int:
    size, stride = chronos.input_patch_size, chronos.input_patch_stride
    return int((-(-chronos.context_length // size) - 1) * size // stride + 1)


def _in_parts(forecast: Callable[[Tensor], Tensor], rows: ChannelRows, at_once: int) -> Tensor:
    """Forecast `at_once` contexts `(R, L)` at a time, `(R, horizon, N)`; return all as `(B, C, horizon, N)`."""
    with _silent():
        found = torch.cat([forecast(part) for part in torch.split(rows.by_channel, at_once)])
    return found.reshape(*rows.past.shape[:2], *found.shape[1:])


class _SeededDraws(TorchFunctionMode):
    """Draw for `count` series (blocks of rows) from a seed each, or from one for all, not PyTorch's generators.

    It replaces `torch.multinomial`, whose draws for a row depend on the rows before it.
    """

    def __init__(self, seeds: Sequence[int], count: int, device: torch.device) -> None:
        super().__init__()
        self.count = count
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (self._drawn if func is torch.multinomial else func)(*args, **(kwargs or {}))

    def _drawn(self, probabilities: Tensor, num_samples: int) -> Tensor:
        """Draw a token `(R, 1)` for each row of `(R, V)` as PyTorch does: the shortest exponential waiting time."""
        assert num_samples == 1, "a path grows by one token at a time"
        each = probabilities.view(self.count, -1, probabilities.shape[-1])
        waits = [torch.empty_like(each[0]).exponential_(generator=one) for one in self.generators]
        return (each / torch.stack(waits)).argmax(-1).flatten()[:, None]


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Hide the pipelines' warnings of long horizons; `Forecaster` gives a warning."""
    from chronos import chronos

    level = chronos.logger.level
    chronos.logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="We recommend keeping prediction length")
            yield
    finally:
        chronos.logger.setLevel(level)
