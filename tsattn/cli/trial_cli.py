"""What a trial trains: model, data and Trainer of a configuration, made as `fit` makes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml
from jsonargparse import Namespace
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningCLI

from tsattn.cli.output import say
from tsattn.cli.trainer_cli import TrainerCLI, user_errors
from tsattn.data import ForecastDataModule, Panel
from tsattn.errors import UserError
from tsattn.experiments.run_folder import versions
from tsattn.training.callbacks import StopEarly
from tsattn.tuning import Built, Fold, hold_out
from tsattn.experiments.dotted import complete

__all__ = ["TrialCLI"]

# arguments of a datamodule that do not say what it reads
_SIZES = (
    "context_length",
    "prediction_length",
    "batch_size",
    "eval_batch_size",
    "num_workers",
    "resident_gb",
    "scaling",
    "val_windows",
)
_HELD = 12  # datamodules that are kept set up


class TrialCLI(TrainerCLI):
    """The parser of `fit`, used again for every trial; nothing is written.

    Args:
        args: ``fit`` and its words, prepared for the parser.

    Attributes:
        base: the configuration of these words, complete, as plain data.
    """

    say = staticmethod(say)

    def __init__(self, args: list[str]) -> None:
        self.base: dict[str, Any] = {}
        self._held: dict[str, ForecastDataModule] = {}
        self._panels: dict[str, Panel] = {}
        super().__init__(args, typed=[])

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """`fit` alone."""
        return {"fit": TrainerCLI.subcommands()["fit"]}

    def build(self, config: Mapping[str, Any], fold: Fold | None = None) -> Built:
        """Parse a configuration and make what it means, seeded, set up and built, as `fit` does before it trains.

        Data are read once, and set up once for each description of them.

        Raises:
            UserError: for what the parser, a class or the data refuse.
        """
        with user_errors():
            parsed = self._parser("fit").parse_object(json.loads(json.dumps(config)))
            self.config = Namespace(subcommand="fit", fit=parsed)  # type: ignore[no-untyped-call]
            self._set_seed()
            self.before_instantiate_classes()
            self.instantiate_classes()
            self.datamodule = self._data(config["data"], fold)
            self._set_up("fit")
            self._check_steps()
        seed = self._get(self.config, "seed_everything")
        return Built(self.model, self.datamodule, self.trainer, None if seed is False else seed)

    def config_text(self, config: Mapping[str, Any]) -> str:
        """A configuration as complete YAML that `fit --config` takes."""
        self.build(config)
        return self._config_text()

    def versions(self, command: list[str]) -> dict[str, Any]:
        """What the results depend on beside configuration and data."""
        return versions(command, self._device)

    def before_instantiate_classes(self) -> None:
        """Refuse what a trial cannot be; the rest as for `fit`."""
        trainer = self.config[self.subcommand].trainer
        if trainer.devices not in (1, "1", "auto", [0]) or trainer.num_nodes != 1:
            raise UserError(
                f"a trial runs on one device: --trainer.devices must be 1, not {trainer.devices}; run `tune` in "
                "several processes to use more"
            )
        super().before_instantiate_classes()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """The Trainer of the configuration, which leaves no files."""
        given = self._get(self.config_init, "trainer").callbacks
        listed = given if isinstance(given, list) else [given] if given else []
        if self._get(self.config_init, "trainer").max_epochs is None:
            kwargs["max_epochs"] = -1
        self.stopping = StopEarly("val_mse")  # of this trial
        stopping = [self.stopping] if self.chooses_steps else []
        kwargs["callbacks"] = [*(each for each in listed if not isinstance(each, ModelCheckpoint)), *stopping]
        return LightningCLI.instantiate_trainer(
            self,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **kwargs,
        )

    def _run_subcommand(self, subcommand: str) -> None:
        """Nothing is run; keep the configuration."""
        self.base = complete(yaml.safe_load(self._config_text()))
        data = self.base["data"]["init_args"]
        if data.get("val_windows") == "auto":  # as many as a training affords: trials must be comparable
            data["val_windows"] = "all"

    def _data(self, description: Mapping[str, Any], fold: Fold | None) -> ForecastDataModule:
        """The datamodule that was just made, or the same one from before, set up; the series are read once."""
        arguments = dict(description["init_args"])
        key = json.dumps([description["class_path"], arguments, fold and [fold.number, fold.count]])
        data: ForecastDataModule = self._held.pop(key, self.datamodule)
        if data is self.datamodule:
            if fold is not None:
                hold_out(data, fold)
            source = json.dumps([description["class_path"], {k: v for k, v in arguments.items() if k not in _SIZES}])
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
