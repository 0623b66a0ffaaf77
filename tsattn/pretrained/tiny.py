"""`tiny`, the pretrained model that comes with this package: as it is, with its attention swapped, or fine-tuned."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

import torch
from einops import rearrange
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from typing_extensions import override

from tsattn import descriptions
from tsattn.attention import complete_attention
from tsattn.backbones.base import Backbone
from tsattn.batch import Batch, WindowUnits
from tsattn.descriptions import Description
from tsattn.errors import UserError, folder_path, one_of, whole_number
from tsattn.pretrained.guesses import guess
from tsattn.pretrained.tiny_network import LEVELS, LONGEST, TinyNetwork, standardised
from tsattn.predictors.base import AnyHorizon, Predictor, last_context, moved_on
from tsattn.predictors.network import NetworkPredictor
from tsattn.task import MEDIAN, Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training

logger = logging.getLogger("tsattn")

TRAINED = ("all", "attention")
AT_ONCE = 192  # steps that are forecast in one pass; longer horizons go on from the medians
SHIPPED = "tiny"
ROWS_AT_ONCE = 512  # series forecast at once, which bounds the memory
_FORMAT = "tsattn tiny 1"
_SUFFIX = ".safetensors"
_WEIGHTS = Path(__file__).parent / "weights" / f"{SHIPPED}{_SUFFIX}"


@dataclass(frozen=True, kw_only=True)
class TinyOptions:
    """Weights, what happens to them, and what a fit changes.

    Attributes:
        weights: ``tiny``, those that come with this package, or the path of a file of `save_tiny`.
        context_length: past steps to read if nothing is fitted; 2048 by default, of shorter series all.
        attention: replaces that of the encoder, which keeps its weights where the parts of the new one have their
            names and shapes, as those of `standard`, `swa`, `mlr` and `global_swa` do. Tokens are patches of 16 steps.
        trained: None keeps the weights; ``all`` trains them, and ``attention`` those of the encoder's attention alone.

    Raises:
        UserError: for one out of its range, or two that do not go together.
    """

    weights: str = SHIPPED
    context_length: int | None = None
    attention: Description | Sequence[Description] | None = None
    trained: str | None = None

    def __post_init__(self) -> None:
        if self.context_length is not None:
            whole_number("context_length", self.context_length)
        if self.trained is not None and self.trained not in TRAINED:
            raise UserError(f"trained must be null or one of {one_of(TRAINED)}, not {self.trained!r}")
        if self.trained is not None and self.context_length is not None:
            raise UserError("context_length is of a model that is used as it is: one that is fitted has that of the data")


class TinyBackbone(Backbone):
    """A `TinyNetwork` for the channels of a batch, each by itself. Its arguments are `TinyOptions`."""

    __signature__ = inspect.signature(TinyOptions)  # which descriptions read

    token: ClassVar[str] = "patch"
    emits_quantiles: ClassVar[bool] = True
    uses_covariates: ClassVar[bool] = True  # their predictor says that it does not

    def __init__(self, task: Task, output: Output, **options: Any) -> None:
        super().__init__()
        self.options = TinyOptions(**options)
        self.season, self.horizon = task.season_length, task.prediction_length
        self.levels = output.quantiles or (MEDIAN,)
        self.is_point = not output.quantiles
        self.network = load_tiny(self.options.weights, self.options.attention)
        self.network.requires_grad_(self.options.trained == "all")
        if self.options.trained == "attention":
            for block in self.network.encoder:
                block.attention.requires_grad_(True)

    @classmethod
    @override
    def complete(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        complete = {**descriptions.defaults(cls), **arguments}
        return complete if complete["attention"] is None else super().complete(arguments)

    @classmethod
    @override
    def title(cls, description: Mapping[str, Any]) -> str:
        own = Path(description["weights"]).name.removesuffix(_SUFFIX)
        return super().title({**description, "kind": own})

    @override
    def forward(self, batch: Batch) -> Tensor:
        return self.forecast(batch, self.horizon)

    def forecast(self, batch: Batch, horizon: int) -> Tensor:
        """Forecast at most `AT_ONCE` steps `(B, horizon, C, Q)`, or `(B, horizon, C)` of a point forecast."""
        C = batch.past.shape[-1]
        past = rearrange(batch.past, "B L C -> (B C) L")[:, -LONGEST:]
        observed = torch.ones_like(batch.past, dtype=torch.bool) if batch.past_observed is None else batch.past_observed
        known = rearrange(observed, "B L C -> (B C) L")[:, -LONGEST:]
        zero = batch.past.new_zeros(len(past)) if batch.units is None else rearrange(_zero(batch.units), "B C -> (B C)")
        if torch.compiler.is_compiling():  # a file takes any number of rows
            found = self._quantiles(past, known, zero, horizon)
        else:
            parts = zip(*(one.split(ROWS_AT_ONCE) for one in (past, known, zero)), strict=True)
            found = torch.cat([self._quantiles(*part, horizon) for part in parts])
        found = rearrange(found, "(B C) T Q -> B T C Q", C=C).to(batch.past.dtype)
        return found[..., 0] if self.is_point else found

    def _quantiles(self, past: Tensor, known: Tensor, zero: Tensor, horizon: int) -> Tensor:
        season = torch.full_like(past[:, 0], self.season, dtype=torch.long)
        values, level, size = standardised(past, known, season)
        made = guess(values, known, season, horizon, ((zero - level) / size).float())
        quantiles = self.network(values, known, made)
        quantiles = quantiles.to(level.dtype) * size[:, None, None] + level[:, None, None]
        return at_levels(quantiles, LEVELS, self.levels)

    @override
    def token_ends(self, count: int) -> list[int | str] | None:
        return None


def _zero(units: WindowUnits) -> Tensor:
    """What 0 in original units is on the scale of the batch, `(B, C)`."""
    return -units.mean / units.scale


class Tiny(NetworkPredictor, AnyHorizon):
    """A `TinyBackbone` with the arguments of `TinyOptions`; without `trained` it forecasts without a fit.

    It reads how many steps a season has from the frequency. Quantiles between its levels, .01 to .99, are interpolated.
    """

    def __init__(self, backbone: Description) -> None:
        super().__init__(backbone)
        descriptions.check_types(self.arguments, get_type_hints(TinyOptions), "predictor tiny")
        self.options = TinyOptions(**self.arguments)
        self.is_trained = self.needs_fit = self.options.trained is not None
        self.uses_covariates = False

    @property
    @override
    def context_length(self) -> int:
        if self.needs_fit:
            return self.task.context_length
        return LONGEST if self.options.context_length is None else self.options.context_length

    @override
    def with_context(self, context_length: int) -> Predictor:
        if self.needs_fit or self.options.context_length is not None:
            return self
        return type(self)({**self.description, "context_length": context_length})

    @property
    @override
    def steps_at_once(self) -> int:
        return AT_ONCE

    @property
    @override
    def num_parameters(self) -> int:
        network = self.backbone if hasattr(self, "network") else load_tiny(self.options.weights, None)
        return sum(part.numel() for part in network.parameters() if part.requires_grad or not self.is_trained)

    @property
    @override
    def summary(self) -> str:
        return f"{self.name}: {self.num_parameters:,} parameters, pretrained"

    @override
    def pretraining(self, data: str) -> str:
        return "seen" if data in head_of(self.options.weights)["trained_on"] else "unseen"

    @override
    def check_output(self, output: Output) -> None:
        super().check_output(output)
        for level in output.quantiles:
            if not LEVELS[0] <= level <= LEVELS[-1]:
                raise UserError(f"{self.name} forecasts quantiles from {LEVELS[0]} to {LEVELS[-1]}: {level} lies outside")

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        self.check_output(output)
        super().build(task, output, empty=empty)
        if unread := [*task.past_covariates, *task.future_covariates, *task.static]:
            logger.warning("%s leaves covariates unread: %s", self.name, one_of(unread))

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        if self.pretraining(self.task.data) == "seen":
            training.say(f"the pretraining of {self.name} saw the training part of the public data set {self.task.data}")
        if self.is_trained:
            return super().fit(data, training)
        super().build(self.task, self.output)  # what was checked was empty
        return {}

    @override
    def check_fit(self, data: ForecastDataModule, training: Training) -> None:
        if self.is_trained:
            super().check_fit(data, training)
        else:
            Predictor.check_fit(self, data, training)

    @override
    def forward(self, batch: Batch) -> Tensor:
        return self.forecast_to(batch, self.task.prediction_length)

    @override
    def forecast_to(self, batch: Batch, horizon: int) -> Tensor:
        batch = last_context(batch, self.context_length)
        backbone, pieces, median = self.backbone, list[Tensor](), self.output.median
        assert isinstance(backbone, TinyBackbone)
        for start in range(0, horizon, AT_ONCE):
            piece = backbone.forecast(batch, min(AT_ONCE, horizon - start))
            if pieces and median is not None:  # what is not known of the last step is not known of those after it
                before, after = (one - one[..., median : median + 1] for one in (pieces[-1][:, -1:], piece))
                piece = piece - after + torch.hypot(before, after) * after.sign()
            pieces.append(piece)
            if start + AT_ONCE < horizon:
                batch = moved_on(batch, piece if median is None else piece[..., median], batch.past.shape[1])
        return torch.cat(pieces, 1)


def at_levels(quantiles: Tensor, own: Sequence[float], asked: Sequence[float]) -> Tensor:
    """Interpolate quantiles `(..., Q)` of the rising levels `own` to `(..., len(asked))`, levels within these."""
    if [*own] == [*asked]:
        return quantiles
    known, levels = torch.tensor([*own], dtype=torch.float64), torch.tensor([*asked], dtype=torch.float64)
    after = torch.searchsorted(known, levels).clamp(min=1)
    share = (levels - known[after - 1]) / (known[after] - known[after - 1])
    return torch.lerp(quantiles[..., after - 1], quantiles[..., after], share.to(quantiles))


def file_of(weights: str | PathLike[str]) -> Path:
    """Find the file that a shipped name or a path means."""
    if weights == SHIPPED:
        return _WEIGHTS
    path = folder_path(weights)
    if path.suffix != _SUFFIX or not path.is_file():
        raise UserError(f"weights must be {SHIPPED}, or the path of a {_SUFFIX} file of its kind, not {str(weights)!r}")
    return path


def head_of(weights: str | PathLike[str]) -> dict[str, Any]:
    """Read sizes, attention and origin of weights from the head of their file."""
    path = file_of(weights)
    try:
        with safe_open(path, framework="pt") as file:
            head = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if head.get("format") != _FORMAT:
        raise UserError(f"{path} holds no weights of tiny: its format is {head.get('format')!r}")
    made: dict[str, Any] = json.loads(head["model"])
    return made


def load_tiny(weights: str | PathLike[str], attention: Description | Sequence[Description] | None) -> TinyNetwork:
    """Build the network with its weights, in float32 and eval mode; on the device ``meta`` without them."""
    head, path = head_of(weights), file_of(weights)
    sizes = {**head["sizes"], **({} if attention is None else {"attention": attention})}
    network = TinyNetwork(**sizes)
    if network.head.weight.is_meta:
        return network
    try:
        with safe_open(path, framework="pt") as file:
            state = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118, it is no mapping
        fitting = {name: part for name, part in network.state_dict().items() if name in state}
        if attention is not None:  # parts that the new attention has not, or has in other shapes, stay as they are
            state = {name: part for name, part in state.items() if name in fitting and part.shape == fitting[name].shape}
        network.load_state_dict(state, strict=attention is None)
    except (SafetensorError, RuntimeError) as error:
        raise UserError(f"{path} is damaged: {' '.join(str(error).split())[:200]}") from error
    if not all(bool(part.isfinite().all()) for part in state.values()):
        raise UserError(f"{path} is damaged: it holds weights that are not finite")
    return network.eval()


def save_tiny(path: Path, network: nn.Module, sizes: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write a file for `load_tiny` in float16, with sizes, and facts of its training, ``trained_on`` among them."""
    parts = {name: part.detach().half().contiguous() for name, part in network.state_dict().items()}
    save_file(parts, path, metadata={"format": _FORMAT, "model": json.dumps({"sizes": dict(sizes), **facts})})
