"""The folder of a saved model: JSON and safetensors, nothing that could run code when it is read."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

from tsattn.backbones.task_network import FORMAT, CheckpointContent, check_format
from tsattn.data.stamps import no_times_of
from tsattn.descriptions import typed
from tsattn.errors import UserError
from tsattn.forecaster.fitted_series import FittedSeries
from tsattn.forecaster.sample_paths import StepCopula
from tsattn.predictors.calibrated import ConformalScores
from tsattn.predictors.fitted import FittedPredictor, restored_predictor
from tsattn.saved_folders import CHECKSUMS, check_checksums, whole_folder, write_checksums

__all__ = ["CONTENT", "SavedModel", "read", "write"]

_FORMAT = "tsattn forecaster"
CONTENT, _WEIGHTS, _HISTORY = "forecaster.json", "model.safetensors", "history.safetensors"
_CONFORMAL = "conformal.safetensors"
_COPULA = "copula.safetensors"
_TYPES: dict[str, Any] = {
    **{"format": str, "version": int, "tsattn": str, "torch": str},
    **dict.fromkeys(("arguments", "predictor", "task", "scaler", "output"), dict),
    **{"history": dict | None, "conformal": dict | None},
}


@dataclass(frozen=True)
class SavedModel:
    """What a folder holds.

    Attributes:
        arguments: those of `Forecaster`.
        fitted: the predictor and its scaler.
        series: the ends of those that were fitted; None where the folder has none.
        copula: of the steps of its forecasts; None where it is not known, or paths are not drawn by it.
    """

    arguments: dict[str, Any]
    fitted: FittedPredictor
    series: FittedSeries | None
    copula: StepCopula | None = None


def write(folder: Path, saved: SavedModel, *, overwrite: bool = False) -> None:
    """Write a folder, all or nothing.

    Raises:
        UserError: if it exists and may not be overwritten, cannot be written, or the ids of the series are neither
            texts nor numbers.
    """
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
            save_arrays(saved.copula.arrays(), partial / _COPULA)
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
        (partial / CONTENT).write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
        write_checksums(partial, sorted(partial.iterdir()))


def read(folder: Path, arguments: Iterable[str]) -> SavedModel:
    """The model in a folder that `write` has made.

    Args:
        folder: to read.
        arguments: the names of those that it must hold.

    Raises:
        UserError: for another folder, or one that is damaged.
    """
    if not (folder / CONTENT).exists():
        raise UserError(f"{folder} is not the folder of a saved model: it has no {CONTENT}")
    if not (folder / CHECKSUMS).exists():
        raise UserError(f"{folder} has no {CHECKSUMS}: fit and save it again")
    files = check_checksums(folder)
    for name in (CONTENT, _WEIGHTS, _HISTORY, _CONFORMAL, _COPULA):
        if name not in files and (folder / name).exists():
            raise _damaged(folder, f"{CHECKSUMS} lacks {name}")
    try:
        content = json.loads((folder / CONTENT).read_text(encoding="utf-8"))
        is_ours = content["format"] == _FORMAT
        version = content["version"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise _damaged(folder, f"{CONTENT} cannot be read") from error
    if not is_ours:
        raise UserError(f"{folder} is not the folder of a model that tsattn has saved")
    check_format(version, str(folder))
    try:
        typed(content, _TYPES, CONTENT)
        typed(content["arguments"], dict.fromkeys(arguments, Any), "arguments")
        # copies begin where new parameters do in memory; views into the file do not, and their products round otherwise
        weights = {name: tensor.clone() for name, tensor in load_file(folder / _WEIGHTS).items()}
        series = None
        if content["history"] is not None:
            series = FittedSeries.restored(content["history"], load_arrays(folder / _HISTORY))
        copula = StepCopula.restored(load_arrays(folder / _COPULA)) if _COPULA in files else None
        records = CheckpointContent.from_dict(content)
        no_times_of(records.task)  # which refuses an unknown time zone
        if series is not None and records.scaler.ids and not {*series.trained_until} <= {*records.scaler.ids}:
            raise ValueError("series have no scale")
        fitted = restored_predictor(records, weights, str(folder))
        if content["conformal"] is not None:
            conformal = ConformalScores.from_dict({**content["conformal"], **load_file(folder / _CONFORMAL)})
            fitted = replace(fitted, conformal=conformal)
        saved = SavedModel(content["arguments"], fitted, series, copula)
    except UserError:
        raise
    except Exception as error:  # an edit may lead anywhere
        raise _damaged(folder, " ".join(str(error).split())[:200]) from error
    return saved


def _damaged(folder: Path, why: str) -> UserError:
    return UserError(f"{folder} is damaged: {why}")
