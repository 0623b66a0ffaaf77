"""One run of a suite, in its own process: trained or resumed, measured, and written as a record."""

from __future__ import annotations

import json
import math
import platform
import shlex
import shutil
import subprocess
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml
from filelock import FileLock, Timeout

from tsattn.data import ForecastDataModule
from tsattn.errors import FormatError, UserError, one_line
from tsattn.evaluation import ErrorTable
from tsattn.experiments import Experiment, Hooks, RunFolder, resume, run
from tsattn.experiments.measuring import device_type, measured, predictor_sizes
from tsattn.experiments.result import reopened
from tsattn.experiments.run_folder import versions
from tsattn.leaderboard.digest import digest_of
from tsattn.leaderboard.plan import member_experiments
from tsattn.leaderboard.records import by_stretch, read_record, write_record
from tsattn.predictors import Predictor
from tsattn.training.execution import peak_memory
from tsattn.training.train import all_fits

_PEAK = "peak_memory"  # a note in a run folder, in bytes
_OTHER_VERSIONS = ("format", "command", "device", "threads")


@dataclass(frozen=True)
class Work:
    """Plain data that a process needs to make a run; `labels` are the columns that name its record."""

    name: str
    key: str
    experiment: Mapping[str, Any]
    labels: Mapping[str, Any]
    members: tuple[str, ...]
    git: str
    command: str
    threads: int


class WorkingFolder:
    """The folder that a suite is run in: a record for each key, a run folder, a log and a lock."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.records = self.path / "records"
        self._read: dict[str, tuple[int, dict[str, Any]]] = {}

    def record(self, key: str) -> dict[str, Any] | None:
        """The record of a key; None if there is none yet."""
        file = self.file(key)
        if not file.exists():
            return None
        written = file.stat().st_mtime_ns  # another process may have run it again
        if self._read.get(key, (None,))[0] != written:
            self._read[key] = written, read_record(file)
        return self._read[key][1]

    def file(self, key: str) -> Path:
        """The file of the record of a key."""
        return self.records / f"{key}.parquet"

    def keep(self, row: Mapping[str, Any]) -> None:
        """Write a record."""
        write_record(self.file(row["key"]), row)

    def forget(self, key: str) -> None:
        """Remove a record, so that its key is run again."""
        self._read.pop(key, None)
        self.file(key).unlink(missing_ok=True)

    def run(self, key: str) -> Path:
        """The run folder of a key."""
        return self.path / "runs" / key[:24]

    def log(self, key: str) -> Path:
        """The file for all output of the process of a key."""
        return self.path / "logs" / f"{key[:24]}.txt"

    @contextmanager
    def held(self, name: str, seconds: float = 0.0) -> Iterator[bool]:
        """Lock a key against other processes; yields whether the lock was free within these seconds."""
        place = self.path / "locks"
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"the working folder {self.path} cannot be made: {error.strerror}; use --folder") from error
        with held(place / f"{name[:80]}.lock", seconds) as is_free:
            yield is_free

    def is_finished(self, work: Work) -> bool:
        """Whether a run is done."""
        return (self.record(work.key) or {}).get("status") == "done"


@contextmanager
def held(file: Path, seconds: float = 0.0) -> Iterator[bool]:
    """Hold a lock file; yields whether it was free within these seconds."""
    lock = FileLock(file)
    with suppress(Timeout):
        lock.acquire(timeout=seconds)
    try:
        yield lock.is_locked
    finally:
        lock.release()


def run_entry(work: Work, folder: WorkingFolder) -> None:
    """Make a run, or resume it, and write its record, whether it succeeds or fails."""
    torch.set_num_threads(work.threads)
    row = {**work.labels, **_provenance(work), "status": "done", "reason": ""}
    try:
        row |= _result(work, Experiment.of(work.experiment), folder)
    except Exception as error:  # the other runs continue
        traceback.print_exc()
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        row |= {"status": "failed", "reason": one_line(reason, 2000)}
    folder.keep(row)


def _result(work: Work, experiment: Experiment, folder: WorkingFolder) -> dict[str, Any]:
    place = RunFolder(folder.run(work.key))
    members = [folder.run(key) for key in work.members]
    if not place.metrics.exists():
        with peak_memory(device_type(experiment)) as peak:
            _fit(work, experiment, place, members)
            place.note(_PEAK, peak())
    return {
        **_scores(experiment, place),
        "peak_memory": _highest([place, *map(RunFolder, members)]),
        "digest": digest_of(experiment, cpu_name(), folder.path / "digests.json"),
    }


def _fit(work: Work, experiment: Experiment, place: RunFolder, members: list[Path]) -> None:
    """Fit and test into a run folder, or resume there."""
    hooks = Hooks(member_folder=_finished(experiment, members), with_baselines=False, command=shlex.split(work.command))
    is_begun = place.last.exists() or any(place.path.glob("members/*/checkpoints/last.ckpt"))
    key = None
    if is_begun and place.config.exists():
        with suppress(FormatError):
            key = resume(place.path, hooks=hooks).key
    if key is None:
        if place.path.exists():  # begun by another version, or killed before it saved anything
            shutil.rmtree(place.path)
        key = run(experiment, place.path, hooks=hooks).key
    if key != work.key:
        shutil.rmtree(place.path)
        raise UserError("the data have changed since the suite began: start it again")


def _finished(experiment: Experiment, folders: Iterable[Path]) -> Callable[[str], Path | None]:
    """Return the callback `Hooks.member_folder`: the run folder of an ensemble's member, if finished."""
    places = zip(member_experiments(experiment), folders, strict=False)
    return {name: path for name, path in places if (path / "metrics.json").exists()}.get


def _scores(experiment: Experiment, place: RunFolder) -> dict[str, Any]:
    """Return the columns of a record that a finished run determines."""
    facts = json.loads(place.metrics.read_text())
    errors = ErrorTable.read(place.errors)
    fitted, data, execution = reopened(Experiment.read(place.config), place.best, "validate")
    predictor = fitted.predictor
    validation = measured(predictor, data, "val", execution).scores() if "val" in data.parts else {}
    scores = errors.scores()
    sizes = predictor_sizes(predictor, data, flops_needed=False)
    seconds = place.fit_seconds + math.fsum(fit.get("earlier_fit_seconds") or 0.0 for fit in all_fits(facts))
    return {
        "mse": scores["mse_scaled"],
        "mae": scores["mae_scaled"],
        "mase": scores["mase"],
        "wql": scores.get("wql"),
        "validation_mse": validation.get("mse_scaled"),
        "validation_mae": validation.get("mae_scaled"),
        "windows": int(scores["windows"]),
        "context_length": predictor.context_length,
        "parameters": int(sizes["parameters"]),
        "flops": sizes.get("flops"),
        "seconds": round(seconds, 3),
        "trained_windows": _trained_windows(facts, data, predictor, experiment.trainer["accumulate_grad_batches"]),
        "pretraining": predictor.pretraining(predictor.task.data),
        "device": execution.device.type,
        **by_stretch(windows_of(errors), predictor.task.prediction_length),
    }


def windows_of(errors: ErrorTable) -> pd.DataFrame:
    """One row per window: ``unique_id``, ``origin``; ``squared``, ``absolute`` and ``count`` summed over channels."""
    names = {"squared_scaled": "squared", "absolute_scaled": "absolute"}
    frame = errors.frame()[["unique_id", "origin", *names, "count"]]
    if frame[[*names]].isna().any(axis=None):  # which a sum would skip
        raise UserError("some forecasts are not numbers, so their errors cannot be compared")
    windows = frame.groupby(["unique_id", "origin"], sort=True).sum().rename(columns=names).reset_index()
    if windows["origin"].dtype.kind == "M":
        seconds = windows["origin"].astype("datetime64[s]")
        is_whole = (seconds == windows["origin"]).all()
        windows["origin"] = (seconds if is_whole else windows["origin"].astype("datetime64[us]")).astype("int64")
    return windows


def _trained_windows(facts: Mapping[str, Any], data: ForecastDataModule, predictor: Predictor, batches: int) -> str:
    """Say how many training windows the run, or an ensemble's first trained member, has seen, by `batches` a step."""
    if not predictor.needs_fit:
        return "none"
    trained = next((fit for fit in all_fits(facts) if "training" in fit), None)
    if trained is None:
        return "all"
    seen, windows = trained["training"]["steps"] * batches * data.batch_size, len(data.windows("train"))
    return "all" if seen >= windows else f"{seen} of {windows}"


def _highest(places: Iterable[RunFolder]) -> int | None:
    """The peak memory of a run and its members, in bytes; None if any is unknown."""
    peaks = [place.noted(_PEAK) if place.path.exists() else None for place in places]
    known = [int(peak) for peak in peaks if peak is not None]
    return max(known) if len(known) == len(peaks) else None


def _provenance(work: Work) -> dict[str, Any]:
    known = {name: value for name, value in versions([], "").items() if name not in _OTHER_VERSIONS}
    return {
        "key": work.key,
        "experiment": yaml.safe_dump(_portable(Experiment.of(work.experiment).to_dict()), sort_keys=False),
        "git": work.git,
        "versions": json.dumps(known),
        "cpu": cpu_name(),
        "device": "",
        "threads": work.threads,
        "command": work.command,
        "finished": datetime.now(UTC),
    }


def _portable(content: dict[str, Any]) -> dict[str, Any]:
    """The experiment with files below the current folder named from there, as in the suite."""
    files, here = content["data"]["init_args"], Path.cwd()
    for name, path in files.items():
        if isinstance(path, str) and Path(path).is_relative_to(here):
            files[name] = Path(path).relative_to(here).as_posix()
    return content


def git_state() -> str:
    """The commit of the package, with ``+changes`` if files differ from it; empty without git."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        if not git("ls-files", __file__):
            return ""  # tsattn is installed inside the repository of another project
        changes = git("status", "--porcelain", "--", ":/", ":(top,exclude)benchmarks/results")
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{commit}{'+changes' if changes else ''}"


def cpu_name() -> str:
    """The model of the CPU, with its family and model number if the system gives them."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    pairs = (line.partition(":") for line in reversed(lines))  # so the first processor counts
    known = {name.strip(): value.strip() for name, _, value in pairs}
    if "model name" not in known:
        return platform.processor() or platform.machine()
    return f"{known['model name']} (family {known.get('cpu family')}, model {known.get('model')})"
