"""The runs of an experiment as a table: what validation chooses among them, and how long they took."""

from __future__ import annotations

import json
from collections.abc import Sequence
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

LEAST_SEEDS = 3  # of each arm, below which no claim is decided
EDGE = "`edge` says whether the rate is the least or the greatest of those tried, so that one beyond may be better."
BEHIND = "with its rate at the edge of those tried"

PATHS = {
    **{name: f"model.{name}" for name in ("learning_rate", "schedule", "mup", "backbone")},
    **{"width": "model.backbone.d_model", "hidden": "model.backbone.d_ff", "heads": "model.backbone.num_heads"},
    **{"layers": "model.backbone.num_layers", "kind": "model.backbone.attention.kind"},
    **{name: f"model.backbone.{name}" for name in ("dropout", "alpha")},
    **{name: f"data.init_args.{name}" for name in ("batch_size", "every", "dimensions")},
    **{"context": "data.init_args.context_length", "steps": "trainer.max_steps"},
}
"""Values of experiments that reports look at, by the name of their column."""

_STILL = 5.0  # times the median of the same arm: a run that takes longer stood still
_ARM = ["dataset", "horizon", "predictor", "attention"]
_BREAK = pd.Timedelta(minutes=1)


class _WithoutData(Planner):
    """Plans without reading data, and so without keys."""

    @override
    def key(self, experiment: Experiment) -> str:
        return ""


def left_of(records: Records, suite: Path) -> int:
    """Count the runs of a suite that its records lack."""
    known = {tuple(row[name] for name in LABELS) for row in records.table.to_pylist()}
    planned = _WithoutData().plan(read_suite(suite))
    return sum(one.experiment is not None and tuple(one.labels.values()) not in known for one in planned)


def runs_of(records: Records) -> pd.DataFrame:
    """Return a row an entry, with a column for each value of its experiment in `PATHS`, None where it has none.

    Raises:
        UserError: if no run is done.
    """
    frame = records.frame
    if not (frame["status"] == "done").any():
        raise UserError("no run is done, so there is nothing to report")
    experiments = [yaml.load(text, yaml.CSafeLoader) if text else {} for text in frame["experiment"]]
    return frame.assign(**{name: [get_at(one, path, None) for one in experiments] for name, path in PATHS.items()})


def chosen_by_validation(
    runs: pd.DataFrame, arm: Sequence[str], candidate: Sequence[str], error: str = "validation_mse"
) -> pd.DataFrame:
    """Choose for each arm the candidate with the least validation error, mean over seeds.

    A candidate is not chosen if one of its runs failed, or another one of the arm has more seeds.

    Args:
        runs: from `runs_of`.
        arm: columns that tell arms apart.
        candidate: columns that are chosen, such as the learning rate.
        error: column of the validation error.

    Returns:
        rows of `runs`, with ``candidates``, their number, and ``is_edge``, whether the first of these columns has the
        least or greatest number of those tried.
    """
    parts = [runs.iloc[:0].assign(candidates=0, is_edge=False)]
    for _, part in runs.groupby([*arm], dropna=False, sort=False):
        groups = part.groupby([*candidate], dropna=False, sort=False)
        whole = groups.filter(lambda group: bool((group["status"] == "done").all()))
        if not len(whole):
            continue
        sizes = whole.groupby([*candidate], dropna=False)["seed"].transform("size")
        whole = whole[sizes == sizes.max()]
        means = whole.groupby([*candidate], dropna=False)[error].transform("mean")
        best, tried = whole[means == means.min()], part[candidate[0]]
        is_edge = pd.api.types.is_numeric_dtype(tried) and best[candidate[0]].iloc[0] in (tried.min(), tried.max())
        parts.append(best.assign(candidates=len(groups), is_edge=is_edge))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def listed(values: pd.Series) -> str:
    """Write the different numbers of a column: ``200, 1000``."""
    return ", ".join(f"{value:g}" for value in sorted(values.dropna().unique())) or "none"


def how_made(runs: pd.DataFrame, command: str, suite: str) -> str:
    """Describe the command, the machine, the failures and the time of the runs of a suite."""
    counts, done = runs["status"].value_counts(), runs[runs["status"] == "done"]
    versions = json.loads(done.iloc[-1]["versions"] or "{}")
    named = ", ".join(f"{name} {versions[name]}" for name in ("tsattn", "torch", "python") if name in versions)
    others = "".join(f", {count} {status}" for status, count in counts.items() if status != "done")
    planned = int((runs["status"] != "does not apply").sum())
    lines = [
        f"`{command}`, the suite `{suite}`: {int(counts['done'])} of {number_of(planned, 'run')} done{others}, on "
        f"{' and '.join(sorted(set(done['cpu'])))} ({' and '.join(sorted(set(done['device'])))}); {named}."
    ]
    lines += [
        f"- failed: {row.dataset}, {row.horizon}: {row.predictor} {row.attention}, seed {row.seed}: {row.reason}"
        for row in runs[runs["status"] == "failed"].itertuples(index=False)
    ]
    clock = f"By the clock the runs took {clock_seconds(runs) / 3600:.1f} hours."
    counted = _counted_seconds(runs)
    if still := int((counted < runs.loc[counted.index, "seconds"]).sum()):
        clock += (
            f" {number_of(still, 'run')} took over {_STILL:g} times as long as the median of the same predictor and "
            f"attention, as where the machine stands still, and {'counts' if still == 1 else 'count'} as {_STILL:g} "
            "times that."
        )
    return "\n".join(lines) + f"\n\n{clock}"


def _counted_seconds(runs: pd.DataFrame) -> pd.Series:
    """Return the seconds of each finished run, at most five times the median of its arm."""
    done = runs[(runs["status"] == "done") & runs["seconds"].notna()]
    seconds = done["seconds"].astype("float64")
    arms = [done[name] for name in _ARM]
    return seconds.clip(upper=_STILL * seconds.groupby(arms, dropna=False).transform("median"))


def clock_seconds(runs: pd.DataFrame) -> float:
    """Return the time by the clock in which at least one run was going on; breaks up to a minute count."""
    seconds = _counted_seconds(runs)
    ends = pd.to_datetime(runs.loc[seconds.index, "finished"], utc=True)
    spans: list[tuple[Any, Any]] = sorted(zip(ends - pd.to_timedelta(seconds, unit="s"), ends, strict=True))
    total, last = pd.Timedelta(0), None
    for begin, end in spans:
        if last is None or begin > last + _BREAK:
            last = begin
        if end > last:
            total, last = total + (end - last), end
    return float(total.total_seconds())
