"""Folders of models: of `Forecaster.save`, JSON and safetensors that run no code, and of runs."""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

from tsattn.backbones.task_network import FORMAT, CheckpointContent, check_format
from tsattn.data import DataOptions
from tsattn.data.columns import match_ids
from tsattn.data.stamps import no_times_of
from tsattn.descriptions import typed
from tsattn.errors import UserError, one_line, shown
from tsattn.experiments.run_folder import RunFolder
from tsattn.forecaster.fitted_series import FittedSeries
from tsattn.forecaster.options import MODEL, nested
from tsattn.forecaster.sample_paths import StepCopula
from tsattn.predictors import Predictor
from tsattn.predictors.calibrated import ConformalScores
from tsattn.predictors.fitted import FittedPredictor, restored_predictor
from tsattn.saved_folders import CHECKSUMS, check_checksums, restore_folder, whole_folder, write_checksums
from tsattn.training.trainer_options import ACCELERATORS, TRAINER_DEFAULTS, has_accelerator

logger = logging.getLogger("tsattn")

_FORMAT = "tsattn forecaster"
CONTENT, _WEIGHTS, _HISTORY = "forecaster.json", "model.safetensors", "history.safetensors"
_CONFORMAL, _COPULA = "conformal.safetensors", "copula.safetensors"
_TYPES: dict[str, Any] = {
    **{"format": str, "version": int, "tsattn": str, "torch": str},
    **dict.fromkeys(("arguments", "predictor", "task", "scaler", "output"), dict),
    **{"history": dict | None, "conformal": dict | None},
}
# Trainer options of a run that decide how long and in which precision; the others belong to its machine
_OF_TRAINER = (
    *("precision", "plugins", "deterministic", "max_epochs", "max_time", "gradient_clip_val"),
    *("gradient_clip_algorithm", "accumulate_grad_batches", "val_check_interval", "check_val_every_n_epoch"),
    *("limit_train_batches", "limit_val_batches", "callbacks"),
)
_NOT_KEPT = {"strict", "format", "num_workers", "resident_gb"}  # of one table, or one machine


@dataclass(frozen=True)
class SavedModel:
    """Content of a folder: arguments of `Forecaster`, the predictor, and ends of series and a copula if it has them."""

    arguments: dict[str, Any]
    fitted: FittedPredictor
    series: FittedSeries | None = None
    copula: StepCopula | None = None

    def check_agrees(self, given: Mapping[str, Any], described: Predictor, folder: Path) -> None:
        """Refuse a folder whose arguments or series do not belong to the model of its weights."""
        fitted, task, output = self.fitted, self.fitted.predictor.task, self.fitted.predictor.output
        # a table of a folder may have named them, not the arguments
        roles = [name for name in ("past_covariates", "future_covariates", "static") if given[name]]
        sizes = ["prediction_length", *(["context_length"] if given["context_length"] != "auto" else [])]
        transform = fitted.scaler.to_dict()["transform"]
        backbones = [one.with_context(task.context_length).description for one in (described, fitted.predictor)]
        pairs = {
            **{name: (given[name], getattr(task, name)) for name in (*sizes, *roles)},
            **{name: (given[name], getattr(output, name)) for name in ("quantiles", "distribution")},
            "scaling": (given["scaling"], fitted.scaler.scaling),
            "transform": tuple(one and one["kind"] for one in (given["transform"], transform)),
            "backbone": tuple({**one, "context_length": None} for one in backbones),
            "frequency": (task.frequency if self.series is None else self.series.panel.frequency, task.frequency),
        }
        for name, (one, other) in pairs.items():
            if one != other:
                raise damaged(folder, f"its {name} is {shown(one)} in one place and {shown(other)} in another")


def write(folder: Path, saved: SavedModel, *, overwrite: bool = False) -> None:
    """Write a folder, all or nothing; a `UserError` if it may not be overwritten, or cannot be written."""
    from tsattn.experiments.experiment import plain_value

    predictor, series = saved.fitted.predictor, saved.series
    with whole_folder(folder, record=CONTENT, what="a saved model", overwrite=overwrite) as partial:
        # contiguous copies: safetensors takes no views
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in predictor.state_dict().items()}
        save_file(weights, partial / _WEIGHTS)
        if series is not None:
            save_arrays(series.arrays(), partial / _HISTORY)
        conformal = None if saved.fitted.conformal is None else saved.fitted.conformal.to_dict()
        if conformal is not None:
            save_file({"values": conformal.pop("values")}, partial / _CONFORMAL)
        if saved.copula is not None:
            save_arrays({"ranks": saved.copula.ranks}, partial / _COPULA)
        content = {
            "format": _FORMAT,
            "version": FORMAT,
            "tsattn": importlib.metadata.version("tsattn"),
            "torch": torch.__version__,
            "arguments": dict(saved.arguments),
            **saved.fitted.content.to_dict(),
            "history": None if series is None else series.plain(),
            "conformal": conformal,
        }
        (partial / CONTENT).write_text(json.dumps(content, indent=1, allow_nan=False, default=plain_value) + "\n")
        write_checksums(partial, sorted(partial.iterdir()))


def open_model(folder: Path, names: Collection[str]) -> SavedModel:
    """Read a folder of `write`, or of a run, whose arguments must have these names; a `UserError` for any other."""
    restore_folder(folder, CONTENT)
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise UserError(f"{folder} {what}; valid are the folder of a saved forecaster and the folder of a run")
    run = RunFolder(folder)
    if run.best.exists():
        from tsattn.experiments.configs import read_config
        from tsattn.experiments.result import fitted_in

        fitted, config = fitted_in(run), read_config(run.config)
        try:
            saved = SavedModel(run_arguments(fitted, config, names), fitted)
        except (AttributeError, TypeError, ValueError) as error:
            raise UserError(f"{run.config} is not the configuration of a run: {error}") from error
    else:
        saved = _read(folder, names)
    accelerator = saved.arguments.get("accelerator", "auto")
    if accelerator in ACCELERATORS and not has_accelerator(accelerator):
        logger.warning("%s: accelerator %s is not on this machine; using auto", folder, accelerator)
        saved = replace(saved, arguments={**saved.arguments, "accelerator": "auto"})
    return saved


def _read(folder: Path, names: Collection[str]) -> SavedModel:
    if not (folder / CONTENT).exists():
        raise UserError(f"{folder} is not the folder of a saved model: it has no {CONTENT}")
    if not (folder / CHECKSUMS).exists():
        raise UserError(f"{folder} has no {CHECKSUMS}: fit and save it again")
    files = check_checksums(folder)
    for name in (CONTENT, _WEIGHTS, _HISTORY, _CONFORMAL, _COPULA):
        if name not in files and (folder / name).exists():
            raise damaged(folder, f"{CHECKSUMS} lacks {name}")
    try:
        content = json.loads((folder / CONTENT).read_text(encoding="utf-8"))
        is_ours, version = content["format"] == _FORMAT, content["version"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise damaged(folder, f"{CONTENT} cannot be read") from error
    if not is_ours:
        raise UserError(f"{folder} is not the folder of a model that tsattn has saved")
    check_format(version, str(folder))
    try:
        typed(content, _TYPES, CONTENT)
        typed(content["arguments"], dict.fromkeys(names, Any), "arguments")
        # copies are aligned in memory as new parameters are; views into the file are not, and round differently
        weights = {name: tensor.clone() for name, tensor in load_file(folder / _WEIGHTS).items()}
        series = None
        if content["history"] is not None:
            series = FittedSeries.restored(content["history"], load_arrays(folder / _HISTORY))
        copula = StepCopula(load_arrays(folder / _COPULA)["ranks"]) if _COPULA in files else None
        records = CheckpointContent.from_dict(content)
        no_times_of(records.task)  # which refuses an unknown time zone
        known = () if series is None else match_ids(series.panel.ids, records.scaler.ids)
        if series is not None and records.scaler.ids and len(known) < len(series.panel.ids):
            raise ValueError("series have no scale")
        fitted = restored_predictor(records, weights, str(folder))
        if content["conformal"] is not None:
            conformal = ConformalScores.from_dict({**content["conformal"], **load_file(folder / _CONFORMAL)})
            fitted = replace(fitted, conformal=conformal)
    except UserError:
        raise
    except Exception as error:  # an edit may lead anywhere
        raise damaged(folder, error) from error
    return SavedModel(content["arguments"], fitted, series, copula)


def damaged(folder: Path, why: object) -> UserError:
    """Return the error that says a folder is damaged, and why in a line."""
    return UserError(f"{folder} is damaged: {one_line(why, 200)}")


def run_arguments(fitted: FittedPredictor, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the arguments of a `Forecaster`, of these names, that forecasts and is fitted again as a run was."""
    predictor, task, output = fitted.predictor, fitted.predictor.task, fitted.predictor.output
    given = dict((config.get("data") or {}).get("init_args") or {})
    model, trainer = (dict(config.get(part) or {}) for part in ("model", "trainer"))
    seed = config.get("seed_everything")
    kept = {one.name for one in fields(DataOptions) if one.init} - _NOT_KEPT
    is_plain = given.get("id_column") is None and given.get("target") is None  # then they are found by their names
    data: dict[str, Any] = {
        **{name: value for name, value in given.items() if name in kept and value is not None},
        **{"context_length": task.context_length, "prediction_length": task.prediction_length},
        **{"frequency": task.frequency, "scaling": fitted.scaler.scaling},
        **{name: list(getattr(task, name)) for name in ("past_covariates", "future_covariates", "static")},
        "target": None if is_plain else list(task.channels),
    }
    from lightning.pytorch import Trainer

    defaults = {name: one.default for name, one in inspect.signature(Trainer).parameters.items()} | TRAINER_DEFAULTS
    training: dict[str, Any] = {
        **{name: model[name] for name in MODEL if model.get(name) is not None},
        **({} if isinstance(seed, bool) or seed is None else {"seed": seed}),
        "max_steps": trainer["max_steps"] if (trainer.get("max_steps") or 0) > 0 else None,
        **({"accelerator": trainer["accelerator"]} if trainer.get("accelerator") in ACCELERATORS else {}),
        # None may have been asked for, if it is not the default
        "trainer": {name: trainer[name] for name in _OF_TRAINER if trainer.get(name, defaults[name]) != defaults[name]},
        **({"progress": True} if trainer.get("enable_progress_bar") else {}),
    }
    asked = {name: model[name] for name in ("distribution", "calibrate") if model.get(name) is not None}
    backbone = predictor.description
    if not predictor.needs_fit and "context_length" in backbone:
        own = backbone["context_length"] or predictor.context_length
        backbone = backbone if own == task.context_length else {**backbone, "context_length": own}
    return {"backbone": backbone, "quantiles": list(output.quantiles), **asked, **nested(data, training, names)}
