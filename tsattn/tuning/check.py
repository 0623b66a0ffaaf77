"""Holding a search space against the experiment that it changes, before the first trial."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

from tsattn.backbones import backbone_class
from tsattn.errors import UserError, did_you_mean, one_of
from tsattn.evaluation.selection import SELECTION_CHOICES
from tsattn.experiments import Experiment
from tsattn.experiments.dotted import BACKBONE, paths
from tsattn.predictors import named_predictor
from tsattn.predictors.network import NetworkPredictor
from tsattn.training.losses import choose_loss
from tsattn.training.trainer_options import check_one_device
from tsattn.tuning.search import Search

__all__ = ["check_one_trial", "check_search", "comparable"]

# of the data, all else decides what is forecast or which windows are scored
_DATA = tuple(f"data.init_args.{name}" for name in ("context_length", "batch_size", "eval_batch_size", "num_workers"))
_SCORED = (
    *("trainer.limit_val_batches", "trainer.overfit_batches", "trainer.fast_dev_run"),
    *("model.quantiles", "model.selection", "model.distribution", "model.calibrate"),
)
_DRAWS = 8  # combinations in which a value is tried before it is called impossible


def comparable(experiment: Experiment) -> Experiment:
    """Write out what the trials of an experiment are compared by, whatever they change.

    All of them are scored on the same validation windows, which are all unless `val_windows` is a number, by the error
    that this experiment is chosen by, also where a trial is trained on another loss.
    """
    selection = next(name for name, score in SELECTION_CHOICES.items() if score == experiment.selection)
    fixed: dict[str, object] = {"model.selection": selection}
    kind, cls, _ = named_predictor(experiment.model["backbone"])
    if not (issubclass(cls, NetworkPredictor) and backbone_class(kind).has_own_loss):
        fixed["model.loss"] = choose_loss(*(experiment.model[name] for name in ("loss", "quantiles", "distribution")))
    if (experiment.data.get("init_args") or {}).get("val_windows") == "auto":  # as many as a training affords
        fixed["data.val_windows"] = "all"
    return experiment.with_values(fixed)


def check_one_trial(experiment: Experiment) -> None:
    """Refuse an experiment with more than one device, or no seed: it cannot be a trial, whatever a space changes."""
    check_one_device(experiment.trainer, "a trial runs on one device", "; run `tune` in several processes to use more")
    if experiment.seed is None:
        raise UserError("a trial needs a seed, so that its result can be had again: seed_everything must not be false")


def check_search(search: Search, config: Mapping[str, Any], build: Callable[[dict[str, Any]], object]) -> None:
    """Refuse a space with a path that the configuration lacks, or a value that it cannot take.

    `build` makes data and predictor of a complete configuration: with every option, and the ends and middle of every
    range. A value that fails may yet go with other values of the other parameters, so a few combinations are tried
    before it is refused.

    Raises:
        UserError: naming file, path and value, and what is wrong with it; or the option of validation by which trials
            would be scored on different windows.
    """
    trainer = config["trainer"]
    limit = trainer.get("limit_val_batches")
    some = not (limit is None or (isinstance(limit, float) and limit == 1.0))
    for name, limits in (("limit_val_batches", some), ("fast_dev_run", trainer.get("fast_dev_run"))):
        if limits:  # only networks obey, and other sizes of a batch hold other windows
            raise UserError(
                f"trials must be scored on the same validation windows: leave out trainer.{name}, which is "
                f"{trainer[name]}; data.val_windows may be a number of them"
            )
    known = list(paths(config))
    for path in search.parameters:
        if path not in known and not path.startswith(f"{BACKBONE}."):
            hint = did_you_mean(path, known)
            raise UserError(f"{search.file}: the configuration has no {path}{hint}; `fit --print_config` lists all")
        is_data = path == "data" or path.startswith("data.")
        if (is_data and path not in _DATA) or any(f"{scored}.".startswith(f"{path}.") for scored in _SCORED):
            raise UserError(
                f"{search.file}: {path} decides what is scored, so its trials could not be compared; of the data only "
                f"{one_of(_DATA)} can be searched for"
            )
    rng = random.Random(0)
    for path, parameter in search.parameters.items():
        for probe in parameter.probes():
            needed = {**search.needed(path), path: probe}
            reasons = []
            for taken in itertools.chain([needed], (search.drawn(rng, needed) for _ in range(_DRAWS))):
                try:
                    build(search.applied(config, taken))
                    break
                except UserError as error:
                    reasons.append(error)
            else:
                raise UserError(f"{search.file}: {path} cannot be {probe!r}: {reasons[0]}") from reasons[0]
    windows = (config["data"].get("init_args") or {}).get("val_windows", "all")
    for path in {BACKBONE, f"{BACKBONE}.kind"} & set(search.parameters) if isinstance(windows, int) else ():
        values = [{**search.needed(path), path: probe} for probe in search.parameters[path].probes()]
        kinds = [named_predictor(search.applied(config, one)["model"]["backbone"]) for one in values]
        if len({issubclass(cls, NetworkPredictor) for _, cls, _ in kinds}) > 1:
            raise UserError(
                f"{search.file}: {path} is searched for, and only networks are scored on {windows} validation "
                "windows, the others on all: data.val_windows must be all"
            )
