"""The folder of a saved model: JSON and safetensors, nothing that could run code when it is read."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

from tsattn.checksums import check_checksums, sha256
from tsattn.data import Panel
from tsattn.data.frequency import Times
from tsattn.descriptions import Description
from tsattn.errors import UserError
from tsattn.task import Task
from tsattn.training.module import ForecastingModule, check_weights
from tsattn.training.random_state import own_random_state

__all__ = ["SavedModel", "describe", "read", "write"]

_FORMAT = "tsattn forecaster"
_VERSION = 1
_CONTENT, _WEIGHTS, _HISTORY = "forecaster.json", "model.safetensors", "history.safetensors"
_READING = ("max_filled", "date_format", "separator", "decimal", "encoding")
_ERRORS = "seasonal_error"
_ARRAYS = ("starts", "values", "past_covariates", "future_covariates", "ahead", "ahead_starts", "static")
_PLAIN = (
    *("ids", "channels", "frequency", "past_names", "future_names", "static_names", "static_categories"),
    *("is_wide", "id_name", "time_name"),
)


@dataclass(frozen=True)
class SavedModel:
    """What a folder holds.

    Attributes:
        arguments: those of `Forecaster`.
        model: built and with its weights.
        history: the end of each series that was fitted; None where the folder has none.
        seasonal_error: `(S, C)` of these series, see `tsattn.evaluation.seasonal.seasonal_errors`; None without them.
    """

    arguments: dict[str, Any]
    model: ForecastingModule
    history: Panel | None
    seasonal_error: NDArray[np.float64] | None


def describe(backbone: Description, attention: Description | Sequence[Description] | None) -> dict[str, Any]:
    """The description of a backbone with its attention replaced, if one is given."""
    description = {"kind": backbone} if isinstance(backbone, str) else dict(backbone)
    return description if attention is None else {**description, "attention": attention}


def write(folder: Path, saved: SavedModel, *, overwrite: bool = False) -> None:
    """Write a folder, all or nothing.

    Raises:
        UserError: if it exists and may not be overwritten, cannot be written, or the ids of the series are neither
            texts nor numbers.
    """
    if folder.exists() and not overwrite:
        raise UserError(f"{folder} exists already; name another folder, or give overwrite=True")
    if folder.exists() and not (folder / _CONTENT).exists():
        raise UserError(f"{folder} is not the folder of a saved model; it is not overwritten")
    model, history = saved.model, saved.history
    assert model.task is not None
    assert model.backbone is not None
    partial: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        # contiguous copies: safetensors takes no views
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.backbone.state_dict().items()}
        save_file(weights, partial / _WEIGHTS)
        files = [_WEIGHTS]
        if history is not None:
            assert saved.seasonal_error is not None
            save_arrays({**_history_arrays(history), _ERRORS: saved.seasonal_error}, partial / _HISTORY)
            files.append(_HISTORY)
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "tsattn": importlib.metadata.version("tsattn"),
            "torch": torch.__version__,
            "arguments": dict(saved.arguments),
            "task": model.task.to_dict(),
            "history": None if history is None else _plain_history(history),
            "sha256": {name: sha256(partial / name) for name in files},
        }
        (partial / _CONTENT).write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
        partial.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
    except (TypeError, ValueError) as error:
        raise UserError(f"{folder} cannot be written: the model holds what is no plain data ({error})") from error
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}") from error
    finally:
        if partial is not None and partial.exists():
            shutil.rmtree(partial)


def read(folder: Path) -> SavedModel:
    """The model in a folder that `write` has made, or in the run folder of a `fit`.

    Raises:
        UserError: for a folder that is not there, is neither of these, or is damaged.
    """
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "is not there"
        raise UserError(f"{folder} {what}; valid is a folder that a forecaster was saved to, or that of a run")
    if (folder / "checkpoints" / "best.ckpt").exists():
        return _read_run(folder)
    if not (folder / _CONTENT).exists():
        raise UserError(f"{folder} is not the folder of a saved model: it has no {_CONTENT}")
    try:
        content = json.loads((folder / _CONTENT).read_text(encoding="utf-8"))
        is_ours = content["format"] == _FORMAT
        version = int(content["version"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise _damaged(folder, f"{_CONTENT} cannot be read") from error
    if not is_ours:
        raise UserError(f"{folder} is not the folder of a model that tsattn has saved")
    if version != _VERSION:
        raise UserError(f"{folder} is of format {version}; this version of tsattn reads format {_VERSION}")
    try:
        for name, digest in content["sha256"].items():
            if name not in (_WEIGHTS, _HISTORY) or sha256(folder / name) != digest:
                raise _damaged(folder, f"{name} is not the file that was saved")
        weights = load_file(folder / _WEIGHTS)
        check_weights(weights, str(folder))
        has_history = content["history"] is not None
        arrays = load_arrays(folder / _HISTORY) if has_history else {}
        history = _history(content["history"], arrays) if has_history else None
        arguments, task = content["arguments"], Task.from_dict(content["task"])
        model = _built(arguments, task)
        assert model.backbone is not None
        model.backbone.load_state_dict(weights)
        saved = SavedModel(arguments, model, history, arrays[_ERRORS] if has_history else None)
    except UserError:
        raise
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise _damaged(folder, " ".join(str(error).split())[:200]) from error
    return saved


def _built(arguments: Mapping[str, Any], task: Task) -> ForecastingModule:
    description = describe(arguments["backbone"], arguments["attention"])
    model = ForecastingModule(description, quantiles=task.quantiles)
    with own_random_state():  # what the weights start from is drawn, and a training in another thread draws, too
        model.build(task)
    return model.eval()


def _read_run(folder: Path) -> SavedModel:
    checkpoint = folder / "checkpoints" / "best.ckpt"
    check_checksums(folder)
    try:
        with own_random_state():  # see `_built`
            model = ForecastingModule.load_from_checkpoint(checkpoint, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except Exception as error:  # torch.load raises many kinds for a file that is no checkpoint
        raise UserError(f"{checkpoint} is not a readable checkpoint ({type(error).__name__})") from error
    task = model.task
    assert task is not None
    arguments = {
        "backbone": model.description,
        "context_length": task.context_length,
        "prediction_length": task.prediction_length,
        "quantiles": list(task.quantiles),
        "frequency": task.frequency,
        "scaling": task.scaling,
        "past_covariates": list(task.past_covariates),
        "future_covariates": list(task.future_covariates),
        "static": list(task.static),
        **_run_columns(folder / "config.yaml", task),
    }
    return SavedModel(arguments, model.eval(), None, None)


def _run_columns(config: Path, task: Task) -> dict[str, Any]:
    """The columns of ids, time stamps and targets, and how text is written, as the data of a run were told of them."""
    if not config.exists():
        return {}
    try:
        data = yaml.safe_load(config.read_text(encoding="utf-8"))["data"].get("init_args") or {}
        id_column, time_column, target = (data.get(name) for name in ("id_column", "time_column", "target"))
        reading = {name: data[name] for name in _READING if data.get(name) is not None}
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{config} is not the configuration of a run: {' '.join(str(error).split())[:200]}") from error
    is_plain = id_column is None and target is None  # then they are found by their names, as they were
    return {
        **reading,
        "id_column": id_column,
        "time_column": time_column,
        "target": None if is_plain else list(task.channels),
    }


def _plain_history(panel: Panel) -> dict[str, Any]:
    time = panel.time
    zone, unit = (time.tz, time.unit) if isinstance(time, pd.DatetimeIndex) else (None, None)  # None: it counts steps
    return {
        **{name: getattr(panel, name) for name in _PLAIN},
        "time_zone": None if zone is None else str(zone),
        "time_unit": unit,
    }


def _history_arrays(panel: Panel) -> dict[str, NDArray[Any]]:
    arrays = {name: getattr(panel, name) for name in _ARRAYS}
    time = panel.time
    return {
        "time": time.asi8.copy() if isinstance(time, pd.DatetimeIndex) else time.to_numpy(np.int64, copy=True),
        **{name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None},
    }


def _history(plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Panel:
    time: Times = pd.Index(arrays["time"])
    if plain["time_unit"] is not None:
        time = pd.DatetimeIndex(arrays["time"].view(f"M8[{plain['time_unit']}]"))
        if plain["time_zone"] is not None:
            time = time.tz_localize("UTC").tz_convert(plain["time_zone"])
    fields: dict[str, Any] = {name: plain[name] for name in _PLAIN}
    for name in ("ids", "channels", "past_names", "future_names", "static_names"):
        fields[name] = tuple(fields[name])
    fields["static_categories"] = tuple(map(tuple, fields["static_categories"]))
    fields.update({name: arrays.get(name) for name in _ARRAYS})
    return Panel(time=time, **fields)


def _damaged(folder: Path, why: str) -> UserError:
    return UserError(f"{folder} is damaged: {why}")
