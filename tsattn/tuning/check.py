"""Holding a search space against the experiment that it changes, before the first trial."""

from __future__ import annotations

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
from tsattn.tuning.search import Search

__all__ = ["check_search", "comparable"]

# of the data, all else decides what is forecast or which windows are scored
_DATA = tuple(f"data.init_args.{name}" for name in ("context_length", "batch_size", "eval_batch_size", "num_workers"))
_SCORED = (
    *("trainer.limit_val_batches", "trainer.overfit_batches", "trainer.fast_dev_run"),
    *("model.quantiles", "model.selection", "model.distribution", "model.calibrate"),
)
_DRAWS = 8  # combinations in which a value is tried before it is called impossible


def comparable(experiment: Experiment) -> Experiment:
    """An experiment to search around: what its trials are compared by is written out, whatever they change.

    All of them are scored on the same validation windows, which are all of them unless `val_windows` is a number, by
    the error that this one is chosen by, also where a trial is trained on another loss.

    Args:
        experiment: as it was asked for.
    """
    selection = next(name for name, score in SELECTION_CHOICES.items() if score == experiment.selection)
    fixed: dict[str, object] = {"model.selection": selection}
    kind, cls, _ = named_predictor(experiment.model["backbone"])
    if not (issubclass(cls, NetworkPredictor) and backbone_class(kind).has_own_loss):
        fixed["model.loss"] = choose_loss(*(experiment.model[name] for name in ("loss", "quantiles", "distribution")))
    if (experiment.data.get("init_args") or {}).get("val_windows") == "auto":  # as many as a training affords
        fixed["data.val_windows"] = "all"
    return experiment.with_values(fixed)


def check_search(search: Search, config: Mapping[str, Any], build: Callable[[dict[str, Any]], object]) -> None:
    """Refuse a space with a path that the configuration lacks, or a value that it cannot take.

    Every option, and the ends and middle of every range, is built in the configuration; what depends on other
    parameters is built beside the values of these that it asks for. A value that fails there may yet go with other
    values of the other parameters, so a few combinations are tried before it is refused.

    Args:
        search: the space.
        config: the configuration, complete.
        build: makes data and predictor of a configuration, or raises `UserError`.

    Raises:
        UserError: naming file, path and value, and what is wrong with it; or naming what the configuration says of
            validation, where trials would be scored on different windows by it.
    """
    _check_limits(config["trainer"])
    known = list(paths(config))
    for path in search.parameters:
        if path not in known and not path.startswith(f"{BACKBONE}."):
            where = "the configuration has no"
            raise UserError(f"{search.file}: {where} {path}{did_you_mean(path, known)}; `fit --print_config` lists all")
        if _decides_what_is_scored(path):
            raise UserError(
                f"{search.file}: {path} decides what is scored, so its trials could not be compared; of the data only "
                f"{one_of(_DATA)} can be searched for"
            )
    rng = random.Random(0)
    for path, parameter in search.parameters.items():
        for probe in parameter.probes():
            reason = _impossible(search, config, {**search.needed(path), path: probe}, build, rng)
            if reason is not None:
                raise UserError(f"{search.file}: {path} cannot be {probe!r}: {reason}")
    _check_windows(search, config)


def _check_limits(trainer: Mapping[str, Any]) -> None:
    """Refuse to validate on some batches: only networks obey, and other sizes of a batch hold other windows."""
    limit = trainer.get("limit_val_batches")
    for name, value, is_whole in (
        ("limit_val_batches", limit, limit is None or (isinstance(limit, float) and limit == 1.0)),
        ("fast_dev_run", trainer.get("fast_dev_run"), not trainer.get("fast_dev_run")),
    ):
        if not is_whole:
            raise UserError(
                f"trials must be scored on the same validation windows: leave out trainer.{name}, which is {value}; "
                "data.val_windows may be a number of them"
            )


def _check_windows(search: Search, config: Mapping[str, Any]) -> None:
    """Refuse a number of validation windows where predictors are searched for of which some are scored on all."""
    windows = (config["data"].get("init_args") or {}).get("val_windows", "all")
    for path in (BACKBONE, f"{BACKBONE}.kind"):
        if isinstance(windows, int) and path in search.parameters:
            values = [{**search.needed(path), path: probe} for probe in search.parameters[path].probes()]
            kinds = [named_predictor(search.applied(config, one)["model"]["backbone"]) for one in values]
            if len({issubclass(cls, NetworkPredictor) for _, cls, _ in kinds}) > 1:
                raise UserError(
                    f"{search.file}: {path} is searched for, and only networks are scored on {windows} validation "
                    "windows, the others on all: data.val_windows must be all"
                )


def _decides_what_is_scored(path: str) -> bool:
    """Whether another value at a path, or inside what stands there, would make another error or other windows count."""
    is_data = path == "data" or path.startswith("data.")
    return (is_data and path not in _DATA) or any(f"{scored}.".startswith(f"{path}.") for scored in _SCORED)


def _impossible(
    search: Search,
    config: Mapping[str, Any],
    fixed: Mapping[str, Any],
    build: Callable[[dict[str, Any]], object],
    rng: random.Random,
) -> str | None:
    """Why these values cannot be, neither alone nor beside some of the other parameters; None if they can."""
    reason = _refusal(search, config, fixed, build)
    if reason is None:
        return None
    for _ in range(_DRAWS):
        drawn = search.taken(lambda other: fixed[other.path] if other.path in fixed else other.draw(rng))
        if _refusal(search, config, drawn, build) is None:
            return None
    return reason


def _refusal(
    search: Search, config: Mapping[str, Any], taken: Mapping[str, Any], build: Callable[[dict[str, Any]], object]
) -> str | None:
    try:
        build(search.applied(config, taken))
    except UserError as error:
        return str(error)
    return None
