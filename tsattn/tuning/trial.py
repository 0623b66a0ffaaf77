"""One trial: a configuration is trained, and its validation error is what counts. The test part is never read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from optuna import TrialPruned
from optuna.trial import Trial
from optuna_integration import PyTorchLightningPruningCallback

from tsattn.data import ForecastDataModule
from tsattn.errors import DivergedError, UserError
from tsattn.experiments import Experiment, Hooks, run
from tsattn.experiments.run_sizes import device_type, peak_memory, predictor_sizes
from tsattn.predictors import Predictor, named_predictor
from tsattn.predictors.network import NetworkPredictor
from tsattn.tuning.held_data import HeldData
from tsattn.tuning.rolling import Fold
from tsattn.tuning.search import Search
from tsattn.tuning.worker import REASON

__all__ = ["run_trial"]


def run_trial(
    trial: Trial, base: Experiment, taken: Mapping[str, Any], *, search: Search, held: HeldData, folds: int
) -> list[float]:
    """Run an experiment without its test and return its objectives, the validation error first.

    The error is the one that `fit` chooses by (`tsattn.evaluation.selection`); with folds, its mean over them. What
    else is known of the trial is written to its attributes: ``error``, ``errors`` of the folds, ``selected_by`` (the
    name of the error), ``step`` of the lowest (None of what has no steps), ``parameters`` (all numbers that a fit
    determines, `Predictor.num_parameters`: trained weights of networks, solved weights of closed forms, those of all
    members of an ensemble), ``flops`` of a forward pass of one window, ``seconds`` of fit and validation, ``memory``
    (the peak in bytes: on an accelerator what was allocated there, else what the process held), ``seed`` and
    ``device``.

    Args:
        trial: of Optuna.
        base: the experiment that is searched around.
        taken: what the trial takes of the space.
        search: the space.
        held: gives the data.
        folds: number of rolling origins, 0 for the validation part.

    Raises:
        TrialPruned: if it is worse than the others, diverged, ran out of memory, is refused, or breaks a constraint
            that is known before it is trained; the attribute ``reason`` says which.
        KeyboardInterrupt: if it was interrupted.
    """
    errors: list[float] = []
    sizes: dict[str, float] = {}
    facts: Mapping[str, Any] = {}
    started = time.perf_counter()
    prunes = search.pruner != "none" and len(search.objectives) == 1

    with _pruned_by_failure(trial), contextlib.ExitStack() as measuring:
        experiment = search.experiment(base, taken)
        device = device_type(experiment)
        peak = measuring.enter_context(peak_memory(device))

        def built(predictor: Predictor, data: ForecastDataModule) -> None:
            if not sizes:
                needed = "flops" in (*search.objectives, *search.constraints)
                sizes.update(predictor_sizes(predictor, data, flops_needed=needed))
                _note(trial, seed=experiment.seed, device=device, **sizes)
                _constrain(trial, search, sizes)

        # the curve of an ensemble's member is not that of the ensemble
        has_steps = issubclass(named_predictor(experiment.model["backbone"])[1], NetworkPredictor)
        for number in range(max(1, folds)):
            watching = (
                [_StepPruning(trial, f"val_{experiment.selection}")] if prunes and has_steps and not folds else []
            )
            data = held.of(experiment, Fold(number, folds) if folds else None)
            facts = run(experiment, data=data, test=False, hooks=Hooks(callbacks=watching, built=built)).fit
            errors.append(facts["validation_error"])
            if prunes and folds:
                trial.report(sum(errors) / len(errors), number)
                if number + 1 < folds and trial.should_prune():
                    raise TrialPruned(f"worse than the median after {number + 1} of {folds} origins")
        error = sum(errors) / len(errors)
    values = {
        "error": error,
        "seconds": round(time.perf_counter() - started, 2),
        "memory": peak(),
        **sizes,
    }
    _note(trial, errors=errors, step=facts.get("best_step"), selected_by=facts["selected_by"], **values)
    _constrain(trial, search, {"memory": values["memory"]})
    return [values[name] for name in search.objectives]


class _StepPruning(PyTorchLightningPruningCallback):  # type: ignore[misc]  # has no types
    """Optuna's callback, which reports one value an epoch, given steps: an epoch may hold several validations."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        try:
            super().on_validation_end(trainer, _Stepwise(trainer.global_step))
        except TrialPruned as pruned:
            raise TrialPruned(f"worse than the median at step {trainer.global_step}") from pruned


@dataclass(frozen=True)
class _Stepwise:
    """What the callback asks a module for."""

    current_epoch: int


@contextlib.contextmanager
def _pruned_by_failure(trial: Trial) -> Iterator[None]:
    """Prune a trial that cannot be trained, and note why; a sampler learns from it as from a bad one."""
    try:
        yield
    except TrialPruned as pruned:
        trial.set_user_attr(REASON, str(pruned))
        raise
    except DivergedError as error:
        _prune(trial, str(error), error)
    except Exception as error:
        if _is_out_of_memory(error):
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            _prune(trial, "out of memory", error)
        if isinstance(error, UserError):
            _prune(trial, f"refused: {error}", error)
        raise


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether this is what an allocator raises, or the sentence for users that was made of it."""
    if isinstance(error, UserError):
        return error.__cause__ is not None and _is_out_of_memory(error.__cause__)
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # the CPU's allocator has no class of its own
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def _prune(trial: Trial, reason: str, error: BaseException) -> None:
    trial.set_user_attr(REASON, reason)
    raise TrialPruned(reason) from error


def _constrain(trial: Trial, search: Search, sizes: Mapping[str, float]) -> None:
    """Tell the sampler how far a trial is above its limits; one that is needs no training.

    Raises:
        TrialPruned: if it is above one; not for memory, which is known when all is done.
    """
    for name, size in sizes.items():
        most = search.constraints.get(name)
        if most is not None:
            trial.set_constraint(name, size - most)
            if size > most and name != "memory":
                raise TrialPruned(f"{size:,.0f} {name}, above the {most:,.0f} allowed")


def _note(trial: Trial, **values: Any) -> None:
    for name, value in values.items():
        trial.set_user_attr(name, value)
