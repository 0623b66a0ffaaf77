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

__all__ = ["EARLIER_SECONDS", "LIMITS", "RunFolder", "versions"]

FORMAT = 2
"""Of the folder, in its versions."""

LIMITS = ("max_steps", "max_epochs", "max_time")
"""Of the Trainer, how long it trains: what a resumed run may be given anew."""

EARLIER_SECONDS = "earlier_seconds"
"""The note of the seconds of a fit before its last process, up to the checkpoint that this resumed."""

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
        best: the checkpoint with the lowest validation error.
        last: the last checkpoint.
        refit: the predictor refitted on all rows, if that was asked for.
        errors: the test errors, a row for each series, origin and channel, Parquet.
        checksums: sha256 of the checkpoints of a finished run.
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

    @classmethod
    def dated(cls, root: str | Path, data: str, name: str) -> RunFolder:
        """A new folder `root/data/name/time`; a number tells runs of one second apart when they are made."""
        return cls(Path(root) / data / name / datetime.now().strftime("%Y-%m-%d_%H-%M-%S"), renamed=True)

    def of_member(self, name: str) -> RunFolder:
        """The folder for a part of an ensemble, inside this one; this one for no name."""
        return RunFolder(self.path / "members" / name) if name else self

    @property
    def has_curve(self) -> bool:
        """Whether there is a training curve in it yet, of the whole or of a member."""
        return self.curve.exists() or any(self.path.glob(f"members/*/{self.curve.name}"))

    @property
    def is_finished(self) -> bool:
        """Whether all results are there; those of the test are written before a refit."""
        return self.metrics.exists() and (self.refit.exists() or not self.noted("refit"))

    @property
    def fit_seconds(self) -> float:
        """Seconds of the fit, including earlier processes that were noted; 0 if nothing was."""
        return sum(float(self.noted(name) or 0.0) for name in ("fit_seconds", EARLIER_SECONDS))

    def all_checkpoints(self) -> list[Path]:
        """Those that are there, of the whole and of members."""
        own = [file for file in (self.best, self.last, self.refit) if file.exists()]
        return own + sorted(self.path.glob(f"members/*/{self.checkpoints.name}/*.ckpt"))

    def forecasting_checkpoint(self) -> Path:
        """The predictor that forecasts are made with: the refitted one, if there is one."""
        self._check_whole()
        return self.refit if self.refit.exists() else self.best

    # notes

    def note(self, name: str, value: Any) -> None:
        """Note, beside the versions, what a resumed run must know."""
        self.write_json(self.versions, {**self._read_versions(), name: value})

    def noted(self, name: str) -> Any:
        """Return what was noted; None if nothing was."""
        return self._read_versions().get(name)

    def _read_versions(self) -> dict[str, Any]:
        if not self.versions.exists():
            return {}
        try:
            known = json.loads(self.versions.read_text())
        except ValueError:
            known = None
        if not isinstance(known, dict):
            raise UserError(f"{self.versions} is damaged: it holds no JSON object; put back a copy of it, or remove it")
        return known

    def write_json(self, file: Path, content: dict[str, Any]) -> None:
        """Write plain data, all or nothing."""
        write_text(file, json.dumps(content, indent=2, allow_nan=False) + "\n")

    # from its beginning to its end

    def create(self) -> RunFolder:
        """Make the folder, for this process alone, and return the one that was made, which must be a new one."""
        run = self
        for number in itertools.count(2):
            try:
                run._make()
                break
            except FileExistsError as error:
                if not self.renamed:
                    raise self._taken() from error
                run = RunFolder(self.path.with_name(f"{self.path.name}_{number}"))
            except OSError as error:
                raise UserError(f"the run folder {self.path} cannot be made: {error.strerror}") from error
        try:
            run.checkpoints.mkdir()
            run.hold()
        except BaseException:
            shutil.rmtree(run.path, ignore_errors=True)
            raise
        return run

    def _make(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:  # a file stands in its place
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error
        self.path.mkdir()  # whoever makes it has it

    def hold(self) -> None:
        """Keep other processes from training here, until `release` or the end of this process, however it ends."""
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
        """Remove what an earlier end has written: it is written again."""
        for file in (self.checksums, self.errors, self.refit, *self.path.glob("*.partial")):
            file.unlink(missing_ok=True)

    def extend(self, config: str, step: int, command: list[str]) -> None:
        """Begin to train a run longer than to a step, by this configuration; its former results keep a name."""
        write_text(self.config, config)
        if self.metrics.exists():
            former = self.path / f"metrics_step_{step}.json"
            numbered = (former.with_stem(f"{former.stem}_{number}") for number in itertools.count(2))
            self.metrics.replace(next(file for file in itertools.chain([former], numbered) if not file.exists()))
        again = {"step": step, "command": [without_password(word) for word in command]}
        self.note("extensions", [*(self.noted("extensions") or []), again])

    def seal(self) -> None:
        """Write the checksums of all checkpoints, which `check_trained` compares."""
        write_checksums(self.path, self.all_checkpoints())

    def remove(self) -> None:
        """Remove the folder and all that is in it, if it is still the one that this process has locked."""
        if self.is_held:
            shutil.rmtree(self.path, ignore_errors=True)

    # checks

    def check_new(self) -> None:
        """Refuse a folder that exists, unless it takes another name."""
        if self.path.exists() and not self.renamed:
            raise self._taken()

    def _taken(self) -> UserError:
        return UserError(f"the run folder {self.path} exists already; nothing is overwritten, name another")

    def check_resumable(self, longer: bool = False) -> None:
        """Refuse a folder that no `fit` has begun, or whose `fit` is finished unless it is to be trained longer."""
        self._check_holds("begun", "a run", self.config)
        if self.is_finished and not longer:
            raise UserError(
                f"the run {self.path} is finished: its results are in {self.metrics}; --trainer.max_steps (or "
                "max_epochs, or max_time) beside --resume, above what it was trained for, trains it longer"
            )
        self._check_whole()

    def check_trained(self) -> None:
        """Refuse a folder without the best checkpoint of a `fit`, or with another one than was written."""
        self._check_holds("written", "a trained model", self.config, self.best)
        self._check_whole()

    def _check_holds(self, how: str, what: str, *files: Path) -> None:
        if not self.path.is_dir():
            raise UserError(f"the run folder {self.path} is not there; valid is a folder that `fit` has {how}")
        for file in files:
            if not file.exists():
                raise UserError(f"{self.path} is not the folder of {what}: it has no {file.relative_to(self.path)}")

    def _check_whole(self) -> None:
        """Refuse a folder of a newer version, or with damaged checkpoints."""
        found = self._read_versions().get("format", FORMAT)
        if found != FORMAT:
            raise UserError(f"{self.path} is of format {found}; this version of tsattn reads format {FORMAT}")
        check_checksums(self.path)


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
