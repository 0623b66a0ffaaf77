"""An experiment as plain data: what is forecast, by what, how it is trained, from which seed."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import yaml
from jsonargparse import Namespace

from tsattn.checks import calibration_share
from tsattn.data import ForecastDataModule
from tsattn.data.frequency import counts
from tsattn.errors import UserError
from tsattn.evaluation import selection_metric
from tsattn.experiments.configs import check_sections, find_config, read_config
from tsattn.experiments.dotted import full_path, with_values
from tsattn.experiments.schema import instantiated, parsed, plain
from tsattn.layers.optim import Optimization
from tsattn.predictors import complete_predictor
from tsattn.task import Output
from tsattn.training.losses import choose_loss
from tsattn.training.trainer_options import chosen_precision

__all__ = ["NOT_IN_KEY", "OF_DATA", "RESULTS_VERSION", "Experiment", "fingerprint"]

RESULTS_VERSION = 3
"""Raised in the commit that changes any number of a result: results of other versions are not comparable."""

_CHUNK = 1 << 26  # bytes
_FILES = ("path", "root", "folder")  # arguments of data sets that say where files lie

# of the Trainer, what says where and how it computes or writes, not what comes out
NOT_IN_KEY = (
    *("accelerator", "strategy", "logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"),
    *("log_every_n_steps", "profiler", "default_root_dir", "benchmark", "inference_mode", "detect_anomaly"),
    *("enable_autolog_hparams", "model_registry"),
)
OF_DATA = (
    *("context_length", "prediction_length", "batch_size", "eval_batch_size", "scaling", "val_windows", "transform"),
)
# left out of keys and of drawn seeds at these values, so that the keys of committed records hold
_UNSAID = {
    **{"schedule": "cosine", "betas": [0.9, 0.999], "distribution": None, "transform": None, "calibrate": False},
    **{"patience": None, "min_delta": 0.0, "until": None, "comment": "", "skip_rows": 0},
}
_UNSAID_IN_NETWORKS = {"patch_mask": 0.0, "subtract_last": False, "pad_end": False}


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
        parts: what the parser made of the data and the trainer, and these: where one is replaced, it is parsed again.
    """

    data: Mapping[str, Any]
    model: Mapping[str, Any]
    trainer: Mapping[str, Any]
    seed: int | None
    parts: tuple[Namespace, Mapping[str, Any], Mapping[str, Any]] = field(repr=False, compare=False)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Complete a description, which may leave out what has a default.

        Args:
            content: plain data by the keys of the YAML.

        Raises:
            UserError: for a key or value that is not valid; the message lists what is.
        """
        check_sections(content)
        return cls.of_parts(parsed(content))

    @classmethod
    def of_parts(cls, parts: Namespace) -> Self:
        """Check parsed parts together.

        Raises:
            UserError: for a value that is not valid.
        """
        whole = plain(parts)
        seed = whole["seed_everything"]
        if not isinstance(seed, bool) and not 0 <= seed < 2**32:  # what numpy takes
            raise UserError(f"--seed_everything must be from 0 to {2**32 - 1}, or true or false, not {seed}")
        whole["model"]["backbone"] = complete_predictor(whole["model"]["backbone"])
        Optimization(**{one.name: whole["model"][one.name] for one in fields(Optimization)})
        calibration_share(whole["model"]["calibrate"])
        files = whole["data"].get("init_args") or {}
        given = {name: files[name] for name in _FILES if files.get(name)}
        if seed is True:  # wherever the files lie
            files.update(dict.fromkeys(given))
            said = {**whole, **_said(whole["data"], whole["model"])}
            seed = int.from_bytes(hashlib.sha256(json.dumps(said).encode()).digest()[:4], "big")
        # the description is read from anywhere
        places = {name: str(Path(path).expanduser().absolute()) for name, path in given.items()}
        files.update(places)
        parts = copy.deepcopy(parts)
        for name, path in places.items():
            parts[f"data.init_args.{name}"] = path
        data, model, trainer = whole["data"], whole["model"], whole["trainer"]
        return cls(data, model, trainer, None if seed is False else seed, (parts, data, trainer))

    @classmethod
    def read(cls, name: str | Path, overrides: Mapping[str, Any] | None = None) -> Self:
        """Read a YAML file, which is found by its bare name if it is included in tsattn.

        Args:
            name: of the file.
            overrides: values by their dotted paths, see `with_values`.

        Raises:
            UserError: if it is not there, or is not valid.
        """
        return cls.of(with_values(read_config(find_config(name)), _full(overrides)))

    def with_values(self, overrides: Mapping[str, Any] | None) -> Self:
        """Return the experiment with other values.

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
        """Make the DataModule, and the arguments of the Trainer with what they name.

        Raises:
            UserError: for what a class refuses.
        """
        parts, data, trainer = self.parts
        is_parsed = data is self.data and trainer is self.trainer
        made = instantiated(parts if is_parsed else parsed(self.to_dict()))
        return made.data, dict(vars(made.trainer))

    def with_precision(self, precision: Any) -> Self:
        """Return the experiment in the precision that a training has chosen, so that resuming it has it too."""
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
            data_fingerprint: theirs, if it is known (`fingerprint`).
        """
        trainer = {name: value for name, value in self.trainer.items() if name not in NOT_IN_KEY}
        if trainer["devices"] in ("1", "auto", [0]):
            trainer["devices"] = 1
        trainer["precision"] = chosen_precision(self.trainer)
        of_data = _without({name: getattr(data, name) for name in OF_DATA}, _UNSAID)
        content = {
            "version": RESULTS_VERSION,
            "model": _said(self.data, self.model)["model"],
            "trainer": trainer,
            "seed": self.seed,
            "data": {**of_data, **{name: getattr(data, name) for name in data.in_key}},
            "splits": [astuple(split) for split in data.splits],
            "fingerprint": data_fingerprint or fingerprint(data),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def fingerprint(data: ForecastDataModule) -> str:
    """Hash the series: values, names and time stamps after reading, not the bytes or the place of a file.

    Args:
        data: set up.
    """
    panel = data.panel
    assert panel is not None
    is_dated = isinstance(panel.time, pd.DatetimeIndex)
    parts = [panel.ids, panel.channels, panel.past_names, panel.future_names, panel.static_names]
    kind = [panel.frequency, str(panel.time.tz) if isinstance(panel.time, pd.DatetimeIndex) else None, is_dated]
    more = [panel.covariate_categories] if panel.covariate_categories else []
    names = [*map(list, parts), panel.static_categories, *kind, *more]
    found = hashlib.blake2b(json.dumps(names, default=str).encode(), digest_size=32)
    rows = panel.values, panel.past_covariates, panel.future_covariates
    for array in (panel.time, panel.starts, *rows, panel.static, panel.weights):
        if array is None:
            continue
        is_float = array.dtype.kind == "f"
        step = max(1, _CHUNK // (8 * max(1, int(np.prod(array.shape[1:])))))
        found.update(f"{'<f8' if is_float else '<i8'}{array.shape}".encode())
        for start in range(0, len(array), step):
            part: Any = array[start : start + step]
            if isinstance(part, pd.Index):  # the unit of the time stamps is a matter of the reader
                part = counts(part)
            elif is_float:  # one missing value is as good as another, and so are the two zeros; so is the precision
                part = np.where(np.isnan(part), np.nan, part).astype(np.float64) + 0.0
            found.update(part.tobytes())
    return found.hexdigest()


def _said(data: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """Data and model without what is as `_UNSAID` has it."""
    backbone = _network_without(model["backbone"])
    return {
        "data": {**data, "init_args": _without(data.get("init_args") or {}, _UNSAID)},
        "model": {**_without(model, _UNSAID), "backbone": backbone},
    }


def _without(arguments: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in values or values[name] != value}


def _network_without(description: Any) -> Any:
    if isinstance(description, Mapping):
        kept = _without(description, _UNSAID_IN_NETWORKS)
        return {name: _network_without(value) for name, value in kept.items()}
    return [*map(_network_without, description)] if isinstance(description, list) else description


def _full(overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    return {full_path(path): value for path, value in (overrides or {}).items()}
