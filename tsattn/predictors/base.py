"""The protocol of predictors: they forecast windows, some after a fit, over any horizon.

Shape letters: B windows, L context length, T prediction length, C channels, Q quantiles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor, nn
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.predictors import PREDICTORS
from tsattn.scaler import Units
from tsattn.task import Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Execution, Training

# fields of a batch by the steps that they cover: the context alone, and the horizon too
_PAST = ("past", "past_observed", "past_covariates", "past_covariates_observed")
_WHOLE = ("time", "future_covariates", "future_covariates_observed")

_WORDS = {
    **{"patchtst": "PatchTST", "itransformer": "iTransformer", "btt": "BTT", "mlr": "MLR", "mlbtc": "MLBTC"},
    **{"bilinear_mlr": "bilinear MLR", "swa": "sliding-window", "global_swa": "global sliding-window", "ets": "ETS"},
}


@dataclass(frozen=True)
class Attending:
    """Network whose attention can be looked at."""

    network: nn.Module  # that the predictor calls
    token: str  # what a token is, in one word
    token_ends: Callable[[int], list[int | str] | None]  # see `tsattn.backbones.base.Backbone.token_ends`


class Predictor(nn.Module, ABC):
    """Base class of everything that forecasts windows: networks, closed forms, averages and other libraries.

    A predictor is made of plain data (its arguments), learns the sizes of a task in `build`, and is fitted to data in
    `fit`. Its `state_dict` holds all results of a fit. Another predictor of the same description, built for the same
    task, forecasts the same once this state is loaded.

    Args:
        **arguments: all arguments of the subclass by name, which takes each by keyword, with a type: with its kind they
            are its description.
    """

    needs_fit: bool = True  # before it forecasts; False if it is ready after `build`
    is_trained: bool = False  # by gradients, so that `fit` takes the options of a training
    emits_quantiles: bool = False  # the quantiles that it is built for; else it forecasts only points
    uses_covariates: bool = False  # all of them, and static columns; else it leaves them unread
    reads_short: bool = False  # takes series with fewer rows than its context, which are padded
    task: Task  # once built
    output: Output  # once built

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments

    @property
    def description(self) -> dict[str, Any]:
        """Its kind and all arguments, with their defaults, as plain data."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        kind = next((kind for kind, home in PREDICTORS.items() if home == path), path)
        return {"kind": kind, **self.arguments}

    def with_context(self, context_length: int) -> Predictor:
        """Return a copy with this context length; self if the length is fixed by the task."""
        return self

    def pretraining(self, data: str) -> str:
        """Return whether pretrained weights have ``seen`` a public data set: also ``unseen``, ``unknown``; or empty."""
        return ""

    @property
    def name(self) -> str:
        """Name in tables and of run folders."""
        return str(self.description["kind"])

    @property
    def title(self) -> str:
        """Name in plain words, e.g. ``PatchTST with MLR attention``."""
        attention = self.description.get("attention") or []
        layers = attention if isinstance(attention, list) else [attention]
        kinds = dict.fromkeys(layer if isinstance(layer, str) else layer["kind"] for layer in layers)
        name = self.description["kind"] if kinds else self.name
        named, *words = (_WORDS.get(one, one.replace("_", " ")) for one in (name, *kinds))
        return named + (f" with {' and '.join(words)} attention" if kinds else "")

    @property
    def label(self) -> str:
        """Name in a table of scores, which distinguishes two predictors of one kind."""
        return self.name

    def attending(self) -> dict[str, Attending]:
        """Return its networks that may attend, by member of an ensemble; once built, or fitted if it needs that."""
        return {}

    @property
    def context_length(self) -> int:
        """L, the past steps that it reads: from a batch with more steps it takes the last L."""
        return self.task.context_length

    @property
    def steps_at_once(self) -> int:
        """Longest horizon that it forecasts without using its own forecasts."""
        return self.task.prediction_length

    @property
    def seasons(self) -> tuple[int, ...]:
        """Lengths of the seasons whose last known values it repeats: windows must know these, see `WindowDataset`."""
        return ()

    @property
    def cut(self) -> dict[str, Any]:
        """How all its windows are cut, as `ForecastDataModule.windows` takes it."""
        return {"context_length": self.context_length, "seasons": self.seasons, "padded": self.reads_short}

    def repeated(self, batch: Batch, horizon: int) -> Tensor | None:
        """Return the point forecast `(B, horizon, C)` in original units if it only repeats the past; else None."""
        return None

    def in_units(self, forecast: Tensor, batch: Batch, units: Units) -> Tensor:
        """Return its forecast `(B, T, C[, Q])` in original units, float64; repeated values and counts are exact."""
        point = self.repeated(batch, forecast.shape[1])
        if point is not None and forecast.dim() == point.dim():
            return point
        restored = units.restore(forecast, batch.series_id)
        if self.forecasts_counts:
            # rounding removes the error of scaled float32; rounded bounds hold the same counts
            return restored.round_().clamp_(min=0).add_(0.0)  # no minus zero
        middle = self.output.median
        if point is not None and middle is not None:
            restored[..., middle] = point
            restored[..., :middle].clamp_(max=point[..., None])
            restored[..., middle + 1 :].clamp_(min=point[..., None])
        return restored

    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        """Take the sizes of a task; `empty` allocates no weights, for ``load_state_dict(state, assign=True)``."""
        self.check_output(output)
        self.task, self.output = task, output

    def check_output(self, output: Output) -> None:
        """Refuse quantiles and distributions that it does not forecast."""
        if output.quantiles and not self.emits_quantiles:
            raise UserError(f"predictor {self.name} forecasts points only: leave quantiles out")
        if output.distribution is not None:
            raise UserError(f"predictor {self.name} has no distribution {output.distribution}: leave distribution out")

    def check_export(self) -> None:
        """Refuse an export, by `refuse_export`, if it needs more than PyTorch's operators and its state."""

    def refuse_export(self) -> NoReturn:
        """Name what can be exported instead."""
        says = f"{self.name} cannot be exported: it uses another library, or weights outside of the run"
        raise UserError(f"{says}; valid are tsattn's networks, ridge, naive forecasts, and ensembles of these")

    @property
    def forecasts_counts(self) -> bool:
        """Whether all forecasts are whole numbers from 0, in original units."""
        return False

    @property
    def num_parameters(self) -> int:
        """How many numbers a fit determines, once built; 0 where nothing is fitted."""
        return sum(tensor.numel() for tensor in self.state_dict().values())

    @property
    def summary(self) -> str:
        """Line about a predictor that is not trained: its name, and how it computes its numbers."""
        how = f"{self.num_parameters:,} parameters, in closed form" if self.needs_fit else "nothing to fit"
        return f"{self.name}: {how}"

    def check_fit(self, data: ForecastDataModule, training: Training) -> None:
        """Refuse what `fit` would refuse before it computes anything: too few rows, or weights that it does not use."""
        data.check_distribution(self.output)
        if self.needs_fit:
            self.check_weights(data)
        for part in data.parts:
            try:
                if part == "val" or (part == "train" and self.needs_fit):
                    data.windows(part, **self.cut)
            except UserError as error:
                if self.context_length == self.task.context_length:
                    raise
                says = f"{self.name} sets its own context_length, {self.context_length}: {error}"
                if self.seasons == (self.task.season_length,):
                    says += '; give a shorter `--data.season_length` (Python: `data={"season_length": ...}`)'
                raise UserError(says) from error

    def check_weights(self, data: ForecastDataModule) -> None:
        """Refuse data with weights; a predictor whose fit uses them overrides it."""
        if data.series.weights is not None:
            raise UserError(f"{self.name} cannot use weights: leave out weight_column, series_weights and row_weights")

    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        """Fit to the training windows of data that is set up, choosing by the validation windows; by default nothing.

        Returns:
            Facts of the fit as plain data, such as ``best_step``; may be empty.
        """
        return {}

    def on(self, execution: Execution, forecast: Callable[[Batch], Tensor] | None = None) -> Callable[[Batch], Tensor]:
        """Return a function that forecasts a batch as `execution` says; without training, exactly and on the host."""
        return execution.forecaster(self, forecast, exact=not self.is_trained)

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """Forecast each window on the scale of the batch: `(B, T, C)`, with Q quantiles `(B, T, C, Q)`."""

    def forecast_to(self, batch: Batch, horizon: int) -> Tensor:
        """Forecast `horizon` steps, as `forward` does T; beyond T its forecast or median continues the context."""
        L, T, median = self.context_length, self.task.prediction_length, self.output.median
        pieces: list[Tensor] = []
        for start in range(0, horizon, T):
            piece = self(window_from(batch, start, L + T))
            pieces.append(piece)
            batch = moved_on(batch, piece if median is None else piece[..., median], L)
        return torch.cat(pieces, 1)[:, :horizon]


class AnyHorizon(Predictor):
    """Predictor of any horizon: it continues in its own way, instead of reading its forecasts as context."""

    @property
    def draws_paths(self) -> bool:
        """Whether it forecasts by paths that it draws itself."""
        return False

    def paths_to(self, batch: Batch, horizon: int, count: int, seeds: Sequence[int]) -> Tensor:
        """Draw paths `(B, horizon, C, count)` on the scale of the batch from `B C` seeds, where `draws_paths`."""
        raise NotImplementedError(f"{type(self).__name__} draws no paths")

    @override
    @abstractmethod
    def forecast_to(self, batch: Batch, horizon: int) -> Tensor: ...

    @override
    def forward(self, batch: Batch) -> Tensor:
        return self.forecast_to(batch, self.task.prediction_length)


def last_context(batch: Batch, context_length: int) -> Batch:
    """Return the windows with only the last L steps of their context; the horizon stays."""
    length = batch.past.shape[1]
    if length < context_length:
        raise UserError(f"the predictor needs {context_length} past steps, but the windows of the batch have {length}")
    return batch if length == context_length else _steps(batch, (*_PAST, *_WHOLE), slice(length - context_length, None))


def _steps(batch: Batch, names: tuple[str, ...], steps: slice) -> Batch:
    parts = {name: getattr(batch, name) for name in names}
    return replace(batch, **{name: part[:, steps] for name, part in parts.items() if part is not None})


def window_from(batch: Batch, start: int, length: int) -> Batch:
    """Return windows with the time stamps and future covariates of `length` steps (L + T) from the step `start` on."""
    return _steps(batch, _WHOLE, slice(start, start + length))


def moved_on(batch: Batch, values: Tensor, length: int) -> Batch:
    """Append `(B, T, C)` values to a context of L steps, and the last value of past covariates; see `window_from`."""
    known = {"past": values, "past_observed": torch.ones_like(values, dtype=torch.bool)}
    moved: dict[str, Any] = {"units": None if batch.units is None else batch.units.moved_on(values)}
    for name in _PAST:
        if (past := getattr(batch, name)) is not None:
            new = known.get(name, past[:, -1:].expand(-1, values.shape[1], -1))
            moved[name] = torch.cat([past, new.to(past.dtype)], 1)[:, -length:]
    return replace(batch, **moved)
