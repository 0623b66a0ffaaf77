"""One entry, in the process that runs it: trained or gone on with, measured, and written down."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.evaluation import ErrorTable
from tsattn.experiments import Experiment, Hooks, RunFolder, resume, run
from tsattn.experiments.measuring import measured
from tsattn.experiments.reopened import reopened
from tsattn.experiments.run_folder import EARLIER_SECONDS
from tsattn.experiments.run_sizes import device_type, peak_memory, predictor_sizes
from tsattn.leaderboard.longer_training import earlier_seconds, last_checkpoint
from tsattn.leaderboard.provenance import cpu_name, library_versions
from tsattn.leaderboard.run_record import Record
from tsattn.leaderboard.working_folder import WorkingFolder
from tsattn.predictors import Predictor
from tsattn.predictors.ensemble import Ensemble
from tsattn.training.train import all_fits

__all__ = ["Work", "finished_members", "provenance", "run_entry"]

# notes in a run folder: bytes, and seconds of the shorter training that it goes on with
_PEAK, _SHORTER_SECONDS = "peak_memory", "shorter_seconds"


@dataclass(frozen=True)
class Work:
    """What a process needs to know of an entry.

    Attributes:
        name: as words.
        key: of the experiment.
        experiment: as plain data.
        members: by key of an experiment that fits a member of an ensemble, or whose training this one goes on with, the
            folder of its finished run.
        git: the state of the code.
        command: that asked for it.
        threads: of torch.
    """

    name: str
    key: str
    experiment: Mapping[str, Any]
    members: Mapping[str, str]
    git: str
    command: str
    threads: int


def run_entry(work: Work, folder: WorkingFolder) -> Record:
    """Run an entry, or go on with it, and write down what came of it, whatever it is.

    Raises:
        KeyboardInterrupt: if it was interrupted; what was trained is kept.
    """
    torch.set_num_threads(work.threads)
    started = time.perf_counter()
    kept = _kept_seconds(work.key, folder)
    folder.note("begin", work.key, name=work.name, kept=kept)
    experiment = Experiment.of(work.experiment)
    try:
        record = _done(work, experiment, folder, kept)
    except Exception as error:  # whatever it is, the others go on
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        (folder.path / "errors").mkdir(exist_ok=True)
        (folder.path / "errors" / f"{work.key[:24]}.txt").write_text(traceback.format_exc())
        record = Record.of({**provenance(work), "status": "failed", "reason": " ".join(reason.split())[:2000]})
    folder.keep(record)
    folder.note(record.row["status"], work.key, wall=round(time.perf_counter() - started + kept, 2))
    return record


def _done(work: Work, experiment: Experiment, folder: WorkingFolder, kept: float) -> Record:
    place = RunFolder(folder.run(work.key))
    is_new = not place.metrics.exists()
    if is_new:
        if kept:  # noted before it goes on: one that is killed between its end and its record has it, too
            place.note(EARLIER_SECONDS, kept)
        with peak_memory(device_type(experiment)) as peak:
            _fit(work, experiment, place)
            place.note(_PEAK, peak())  # a later process, which finds it finished, holds less
    shorter = earlier_seconds(experiment, work.members)
    if shorter and (is_new or place.noted(EARLIER_SECONDS) is None):
        place.note(EARLIER_SECONDS, kept + shorter)
        place.note(_SHORTER_SECONDS, shorter)
    return _collected(work, experiment, place, _highest(place, work, folder))


def _highest(place: RunFolder, work: Work, folder: WorkingFolder) -> int | None:
    """The most memory of a run and of those that it takes over; None where one of them is not known."""
    records = [folder.record(key) for key in work.members]
    peaks = [place.noted(_PEAK), *(None if one is None else one.row["peak_memory"] for one in records)]
    known = [int(one) for one in peaks if one is not None]
    return max(known) if len(known) == len(peaks) else None


def _fit(work: Work, experiment: Experiment, place: RunFolder) -> None:
    """Fit and test, into a run folder, or go on there."""

    members = finished_members(work.members.values())
    begun = last_checkpoint(experiment, work.members)
    hooks = Hooks(fitted=members, beside=False, command=shlex.split(work.command), checkpoint=begun)
    if place.last.exists() or any(place.path.glob("members/*/checkpoints/last.ckpt")):
        key = resume(place.path, hooks=hooks).key
    else:
        if place.path.exists():  # it was killed before anything was kept
            shutil.rmtree(place.path)
        key = run(experiment, place.path, hooks=hooks).key
    if key != work.key:
        shutil.rmtree(place.path)
        raise UserError("the data have changed since the benchmark began: start it again")


def finished_members(folders: Iterable[str]) -> Callable[[Experiment], Path | None]:
    """What `Hooks.fitted` asks: which of some run folders is that of an experiment, if one is.

    The description of a member has no place for where files lie, so that keys are found without reading data.
    """
    known = {_sign(Experiment.read(Path(path) / "config.yaml")): Path(path) for path in folders}
    return lambda experiment: known.get(_sign(experiment))


def _sign(experiment: Experiment) -> str:
    """What two experiments have in common that are the same: precision is chosen by what runs them."""
    content = experiment.to_dict()
    content["trainer"]["precision"] = None
    return json.dumps(content, sort_keys=True, default=str)


def _collected(work: Work, experiment: Experiment, place: RunFolder, peak: int | None) -> Record:
    """The record of a run that is finished."""
    facts = json.loads(place.metrics.read_text())
    errors = ErrorTable.read(place.errors)
    fitted, data, execution = reopened(Experiment.read(place.config), place.best, "validate")
    predictor, task = fitted.predictor, data.task
    assert task is not None
    validation = measured(predictor, data, "val", execution).scores() if "val" in data.parts else {}
    scores = errors.scores()
    row: dict[str, Any] = {
        **provenance(work),
        "status": "done",
        "mse": scores["mse_scaled"],
        "mae": scores["mae_scaled"],
        "mase": scores["mase"],
        "wql": scores.get("wql"),
        "validation_mse": validation.get("mse_scaled"),
        "validation_mae": validation.get("mae_scaled"),
        "windows": int(scores["windows"]),
        "context_length": predictor.context_length,
        "season_length": task.season_length,
        "seconds": round(place.fit_seconds + _seconds_of_members(facts), 3),
        "own_seconds": round(place.fit_seconds - float(place.noted(_SHORTER_SECONDS) or 0.0), 3),
        "peak_memory": peak,
        "weight": _trained_share(predictor),
        "trained_windows": _trained_windows(facts, data, predictor),
        "pretraining": predictor.pretraining(task.data),
        "experiment": experiment.to_yaml(),
        "device": execution.device.type,
    }
    sizes = predictor_sizes(predictor, data, flops_needed=False)
    row["parameters"] = int(sizes["parameters"])
    row["flops"] = sizes.get("flops")
    return Record.of(row, _by_window(errors))


def provenance(work: Work) -> dict[str, Any]:
    """The columns of a record that are known whatever comes of an entry."""
    return {
        "key": work.key,
        "reason": "",
        "experiment": Experiment.of(work.experiment).to_yaml(),
        "git": work.git,
        "versions": library_versions(),
        "cpu": cpu_name(),
        "device": "",
        "threads": work.threads,
        "command": work.command,
        "finished": datetime.now(UTC),
    }


def _by_window(errors: ErrorTable) -> pa.Table:
    """The errors of each window, summed over its channels."""
    names = {"squared_scaled": "squared", "absolute_scaled": "absolute", "count": "count"}
    frame = errors.frame()[["unique_id", "origin", *names]]
    by_window = frame.groupby(["unique_id", "origin"], sort=True)[[*names]].sum().rename(columns=names).reset_index()
    origin = by_window["origin"]
    if origin.dtype.kind == "M":
        origin = origin.astype("datetime64[s]").astype("int64")
    columns: dict[str, Any] = {
        "window": range(len(by_window)),
        "origin": origin.to_numpy(),
        **{name: by_window[name].to_numpy() for name in names.values()},
    }
    schema = [("squared", "float32"), ("absolute", "float32"), ("count", "int32")]
    columns |= {name: columns[name].astype(kind) for name, kind in schema}
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def _seconds_of_members(facts: Mapping[str, Any]) -> float:
    """Of those that were fitted before."""
    return math.fsum(fit.get("earlier_fit_seconds") or 0.0 for fit in all_fits(facts))


def _trained_share(predictor: Predictor) -> float:
    """The weight of what is trained by gradients."""
    if not isinstance(predictor, Ensemble):
        return float(predictor.is_trained)
    shares = zip(predictor.weights, predictor.described, strict=True)
    return math.fsum(weight for weight, member in shares if member.is_trained)


def _trained_windows(facts: Mapping[str, Any], data: ForecastDataModule, predictor: Predictor) -> str:
    """Which share of the training windows was seen: those of a trained member, if there is one."""
    if not predictor.needs_fit:
        return "none"
    fits = all_fits(facts)
    trained = next((fit for fit in fits if "training" in fit), None)
    if trained is not None:
        seen, all_windows = trained["training"]["steps"] * data.batch_size, len(data.windows("train"))
        return "all" if seen >= all_windows else f"{seen} of {all_windows}"
    every = max(fit.get("every", 1) for fit in fits)
    return "all" if every == 1 else f"each {every}th"


def _kept_seconds(key: str, folder: WorkingFolder) -> float:
    """Seconds of earlier processes whose work is kept: up to the last checkpoint of each that was killed."""
    begun = [note for note in folder.notes() if note["key"] == key and note["event"] == "begin"]
    place = RunFolder(folder.run(key))
    if not begun or place.metrics.exists() or not place.last.exists():
        return 0.0
    last = begun[-1]
    return float(last["kept"]) + max(0.0, place.last.stat().st_mtime - float(last["time"]))
