"""The runs of an experiment as a table: what validation chooses among them, and how long they took."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from typing_extensions import override

from tsattn.errors import UserError, number_of
from tsattn.experiments import Experiment
from tsattn.experiments.configs import get_at
from tsattn.leaderboard.plan import Planner
from tsattn.leaderboard.records import LABELS, Records
from tsattn.leaderboard.suite import read_suite

LEFT = "left"  # status of a planned run that has no record
LEAST_SEEDS = 3  # of each arm, below which no claim is decided
EDGE = "`edge` says whether the rate is the least or the greatest of those tried, so that one beyond may be better."
BEHIND = "with its rate at the edge of those tried"

_LENGTH = ("max_steps", "val_check_interval")
_PEERS = 5.0  # times the median of its peers: a run that takes longer stood still
_PEERS_OF = ["dataset", "horizon", "predictor", "attention"]
_BREAK = pd.Timedelta(minutes=1)


class _WithoutData(Planner):
    """Plans without reading data, and so without keys."""

    @override
    def key(self, experiment: Experiment) -> str:
        return ""


def with_left(records: Records, suite: Path) -> Records:
    """Add a row of the status `LEFT` for each run of a suite that its records lack."""
    there = records.table.to_pylist()
    known = {tuple(row[name] for name in LABELS) for row in there}
    left = [
        {**entry.labels, "suite": suite.stem, "status": LEFT, "key": "", "experiment": entry.experiment.to_yaml()}
        for entry in _WithoutData().plan(read_suite(suite))
        if entry.experiment is not None and tuple(entry.labels.values()) not in known
    ]
    return Records.of([*there, *left], records.suites) if left else records


def runs_of(records: Records) -> pd.DataFrame:
    """Return a row an entry; ``values`` describes its experiment as plain data.

    Raises:
        UserError: if no run is done.
    """
    frame = records.frame
    if not (frame["status"] == "done").any():
        raise UserError("no run is done, so there is nothing to report")
    frame["values"] = [yaml.load(text, yaml.CSafeLoader) if text else {} for text in frame["experiment"]]
    return frame


def described_by(runs: pd.DataFrame, **paths: str) -> pd.DataFrame:
    """Add a column for each value at a dotted path of the experiments, None where one has no such value."""

    def at(values: Mapping[str, Any], path: str) -> Any:
        try:
            return get_at(values, path)
        except KeyError:
            return None

    return runs.assign(**{name: [at(values, path) for values in runs["values"]] for name, path in paths.items()})


def chosen_by_validation(
    runs: pd.DataFrame, arm: Sequence[str], candidate: Sequence[str], error: str = "validation_mse"
) -> pd.DataFrame:
    """Choose for each arm the candidate with the least validation error, mean over seeds.

    A candidate is not chosen if one of its runs failed, or another one of the arm has more seeds.

    Args:
        runs: from `runs_of`, described.
        arm: columns that tell arms apart.
        candidate: columns that are chosen, such as the learning rate.
        error: column of the validation error.

    Returns:
        rows of `runs`, with ``candidates``, their number; ``is_edge``, whether the first of these columns has the least
        or greatest number of those tried; ``is_whole``, whether no later run can change the choice.
    """
    parts = []
    seeds = runs["seed"].nunique()
    for _, planned in runs.groupby([*arm], dropna=False, sort=False):
        part = planned[planned["status"] != LEFT]
        groups = part.groupby([*candidate], dropna=False, sort=False)
        whole = groups.filter(lambda group: bool((group["status"] == "done").all()))
        if not len(whole):
            continue
        sizes = whole.groupby([*candidate], dropna=False)["seed"].transform("size")
        whole = whole[sizes == sizes.max()]
        means = whole.groupby([*candidate], dropna=False)[error].transform("mean")
        best, tried = whole[means == means.min()], part[candidate[0]]
        is_edge = pd.api.types.is_numeric_dtype(tried) and best[candidate[0]].iloc[0] in (tried.min(), tried.max())
        is_whole = len(part) == len(planned) and bool((groups["seed"].nunique() == seeds).all())
        parts.append(best.assign(candidates=len(groups), is_edge=is_edge, is_whole=is_whole))
    if not parts:
        return runs.iloc[:0].assign(candidates=0, is_edge=False, is_whole=False)
    return pd.concat(parts, ignore_index=True)


def listed(values: pd.Series) -> str:
    """Write the different numbers of a column: ``200, 1000``."""
    return ", ".join(f"{value:g}" for value in sorted(values.dropna().unique())) or "none"


def how_made(runs: pd.DataFrame, command: str, suite: str) -> str:
    """Describe the command, the machine, the failures and the time of the runs of a suite."""
    counts, done = runs["status"].value_counts(), runs[runs["status"] == "done"]
    versions = json.loads(done.iloc[-1]["versions"] or "{}")
    named = ", ".join(f"{name} {versions[name]}" for name in ("tsattn", "torch", "python") if name in versions)
    others = "".join(f", {count} {status}" for status, count in counts.items() if status not in ("done", LEFT))
    planned = int((runs["status"] != "does not apply").sum())
    seconds = counted_seconds(runs)
    lines = [
        f"`{command}`, the suite `{suite}`: {int(counts['done'])} of {number_of(planned, 'run')} done{others}, "
        f"{seconds.sum() / 3600:.1f} hours of training in all, on {' and '.join(sorted(set(done['cpu'])))} "
        f"({' and '.join(sorted(set(done['device'])))}); {named}."
    ]
    lines += [
        f"- failed: {row.dataset}, {row.horizon}: {row.predictor} {row.attention}, seed {row.seed}: {row.reason}"
        for row in runs[runs["status"] == "failed"].itertuples(index=False)
    ]
    clock = f"By the clock the runs took {clock_seconds(runs) / 3600:.1f} hours."
    if still := int((seconds < _own_seconds(runs)).sum()):
        clock += (
            f" {number_of(still, 'run')} took over {_PEERS:g} times as long as the median of the same predictor and "
            f"attention, as where the machine stands still, and {'counts' if still == 1 else 'count'} as {_PEERS:g} "
            "times that."
        )
    return "\n".join(lines) + f"\n\n{clock}"


def counted_seconds(runs: pd.DataFrame) -> pd.Series:
    """Return the seconds of each finished training, at most five times the median of its peers."""
    seconds = _own_seconds(runs)
    peers = [runs.loc[seconds.index, name] for name in _PEERS_OF]
    return seconds.clip(upper=_PEERS * seconds.groupby(peers, dropna=False).transform("median"))


def _own_seconds(runs: pd.DataFrame) -> pd.Series:
    """Return the seconds of each finished run, without those of a shorter run that it continued."""
    done = runs[(runs["status"] == "done") & runs["seconds"].notna()]
    seconds = done["seconds"].astype("float64")
    lengths: dict[str, dict[int, Any]] = {}
    for index, row in zip(done.index, done.to_dict("records"), strict=True):
        values = row["values"]
        if values.get("model", {}).get("schedule") == "constant":  # else the rate depends on the length
            trainer = {name: value for name, value in values["trainer"].items() if name not in _LENGTH}
            content = [row["dataset"], row["horizon"], row["attention"], row["seed"], {**values, "trainer": trainer}]
            same = json.dumps(content, sort_keys=True, default=str)
            lengths.setdefault(same, {})[values["trainer"]["max_steps"]] = index
    own = seconds.copy()
    for by_length in lengths.values():
        for shorter, longer in pairwise(sorted(by_length)):
            own[by_length[longer]] -= seconds[by_length[shorter]]
    return own


def clock_seconds(runs: pd.DataFrame) -> float:
    """Return the time by the clock in which at least one run was going on; breaks up to a minute count."""
    seconds = counted_seconds(runs)
    ends = pd.to_datetime(runs.loc[seconds.index, "finished"], utc=True)
    spans: list[tuple[Any, Any]] = sorted(zip(ends - pd.to_timedelta(seconds, unit="s"), ends, strict=True))
    total, last = pd.Timedelta(0), None
    for begin, end in spans:
        if last is None or begin > last + _BREAK:
            last = begin
        if end > last:
            total, last = total + (end - last), end
    return float(total.total_seconds())
