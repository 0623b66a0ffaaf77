"""An experiment as plain data: what is forecast, by what, how it is trained, from which seed."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import yaml

from tsattn.checks import calibration_share
from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.evaluation import selection_metric
from tsattn.experiments.configs import check_sections, find_config, read_config
from tsattn.experiments.dotted import full_path, with_values
from tsattn.experiments.fingerprint import fingerprint
from tsattn.experiments.schema import completed, instantiated
from tsattn.layers.optim import Optimization
from tsattn.predictors import complete_predictor
from tsattn.task import Output
from tsattn.training.losses import choose_loss
from tsattn.training.trainer_options import chosen_precision

__all__ = ["NOT_IN_KEY", "OF_DATA", "RESULTS_VERSION", "Experiment", "as_before"]

RESULTS_VERSION = 3
"""Raised in the commit that changes any number of a result: results of other versions are not comparable."""

_NONE = object()
_FILES = ("path", "root", "folder")  # arguments of data sets that say where files lie

# of the Trainer, what says where and how it computes or writes, not what comes out
NOT_IN_KEY = (
    *("accelerator", "strategy", "logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"),
    *("log_every_n_steps", "profiler", "default_root_dir", "benchmark", "inference_mode", "detect_anomaly"),
    *("enable_autolog_hparams", "model_registry"),
)
# arguments that came after records had been kept, with what those were trained by: so their keys stay
_CAME_LATER = {
    **{"schedule": "cosine", "betas": [0.9, 0.999], "distribution": None, "transform": None, "calibrate": False},
    **{"patience": None, "min_delta": 0.0, "until": None, "comment": "", "skip_rows": 0},
}
# the same of the arguments of a network, wherever its description stands
_CAME_LATER_IN_NETWORKS = {"patch_mask": 0.0, "subtract_last": False, "pad_end": False}
OF_DATA = (
    *("context_length", "prediction_length", "batch_size", "eval_batch_size", "scaling", "val_windows"),
    "transform",
)


@dataclass(frozen=True)
class Experiment:
    """Complete description of a run, all defaults included.

    In YAML it has the keys ``data``, ``model``, ``trainer`` and ``seed_everything``, as the command line has options.

    Attributes:
        data: the DataModule and its arguments: ``class_path`` and ``init_args``.
        model: ``backbone``, the description of the predictor, and how it is trained: ``learning_rate``, ``loss`` and so
            on, the arguments of `ForecastingModule`.
        trainer: the arguments of Lightning's Trainer.
        seed: of weights, order and dropout; None draws from the generators as they are. ``true`` in the YAML is one
            that the description decides, wherever its files lie.
    """

    data: Mapping[str, Any]
    model: Mapping[str, Any]
    trainer: Mapping[str, Any]
    seed: int | None

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """The experiment of a description that may leave out what has a default.

        Args:
            content: plain data by the keys of the YAML.

        Raises:
            UserError: for a key or value that is not valid; the message lists what is.
        """
        check_sections(content)
        seed = content.get("seed_everything")
        if not isinstance(seed, bool) and seed is not None and not 0 <= seed < 2**32:  # what numpy takes
            raise UserError(f"--seed_everything must be from 0 to {2**32 - 1}, or true or false, not {seed}")
        whole = completed(content)
        whole["model"]["backbone"] = complete_predictor(whole["model"]["backbone"])
        Optimization(**{one.name: whole["model"][one.name] for one in fields(Optimization)})
        calibration_share(whole["model"]["calibrate"])
        files = whole["data"].get("init_args") or {}
        given = {name: files[name] for name in _FILES if files.get(name)}
        seed = whole["seed_everything"]
        if seed is True:  # wherever the files lie
            files.update(dict.fromkeys(given))
            described = json.dumps(as_before(whole))
            seed = int.from_bytes(hashlib.sha256(described.encode()).digest()[:4], "big")
        # the description is read from anywhere
        files.update({name: str(Path(path).expanduser().absolute()) for name, path in given.items()})
        return cls(whole["data"], whole["model"], whole["trainer"], None if seed is False else seed)

    @classmethod
    def read(cls, name: str | Path, overrides: Mapping[str, Any] | None = None) -> Self:
        """The experiment in a YAML file, which is found by its bare name if it comes with tsattn.

        Args:
            name: of the file.
            overrides: values by their dotted paths, see `with_values`.

        Raises:
            UserError: if it is not there, or is not valid.
        """
        return cls.of(with_values(read_config(find_config(name)), _full(overrides)))

    def with_values(self, overrides: Mapping[str, Any] | None) -> Self:
        """The same with other values.

        Args:
            overrides: values by their dotted paths, written as on the command line: ``trainer.max_steps``,
                ``data.batch_size``, ``model.backbone``, ``attention.ranks``. Naming another kind replaces the whole
                description.

        Raises:
            UserError: for a path or value that is not valid.
        """
        return type(self).of(with_values(self.to_dict(), _full(overrides))) if overrides else self

    def to_dict(self) -> dict[str, Any]:
        """Plain data by the keys of the YAML."""
        seed: int | bool = False if self.seed is None else self.seed
        parts = {"data": self.data, "model": self.model, "trainer": self.trainer}
        return {"seed_everything": seed, **copy.deepcopy(parts)}

    def to_yaml(self) -> str:
        """A configuration that `fit --config` and `Experiment.read` take."""
        text: str = yaml.safe_dump(self.to_dict(), sort_keys=False)
        return text

    def made(self) -> tuple[ForecastDataModule, Mapping[str, Any]]:
        """The DataModule, and the arguments of the Trainer with what they name made.

        Raises:
            UserError: for what a class refuses.
        """
        parts = instantiated(self.to_dict())
        return parts.data, dict(vars(parts.trainer))

    def with_precision(self, precision: Any) -> Self:
        """The same in the precision that a training has chosen, so that what goes on with it has it too."""
        return replace(self, trainer={**self.trainer, "precision": precision})

    @property
    def selection(self) -> str:
        """The validation error that weights and trials are chosen by, see `tsattn.evaluation.selection`."""
        quantiles = self.model["quantiles"]
        loss = choose_loss(self.model["loss"], quantiles, self.model["distribution"])
        return selection_metric(loss, quantiles, self.model["selection"])

    @property
    def output(self) -> Output:
        """What is asked of the predictor."""
        return Output(tuple(self.model["quantiles"]), self.model["distribution"])

    @property
    def key(self) -> str:
        """A hash of all that decides the numbers of the result; the data are read for it.

        Those are this description, the data (values, names and time stamps after reading, how they are split, and what
        a data set says is done to each batch), and `RESULTS_VERSION`. Not among them: where files lie, logging, loader
        processes, the device, and threads.
        """
        data, _ = self.made()
        data.prepare_data()
        data.setup("fit")
        return self.key_with(data)

    def key_with(self, data: ForecastDataModule, data_fingerprint: str | None = None) -> str:
        """The `key`, of data that are set up.

        Args:
            data: set up.
            data_fingerprint: theirs, where it is known (`tsattn.experiments.fingerprint`).
        """
        trainer = {name: value for name, value in self.trainer.items() if name not in NOT_IN_KEY}
        if trainer["devices"] in ("1", "auto", [0]):
            trainer["devices"] = 1
        trainer["precision"] = chosen_precision(self.trainer)
        of_data = _known_before({name: getattr(data, name) for name in OF_DATA})
        splits = [astuple(split) for split in data.splits]
        content = {
            "version": RESULTS_VERSION,
            "model": {**_known_before(self.model), "backbone": _network_before(self.model["backbone"])},
            "trainer": trainer,
            "seed": self.seed,
            "data": {**of_data, **{name: getattr(data, name) for name in data.in_key}},
            "splits": splits,
            "fingerprint": data_fingerprint or fingerprint(data),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def as_before(content: Mapping[str, Any]) -> dict[str, Any]:
    """What an experiment says as plain data, without options that came later and are as everything was before them.

    So two that were written down by different versions can be compared.
    """
    data, model = content["data"], content["model"]
    return {
        **content,
        "data": {**data, "init_args": _known_before(data["init_args"])},
        "model": {**_known_before(model), "backbone": _network_before(model["backbone"])},
    }


def _known_before(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments without those of `_CAME_LATER` that are as they were before."""
    return {name: value for name, value in arguments.items() if _CAME_LATER.get(name, _NONE) != value}


def _network_before(description: Any) -> Any:
    """A description, and those in it, without arguments of `_CAME_LATER_IN_NETWORKS` that are as they were before."""
    if isinstance(description, Mapping):
        return {
            name: _network_before(value)
            for name, value in description.items()
            if _CAME_LATER_IN_NETWORKS.get(name, _NONE) != value
        }
    return [*map(_network_before, description)] if isinstance(description, list) else description


def _full(overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    return {full_path(path): value for path, value in (overrides or {}).items()}
