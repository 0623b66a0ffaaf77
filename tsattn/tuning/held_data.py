"""Data that trials share: read once, and set up once for each description of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tsattn.data import ForecastDataModule, Panel
from tsattn.experiments import Experiment
from tsattn.predictors import build_predictor
from tsattn.task import Output
from tsattn.training import TrainerOptions
from tsattn.training.trainer_options import check_one_device
from tsattn.tuning.rolling import Fold, hold_out

__all__ = ["HeldData"]

# arguments of a DataModule that do not say what it reads
_SIZES = (
    *("context_length", "prediction_length", "batch_size", "eval_batch_size", "num_workers", "resident_gb"),
    *("scaling", "val_windows"),
)
_HELD = 12  # DataModules that are kept set up


class HeldData:
    """Gives the data of experiments, set up."""

    def __init__(self) -> None:
        self._held: dict[str, ForecastDataModule] = {}
        self._panels: dict[str, Panel] = {}

    def check(self, config: Mapping[str, Any]) -> None:
        """Refuse a configuration that cannot be a trial.

        Raises:
            UserError: for what the parser, a class or the data refuse.
        """
        experiment = Experiment.of(config)
        check_one_device(experiment.trainer, "a trial runs on one device (several processes of `tune` use more)")
        TrainerOptions.of(experiment.trainer)
        data = self.of(experiment)
        assert data.task is not None
        predictor = build_predictor(experiment.model["backbone"])
        predictor.build(data.task, Output(tuple(experiment.model["quantiles"])), empty=True)

    def of(self, experiment: Experiment, fold: Fold | None = None) -> ForecastDataModule:
        """The DataModule that an experiment describes, or the same one from before; its series are read once.

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
                hold_out(data, fold)
            source = json.dumps([kind, {name: value for name, value in arguments.items() if name not in _SIZES}])
            if type(data).setup is ForecastDataModule.setup:
                data.panel = self._panels.get(source)
            data.prepare_data()
            data.setup("fit")
            assert data.panel is not None
            self._panels[source] = data.panel
        self._held[key] = data  # the last used is the last to go
        while len(self._held) > _HELD:
            del self._held[next(iter(self._held))]
        return data
