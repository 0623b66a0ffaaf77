"""A training that goes on with a shorter one of the same suite, which is a result of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsattn.errors import UserError
from tsattn.experiments import Experiment, RunFolder
from tsattn.predictors import named_predictor
from tsattn.predictors.ensemble import Ensemble

__all__ = ["LENGTH", "check_longer", "earlier_seconds", "last_checkpoint"]

LENGTH = ("max_steps", "val_check_interval")
"""What alone may differ, of the options of the Trainer."""


def check_longer(name: str, longer: Experiment, shorter: Experiment) -> None:
    """Refuse an experiment whose training does not begin as another does from its first step to its last.

    Args:
        name: of the longer one.
        longer: goes on.
        shorter: with what it does.

    Raises:
        UserError: where anything but the length differs, or decides the steps by the length.
    """
    (steps, interval), (before, _) = ([one.trainer[key] for key in LENGTH] for one in (longer, shorter))
    is_longer = isinstance(steps, int) and isinstance(before, int) and 0 < before < steps
    is_validated_later = isinstance(interval, int) and is_longer and interval > before
    if _but_for_length(longer) != _but_for_length(shorter) or not is_validated_later:
        raise UserError(
            f"{name} goes on with a training that must be the same but for fewer trainer.max_steps, after which it is "
            "validated for the first time (trainer.val_check_interval)"
        )
    if longer.model["schedule"] != "constant" or longer.model["patience"] is not None:
        raise UserError(
            f"{name} goes on with a shorter training, which takes a learning rate and an end that do not hang on the "
            "number of steps: model.schedule constant, and no model.patience"
        )


def _but_for_length(experiment: Experiment) -> Mapping[str, Any]:
    content = experiment.to_dict()
    content["trainer"] = {name: value for name, value in content["trainer"].items() if name not in LENGTH}
    return content


def last_checkpoint(experiment: Experiment, folders: Mapping[str, str]) -> Path | None:
    """The checkpoint that a training goes on from; None where it begins anew.

    Args:
        experiment: of the training.
        folders: by key those of finished runs that it is made of: the members of an ensemble, or the shorter training.
    """
    _, cls, _ = named_predictor(experiment.model["backbone"])
    if issubclass(cls, Ensemble):
        return None
    found = (RunFolder(path).last for path in folders.values())
    return next((path for path in found if path.exists()), None)


def earlier_seconds(experiment: Experiment, folders: Mapping[str, str]) -> float:
    """The seconds of the shorter training, 0 where there is none; the arguments are those of `last_checkpoint`."""
    checkpoint = last_checkpoint(experiment, folders)
    return 0.0 if checkpoint is None else RunFolder(checkpoint.parents[1]).fit_seconds
