"""One trial: a configuration is checked and trained, and its validation error counts. The test set is never read."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from optuna import TrialPruned
from optuna.trial import Trial

from tsattn.backbones import backbone_class
from tsattn.data import ForecastDataModule, Panel
from tsattn.data.splits import Recut, Split
from tsattn.errors import DivergedError, UserError, did_you_mean, is_out_of_memory, one_of
from tsattn.evaluation.selection import SELECTION_CHOICES
from tsattn.experiments import Experiment, Hooks, run
from tsattn.experiments.configs import BACKBONE, paths
from tsattn.experiments.experiment import OF_DATA, user_errors
from tsattn.experiments.measuring import device_type, predictor_sizes
from tsattn.predictors import Predictor, build_predictor, named_predictor
from tsattn.predictors.network import NetworkPredictor
from tsattn.training import TrainerOptions, Training
from tsattn.training.execution import peak_memory
from tsattn.training.losses import choose_loss
from tsattn.training.trainer_options import check_one_device
from tsattn.tuning.search import Search
from tsattn.tuning.study import REASON

# all other data options decide what is forecast or which windows are scored
_DATA = tuple(f"data.init_args.{name}" for name in ("context_length", "batch_size", "eval_batch_size", "num_workers"))
_SCORED: tuple[str, ...] = ("trainer.limit_val_batches", "trainer.overfit_batches", "trainer.fast_dev_run")
_SCORED += ("model.quantiles", "model.selection", "model.distribution", "model.calibrate")
_DRAWS = 8  # combinations in which a value is tried before it is called impossible
_SIZES = (*OF_DATA, "num_workers", "resident_gb")  # arguments of a DataModule that do not say what it reads
_HELD = 12  # DataModules that are kept set up


def comparable(experiment: Experiment) -> Experiment:
    """Fix how the trials of an experiment are scored: on the same validation windows, by this experiment's error.

    The windows are all unless `val_windows` is a number; a trial may be trained on another loss.
    """
    selection = next(name for name, score in SELECTION_CHOICES.items() if score == experiment.selection)
    fixed: dict[str, object] = {"model.selection": selection}
    kind, cls, _ = named_predictor(experiment.model["backbone"])
    if not (issubclass(cls, NetworkPredictor) and backbone_class(kind).has_own_loss):
        fixed["model.loss"] = choose_loss(*(experiment.model[name] for name in ("loss", "quantiles", "distribution")))
    if experiment.data["init_args"].get("val_windows") == "auto":  # as many as a training affords
        fixed["data.val_windows"] = "all"
    return experiment.with_values(fixed)


def check_one_trial(experiment: Experiment) -> None:
    """Refuse an experiment with more than one device, or no seed: it cannot be a trial, whatever a space changes."""
    check_one_device(experiment.trainer, "a trial runs on one device", "; run `tune` in several processes to use more")
    if experiment.seed is None:
        raise UserError("a trial needs a seed to be reproducible: --seed_everything must not be false")


def check_search(search: Search, config: Mapping[str, Any], build: Callable[[dict[str, Any]], object]) -> None:
    """Refuse a space with a path that the configuration lacks, or a value that it cannot take.

    `build` makes data and predictor with every option, and the ends and middle of every range. A value that fails may
    fit other values of the other parameters, so a few combinations are tried. The `UserError` names file, path and
    value, or the option of validation by which trials would be scored on different windows.
    """
    trainer, known, rng = config["trainer"], list(paths(config)), random.Random(0)
    for name in ("limit_val_batches", "fast_dev_run"):
        if trainer.get(name) and repr(trainer[name]) != "1.0":  # only networks obey; other batch sizes, other windows
            what = f"leave out --trainer.{name} {trainer[name]}; to score fewer windows, set --data.val_windows N"
            raise UserError(f"trials must be scored on the same validation windows: {what}")
    for path in search.parameters:
        if path not in known and not path.startswith(f"{BACKBONE}."):
            hint = did_you_mean(path, known)
            raise UserError(f"{search.file}: the configuration has no {path}{hint}; `fit --print_config` lists all")
        is_data = f"{path}.".startswith("data.")
        if (is_data and path not in _DATA) or any(f"{scored}.".startswith(f"{path}.") for scored in _SCORED):
            what = f"{path} changes the scored windows, so trials could not be compared"
            raise UserError(f"{search.file}: {what}; of the data options, only {one_of(_DATA)} can be searched")
    for path, probe in ((path, probe) for path, one in search.parameters.items() for probe in one.probes()):
        needed, reasons = {**search.needed(path), path: probe}, list[UserError]()
        for taken in itertools.chain([needed], (search.drawn(rng, needed) for _ in range(_DRAWS))):
            try:
                build(search.applied(config, taken))
                break
            except UserError as error:
                reasons.append(error)
        else:
            raise UserError(f"{search.file}: {path} cannot be {probe!r}: {reasons[0]}") from reasons[0]
    windows = config["data"]["init_args"].get("val_windows", "all")
    for path in {BACKBONE, f"{BACKBONE}.kind"} & set(search.parameters) if isinstance(windows, int) else ():
        values = [{**search.needed(path), path: probe} for probe in search.parameters[path].probes()]
        kinds = [named_predictor(search.applied(config, one)["model"]["backbone"])[1] for one in values]
        if len({issubclass(cls, NetworkPredictor) for cls in kinds}) > 1:
            what = f"it mixes networks, scored on {windows} validation windows, with models scored on all"
            raise UserError(f"{search.file}: {path} cannot be searched: {what}: set --data.val_windows all")


@dataclass(frozen=True)
class Fold:
    """One of `count` blocks of rows before the test set, to validate on; all earlier rows are trained on.

    The blocks, the oldest with number 0, are consecutive. Each is as long as the data's own validation set, or shorter,
    so that together they take at most half of the rows before the test set.
    """

    number: int
    count: int

    def split(self, whole: Split) -> Split:
        """The split of this fold: no row is left for testing."""
        length = min(whole.val_end - whole.train_end, whole.val_end // (2 * self.count))
        start = whole.val_end - (self.count - self.number) * length
        return Split(start, start + length, start + length)

    def hold_out(self, data: ForecastDataModule) -> ForecastDataModule:
        """Split data as this fold says, not set up; `setup` refuses a block that is too short for a window."""
        return data.recut(Recut(data.rule, self.split), ("train", "val"))


class HeldData:
    """Provides the data of experiments, set up: read once, and set up once for each description of them."""

    def __init__(self) -> None:
        self._held: dict[str, ForecastDataModule] = {}
        self._panels: dict[str, Panel | UserError] = {}  # by source; or why the source cannot be fetched

    def check(self, config: Mapping[str, Any]) -> None:
        """Refuse a configuration that cannot be a trial: for its options, data, predictor or training."""
        experiment = Experiment.of(config)
        check_one_trial(experiment)
        with user_errors():
            trainer = experiment.trainer_arguments()
            data = self.of(experiment)
            predictor = build_predictor(experiment.model["backbone"])
            predictor.build(data.contents[1], experiment.output, empty=True)
            predictor.check_fit(
                data, Training(TrainerOptions.of(trainer), experiment.training_options, experiment.seed)
            )

    def of(self, experiment: Experiment, fold: Fold | None = None) -> ForecastDataModule:
        """Make the DataModule of an experiment, for one trial; its series are read and scaled once for all."""
        kind, arguments = experiment.data["class_path"], dict(experiment.data["init_args"])
        key = json.dumps([kind, arguments, fold and [fold.number, fold.count]])
        data = self._held.pop(key, None)
        if data is None:
            data = experiment.data_module()
            data = data if fold is None else fold.hold_out(data)
            source = json.dumps([kind, {name: value for name, value in arguments.items() if name not in _SIZES}])
            if source not in self._panels:
                try:
                    data.prepare_data()
                    self._panels[source] = data.source.load()
                except UserError as error:
                    self._panels[source] = error
            panel = self._panels[source]  # as it was read: `setup` leaves the categories of one split's training
            if isinstance(panel, UserError):
                raise panel
            data.panel = panel
            data.prepare("fit")
        self._held[key] = data  # the last used is the last to go
        while len(self._held) > _HELD:
            del self._held[next(iter(self._held))]
        return data.with_context(data.context_length)


def run_trial(
    trial: Trial, base: Experiment, taken: Mapping[str, Any], *, search: Search, held: HeldData, folds: int
) -> list[float]:
    """Run an experiment without its test and return its objectives, the validation error first.

    With `folds` rolling origins, 0 for the validation set, the error is their mean. The trial's attributes are
    ``error``, ``errors`` of the folds, ``selected_by`` (the error's name), ``step`` of the lowest (None for folds),
    ``parameters``, ``seed`` and ``device``. Further, ``flops`` of a forward pass of one window, ``seconds`` of fit and
    validation, and the peak ``memory`` in bytes: allocated on an accelerator, else held by the process.

    Raises:
        TrialPruned: if it is worse than the others, diverged, ran out of memory, is refused, or breaks a constraint
            that is known before training. The attribute ``reason`` says which.
    """
    errors, sizes, facts = list[float](), dict[str, float](), dict[str, Any]()
    prunes, started = search.pruner != "none" and len(search.objectives) == 1, time.perf_counter()

    def note(**values: Any) -> None:
        for name, value in values.items():
            trial.set_user_attr(name, value)

    with _pruned_by_failure(trial), contextlib.ExitStack() as measuring:
        experiment = search.experiment(base, taken)
        device = device_type(experiment)
        peak = measuring.enter_context(peak_memory(device))

        def built(predictor: Predictor, data: ForecastDataModule) -> None:
            if not sizes:
                needed = "flops" in (*search.objectives, *search.constraints)
                sizes.update(predictor_sizes(predictor, data, flops_needed=needed))
                note(seed=experiment.seed, device=device, **sizes)
                _constrain(trial, search, sizes)

        # an ensemble's member has a curve, but it is not the curve of the ensemble
        has_steps = issubclass(named_predictor(experiment.model["backbone"])[1], NetworkPredictor)
        watching = [_Pruning(trial, f"val_{experiment.selection}")] if prunes and has_steps and not folds else []
        for number in range(max(1, folds)):
            data = held.of(experiment, Fold(number, folds) if folds else None)
            facts |= run(experiment, data=data, test=False, hooks=Hooks(callbacks=watching, built=built)).fit
            errors.append(facts["validation_error"])
            if prunes and folds:
                trial.report(sum(errors) / len(errors), number)
                if number + 1 < folds and trial.should_prune():
                    raise TrialPruned(f"worse than the median after {number + 1} of {folds} origins")
    seconds = round(time.perf_counter() - started, 2)
    values = {"error": sum(errors) / len(errors), "seconds": seconds, "memory": peak(), **sizes}
    note(errors=errors, step=None if folds else facts.get("best_step"), selected_by=facts["selected_by"], **values)
    _constrain(trial, search, {"memory": values["memory"]})
    return [values[name] for name in search.objectives]


@dataclass(eq=False)
class _Pruning(Callback):
    """Reports each validation by its step, and ends a trial that does worse than the others."""

    trial: Trial
    monitor: str

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            self.trial.report(float(trainer.callback_metrics[self.monitor]), trainer.global_step)
            if self.trial.should_prune():
                raise TrialPruned(f"worse than the median at step {trainer.global_step}")


@contextlib.contextmanager
def _pruned_by_failure(trial: Trial) -> Iterator[None]:
    """Prune a trial that cannot be trained, and note why; a sampler learns from it as from a bad trial."""
    try:
        yield
    except Exception as error:
        if isinstance(error, TrialPruned | DivergedError):
            reason = str(error)
        elif is_out_of_memory(error):
            torch.cuda.empty_cache()  # nothing without CUDA
            reason = "out of memory"
        elif isinstance(error, UserError):
            reason = f"refused: {error}"
        else:
            raise
        trial.set_user_attr(REASON, reason)
        raise TrialPruned(reason) from error


def _constrain(trial: Trial, search: Search, sizes: Mapping[str, float]) -> None:
    """Tell the sampler how far a trial is above its limits, and prune it; not for memory, known only at the end."""
    for name in sizes.keys() & search.constraints.keys():
        above = sizes[name] - search.constraints[name]
        trial.set_constraint(name, above)
        if above > 0 and name != "memory":
            raise TrialPruned(f"{sizes[name]:,.0f} {name}, above the {search.constraints[name]:,.0f} allowed")
