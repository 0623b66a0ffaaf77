"""Data that trials share: read once, and set up once for each description of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tsattn.data import ForecastDataModule, Panel
from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.experiments.schema import user_errors
from tsattn.predictors import build_predictor
from tsattn.training import TrainerOptions, Training
from tsattn.training.trainer_options import check_one_device
from tsattn.tuning.rolling import Fold, hold_out

__all__ = ["HeldData", "check_one_trial"]

# arguments of a DataModule that do not say what it reads
_SIZES = (
    *("context_length", "prediction_length", "batch_size", "eval_batch_size", "num_workers", "resident_gb"),
    *("scaling", "val_windows", "transform"),
)
_HELD = 12  # DataModules that are kept set up


class HeldData:
    """Gives the data of experiments, set up."""

    def __init__(self) -> None:
        self._held: dict[str, ForecastDataModule] = {}
        self._panels: dict[str, Panel] = {}
        self._lacking: dict[str, UserError] = {}

    def check(self, config: Mapping[str, Any]) -> None:
        """Refuse a configuration that cannot be a trial.

        Raises:
            UserError: for what the parser, a class, the data, the predictor or its training refuse.
        """
        experiment = Experiment.of(config)
        check_one_trial(experiment)
        with user_errors():
            _, trainer = experiment.made()
            data = self.of(experiment)
            assert data.task is not None
            predictor = build_predictor(experiment.model["backbone"])
            predictor.build(data.task, experiment.output, empty=True)
            options = {name: value for name, value in experiment.model.items() if name != "backbone"}
            predictor.check_fit(data, Training(TrainerOptions.of(trainer), options, experiment.seed))

    def of(self, experiment: Experiment, fold: Fold | None = None) -> ForecastDataModule:
        """The DataModule that an experiment describes, for one trial; its series are read and scaled once for all.

        What a training notes in its data (its Trainer, how long it is) stays in those of this trial.

        Args:
            experiment: names the data.
            fold: the rows to hold out; None for the data's own split.

        Raises:
            UserError: for what a class or the data refuse.
        """
        kind, arguments = experiment.data["class_path"], dict(experiment.data.get("init_args") or {})
        key = json.dumps([kind, arguments, fold and [fold.number, fold.count]])
        data = self._held.pop(key, None)
        if data is None:
            data, _ = experiment.made()
            if fold is not None:
                data = hold_out(data, fold)
            source = json.dumps([kind, {name: value for name, value in arguments.items() if name not in _SIZES}])
            self._prepare(data, source)
            if source not in self._panels:
                self._panels[source] = data.source.load()
            data.panel = self._panels[source]  # as it was read: `setup` leaves the categories of one split's training
            data.setup("fit")
        self._held[key] = data  # the last used is the last to go
        while len(self._held) > _HELD:
            del self._held[next(iter(self._held))]
        return data.with_context(data.context_length)

    def _prepare(self, data: ForecastDataModule, source: str) -> None:
        """Fetch the data if they are not there; what cannot be fetched is asked for once."""
        if source in self._lacking:
            raise self._lacking[source]
        try:
            data.prepare_data()
        except UserError as error:
            self._lacking[source] = error
            raise


def check_one_trial(experiment: Experiment) -> None:
    """Refuse an experiment that cannot be a trial, whatever else a space changes.

    Raises:
        UserError: for more than one device, or no seed.
    """
    check_one_device(experiment.trainer, "a trial runs on one device", "; run `tune` in several processes to use more")
    if experiment.seed is None:
        raise UserError("a trial needs a seed, so that its result can be had again: seed_everything must not be false")
