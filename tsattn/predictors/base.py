"""What every predictor is: something that forecasts windows, after it was fitted or without."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from tsattn import descriptions
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.predictors import PREDICTORS
from tsattn.predictors.attending import Attending
from tsattn.scaler import Units
from tsattn.task import Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Execution, Training

__all__ = ["Predictor"]


class Predictor(nn.Module, ABC):
    """Base class of everything that forecasts windows: networks, closed forms, averages and other libraries.

    A predictor is made of plain data (its arguments), learns the sizes of a task in `build`, and is fitted to data in
    `fit`. Its `state_dict` is all that a fit leaves: another one of the same description, built for the same task,
    forecasts the same once that state is loaded.

    Args:
        **arguments: all arguments of the subclass by name, which takes each by keyword, with a type: they are its
            description, beside its kind.

    Attributes:
        needs_fit: whether it must be fitted before it forecasts; False for one that knows all after `build`.
        is_trained: whether `fit` trains by gradients, and so takes the options of a training.
        emits_quantiles: whether it forecasts the quantiles that it is built for; else it forecasts points alone.
        emits_distributions: whether it forecasts the distribution that it is built for, which networks can.
        uses_covariates: whether it uses all covariates and static columns of a task that has some; else it leaves
            them unread.
        is_exportable: whether its `forward` is made of operators of PyTorch and of weights in its state.
        uses_weights: whether a fit counts targets by their weights; else data with weights are refused.
        takes_short_contexts: whether it was made for series of any length, of which fewer steps than its context are
            not worth a warning.
        arguments: as they were given.
        task: what it was built for; None before `build`.
        output: the quantiles that it was built for; None before `build`.
    """

    needs_fit: bool = True
    is_trained: bool = False
    emits_quantiles: bool = False
    emits_distributions: bool = False
    uses_covariates: bool = False
    is_exportable: bool = True
    uses_weights: bool = False
    takes_short_contexts: bool = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments
        self.task: Task | None = None
        self.output: Output | None = None

    @classmethod
    def complete(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a description with the defaults of all others written out, as plain data."""
        return {**descriptions.defaults(cls), **arguments}

    @property
    def description(self) -> dict[str, Any]:
        """Its kind and all arguments, defaults written out, as plain data."""
        own = descriptions.import_path(type(self))
        kind = next((kind for kind, path in PREDICTORS.items() if path == own), own)
        return {"kind": kind, **self.arguments}

    def with_context(self, context_length: int) -> Predictor:
        """Itself, or one alike that looks at so many past steps, where it would take no notice of those of its task.

        Args:
            context_length: L.
        """
        return self

    def pretraining(self, data: str) -> str:
        """What the weights that it begins with have seen of a public data set, by its name.

        Returns:
            Empty without pretrained weights; ``seen`` (its training part), ``unseen``, or ``unknown`` where weights do
            not say what they were trained on.
        """
        return ""

    @property
    def name(self) -> str:
        """What tables and run folders call it."""
        return str(self.description["kind"])

    @property
    def label(self) -> str:
        """Name for a table of scores, with what tells two of a kind apart there."""
        return self.name

    def attending(self) -> dict[str, Attending]:
        """The networks in it that may attend, by the name of the member of an ensemble; of any other that is empty.

        Raises:
            UserError: before it is fitted, where there is no network before.
        """
        return {}

    @property
    def context_length(self) -> int:
        """L, the past steps that it looks at: of a batch with more of them it takes the last."""
        assert self.task is not None, "build(task, output) comes first"
        return self.task.context_length

    @property
    def seasons(self) -> tuple[int, ...]:
        """Lengths of the seasons whose last known values it repeats: windows must know these, see `WindowDataset`."""
        return ()

    def repeated(self, batch: Batch, horizon: int) -> Tensor | None:
        """The point forecast `(B, horizon, C)` in original units where it is nothing but values of the past; else None.

        Args:
            batch: windows that know the last season.
            horizon: steps to forecast.
        """
        return None

    def in_units(self, forecast: Tensor, batch: Batch, units: Units) -> Tensor:
        """A forecast in original units, float64; what no rounding may change there is exact: repeated values, counts.

        Args:
            forecast: of this predictor, `(B, T, C)`, or of quantiles `(B, T, C, Q)`, on the scale of the batch.
            batch: the windows.
            units: of the series.
        """
        point = self.repeated(batch, forecast.shape[1])
        if point is not None and forecast.dim() == point.dim():
            return point
        restored = units.restore(forecast, batch.series_id)
        if self.forecasts_counts:
            # what a scaled float32 is off by is no part of a count, and a bound that is rounded holds the same counts
            return restored.round_().clamp_(min=0).add_(0.0)  # no minus zero
        if point is not None and self.output is not None and self.output.median is not None:
            middle = self.output.median
            restored[..., middle] = point
            restored[..., :middle].clamp_(max=point[..., None])
            restored[..., middle + 1 :].clamp_(min=point[..., None])
        return restored

    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        """Take the sizes of a task; subclasses make what they need for it.

        Args:
            task: sizes and columns.
            output: the quantiles to forecast; a point forecast by default.
            empty: whether parameters need no values, since a state will be loaded: nothing is drawn, and they take no
                memory until then (``load_state_dict(state, assign=True)``).

        Raises:
            UserError: for a task that it cannot forecast.
        """
        self.check_output(output)
        self.task, self.output = task, output

    def check_output(self, output: Output) -> None:
        """Refuse quantiles where points alone are forecast.

        Raises:
            UserError: naming the predictor.
        """
        if output.quantiles and not self.emits_quantiles:
            raise UserError(f"predictor {self.name} forecasts points only: it takes no quantiles")
        if output.distribution is not None and not self.emits_distributions:
            raise UserError(f"predictor {self.name} has no distribution {output.distribution}: leave distribution out")

    @property
    def forecasts_counts(self) -> bool:
        """Whether all that it forecasts are whole numbers from 0, in original units."""
        return False

    @property
    def num_parameters(self) -> int:
        """How many numbers a fit determines, known after `build`; 0 where nothing is fitted.

        Of a network these are the weights that are trained, of a closed form those that are solved for, of an ensemble
        those of all its members.
        """
        return sum(tensor.numel() for tensor in self.state_dict().values())

    @property
    def summary(self) -> str:
        """What lines say of one that is not trained: its name, and how it comes to its numbers."""
        count = self.num_parameters
        how = f"{count:,} parameters, in closed form" if self.needs_fit else "nothing to fit"
        return f"{self.name}: {how}"

    def check_fit(self, data: ForecastDataModule, training: Training) -> None:
        """Refuse what `fit` would refuse before it computes anything; the arguments are those of `fit`.

        Raises:
            UserError: for data with no window of the context that it takes, weights that it does not use, or a training
                that cannot be.
        """
        if self.needs_fit and not self.uses_weights and data.series.is_weighted:
            raise UserError(f"{self.name} is fitted without weights: leave out the weights of columns, series and rows")
        for part in ("train", "val") if self.needs_fit else ("val",):
            if part in data.parts:
                self._check_windows(data, part)

    def _check_windows(self, data: ForecastDataModule, part: str) -> None:
        """Refuse a part that has no window, saying whose context is too long where that is not the one of the data."""
        try:
            data.windows(part, self.context_length)
        except UserError as error:
            if self.task is None or self.context_length == self.task.context_length:
                raise
            raise UserError(f"{self.name} has a context_length of its own: {error}") from error

    @abstractmethod
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        """Fit to the training windows, choosing by the validation windows; the test windows are never read.

        Args:
            data: set up.
            training: how networks are trained, and where their checkpoints lie.

        Returns:
            what is known of the fit as plain data, such as ``best_step``; nothing for one that has nothing to say.
        """

    def on(self, execution: Execution, forecast: Callable[[Batch], Tensor] | None = None) -> Callable[[Batch], Tensor]:
        """What forecasts a batch there, in eval mode; the forecast comes back to the CPU.

        What is not trained by gradients is computed on the host in full precision wherever the rest is.

        Args:
            execution: where to compute.
            forecast: calls this predictor, if another form of call is wanted.
        """
        where = execution if self.is_trained else type(execution).exact(execution.options)
        return where.forecaster(self, forecast)

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """The forecast of each window on the scale of the batch: `(B, T, C)`, with Q quantiles `(B, T, C, Q)`.

        Args:
            batch: ``past`` is `(B, L, C)` or longer, see `context_length`.
        """
