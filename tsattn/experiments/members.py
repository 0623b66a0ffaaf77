"""Members of an ensemble that were fitted alone before: as which experiments, and taking those fits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.experiments.dotted import with_values
from tsattn.experiments.experiment import Experiment
from tsattn.experiments.run_folder import RunFolder
from tsattn.predictors import Predictor, build_predictor
from tsattn.predictors.ensemble import Ensemble, member_name
from tsattn.predictors.fitted import load_predictor

__all__ = ["earlier_fits", "member_experiments"]

_FACTS = ("best_step", "selected_by", "validation_error", "validation_windows", "parameters", "training")


def member_experiments(
    experiment: Experiment, parse: Callable[[Mapping[str, Any]], Experiment] = Experiment.of
) -> dict[str, Experiment]:
    """Return the experiments that fit the members of an ensemble alone, bit for bit as in it, by their names.

    There is none of what is not trained, which costs little, none where no seed is given, and none of a single
    predictor.

    Args:
        experiment: of the ensemble.
        parse: completes a description.
    """
    ensemble = build_predictor(experiment.model["backbone"])
    if not isinstance(ensemble, Ensemble) or experiment.seed is None:
        return {}
    found: dict[str, Experiment] = {}
    for number, member in enumerate(ensemble.described):
        if not member.is_trained:
            continue
        options = dict(member.options)
        values: dict[str, Any] = {"model.backbone": member.predictor}
        if experiment.model["calibrate"] is True:  # which changes no weight
            values["model.calibrate"] = False
        if "context_length" in options:
            values["data.init_args.context_length"] = options.pop("context_length")
        if "max_steps" in options:
            values |= {"trainer.max_epochs": None, "trainer.max_time": None}
            values["trainer.max_steps"] = options.pop("max_steps")
        values |= {f"model.{name}": value for name, value in options.items()}
        seeds = range(experiment.seed, experiment.seed + ensemble.seeds)
        alone = parse(with_values(experiment.to_dict(), {**values, "seed_everything": seeds[-1]}))  # the largest
        found |= {member_name(number, place): replace(alone, seed=seed) for place, seed in enumerate(seeds)}
    return found


def earlier_fits(
    experiment: Experiment,
    data: ForecastDataModule,
    folder_of: Callable[[Experiment], Path | None],
    say: Callable[[str], None],
) -> Callable[[str, nn.Module], dict[str, Any] | None]:
    """What `Training.fitted` asks: takes the fit of a member from the folder of a finished run, if there is one."""
    known: dict[str, Experiment] = {}

    def fitted(member: str, predictor: nn.Module) -> dict[str, Any] | None:
        if not known:
            known.update(member_experiments(experiment))
        path = folder_of(known[member]) if member in known else None
        if path is None:
            return None
        assert isinstance(predictor, Predictor)
        folder = RunFolder(path)
        folder.check_trained()
        before = load_predictor(folder.best, known[member].model["backbone"], known[member].output)
        task = before.predictor.task
        is_same = predictor.task == task or predictor.task.agrees_with(task)
        if not is_same or repr(before.scaler) != repr(data.scaler):
            raise UserError(f"the run {path} was fitted to other data, so that the ensemble cannot take it as {member}")
        predictor.load_state_dict(before.predictor.state_dict(), assign=True)
        facts = json.loads(folder.metrics.read_text())
        say(f"{member}: {before.predictor.name}, as it was fitted in {path}")
        known_facts = {name: facts[name] for name in _FACTS if name in facts}
        return {"member": member, **known_facts, "earlier_fit_seconds": folder.fit_seconds}

    return fitted
