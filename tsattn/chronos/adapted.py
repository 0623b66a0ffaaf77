"""Chronos models with swapped attention: made by `adapt`, calibrated, counted, and kept in a folder.

The folder holds JSON that records the swap, and safetensors; nothing in it runs code. A plain loader of Chronos or
transformers cannot open it: its `config.json` names a type of model that they do not know.
"""

from __future__ import annotations

import copy
import importlib.metadata
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import torch
from safetensors import safe_open
from safetensors.torch import load_model, save_model
from torch import nn

from tsattn.attention import attention_per_layer
from tsattn.attention.cost import closed_form
from tsattn.checks import folder_path
from tsattn.chronos.calibration import calibrated, errors_of, input_moments
from tsattn.chronos.conversions import CONVERSIONS, convert_weights
from tsattn.chronos.families import FAMILIES, IMPLEMENTATIONS, ChronosFamily, family_of
from tsattn.chronos.opening import RECORD, NamedWeights, check_extra, open_pipeline
from tsattn.chronos.swapped_attention import Surroundings, SwappedAttention, build_swapped
from tsattn.data.files import first_line
from tsattn.descriptions import Description
from tsattn.errors import UserError, one_of, shown
from tsattn.saved_folders import CHECKSUMS, check_checksums, restore_folder, whole_folder, write_checksums

__all__ = ["AdaptedChronos", "Swap", "adapt", "add_biases", "load_adapted", "open_weights", "rebuilt"]

FORMAT = "tsattn adapted chronos 1"
WEIGHTS = "adapted.safetensors"
CONFIG = {"model_type": "tsattn-adapted-chronos", "note": "opened by tsattn.chronos.load_adapted alone"}
PACKAGES = ("tsattn", "torch", "transformers", "chronos-forecasting")


@dataclass(frozen=True)
class Swap:
    """The description of the attention at a site, and how its weights came from the original's."""

    attention: Description
    convert: str


class AdaptedChronos:
    """A Chronos pipeline with swapped attention. Made by `adapt` and `load_adapted`.

    Args:
        pipeline: becomes the adapted one.
        swaps: by the name of a site, ``encoder.0``.
        original: the pipeline that it was made from, None if that was not opened.

    Attributes:
        pipeline: forecasts as every pipeline of chronos-forecasting does, by `predict_quantiles` and the others.
        swapped: the attention at each site, by its name.
        score_errors: of each site and head, the error of scores after the conversion, as a share of the original's: of
            all scores for `project`, of those of the farthest pairs for `mlr`.
    """

    def __init__(self, pipeline: Any, swaps: Mapping[str, Swap], original: Any | None = None) -> None:
        implementation = pipeline.inner_model.config._attn_implementation
        if implementation not in IMPLEMENTATIONS:
            raise UserError(
                f"models that attend by {implementation} cannot be adapted: open it with attn_implementation "
                f"{one_of(IMPLEMENTATIONS)}"
            )
        self.pipeline = pipeline
        self.original = original
        self.swaps = dict(swaps)
        self.family = family_of(pipeline)
        self.sites = [site for site in self.family.sites() if site.name in self.swaps]
        self.swapped: dict[str, SwappedAttention] = {}
        self.score_errors: dict[str, list[float]] = {}
        if self.swaps:
            self._swap()

    def _swap(self) -> None:
        from tsattn.chronos.extra_classes import mark_adapted

        layout = copy.copy(self.family.longest)
        mark_adapted(self.model, layout)
        self.pipeline.fit = _refuse_fit
        for site in self.sites:
            swap = self.swaps[site.name]
            around = Surroundings(self.family, site, layout)
            module = build_swapped(swap.attention, around, swap.convert).train(around.original.training)
            parent, _, name = site.path.rpartition(".")
            setattr(self.model.get_submodule(parent), name, module)
            self.swapped[site.name] = module

    @property
    def model(self) -> nn.Module:
        """The network of the adapted pipeline."""
        network: nn.Module = self.pipeline.inner_model
        return network

    def calibrate(
        self,
        data: Any,
        *,
        steps: int = 300,
        batch_size: int = 32,
        learning_rate: float = 0.005,
        seed: int = 0,
        held_out: Any = None,
    ) -> pd.DataFrame:
        """Train the swapped attentions to give the outputs of the originals, each from the original's own tokens.

        A layer learns by its squared error as a share of the original's square; nothing else is trained. A layer that
        comes no nearer on held-out windows (of every fifth series, or of the last fifth of fewer) keeps its weights.

        Args:
            data: series, as `predict` of the pipeline takes them; windows are drawn from them.
            steps: of Adam, at a rate that rises over the first tenth and falls along half a cosine.
            batch_size: windows a step.
            learning_rate: the highest, as a share of the root mean square of each tensor.
            seed: of the windows.
            held_out: series to hold windows out of, instead of a part of `data`.

        Returns:
            Columns `layer`, `before`, `after`: the relative error of the outputs on held-out windows.

        Raises:
            UserError: for arguments that mean nothing, a model without its original, or swapped attention among series.
        """
        if any(site.stack == "group" for site in self.sites):
            raise UserError(
                "calibration shows a model each series by itself: attention among series cannot learn from it"
            )
        if self.original is None:
            raise UserError("calibration needs the original, which a folder of an adapted model does not hold")
        original = family_of(self.original)
        return calibrated(original, self.swapped, data, steps, batch_size, learning_rate, seed, held_out)

    def output_errors(self, data: Any, *, seed: int = 0) -> pd.Series:
        """The relative error of the outputs of each swapped attention on windows of `data`, by layer.

        Raises:
            UserError: for a model that was loaded without its original.
        """
        return errors_of(family_of(self.restore()), self.swapped, data, seed)

    def cost(self) -> pd.DataFrame:
        """Count the cost of each swapped attention in closed form, over the most tokens that it sees.

        Returns:
            A row a layer: `layer`; `tokens`, the keys of a query; `components` of a query or key, and
            `original_components`; `score_parameters` of all heads; `score_flops` to score every pair,
            `original_flops`, and their ratio `share`. Attention among series has no tokens or flops.
        """
        rows, longest = [], self.family.longest
        for site in self.sites:
            attention = self.swapped[site.name].attention
            heads, width = attention.num_heads, attention.projection.width
            queries = keys = longest.context_tokens + longest.special_tokens
            if site.stack in ("decoder", "cross"):
                queries = self.family.decoder_tokens
                keys = keys if site.stack == "cross" else queries
            parameters, flops = attention.projection.num_params(), 2 * heads * width * queries * keys
            if site.is_over_time:
                tokens = longest.context_tokens if site.stack == "encoder" else keys
                cost = closed_form(attention, tokens)
                parameters, flops = cost.score_params, cost.score_flops + 2 * heads * width * (keys**2 - tokens**2)
            original = 2 * heads * attention.head_dim * queries * keys
            is_known = site.stack != "group"
            rows.append(
                {
                    "layer": site.name,
                    "tokens": keys if is_known else math.nan,
                    "components": width,
                    "original_components": attention.head_dim,
                    "score_parameters": parameters,
                    "score_flops": flops if is_known else math.nan,
                    "original_flops": original if is_known else math.nan,
                    "share": flops / original,
                }
            )
        return pd.DataFrame(rows)

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the model into a folder for `load_adapted`, all or nothing; the original is not in it."""
        path = folder_path(folder)
        packages = {name: importlib.metadata.version(name) for name in PACKAGES}
        record = {"format": FORMAT, "packages": packages, **self.record()}
        with whole_folder(path, record=RECORD, what="an adapted model", overwrite=overwrite) as partial:
            save_model(self.model, str(partial / WEIGHTS))
            (partial / RECORD).write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
            (partial / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n", encoding="utf-8")
            write_checksums(partial, sorted(partial.iterdir()))
        return path

    def record(self) -> dict[str, Any]:
        """Describe the model without its weights as plain data, for `rebuilt`."""
        model: Any = self.model
        generation = getattr(model, "generation_config", None)
        swaps = {name: asdict(swap) for name, swap in self.swaps.items()}
        return {
            "family": self.family.name,
            "source": {"name": model.config._name_or_path, "revision": getattr(model.config, "_commit_hash", None)},
            "attention_implementation": model.config._attn_implementation,
            "config": json.loads(model.config.to_json_string(use_diff=False)),
            "generation_config": None if generation is None else json.loads(generation.to_json_string(use_diff=False)),
            "swaps": swaps,
            "score_errors": self.score_errors,
        }

    def restore(self) -> Any:
        """The original pipeline, as it was given: its own modules and weights.

        Raises:
            UserError: if this was loaded from a folder, which does not hold the original.
        """
        if self.original is None:
            raise UserError("a folder of an adapted model does not hold the original: open that with open_pipeline")
        return self.original


def adapt(
    pipeline_or_path: Any,
    attention: Description | Sequence[Description],
    where: str | Sequence[int | str] = "encoder",
    convert: str = "copy",
    *,
    data: Any = None,
    revision: str | None = None,
    seed: int = 0,
) -> AdaptedChronos:
    """Copy a Chronos model, with another kind of attention in the layers of `where`.

    Scores keep the original's scale, relative bias and rotary positions; nothing sees missing and padded values. Tokens
    that end a context (end of sequence, REG, patches of the future) see and are seen by everything. Windows and blocks
    count tokens: values for Chronos-T5, patches for the others. Cross-attention and attention among series have no
    positions: they take `standard`, `btt`, `bilinear_mlr` and `mlbtc` alone.

    Args:
        pipeline_or_path: a pipeline, which stays as it is, or an argument of `open_pipeline`.
        attention: a kind or description, ``{kind: swa, window_size: 16}``, or a list of one for each layer, in the
            order of `where`.
        where: ``encoder``, ``decoder``, ``all`` of both, ``group`` (of Chronos-2), ``cross`` (of the others), or a list
            of layers: numbers of the encoder's, ``decoder.0``, ``group.0``, ``cross.0``.
        convert: ``copy`` keeps trained weights, for `standard`, `swa`, `mlr` and `global_swa`; ``rotate``, for `mlr`,
            keeps all scores, in a basis in which far pairs lose least; ``project``, for `btt`, `bilinear_mlr` and
            `mlbtc`, takes the nearest form of that structure, without rotary positions; ``fresh`` draws all weights.
        data: series, as `predict` of the pipeline takes them, from which `rotate` and the errors of scores learn the
            directions of tokens; without, every direction counts alike.
        revision: of a model on the hub, see `open_pipeline`.
        seed: of random numbers.

    Raises:
        UserError: for a model, attention, layer or conversion that does not exist or does not go with the others.
    """
    check_extra()
    if convert not in CONVERSIONS:
        raise UserError(f"convert must be one of {one_of(CONVERSIONS)}, not {convert!r}")
    original = pipeline_or_path
    if isinstance(pipeline_or_path, str | PathLike):
        original = open_pipeline(pipeline_or_path, revision=revision)
    elif revision is not None:
        raise UserError("revision is of a model on the hub: a pipeline that is open has its weights")
    family = family_of(original)
    sites = family.chosen_sites(where)
    descriptions = attention_per_layer(attention, len(sites))
    swaps = {site.name: Swap(one, convert) for site, one in zip(sites, descriptions, strict=True)}
    over_time = [site for site in sites if site.is_over_time]
    moments = {} if data is None else input_moments(family, over_time, data, seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        adapted = AdaptedChronos(copy.deepcopy(original), swaps, original)
        for site in adapted.sites:
            around = Surroundings(family, site, family.longest)
            errors = convert_weights(around, adapted.swapped[site.name], convert, moments.get(site.name), seed)
            if errors is not None:
                adapted.score_errors[site.name] = errors.tolist()
    return adapted


def open_weights(weights: str, revision: str | None = None) -> AdaptedChronos:
    """Open weights in float32, adapted already or with their own attention; without an original."""
    named = NamedWeights.of(weights, revision)
    if named.folder is not None and named.is_adapted:
        adapted = load_adapted(named.folder)
        adapted.model.float()
        return adapted
    return AdaptedChronos(open_pipeline(weights, revision=revision, dtype="float32"), {})


def load_adapted(folder: str | PathLike[str], *, device: str = "cpu") -> AdaptedChronos:
    """Load the adapted model in a folder; its original is not there.

    Raises:
        UserError: for another folder, one that is damaged, or without the extra `chronos`.
    """
    path = folder_path(folder)
    restore_folder(path, RECORD)
    if not (path / RECORD).exists():
        raise UserError(f"{path} is not the folder of an adapted model: it has no {RECORD}")
    if not {RECORD, WEIGHTS} <= {*check_checksums(path)}:
        raise UserError(f"{path} is damaged: {CHECKSUMS} lacks {RECORD} or {WEIGHTS}")
    try:
        record = json.loads((path / RECORD).read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise UserError(f"{path} is not the folder of an adapted model of this tsattn: {record['format']}")
        adapted = rebuilt(record)
        _fill(adapted.model, path / WEIGHTS)
    except UserError:
        raise
    except Exception as error:  # an edit may lead anywhere
        raise UserError(f"{path} is damaged: {first_line(error)[:200]}") from error
    adapted.model.eval().to(device)
    return adapted


def rebuilt(record: dict[str, Any]) -> AdaptedChronos:
    """Build the model of an `AdaptedChronos.record`, in eval mode; its weights are still to be filled in.

    Raises:
        UserError: without the extra `chronos`; any error of Python for a damaged record.
    """
    check_extra()
    family: type[ChronosFamily] = FAMILIES[record["family"]]
    if record["attention_implementation"] not in IMPLEMENTATIONS:  # transformers downloads some, and runs them
        raise ValueError(f"{shown(record['attention_implementation'])} is no attention_implementation")
    with torch.random.fork_rng():
        pipeline = family.unloaded(record["config"], record["attention_implementation"])
        if record["generation_config"] is not None:
            from transformers import GenerationConfig

            pipeline.inner_model.generation_config = GenerationConfig.from_dict(record["generation_config"])
        adapted = AdaptedChronos(pipeline, {name: Swap(**swap) for name, swap in record["swaps"].items()})
    adapted.score_errors.update(record["score_errors"])
    adapted.model.eval()
    return adapted


def add_biases(model: nn.Module, names: Iterable[str]) -> None:
    """Add the biases that weights of these names fill, of rotated keys, trained if the weights of their layers are."""
    for name in names:
        parent, _, last = name.rpartition(".")
        held = model.get_submodule(parent)
        if last == "bias" and getattr(held, last, True) is None:
            weight: Any = held.weight
            bias = nn.Parameter(torch.empty_like(weight[:, 0]), requires_grad=weight.requires_grad)
            held.register_parameter(last, bias)


def _refuse_fit(*args: Any, **kwargs: Any) -> NoReturn:
    """In the place of `Chronos2Pipeline.fit`, which would train a model without the swap."""
    raise UserError("an adapted model is not trained by its pipeline's own fit, which knows nothing of its attention")


def _fill(model: nn.Module, file: Path) -> None:
    """Give a model the weights in a file, each in the type that it was saved in."""
    with safe_open(str(file), framework="pt") as saved:
        names = [*saved.keys()]
        add_biases(model, names)
        for name in names:
            parent, _, last = name.rpartition(".")
            own = getattr(model.get_submodule(parent), last)
            own.data = own.data.to(saved.get_tensor(name).dtype)
    load_model(model, str(file), strict=True)
