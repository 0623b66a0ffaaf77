"""`tiny`, the pretrained model of this package: as it is, with its attention swapped, or fine-tuned."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_type_hints

import torch
from einops import rearrange
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from typing_extensions import override

from tsattn import descriptions
from tsattn.backbones.base import Backbone
from tsattn.batch import Batch
from tsattn.descriptions import Description
from tsattn.errors import UserError, folder_path, one_line, one_of, whole_number
from tsattn.layers import at_levels
from tsattn.predictors.base import AnyHorizon, Attending, Predictor, last_context, moved_on
from tsattn.predictors.network import NetworkPredictor
from tsattn.pretrained.guesses import guess
from tsattn.pretrained.tiny_network import LEVELS, LONGEST, PATCH, TinyNetwork, standardised
from tsattn.task import MEDIAN, Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training

logger = logging.getLogger("tsattn")

TRAINED = ("all", "attention")
AT_ONCE = 192  # steps that are forecast in one pass; longer horizons continue from the medians
SHIPPED = "tiny"
ROWS_AT_ONCE = 64  # series forecast at once, which bounds the memory; more are slower
_FORMAT = "tsattn tiny 1"
_SUFFIX = ".safetensors"
_WEIGHTS = Path(__file__).parent / "weights" / f"{SHIPPED}{_SUFFIX}"


@dataclass(frozen=True, kw_only=True)
class TinyOptions:
    """The weights, changes to them, and the part that a fit trains.

    Attributes:
        weights: ``tiny``, the weights of this package, or the path of a file that `save_tiny` wrote.
        context_length: past steps to read if nothing is fitted; 2048 by default, or all steps of a shorter series.
        attention: replaces the encoder's attention, whose tokens are patches of 16 steps. Weights stay where names and
            shapes fit: everywhere for `standard`, `swa`, `mlr` and `global_swa`.
        trained: None keeps the weights; ``all`` trains all of them, ``attention`` only the encoder's attention.

    Raises:
        UserError: for an option out of its range, or two options that exclude each other.
    """

    weights: str = SHIPPED
    context_length: int | None = None
    attention: Description | Sequence[Description] | None = None
    trained: str | None = None

    def __post_init__(self) -> None:
        if self.trained not in (None, *TRAINED):
            raise UserError(f"trained must be null or one of {one_of(TRAINED)}, not {self.trained!r}")
        if self.context_length is not None:
            whole_number("context_length", self.context_length)
            if self.trained is not None:
                raise UserError("a trained tiny takes data.context_length: leave context_length out of its description")


class TinyBackbone(Backbone):
    """A `TinyNetwork` for the channels of a batch, each by itself. Its arguments are `TinyOptions`."""

    __signature__ = inspect.signature(TinyOptions)  # which descriptions read
    token: ClassVar[str] = "patch"
    emits_quantiles: ClassVar[bool] = True
    is_pretrained: ClassVar[bool] = True
    uses_covariates: ClassVar[bool] = True  # the predictor says that it does not

    def __init__(self, task: Task, output: Output, **options: Any) -> None:
        super().__init__()
        self.options = TinyOptions(**options)
        self.season, self.horizon = task.season_length, task.prediction_length
        self.levels, self.is_point = output.quantiles or (MEDIAN,), not output.quantiles
        try:
            self._use(load_tiny(self.options))
        except UserError:
            if not torch.empty(0).is_meta:
                raise
            self._use(TinyNetwork())  # until a saved state is loaded, which needs no file

    def _use(self, network: TinyNetwork) -> None:
        self.network = network
        if self.options.trained == "attention":
            for name, part in network.named_parameters():
                part.requires_grad_(name.startswith("encoder.") and ".attention." in name)

    @override
    def get_extra_state(self) -> Tensor:
        device = "meta" if self.network.head.weight.is_meta else "cpu"
        return torch.tensor([*json.dumps(self.network.sizes).encode()], dtype=torch.uint8, device=device)

    @override
    def set_extra_state(self, state: Tensor) -> None:
        """Take the sizes of a saved network, whose weights are loaded next."""
        if (sizes := bytes(state.tolist()).decode()) != json.dumps(self.network.sizes):
            with torch.device("meta"):
                self._use(TinyNetwork(**json.loads(sizes)))

    @classmethod
    @override
    def title(cls, description: Mapping[str, Any]) -> str:
        return super().title({**description, "kind": Path(description["weights"]).name.removesuffix(_SUFFIX)})

    @override
    def token_ends(self, count: int) -> list[int | str] | None:
        """Ends of the encoder's tokens: of the patches, and of the token with facts about the whole row."""
        return [*(PATCH * place for place in range(2 - count, 1)), "facts"]

    @override
    def forward(self, batch: Batch, horizon: int | None = None) -> Tensor:
        """Forecast the horizon of the task, or any other: `(B, T, C, Q)`, or `(B, T, C)` of a point forecast."""
        horizon = self.horizon if horizon is None else horizon
        pieces, median, L = list[Tensor](), self.levels.index(MEDIAN), batch.past.shape[1]
        for start in range(0, horizon, AT_ONCE):
            piece = self._forecast_at_once(batch, min(AT_ONCE, horizon - start))
            if pieces:  # what is uncertain at the last step is uncertain at all later steps
                before, after = (one - one[..., median : median + 1] for one in (pieces[-1][:, -1:], piece))
                piece = piece - after + torch.hypot(before, after) * (before + after).sign()
            pieces.append(piece)
            if start + AT_ONCE < horizon:
                batch = moved_on(batch, piece[..., median].detach(), L)
        found = torch.cat(pieces, 1)
        return found[..., 0] if self.is_point else found

    def _forecast_at_once(self, batch: Batch, horizon: int) -> Tensor:
        known = batch.past.isfinite()
        if batch.past_observed is not None:
            known &= batch.past_observed
        past, known = (rearrange(part[:, -LONGEST:], "B L C -> (B C) L") for part in (batch.past, known))
        if not torch.compiler.is_compiling():  # steps that no row knows take no time
            first = int(known.any(0).to(torch.int8).argmax())
            past, known = past[:, first:], known[:, first:]
        season = torch.full_like(past[:, 0], self.season, dtype=torch.long)
        values, level, size = standardised(past, known, season)
        zero: Tensor | float = 0.0 if batch.units is None else (-batch.units.mean / batch.units.scale).flatten()
        rows = values, known, season, ((zero - level) / size).float()
        if torch.compiler.is_compiling():  # a file takes any number of rows
            found = self._quantiles(horizon, *rows)
        else:
            parts = zip(*(one.split(ROWS_AT_ONCE) for one in rows), strict=True)  # type: ignore[no-untyped-call]
            found = torch.cat([self._quantiles(horizon, *part) for part in parts])
        found = found.to(level.dtype) * size[:, None, None] + level[:, None, None]
        found = at_levels(found, LEVELS, self.levels).to(batch.past.dtype)
        return rearrange(found, "(B C) T Q -> B T C Q", C=batch.past.shape[-1])

    def _quantiles(self, horizon: int, values: Tensor, known: Tensor, season: Tensor, origin: Tensor) -> Tensor:
        return cast(Tensor, self.network(values, known, guess(values, known, season, horizon, origin)))


class Tiny(AnyHorizon, NetworkPredictor):
    """A `TinyBackbone` with the arguments of `TinyOptions`; without `trained` it forecasts without a fit.

    It reads how many steps a season has from the frequency. Quantiles between its levels, .01 to .99, are interpolated.
    """

    steps_at_once = AT_ONCE

    def __init__(self, backbone: Description) -> None:
        super().__init__(backbone)
        descriptions.check_types(self.arguments, get_type_hints(TinyOptions), "predictor tiny")
        self.options = TinyOptions(**self.arguments)
        self.is_trained = self.needs_fit = self.options.trained is not None
        self.uses_covariates, self.reads_short = False, not self.needs_fit

    @property
    @override
    def context_length(self) -> int:
        return self.task.context_length if self.needs_fit else self.options.context_length or LONGEST

    @override
    def with_context(self, context_length: int) -> Predictor:
        if self.needs_fit or self.options.context_length is not None:
            return self
        return type(self)({**self.description, "context_length": context_length})

    @property
    @override
    def summary(self) -> str:
        return f"{self.name}: {self.num_parameters:,} parameters, pretrained"

    @override
    def pretraining(self, data: str) -> str:
        try:
            return "seen" if data in read_head(self.options.weights)["trained_on"] else "unseen"
        except UserError:  # a saved model needs no file
            return "unknown"

    @override
    def attending(self) -> dict[str, Attending]:
        encoder = cast(TinyBackbone, self.backbone).network.encoder
        return {"": Attending(encoder, self.backbone.token, self.backbone.token_ends)}

    @override
    def check_output(self, output: Output) -> None:
        super().check_output(output)
        if outside := [level for level in output.quantiles if not LEVELS[0] <= level <= LEVELS[-1]]:
            raise UserError(f"{self.name} forecasts quantiles from 0.01 to 0.99: {outside[0]} is outside")

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        self.check_output(output)
        super().build(task, output, empty=empty)
        if unread := [*task.past_covariates, *task.future_covariates, *task.static]:
            logger.warning("%s does not use covariates: %s", self.name, one_of(unread))

    @override
    def check_fit(self, data: ForecastDataModule, training: Training) -> None:
        read_head(self.options.weights)
        super().check_fit(data, training)

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        if self.pretraining(self.task.data) == "seen":
            training.say(f"{self.name} was pretrained on the training part of the public data set {self.task.data}")
        if self.is_trained:
            return super().fit(data, training)
        super().build(self.task, self.output)  # the check built it without weights
        return {}

    @override
    def forecast_to(self, batch: Batch, horizon: int) -> Tensor:
        return cast(Tensor, self.backbone(last_context(batch, self.context_length), horizon))


def read_head(weights: str) -> dict[str, Any]:
    """Read sizes and facts from the head of a weights file, and its ``path``: by a shipped name, or by a path.

    Raises:
        UserError: for a missing file, or a file that `save_tiny` did not write.
    """
    path = _WEIGHTS if weights == SHIPPED else folder_path(weights)
    if path.suffix != _SUFFIX or not path.is_file():
        raise UserError(f"weights must be {SHIPPED}, or the path of a {_SUFFIX} file for tiny, not {weights!r}")
    try:
        with safe_open(path, framework="pt") as file:
            head = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read: {one_line(error)}") from error
    if head.get("format") != _FORMAT:
        raise UserError(f"{path} holds no weights of tiny: its format is {head.get('format')!r}")
    try:
        model: dict[str, Any] = json.loads(head["model"])
        with torch.device("meta"):
            TinyNetwork(**model["sizes"])
        return {"trained_on": (), **model, "path": path}
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: its header lacks the sizes of the network") from error


def load_tiny(options: TinyOptions) -> TinyNetwork:
    """Build the network with its weights, in float32; on the device ``meta`` without them.

    Raises:
        UserError: for missing or damaged weights, and for a new attention whose own weights are not to be trained.
    """
    head, attention = read_head(options.weights), options.attention
    path, sizes = head["path"], head["sizes"] if attention is None else {**head["sizes"], "attention": attention}
    with torch.device("meta"):  # this draws no random numbers
        network = TinyNetwork(**sizes)
    if torch.empty(0).is_meta:
        return network
    try:
        state = {name: part.float() for name, part in load_file(path).items()}
        if not all(bool(part.isfinite().all()) for part in state.values()):
            raise UserError(f"{path} is damaged: it holds weights that are not finite")
        if attention is not None:
            shapes = {name: part.shape for name, part in network.state_dict().items() if ".attention." in name}
            fresh = {name for name, shape in shapes.items() if name not in state or state[name].shape != shape}
            if fresh and options.trained is None:
                raise UserError(
                    f"this attention has weights that {SHIPPED} lacks: train them with trained: attention, or all"
                )
            state = {name: part for name, part in state.items() if ".attention." not in name or name in shapes}
            state |= {name: part for name, part in TinyNetwork(**sizes).state_dict().items() if name in fresh}
        network.load_state_dict(state, assign=True)
    except (SafetensorError, RuntimeError) as error:
        raise UserError(f"{path} is damaged: {one_line(error, 200)}") from error
    return network.cpu()  # which fills constants


def save_tiny(path: Path, network: nn.Module, sizes: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write a file for `load_tiny` in float16, with sizes, and facts of its training, including ``trained_on``."""
    parts = {name: part.detach().half().contiguous() for name, part in network.state_dict().items()}
    save_file(parts, path, metadata={"format": _FORMAT, "model": json.dumps({"sizes": dict(sizes), **facts})})
