"""Chronos models with swapped attention: adapt, calibrate, count the cost, save and load.

In a calibration each swapped attention learns to reproduce the outputs of the original from the original's inputs. A
saved folder holds safetensors and JSON that records the swap; nothing in it runs code. Chronos and transformers cannot
load it: its `config.json` names a type of model that they do not know.
"""

from __future__ import annotations

import copy
import importlib.metadata
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import torch
from safetensors.torch import load_file, load_model, save_model
from torch import Tensor, nn

from tsattn.attention import attention_per_layer
from tsattn.attention.cost import closed_form
from tsattn.chronos.conversions import CONVERSIONS, InputMoments, convert_weights
from tsattn.chronos.families import FAMILIES, IMPLEMENTATIONS, AttentionSite, ChronosFamily, family_of
from tsattn.chronos.opening import RECORD, NamedWeights, check_extra, open_pipeline
from tsattn.chronos.swapped_attention import Surroundings, SwappedAttention, build_swapped, mark_adapted, real_keys
from tsattn.descriptions import Description
from tsattn.errors import UserError, first_line, folder_path, one_of, positive_number, whole_number
from tsattn.saved_folders import CHECKSUMS, check_checksums, restore_folder, whole_folder, write_checksums

HELD_OUT = 5  # hold out every fifth series, or the last fifth of each series
_HELD_OUT_WINDOWS = 64
_MOMENT_WINDOWS, _BATCH = 256, 32

FORMAT = "tsattn adapted chronos 2"
WEIGHTS = "adapted.safetensors"
CONFIG = {"model_type": "tsattn-adapted-chronos", "note": "opened by tsattn.chronos.load_adapted alone"}
PACKAGES = ("tsattn", "torch", "transformers", "chronos-forecasting")


@dataclass(frozen=True)
class Swap:
    """The description of the attention at a site, and the conversion that made its weights."""

    attention: Description
    convert: str


class AdaptedChronos:
    """A Chronos pipeline with swapped attention. `adapt` and `load_adapted` make it.

    Attributes:
        pipeline: a pipeline of chronos-forecasting, which forecasts by `predict_quantiles` and its other methods.
        model: its network.
        original: the pipeline that it was made from, None if that was not opened.
        swapped: the attention at each site, by the site's name, such as ``encoder.0``.
        score_errors: error of the scores after the conversion, as a share of the original scores, by site and head.
            `project` measures all scores; `mlr` measures the scores of the farthest pairs.
    """

    def __init__(self, pipeline: Any, swaps: Mapping[str, Swap], original: Any = None) -> None:
        implementation = pipeline.inner_model.config._attn_implementation
        if implementation not in IMPLEMENTATIONS:
            raise UserError(
                f"a model with attn_implementation={implementation} cannot be adapted: open it with "
                f"{one_of(IMPLEMENTATIONS)}"
            )
        self.pipeline, self.original = pipeline, original
        self.model: nn.Module = pipeline.inner_model
        self.swaps = dict(swaps)
        self.family = family_of(pipeline)
        self.sites = [site for site in self.family.sites() if site.name in self.swaps]
        self.swapped: dict[str, SwappedAttention] = {}
        self.score_errors: dict[str, list[float]] = {}
        if not self.swaps:
            return
        layout = copy.copy(self.family.longest)
        mark_adapted(self.model, self.family, layout)
        self.pipeline.fit = _refuse_fit
        for site in self.sites:
            swap, around = self.swaps[site.name], Surroundings(self.family, site, layout)
            module = build_swapped(swap.attention, around, swap.convert).train(around.original.training)
            self.model.set_submodule(site.path, module)
            self.swapped[site.name] = module

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
        """Train each swapped attention to reproduce the outputs of its original, from the original's input tokens.

        The loss of a layer is its squared error as a share of the squared original output; nothing else is trained. A
        layer that does not improve on held-out windows keeps its weights.

        Args:
            data: series, as `predict` of the pipeline takes them; windows are drawn from them.
            steps: steps of Adam; the learning rate rises over the first tenth and falls along half a cosine.
            batch_size: windows of a step.
            learning_rate: the highest rate, as a share of the root mean square of each tensor.
            seed: seed of the windows.
            held_out: series of held-out windows; by default every fifth of `data`, or the last fifth of fewer series.

        Returns:
            Columns `layer`, `before`, `after`: the relative error of the outputs on held-out windows.

        Raises:
            UserError: for invalid arguments, a model without its original, or swapped attention among series.
        """
        if any(site.stack == "group" for site in self.sites):
            raise UserError(
                "calibration uses single series, so attention among series (where: group) cannot learn from it"
            )
        if self.original is None:
            raise UserError("calibration needs the original model, which a saved folder does not hold: adapt again")
        steps, batch_size = whole_number("steps", steps), whole_number("batch_size", batch_size)
        rate = positive_number("learning_rate", learning_rate)
        original = family_of(self.original)
        training = ContextWindows.of(data, original, self.sites)
        if held_out is None:
            training, checked = training.split()
        else:
            checked = ContextWindows.of(held_out, original, self.sites)
        generator = torch.Generator().manual_seed(seed)
        check, students = self._checked_calls(original, checked, seed), self._students()
        before = _errors(students, check)
        weights = [weight for student in students.values() for weight in student.attention.parameters()]
        for weight in weights:
            weight.requires_grad_(True)
        sizes = [float(weight.detach().square().mean().sqrt()) or 1e-3 for weight in weights]
        optimizer = torch.optim.Adam(
            [{"params": [weight], "lr": rate * size} for weight, size in zip(weights, sizes, strict=True)]
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1, 10 * (step + 1) / steps) * (1 + math.cos(math.pi * step / steps)) / 2
        )
        for _ in range(steps):
            calls = attention_calls(original, self.sites, training.draw(batch_size, generator))
            optimizer.zero_grad(set_to_none=True)
            with torch.enable_grad():
                loss = torch.stack([_loss(students[name], call) for name, call in calls.items()]).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        after = _errors(students, check)
        for name, module in self.swapped.items():
            if after[name] < before[name]:
                module.attention.load_state_dict(students[name].attention.state_dict())
        rows = [(name, before[name], min(before[name], after[name])) for name in self.swapped]
        return pd.DataFrame(rows, columns=["layer", "before", "after"])

    def output_errors(self, data: Any, *, seed: int = 0) -> pd.Series:
        """Measure the relative error of the outputs of each swapped attention on windows of `data`, by layer.

        Raises:
            UserError: if the model was loaded without its original.
        """
        original = family_of(self.restore())
        check = self._checked_calls(original, ContextWindows.of(data, original, self.sites), seed)
        return pd.Series(_errors(self._students(), check), name="error")

    def _checked_calls(self, original: ChronosFamily, windows: ContextWindows, seed: int) -> dict[str, AttentionCall]:
        drawn = windows.draw(_HELD_OUT_WINDOWS, torch.Generator().manual_seed(seed))
        return attention_calls(original, self.sites, drawn)

    def _students(self) -> dict[str, SwappedAttention]:
        """Copies of the swapped attentions in float32, to be trained on the original's inputs."""
        students = {name: copy.deepcopy(module).float().eval() for name, module in self.swapped.items()}
        for student in students.values():
            if student.layout is not None:
                student.layout.special_tokens = self.family.special_tokens
        return students

    def cost(self) -> pd.DataFrame:
        """Count the cost of each swapped attention in closed form, for the largest number of tokens that it sees.

        Returns:
            A row for each layer: `layer`; `tokens`, the keys of a query; `components` of a query or key, and
            `original_components`; `score_parameters` of all heads; `score_flops` to score every pair,
            `original_flops`, and their ratio `share`. Attention among series has no tokens or flops.
        """
        rows, longest = [], self.family.longest
        for site in self.sites:
            attention = self.swapped[site.name].attention
            heads, width, head_dim = attention.num_heads, attention.projection.width, attention.head_dim
            queries = keys = longest.context_tokens + longest.special_tokens
            if site.stack in ("decoder", "cross"):
                queries = self.family.decoder_tokens
                keys = keys if site.stack == "cross" else queries
            parameters, flops = attention.projection.num_params(), 2 * heads * width * queries * keys
            if site.is_over_time:
                tokens = longest.context_tokens if site.stack == "encoder" else keys
                cost = closed_form(attention, tokens)
                parameters, flops = cost.score_params, cost.score_flops + 2 * heads * width * (keys**2 - tokens**2)
            original = 2 * heads * head_dim * queries * keys
            rows.append((site.name, keys, width, head_dim, parameters, flops, original, flops / original))
        columns = ["layer", "tokens", "components", "original_components", "score_parameters", "score_flops"]
        table = pd.DataFrame(rows, columns=[*columns, "original_flops", "share"])
        of_series, counts = table["layer"].str.startswith("group"), ["tokens", "score_flops", "original_flops"]
        if of_series.any():
            table = table.astype(dict.fromkeys(counts, float))
            table.loc[of_series, counts] = math.nan
        return table

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the model, without the original, completely or not at all into a folder for `load_adapted`."""
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
        """Describe the model as plain data, without its weights; `rebuilt` reads it."""
        model: Any = self.model
        config, generation = model.config, getattr(model, "generation_config", None)
        return {
            "family": self.family.name,
            "source": {"name": config._name_or_path, "revision": getattr(config, "_commit_hash", None)},
            "attention_implementation": config._attn_implementation,
            "config": json.loads(config.to_json_string(use_diff=False)),
            "generation_config": generation and json.loads(generation.to_json_string(use_diff=False)),
            "swaps": {name: asdict(swap) for name, swap in self.swaps.items()},
            "score_errors": self.score_errors,
        }

    def restore(self) -> Any:
        """Return the original pipeline with its modules and weights unchanged.

        Raises:
            UserError: if the model was loaded from a folder, which does not hold the original.
        """
        if self.original is None:
            raise UserError("a saved adapted model does not hold the original: open it with open_pipeline(name)")
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

    Scores keep the original's scale, relative bias and rotary positions. No token sees missing or padded values.
    Special tokens (end of sequence, REG, patches of the future) see every token, and every token sees them. Windows
    and blocks count tokens: values for Chronos-T5, patches for the others. Cross-attention and attention among series
    have no positions, so they only take `standard`, `btt`, `bilinear_mlr` and `mlbtc`.

    Args:
        pipeline_or_path: a pipeline, which is not changed, or an argument of `open_pipeline`.
        attention: a kind or description, such as ``{kind: swa, window_size: 16}``, or a list with one for each layer
            of `where`.
        where: ``encoder``, ``decoder``, ``all`` (both), ``group`` (Chronos-2), ``cross`` (the others), or a list of
            layers: numbers of encoder layers, ``decoder.0``, ``group.0``, ``cross.0``.
        convert: ``copy`` keeps the trained weights of `standard`, `swa`, `mlr` and `global_swa`. ``rotate`` is for
            `mlr`: it keeps all scores, in the basis in which far pairs lose least. ``project`` takes the nearest form
            for `btt`, `bilinear_mlr` and `mlbtc`, without rotary positions. ``fresh`` draws all weights.
        data: series, as `predict` of the pipeline takes them. `rotate` and the errors of scores learn the directions
            of tokens from them; without data, all directions count equally.
        revision: revision of a model on the hub, see `open_pipeline`.
        seed: seed of random numbers.

    Raises:
        UserError: for a model, attention, layer or conversion that does not exist or does not fit the others.
    """
    check_extra()
    if convert not in CONVERSIONS:
        raise UserError(f"convert must be one of {one_of(CONVERSIONS)}, not {convert!r}")
    original = pipeline_or_path
    if isinstance(pipeline_or_path, str | PathLike):
        original = open_pipeline(pipeline_or_path, revision=revision)
    elif revision is not None:
        raise UserError("revision needs the name of a model on the hub, not an open pipeline: leave it out")
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
    """Open weights in float32, adapted or not, without keeping an original."""
    named = NamedWeights.of(weights, revision)
    if named.folder is not None and named.is_adapted:
        adapted = load_adapted(named.folder)
        adapted.model.float()
        return adapted
    return AdaptedChronos(open_pipeline(weights, revision=revision, dtype="float32"), {})


def load_adapted(folder: str | PathLike[str], *, device: str = "cpu") -> AdaptedChronos:
    """Load an adapted model from a folder; the folder does not hold its original.

    Raises:
        UserError: for a folder that `save` did not write or that is damaged, or without the extra `chronos`.
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
            raise UserError(f"{path} has the format {record['format']}, not {FORMAT}; adapt the model again")
        adapted = rebuilt(record)
        dtypes = {name: part.dtype for name, part in load_file(path / WEIGHTS).items()}
        add_biases(adapted.model, dtypes)
        for name, dtype in dtypes.items():
            parent, _, last = name.rpartition(".")
            own = getattr(adapted.model.get_submodule(parent), last)
            own.data = own.data.to(dtype)
        load_model(adapted.model, path / WEIGHTS, strict=True)
    except UserError:
        raise
    except Exception as error:  # an edited record may raise any error
        raise UserError(f"{path} is damaged: {first_line(error)[:200]}") from error
    adapted.model.to(device)
    return adapted


def rebuilt(record: dict[str, Any]) -> AdaptedChronos:
    """Build the model of an `AdaptedChronos.record`, in eval mode; its weights must be loaded afterwards."""
    check_extra()
    with torch.random.fork_rng():
        pipeline = FAMILIES[record["family"]].unloaded(record["config"], record["attention_implementation"])
        if record["generation_config"] is not None:
            from transformers import GenerationConfig

            pipeline.inner_model.generation_config = GenerationConfig.from_dict(record["generation_config"])
        adapted = AdaptedChronos(pipeline, {name: Swap(**swap) for name, swap in record["swaps"].items()})
    adapted.score_errors.update(record["score_errors"])
    adapted.model.eval()
    return adapted


def add_biases(model: nn.Module, names: Iterable[str]) -> None:
    """Add biases of rotated keys for the weights of these names; train them if their layers' weights are trained."""
    for name in names:
        parent, _, last = name.rpartition(".")
        held = model.get_submodule(parent)
        if last == "bias" and getattr(held, last, True) is None:
            weight: Any = held.weight
            bias = nn.Parameter(torch.empty_like(weight[:, 0]), requires_grad=weight.requires_grad)
            held.register_parameter(last, bias)


def _refuse_fit(*args: Any, **kwargs: Any) -> NoReturn:
    """Replace `Chronos2Pipeline.fit`, which would train a model without the swapped attention."""
    raise UserError("pipeline.fit would lose the swapped attention: train the predictor chronos instead")


@dataclass(frozen=True)
class ContextWindows:
    """Windows of at most `length` values of `series (N,)`; each series has the first and last valid end of a window."""

    series: Sequence[tuple[Tensor, int, int]]
    length: int

    @classmethod
    def of(cls, data: Any, family: ChronosFamily, sites: Sequence[AttentionSite]) -> ContextWindows:
        """Take all windows of `data`, a list of series: the context, and the future if the sites read it."""
        rows = list(data) if isinstance(data, Sequence | Tensor) or hasattr(data, "__array__") else []
        try:
            series = [torch.as_tensor(row, dtype=torch.float32).cpu() for row in rows]
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError("data must be a list of series, each a row of numbers") from error
        if not series or any(row.dim() != 1 or not torch.isfinite(row).any() for row in series):
            raise UserError("data must be a list of series, each a row of numbers with at least one observed value")
        length = family.context_length + (family.steps_at_once if family.reads_future(sites) else 0)
        return cls([(row, min(length, len(row)), len(row)) for row in series], length)

    def split(self) -> tuple[ContextWindows, ContextWindows]:
        """Windows for training, and held-out windows: of every fifth series, or with fewer, of each last fifth."""
        learned, held = [*self.series], [*self.series[HELD_OUT - 1 :: HELD_OUT]]
        del learned[HELD_OUT - 1 :: HELD_OUT]
        if not held:
            borders = [(*one, one[2] - max(1, (one[2] - one[1]) // HELD_OUT)) for one in self.series]
            learned = [(row, min(first, at), max(at, 1)) for row, first, _, at in borders]
            held = [(row, min(at + 1, last), last) for row, _, last, at in borders]
        return ContextWindows(learned, self.length), ContextWindows(held, self.length)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw `count` windows, all series equally likely: `(count, length)`, shorter windows with NaN in front."""
        windows = torch.full((count, min(self.length, max(last for *_, last in self.series))), torch.nan)
        for window, at in zip(windows, torch.randint(len(self.series), (count,), generator=generator), strict=True):
            row, first, last = self.series[int(at)]
            end = int(torch.randint(first, last + 1, (), generator=generator))
            values = row[max(0, end - len(window)) : end]
            window[len(window) - len(values) :] = values
        return windows


@dataclass(frozen=True)
class AttentionCall:
    """A call of an attention: tokens `(B, N, D)`, other arguments, output `(B, N, D)`, mask of real tokens `(B, N)`."""

    tokens: Tensor
    others: dict[str, Any]
    output: Tensor
    real: Tensor


@torch.no_grad()
def attention_calls(family: ChronosFamily, sites: Sequence[AttentionSite], windows: Tensor) -> dict[str, AttentionCall]:
    """Record the call of the attention at each site, by site name, in float32, on windows `(B, length)`."""
    calls: dict[str, AttentionCall] = {}

    def exact(value: Any) -> Any:
        return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value

    def record(site: AttentionSite, _: Any, args: tuple[Any, ...], others: dict[str, Any], output: Any) -> None:
        tokens = exact(args[0])
        real = real_keys(others.get("mask")) if site.stack == "encoder" else None
        if real is None:
            real = torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
        left_out = ("past_key_values", "output_attentions")
        kept = {name: exact(value) for name, value in others.items() if name not in left_out}
        calls[site.name] = AttentionCall(tokens, kept, exact(output[0]), real.expand(tokens.shape[:2]))

    model = family.network
    was_training, attentions = model.training, [(site, model.get_submodule(site.path)) for site in sites]
    hooks = [one.register_forward_hook(partial(record, site), with_kwargs=True) for site, one in attentions]
    try:
        model.eval()
        family.run(windows, family.reads_future(sites))
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return calls


def input_moments(
    family: ChronosFamily, sites: Sequence[AttentionSite], data: Any, seed: int
) -> dict[str, InputMoments]:
    """Moments of the tokens at each site, over windows drawn from the data, without special tokens."""
    windows = ContextWindows.of(data, family, sites)
    generator = torch.Generator().manual_seed(seed)
    sums: dict[str, tuple[Any, Any, int]] = {}
    for _ in range(_MOMENT_WINDOWS // _BATCH):
        for name, call in attention_calls(family, sites, windows.draw(_BATCH, generator)).items():
            real = call.real
            if name.startswith("encoder"):
                real = real[:, : real.shape[1] - family.special_tokens]
            x = call.tokens[:, : real.shape[1]][real].double()
            second, total, count = sums.get(name, (0, 0, 0))
            sums[name] = second + x.T @ x, total + x.sum(0), count + len(x)
    return {name: InputMoments(second / count, total / count) for name, (second, total, count) in sums.items()}


def _loss(student: SwappedAttention, call: AttentionCall) -> Tensor:
    """Squared error of the output over real tokens, as a share of the original's squared output."""
    found, expected = student(call.tokens, **call.others)[0][call.real], call.output[call.real]
    share: Tensor = (found - expected).square().sum() / expected.square().sum().clamp(min=1e-37)
    return share


@torch.no_grad()
def _errors(students: Mapping[str, SwappedAttention], calls: Mapping[str, AttentionCall]) -> dict[str, float]:
    return {name: float(_loss(students[name], call).sqrt()) for name, call in calls.items()}
