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

from tsattn.errors import FormatError, UserError, without_password
from tsattn.saved_folders import CHECKSUMS, check_checksums, write_text

FORMAT = 2  # of the folder, in its versions
LIMITS = {"max_steps": -1, "max_epochs": -1, "max_time": None}
"""Trainer options that limit a training, which a resumed run may change; with the values for no limit."""

_PACKAGES = ("tsattn", "torch", "lightning", "numpy", "pandas", "scikit-learn", "jsonargparse")


class RunFolder:
    """Names of the files in a run folder, its notes, and the lock of the process that trains there.

    With `renamed`, a new folder gets a number at the end of its name if the name is taken.
    """

    def __init__(self, path: str | Path, renamed: bool = False) -> None:
        self.path, self.renamed = Path(path), renamed
        self._lock: BaseFileLock | None = None  # made in `hold`, so that a folder can be pickled
        self._lock_file: os.stat_result | None = None
        self.config = self.path / "config.yaml"  # complete configuration, valid for `fit --config`
        self.metrics = self.path / "metrics.json"  # errors of model and baselines, and facts of the fit
        self.versions = self.path / "versions.json"  # versions, hardware, command, and notes
        self.curve = self.path / "metrics.csv"  # training and validation losses
        self.figure = self.path / "forecast.png"  # a few test windows, truth and forecast
        self.forecast = self.path / "forecast.csv"  # where `predict` writes by default
        self.checkpoints = self.path / "checkpoints"
        self.best = self.checkpoints / "best.ckpt"  # with the lowest validation error
        self.last = self.checkpoints / "last.ckpt"
        self.refit = self.checkpoints / "refit.ckpt"  # refitted on all rows, if that was asked for
        self.errors = self.path / "errors.parquet"  # of the test, a row for each series, origin and channel
        self.checksums = self.path / CHECKSUMS  # sha256 of the checkpoints of a finished run

    @classmethod
    def dated(cls, root: str | Path, data: str, name: str) -> RunFolder:
        """A new folder `root/data/name/time`; runs of the same second get a number when they are made."""
        return cls(Path(root) / data / name / datetime.now().strftime("%Y-%m-%d_%H-%M-%S"), renamed=True)

    def of_member(self, name: str) -> RunFolder:
        """The folder for a part of an ensemble, inside this one; this one for no name."""
        return RunFolder(self.path / "members" / name) if name else self

    @property
    def is_finished(self) -> bool:
        """Whether all results exist; the test's results are written before a refit."""
        return self.metrics.exists() and (self.refit.exists() or not self.noted("refit"))

    @property
    def fit_seconds(self) -> float:
        """Seconds of the fit, including those up to a checkpoint that was resumed; 0 if none were noted."""
        return float(self.noted("fit_seconds") or 0.0)

    def all_checkpoints(self) -> list[Path]:
        """The checkpoints that exist, of the whole predictor and of members."""
        own = [file for file in (self.best, self.last, self.refit) if file.exists()]
        return own + sorted(self.path.glob(f"members/*/{self.checkpoints.name}/*.ckpt"))

    def forecasting_checkpoint(self) -> Path:
        """The checkpoint that forecasts are made with: the refitted predictor, if it exists."""
        return self.refit if self.refit.exists() else self.best

    def note(self, name: str, value: Any) -> None:
        """Add a note for a resumed run to the file of versions."""
        self.write_json(self.versions, {**self._read_versions(), name: value})

    def noted(self, name: str) -> Any:
        """Return a note; None if there is none."""
        return self._read_versions().get(name)

    def _read_versions(self) -> dict[str, Any]:
        try:
            known = json.loads(self.versions.read_text()) if self.versions.exists() else {}
        except ValueError:
            known = None
        if not isinstance(known, dict):
            raise UserError(f"{self.versions} is damaged: it holds no JSON object; restore a copy, or delete it")
        return known

    def write_json(self, file: Path, content: dict[str, Any]) -> None:
        """Write plain data, all or nothing."""
        write_text(file, json.dumps(content, indent=2, allow_nan=False) + "\n")

    def create(self) -> RunFolder:
        """Make a new folder, lock it for this process, and return it with its final name."""
        for number in itertools.count(1):
            run = self if number == 1 else RunFolder(self.path.with_name(f"{self.path.name}_{number}"))
            try:
                if run.path.parent.exists() and not run.path.parent.is_dir():
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                run.path.parent.mkdir(parents=True, exist_ok=True)
                run.path.mkdir()  # the process that makes it owns it
                break
            except FileExistsError as error:
                if not self.renamed:
                    raise self._taken() from error
            except OSError as error:
                raise UserError(f"the run folder {self.path} cannot be made: {error.strerror}") from error
        try:
            run.checkpoints.mkdir()
            run.hold()
        except BaseException:
            shutil.rmtree(run.path, ignore_errors=True)
            raise
        return run

    def hold(self) -> None:
        """Keep other processes from training here, until `release` or the end of this process, however it ends."""
        self._lock = self._lock or FileLock(self.path / ".lock")
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise UserError(f"another process is training {self.path} now: wait until it ends, or stop it") from error
        except OSError as error:
            raise UserError(f"the run folder {self.path} cannot be written to: {error.strerror}") from error
        self._lock_file = os.stat(self._lock.lock_file)

    @property
    def is_held(self) -> bool:
        """Whether this is still the folder that `hold` has locked: not removed, and not replaced."""
        try:
            return self._lock_file is not None and os.path.samestat(os.stat(self.path / ".lock"), self._lock_file)
        except OSError:
            return False

    def release(self) -> None:
        """Let others train here."""
        if self._lock is not None:
            self._lock.release()

    def check_new(self) -> None:
        """Refuse a folder that exists, unless it may take another name."""
        if self.path.exists() and not self.renamed:
            raise self._taken()

    def _taken(self) -> UserError:
        return UserError(f"the run folder {self.path} exists already; name another folder with --run (Python: folder=)")

    def check_resumable(self, longer: bool = False) -> None:
        """Refuse a folder that no `fit` has begun, or whose `fit` is finished unless it is to be trained longer."""
        self._check_holds("begun", "a run", self.config)
        if self.is_finished and not longer:
            what = f"the run {self.path} is finished: its results are in {self.metrics}"
            limits = "--trainer.max_steps (or max_epochs, or max_time)"
            raise UserError(f"{what}; to train it longer, add a higher {limits} to --resume")

    def check_trained(self) -> None:
        """Refuse a folder without the best checkpoint of a `fit`, or with a checkpoint that was changed."""
        self._check_holds("written", "a trained model", self.config, self.best)

    def _check_holds(self, how: str, what: str, *files: Path) -> None:
        if not self.path.is_dir():
            raise UserError(f"the run folder {self.path} does not exist; name a folder that `fit` has {how}")
        for file in files:
            if not file.exists():
                raise UserError(f"{self.path} is not the folder of {what}: it has no {file.relative_to(self.path)}")
        found = self._read_versions().get("format", FORMAT)
        if found != FORMAT:
            raise FormatError(f"{self.path} is of format {found}; this version of tsattn reads format {FORMAT}")
        check_checksums(self.path)


def versions(command: list[str], device: str) -> dict[str, Any]:
    """Facts that a result depends on, besides config and data: the command, versions and hardware."""
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
