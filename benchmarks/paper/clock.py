"""How long the runs of an experiment took, by the clock."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pandas as pd

from tsattn.errors import number_of

__all__ = ["PEERS", "by_the_clock", "clock_seconds", "counted_seconds"]

PEERS = 5.0
"""How many times as long as the median of its peers a run is counted at most: one that takes longer stood still."""

LENGTH = ("max_steps", "val_check_interval")
_BREAK = pd.Timedelta(minutes=1)
_PEERS_OF = ["dataset", "horizon", "predictor", "attention"]


def counted_seconds(runs: pd.DataFrame) -> pd.Series:
    """How long each training took, by the index of the runs that are done, but at most `PEERS` times as long as others.

    These are those of the same table, predictor and attention, whose median counts.

    Args:
        runs: from `runs_of`.
    """
    seconds = _own_seconds(runs)
    done = runs.loc[seconds.index]
    medians = seconds.groupby([done[name] for name in _PEERS_OF], dropna=False).transform("median")
    return seconds.clip(upper=PEERS * medians)


def _own_seconds(runs: pd.DataFrame) -> pd.Series:
    """The seconds of each run that is done, without those of the shorter one that its training went on with.

    That is one of the same suite that differs in its length alone, where the learning rate does not hang on the length.
    """
    done = runs[(runs["status"] == "done") & runs["seconds"].notna()]
    seconds = done["seconds"].astype("float64")
    lengths: dict[str, dict[int, Any]] = {}
    for index, row in zip(done.index, done.to_dict("records"), strict=True):
        values = row["values"]
        if values.get("model", {}).get("schedule") == "constant":
            trainer = {name: value for name, value in values["trainer"].items() if name not in LENGTH}
            content = [row["dataset"], row["horizon"], row["attention"], row["seed"], {**values, "trainer": trainer}]
            same = json.dumps(content, sort_keys=True, default=str)
            lengths.setdefault(same, {})[values["trainer"]["max_steps"]] = index
    own = seconds.copy()
    for by_length in lengths.values():
        for shorter, longer in pairwise(sorted(by_length)):
            own[by_length[longer]] -= seconds[by_length[shorter]]
    return own


def clock_seconds(runs: pd.DataFrame) -> float:
    """The time by the clock in which one of some runs at least was going on, in seconds.

    Runs say when they finished and how long they trained, see `counted_seconds`. Between trainings they are started and
    scored: so the time between two counts too, unless it is over a minute, when the experiment was not going on.

    Args:
        runs: from `runs_of`, with ``finished`` and ``seconds``.
    """
    seconds = counted_seconds(runs)
    ends = pd.to_datetime(runs.loc[seconds.index, "finished"], utc=True)
    spans: list[tuple[Any, Any]] = sorted(zip(ends - pd.to_timedelta(seconds, unit="s"), ends, strict=True))
    total, last = pd.Timedelta(0), None
    for begin, end in spans:
        if last is None or begin > last + _BREAK:
            last = begin
        if end > last:
            total += end - last
            last = end
    return float(total.total_seconds())


def by_the_clock(runs: pd.DataFrame) -> str:
    """A sentence: how long the runs took, and how many of them stood still.

    Args:
        runs: see `clock_seconds`.
    """
    still = int((counted_seconds(runs) < _own_seconds(runs)).sum())
    sentence = f"By the clock the runs took {clock_seconds(runs) / 3600:.1f} hours"
    if not still:
        return f"{sentence}."
    return (
        f"{sentence}. {number_of(still, 'run')} took over {PEERS:g} times as long as the median of the same predictor "
        f"and attention, as where the machine stands still, and {'counts' if still == 1 else 'count'} as {PEERS:g} "
        "times that."
    )
