"""The second way to choose an arm: its error on rolling origins, several blocks of rows before the test part.

One validation part may mislead, as a single year is no sample of years. Here every arm of a suite is fitted anew before
each of several blocks and validated on it (`tsattn.tuning.rolling`); the test part is never read.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from tsattn.errors import UserError, number_of
from tsattn.experiments import Hooks, RunFolder, run
from tsattn.experiments.measuring import measured
from tsattn.leaderboard.attention_share import is_ablation
from tsattn.leaderboard.board import Board
from tsattn.leaderboard.entry_run import finished_members
from tsattn.leaderboard.plan import Entry
from tsattn.leaderboard.whole_files import write_text
from tsattn.leaderboard.working_folder import WorkingFolder
from tsattn.training import Execution, TrainerOptions
from tsattn.training.quiet_lightning import quiet_lightning
from tsattn.tuning import HeldData
from tsattn.tuning.rolling import Fold

__all__ = ["ORIGINS", "OriginScores", "read_origins", "score_on_origins"]

ORIGINS = "origins.json"
_METRIC = "mse_scaled"  # for all arms, whatever error their own training is validated by
_COLUMNS = ["dataset", "horizon", "predictor", "attention", "origins", "error", "key"]
_LABELS = ["dataset", "predictor", "attention"]
_PATIENCE = 60.0  # seconds to wait for another process that writes


class OriginScores:
    """Errors on rolling origins, fold by fold, in a working folder: what is there is never computed again.

    Args:
        folder: to work in.
        folds: how many blocks.
        threads: of torch.
    """

    def __init__(self, folder: WorkingFolder, folds: int, threads: int = 1) -> None:
        self.folder = folder
        self.folds = folds
        self.threads = threads
        self._held = HeldData()

    def known(self, entry: Entry) -> list[float]:
        """The errors of the first folds that are there."""
        found = (self._kept(entry, number) for number in range(self.folds))
        return [error for error in found if error is not None]

    def _kept(self, entry: Entry, number: int) -> float | None:
        """The error of a fold, if it is there, and of `_METRIC`; older files have that of the training."""
        file = self._place(entry.key, number) / "error.json"
        if not file.exists():
            return None
        assert entry.experiment is not None
        content = json.loads(file.read_text())
        return float(content["error"]) if content.get("metric", entry.experiment.selection) == _METRIC else None

    def compute(self, entry: Entry) -> bool:
        """Compute what is not there; whether all is there then, or another process has it under way."""
        with self.folder.held(f"origins-{entry.key}") as free:
            for number in range(self.folds) if free else ():
                place = self._place(entry.key, number)
                if self._kept(entry, number) is None:
                    content = {"error": self._error(entry, number), "metric": _METRIC}
                    write_text(place / "error.json", json.dumps(content) + "\n")
            return free

    def _error(self, entry: Entry, number: int) -> float:
        assert entry.experiment is not None
        torch.set_num_threads(self.threads)
        place = RunFolder(self._place(entry.key, number) / "run")
        if place.path.exists():  # it was killed
            shutil.rmtree(place.path)
        members = [self._place(key, number) / "run" for key in entry.members]
        data = self._held.of(entry.experiment, Fold(number, self.folds))
        hooks = Hooks(fitted=finished_members(str(path) for path in members if (path / "metrics.json").exists()))
        fitted = run(entry.experiment, place.path, data=data, test=False, hooks=hooks).fitted
        # a training may have looked at some of these windows only; arms are compared on all
        execution = Execution(TrainerOptions.of(entry.experiment.made()[1]))
        return float(measured(fitted.predictor, data, "val", execution).scores()[_METRIC])

    def _place(self, key: str, number: int) -> Path:
        return self.folder.path / "origins" / key[:24] / f"{number + 1}_of_{self.folds}"


def score_on_origins(board: Board, folds: int, say: Callable[[str], None]) -> None:
    """Score every arm of a board, with its first seed, at the horizon at which values are chosen, and write `ORIGINS`.

    Args:
        board: whose entries are known.
        folds: rolling origins.
        say: takes a line for each arm, also for one that fails.
    """
    suite, horizon = board.narrowed, _horizon(board)
    entries = _scored(board, horizon)
    scores = OriginScores(board.folder, folds, board.options.threads)
    left = [entry for entry in entries if len(scores.known(entry)) < folds]
    for number, (entry, said) in enumerate(_computed(scores, left, board.options.jobs), len(entries) - len(left) + 1):
        say(f"origins {number} of {len(entries)}  {entry.name}: {said}")
    rows = [
        {
            **{name: entry.labels[name] for name in _COLUMNS[:4]},
            "origins": found,
            "error": sum(found) / folds,
            "key": entry.key,
        }
        for entry in entries
        if len(found := scores.known(entry)) == folds
    ]
    file = board.output / ORIGINS
    again = {tuple(row[name] for name in _LABELS) for row in rows}
    with board.folder.held(ORIGINS, _PATIENCE):  # a shard beside this one adds its own
        before = json.loads(file.read_text()) if file.exists() else []
        others = [row for row in before if tuple(row[name] for name in _LABELS) not in again]
        # means over other blocks or at another horizon are no rivals, nor are experiments that the suite has no more
        rivals = [
            row
            for row in others
            if len(row["origins"]) == folds and row["horizon"] == horizon and board.is_planned(row.get("key") or "")
        ]
        rows += rivals
        write_text(file, json.dumps(rows, indent=1) + "\n")
    gone = len(others) - len(rivals)
    lost = f"; {number_of(gone, 'earlier score')} of other blocks, horizons or experiments left out" if gone else ""
    say(f"{suite.name}: {number_of(len(rows), 'arm')} scored on {folds} rolling origins: {file}{lost}")


def _computed(scores: OriginScores, entries: Sequence[Entry], jobs: int) -> Iterator[tuple[Entry, str]]:
    """Compute what is not there, so many at once, and what came of each as it ends."""
    if jobs == 1:
        yield from ((entry, _outcome(scores, entry)) for entry in entries)
        return
    for is_mix in (False, True):  # which take their members as these were fitted
        part = [entry for entry in entries if bool(entry.members) == is_mix]
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("forkserver")) as pool:
            begun = {pool.submit(_outcome, scores, entry): entry for entry in part}
            try:
                for future in as_completed(begun):
                    error = future.exception()  # as where the process was killed
                    yield begun[future], f"failed: {error}" if error else future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _outcome(scores: OriginScores, entry: Entry) -> str:
    """Compute what is not there of an arm; what came of it, whatever it is: the others go on."""
    try:
        with quiet_lightning():
            if not scores.compute(entry):
                return "another process has it"
    except Exception as error:
        return f"failed: {error if isinstance(error, UserError) else f'{type(error).__name__}: {error}'}"
    return ", ".join(f"{error:.4f}" for error in scores.known(entry))


def _horizon(board: Board) -> int:
    """The one at which values are chosen."""
    selection = board.narrowed.selection
    return board.narrowed.horizons[0] if selection is None else selection.horizon


def _scored(board: Board, horizon: int) -> list[Entry]:
    """One entry an arm and data set; members come before the mixes of them."""
    first = board.narrowed.first_seed
    entries = [entry for entry in board.mine() if entry.horizon == horizon and entry.seed in (None, first)]
    ablations = {name for name, attention in board.narrowed.attentions.items() if is_ablation(attention.kinds)}
    held = [entry for entry in entries if entry.experiment is not None and entry.attention not in ablations]
    return sorted(held, key=lambda entry: bool(entry.members))


def read_origins(sources: Sequence[str | Path]) -> pd.DataFrame:
    """What was scored on rolling origins, beside some tables of records; a row an arm and data set.

    Returns:
        The columns ``dataset``, ``horizon``, ``predictor``, ``attention``, ``origins`` (the error of each), ``error``
        (their mean, of MSE) and ``key`` (of the experiment, empty in files that do not say it); no rows where nothing
        was scored.

    Raises:
        UserError: for a file that is damaged.
    """
    rows: list[dict[str, Any]] = []
    for source in map(Path, sources):
        file = (source if source.is_dir() else source.parent) / ORIGINS
        if file.exists():
            try:
                read = [{"key": "", **row} for row in json.loads(file.read_text())]
                rows += [{name: row[name] for name in _COLUMNS} for row in read]
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(f"{file} is damaged: delete it, and score the arms anew") from error
    return pd.DataFrame(rows, columns=_COLUMNS)
