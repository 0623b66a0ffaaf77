"""The folder of a run: everything needed to read its result, test it again, or forecast with it."""

from __future__ import annotations

import errno
import importlib.metadata
import itertools
import json
import os
import platform
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from tsattn.errors import UserError, without_password
from tsattn.saved_folders import CHECKSUMS, check_checksums, write_checksums, write_text

__all__ = ["EARLIER_SECONDS", "FORMAT", "LIMITS", "RunFolder", "versions"]

FORMAT = 2
"""Of the folder, in its versions. Format 1, without a number, had no errors, and older names of scores."""

LIMITS = ("max_steps", "max_epochs", "max_time")
"""Of the Trainer, how long it trains: what a run that goes on may be given anew."""

EARLIER_SECONDS = "earlier_seconds"
"""The note of the seconds of a fit before its last process: up to the checkpoint that this went on with."""

_MEMBERS = "members"  # the folder of those of the parts of an ensemble
_PACKAGES = ("tsattn", "torch", "lightning", "numpy", "pandas", "scikit-learn", "torchmetrics", "jsonargparse")


class RunFolder:
    """Names of the files in a run folder.

    Args:
        path: the folder.
        renamed: whether a new folder takes another name, with a number after it, where this one is taken.

    Attributes:
        config: complete configuration, YAML that `fit --config` takes.
        metrics: errors of model and baselines, and how they came about, JSON.
        versions: versions, hardware and command, JSON.
        curve: training and validation losses, CSV.
        figure: a few test windows, truth and forecast, PNG.
        forecast: where `predict` writes by default, CSV.
        checkpoints: folder of the checkpoints.
        best: the checkpoint with the lowest validation error.
        last: the last checkpoint.
        refit: the predictor that was fitted once more to all rows, where that was asked for.
        errors: the test errors, a row for each series, origin and channel, Parquet.
        checksums: sha256 of the checkpoints of a run that came to its end.
    """

    def __init__(self, path: str | Path, renamed: bool = False) -> None:
        self.path = Path(path)
        self.renamed = renamed
        self._lock: BaseFileLock | None = None
        self._lock_file: os.stat_result | None = None
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.json"
        self.versions = self.path / "versions.json"
        self.curve = self.path / "metrics.csv"
        self.figure = self.path / "forecast.png"
        self.forecast = self.path / "forecast.csv"
        self.checkpoints = self.path / "checkpoints"
        self.best = self.checkpoints / "best.ckpt"
        self.last = self.checkpoints / "last.ckpt"
        self.refit = self.checkpoints / "refit.ckpt"
        self.errors = self.path / "errors.parquet"
        self.checksums = self.path / CHECKSUMS

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint in it yet, of the whole or of a member."""
        return any(self._all_checkpoints())

    @property
    def has_curve(self) -> bool:
        """Whether there is a training curve in it yet, of the whole or of a member."""
        return self.curve.exists() or any(self.path.glob(f"{_MEMBERS}/*/{self.curve.name}"))

    @property
    def is_to_be_refitted(self) -> bool:
        """Whether the run ends with a fit to all rows, as `note_refit` has noted."""
        return bool(self.noted("refit"))

    @property
    def is_finished(self) -> bool:
        """Whether all results are there; those of the test are written before a refit."""
        return self.metrics.exists() and (self.refit.exists() or not self.is_to_be_refitted)

    def note(self, name: str, value: Any) -> None:
        """Note, beside the versions, what who goes on with the run must know."""
        self.write_json(self.versions, {**self._read_versions(), name: value})

    def noted(self, name: str) -> Any:
        """What was noted; None if nothing was."""
        return self._read_versions().get(name)

    def _read_versions(self) -> dict[str, Any]:
        """What is in `versions`; nothing if it is not there."""
        if not self.versions.exists():
            return {}
        try:
            known = json.loads(self.versions.read_text())
        except ValueError:
            known = None
        if not isinstance(known, dict):
            raise UserError(f"{self.versions} is damaged: it holds no JSON object; put back a copy of it, or remove it")
        return known

    @property
    def fit_seconds(self) -> float:
        """Seconds of the fit, those of earlier processes among them that were noted; 0 where nothing was."""
        return sum(float(self.noted(name) or 0.0) for name in ("fit_seconds", EARLIER_SECONDS))

    def of_member(self, name: str) -> RunFolder:
        """The folder for a part of an ensemble, inside this one."""
        return RunFolder(self.path / _MEMBERS / name)

    def _all_checkpoints(self) -> list[Path]:
        own = [file for file in (self.best, self.last, self.refit) if file.exists()]
        return own + sorted(self.path.glob(f"{_MEMBERS}/*/{self.checkpoints.name}/*.ckpt"))

    @classmethod
    def dated(cls, root: str | Path, data: str, name: str) -> RunFolder:
        """A new folder `root/data/name/time`; runs of one second are told apart by a number when they are made."""
        return cls(Path(root) / data / name / datetime.now().strftime("%Y-%m-%d_%H-%M-%S"), renamed=True)

    def create(self) -> RunFolder:
        """Make the folder, for this process alone; it is the one that was named, or the one renamed.

        Raises:
            UserError: if it exists already, or cannot be made.
        """
        for number in itertools.count(1):
            run = RunFolder(self.path if number == 1 else self.path.with_name(f"{self.path.name}_{number}"))
            try:
                self._make_parent()
                run.path.mkdir()  # whoever makes it has it
            except FileExistsError as error:
                if self.renamed:
                    continue
                raise UserError(
                    f"the run folder {self.path} exists already; nothing is overwritten, name another"
                ) from error
            except OSError as error:
                raise UserError(f"the run folder {self.path} cannot be made: {error.strerror}") from error
            try:
                run.checkpoints.mkdir()
                run.hold()
            except BaseException:
                shutil.rmtree(run.path, ignore_errors=True)
                raise
            return run
        raise AssertionError("numbers do not end")

    def _make_parent(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:  # a file stands in its place
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error

    def hold(self) -> None:
        """Keep other processes from training here, until `release` or the end of this process, however it ends.

        Raises:
            UserError: if another one does.
        """
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise UserError(f"another process is training {self.path} now: wait until it ends, or stop it") from error
        except OSError as error:
            raise UserError(f"the run folder {self.path} cannot be written to: {error.strerror}") from error
        self._lock, self._lock_file = lock, os.stat(lock.lock_file)

    @property
    def is_held(self) -> bool:
        """Whether this is still the folder that `hold` has locked: not removed, nor another one in its place."""
        try:
            return self._lock_file is not None and os.path.samestat(os.stat(self.path / ".lock"), self._lock_file)
        except OSError:
            return False

    def release(self) -> None:
        """Let others train here."""
        if self._lock is not None:
            self._lock.release()

    def begin(self) -> None:
        """Forget what an earlier end has written: it is written anew."""
        for file in (self.checksums, self.errors, self.refit, *self.path.glob("*.partial")):
            file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder and all that is in it, if it is still the one that this process has locked."""
        if self.is_held:
            shutil.rmtree(self.path, ignore_errors=True)

    def seal(self) -> None:
        """Write the checksums of all checkpoints, which `check_trained` compares."""
        write_checksums(self.path, self._all_checkpoints())

    def check_new(self) -> None:
        """Refuse a folder that exists."""
        if self.path.exists() and not self.renamed:
            raise UserError(f"the run folder {self.path} exists already; nothing is overwritten, name another")

    def check_resumable(self, longer: bool = False) -> None:
        """Refuse a folder that no `fit` has begun, or whose `fit` came to its end unless it is to be trained longer."""
        if not self.path.is_dir():
            raise UserError(f"the run folder {self.path} is not there; valid is a folder that `fit` has begun")
        if not self.config.exists():
            raise UserError(f"{self.path} is not the folder of a run: it has no {self.config.name}")
        if self.is_finished and not longer:
            raise UserError(
                f"the run {self.path} is finished: its results are in {self.metrics}; --trainer.max_steps (or "
                "max_epochs, or max_time) beside --resume, above what it was trained for, trains it longer"
            )
        self._check_format()
        check_checksums(self.path)

    def extend(self, config: str, step: int, command: list[str]) -> None:
        """Make a run one that is to be trained longer, whose results are to come; the former ones keep a name.

        Args:
            config: its configuration, with the new limits.
            step: the step that it goes on after.
            command: that asked for it.
        """
        write_text(self.config, config)
        if self.metrics.exists():
            former = self.path / f"metrics_step_{step}.json"
            numbered = (former.with_stem(f"{former.stem}_{number}") for number in itertools.count(2))
            self.metrics.replace(next(file for file in itertools.chain([former], numbered) if not file.exists()))
        known = self._read_versions()
        again = {"step": step, "command": [without_password(word) for word in command]}
        self.write_json(self.versions, {**known, "extensions": [*known.get("extensions", []), again]})

    def check_trained(self) -> None:
        """Refuse a folder without the best checkpoint of a `fit`, or with another one than was written."""
        if not self.path.is_dir():
            raise UserError(f"the run folder {self.path} is not there; valid is a folder that `fit` has written")
        for file in (self.config, self.best):
            if not file.exists():
                raise UserError(
                    f"{self.path} is not the folder of a trained model: it has no {file.relative_to(self.path)}"
                )
        self._check_format()
        check_checksums(self.path)

    def forecasting_checkpoint(self) -> Path:
        """The predictor that forecasts are made with: the one that was fitted to all rows, if there is one."""
        self._check_format()
        check_checksums(self.path)
        return self.refit if self.refit.exists() else self.best

    def _check_format(self) -> None:
        """Refuse a folder that a newer version has written."""
        found = self._read_versions().get("format", 1)
        if found not in range(1, FORMAT + 1):
            raise UserError(f"{self.path} is of format {found}; this version of tsattn reads formats up to {FORMAT}")

    def write_json(self, file: Path, content: dict[str, Any]) -> None:
        """Write plain data, all or nothing."""
        write_text(file, json.dumps(content, indent=2, allow_nan=False) + "\n")


def versions(command: list[str], device: str) -> dict[str, Any]:
    """What a result depends on beside config and data: the command, versions and hardware."""
    import torch

    return {
        "format": FORMAT,
        "command": [without_password(word) for word in command],
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in _PACKAGES},
        "platform": platform.platform(),
        "device": device,
        "threads": torch.get_num_threads(),
    }
