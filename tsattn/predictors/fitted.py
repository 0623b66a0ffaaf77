"""A fitted predictor: its file, its levels, and its forecasts beyond the end of the data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from tsattn.backbones import task_network
from tsattn.backbones.task_network import CheckpointContent, load_checkpoint, write_checkpoint
from tsattn.batch import Batch
from tsattn.data import FutureWindows, Panel, Series
from tsattn.data.scaling import check_counts, fit_scaler, with_new_series
from tsattn.data.windows import OrderedBatches
from tsattn.descriptions import Description
from tsattn.errors import UserError, one_line, one_of
from tsattn.predictors import build_predictor
from tsattn.predictors.base import AnyHorizon, Predictor
from tsattn.predictors.calibrated import Calibrated, ConformalScores, intervals_of, levels_of
from tsattn.predictors.network import NetworkPredictor
from tsattn.scaler import Scaler
from tsattn.task import Output
from tsattn.training.execution import Execution, own_random_state

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training

_CONFORMAL = "conformal"  # the key of a checkpoint


@dataclass(frozen=True)
class FittedPredictor:
    """Predictor, fitted, on the CPU and in eval mode, with the scaler of the data that it was fitted to."""

    predictor: Predictor
    scaler: Scaler
    conformal: ConformalScores | None = None  # calibrate its intervals

    def __post_init__(self) -> None:
        if self.conformal is not None and [*self.conformal.intervals] != intervals_of(self.predictor.output.quantiles):
            raise ValueError("the predictor is calibrated for other intervals than it forecasts")

    @property
    def content(self) -> CheckpointContent:
        """Plain data from which the predictor is built."""
        return CheckpointContent(self.predictor.task, self.scaler, self.predictor.output, self.predictor.description)


def save_predictor(path: Path, fitted: FittedPredictor, **facts: Any) -> None:
    """Write a file that `load_predictor` reads, with further facts such as ``global_step``, all or nothing."""
    checkpoint: dict[str, Any] = {"state_dict": fitted.predictor.state_dict(), **facts}
    fitted.content.write_to(checkpoint)
    if fitted.conformal is not None:
        checkpoint[_CONFORMAL] = fitted.conformal.to_dict()
    write_checkpoint(checkpoint, path)


def add_scores(path: Path, conformal: ConformalScores) -> None:
    """Add the scores that calibrate a predictor to its checkpoint, all or nothing."""
    write_checkpoint({**load_checkpoint(path), _CONFORMAL: conformal.to_dict()}, path)


def load_predictor(path: str | Path, description: Description, output: Output | None = None) -> FittedPredictor:
    """Load the predictor of a checkpoint, which imports nothing; a `UserError` if damaged or of another model."""
    checkpoint = load_checkpoint(path)
    content = task_network.read_content(checkpoint)
    task_network.check_same(content.predictor, content.output, build_predictor(description).description, output)
    fitted = restored_predictor(content, checkpoint.get("state_dict", {}), "the checkpoint")
    saved = checkpoint.get(_CONFORMAL)
    try:
        return fitted if saved is None else replace(fitted, conformal=ConformalScores.from_dict(saved))
    except (TypeError, ValueError) as error:
        raise UserError(f"the checkpoint is damaged: {error}") from error


def restored_predictor(content: CheckpointContent, state: Mapping[str, Any], source: str) -> FittedPredictor:
    """Build a saved predictor, and import what its description names; messages name the source."""
    task_network.check_weights(state, source)
    predictor = build_predictor(content.predictor)
    predictor.build(content.task, content.output, empty=True)
    try:
        predictor.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise UserError(f"{source} is damaged: {one_line(error, 200)}") from error
    return FittedPredictor(predictor.eval(), content.scaler)


def fitted_again(predictor: Predictor, data: ForecastDataModule, training: Training) -> Predictor:
    """Fit another predictor of this description to other rows."""
    again = build_predictor(predictor.description)
    again.build(data.contents[1], predictor.output, empty=True)
    with own_random_state(training.seed):
        again.fit(data, training)
    return again.eval()


@dataclass(frozen=True)
class WarmStart:
    """A fitted network, whose weights another training starts from; its optimizer is new."""

    fitted: FittedPredictor
    rescale: bool = False  # by the new training rows; else its scales stay, and scales of new series are added

    def __post_init__(self) -> None:
        name = self.fitted.predictor.name
        if not isinstance(self.fitted.predictor, NetworkPredictor):
            raise UserError(f"only a single network can start from trained weights, not {name}: fit it again")
        if not self.fitted.predictor.is_trained:
            what = f"{name} has no trained weights to start from"
            raise UserError(f"{what}: fit it again, or set its argument trained: all, attention or lora")

    def set_up(self, data: ForecastDataModule) -> None:
        """Read data as the network needs them, and scale them."""
        data.prepare("predict", self.fitted.predictor.task, self.fitted.scaler)  # read and split, not scaled
        panel, task, scaler = data.contents
        if self.rescale:
            scaler = fit_scaler(panel, data.splits, data.scaling, data.transform)
        else:
            scaler = with_new_series(scaler, panel, np.array([split.train_end for split in data.splits]))
        data.prepare("fit", task, scaler)

    def key_after(self, key: str) -> str:
        """Return the key of a result with this start, given its key without a start."""
        found = hashlib.sha256(f"{key} {self.rescale} {self.fitted.scaler.to_dict()}".encode())
        for name, weight in sorted(self.fitted.predictor.state_dict().items()):
            found.update(name.encode())
            found.update(weight.detach().cpu().contiguous().numpy().tobytes())
        return found.hexdigest()


def with_levels(fitted: FittedPredictor, ids: Sequence[Any], level: Any = None) -> FittedPredictor:
    """Return a fitted predictor with its quantiles, or with the quantiles of a `level`, calibrated for these series."""
    own = fitted.predictor.output.quantiles
    levels = own if level is None else levels_of(level)
    if fitted.conformal is None and level is not None:
        known = f"; its quantiles are {one_of(map(str, own))}" if own else ""
        mend = "calibrate=True (--model.calibrate true) where the model is fitted"
        raise UserError(f"intervals of any level need {mend}{known}")
    if fitted.conformal is None or not levels:
        return fitted
    return FittedPredictor(Calibrated(fitted.predictor, fitted.conformal, levels, ids).eval(), fitted.scaler)


def beyond_training(predictor: Predictor, horizon: int) -> str | None:
    """Return a warning if a horizon is longer than the model was trained for; else None."""
    task, most, rolls = predictor.task, predictor.steps_at_once, not isinstance(predictor, AnyHorizon)
    if horizon <= most:
        return None
    of = "that the model was trained for" if rolls else f"of {predictor.name}"
    how = "forecasts are fed back as context, errors add up and intervals are too narrow"
    how += "; past covariates keep their last value" if task.past_covariates else ""
    how = how if rolls else "it continues from its own forecasts, and errors add up"
    return f"horizon {horizon} is longer than the {most} steps {of}: {how}"


def forecast_batches(
    fitted: FittedPredictor, panel: Panel, series: Series, horizon: int, batch_size: int, execution: Execution
) -> Iterator[Tensor]:
    """Yield forecasts `(B, horizon, C)`, or with Q, in original units; the data are checked at once."""
    predictor, units = fitted.predictor, series.units
    batches = future_batches(fitted, panel, series, horizon, batch_size)
    forecast = predictor.on(execution, lambda batch: predictor.forecast_to(batch, horizon))
    return (predictor.in_units(forecast(batch), batch, units) for batch in batches)


def future_batches(
    fitted: FittedPredictor, panel: Panel, series: Series, horizon: int, batch_size: int
) -> Iterator[Batch]:
    """Return the windows beyond the end of each series, given the arguments of `forecast_batches`."""
    predictor = fitted.predictor
    if predictor.forecasts_counts:
        check_counts(panel.last_rows(predictor.context_length), "this model", of=panel)
    task = replace(predictor.task, context_length=predictor.context_length)
    warn = not predictor.reads_short and not predictor.pretraining(task.data)  # pretrained weights read any length
    panel = panel if predictor.uses_covariates else replace(panel, ahead=None)  # none of their future is needed
    windows = FutureWindows(panel, series, task, fitted.scaler, horizon, warns_of_short=warn, seasons=predictor.seasons)
    return map(windows.__getitems__, OrderedBatches(range(len(windows)), batch_size))
