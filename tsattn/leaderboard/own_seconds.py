"""What runs took of time and memory, with and without those that they take over: mixes and longer trainings begin with
what is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from tsattn.errors import UserError
from tsattn.leaderboard.experiment_text import experiment_content
from tsattn.leaderboard.longer_training import LENGTH
from tsattn.predictors.ensemble import Member

__all__ = ["highest_memory", "known_seconds", "own_seconds"]

_ROUNDED = 0.01  # of the seconds of several records


def own_seconds(done: pd.DataFrame) -> pd.Series[float]:
    """Seconds of each run without those of recorded runs that it goes on with or is a mix of, as these count by
    themselves.

    A record says them itself. For older ones those runs are found by what they say of their experiments.

    Args:
        done: rows of `tsattn.leaderboard.standings.Standings.done`, each run once.
    """
    found = (_seconds(done) - _taken_over(done)).clip(lower=0.0).fillna(0.0)
    return found.where(done["own_seconds"].isna(), done["own_seconds"].astype("float64"))


def known_seconds(done: pd.DataFrame) -> pd.Series[float]:
    """Seconds of each run with those of all that it takes over; NaN where a record has lost these.

    Older records of mixes may lack the seconds of members whose training was interrupted: then they are below those of
    the records of these members.

    Args:
        done: as for `own_seconds`.
    """
    seconds = _seconds(done)
    is_whole = done["own_seconds"].notna() | (seconds >= _taken_over(done) - _ROUNDED)
    return seconds.where(is_whole)


def highest_memory(done: pd.DataFrame) -> pd.Series[float]:
    """The most bytes that each run held, or one that it takes over: older records of mixes say what loading them took.

    Args:
        done: as for `own_seconds`.
    """
    peaks = done["peak_memory"].astype("float64")
    held = peaks.to_numpy()
    highest = [np.max(held[[place, *others]]) for place, others in enumerate(_taken(done))]
    return peaks.where(done["own_seconds"].notna(), pd.Series(highest, done.index, "float64"))


def _seconds(done: pd.DataFrame) -> pd.Series[float]:
    return done["seconds"].astype("float64")


def _taken_over(done: pd.DataFrame) -> pd.Series[float]:
    """The seconds of the runs that each run takes over."""
    seconds = _seconds(done).fillna(0.0)
    return pd.Series([sum(seconds.iloc[place] for place in places) for places in _taken(done)], done.index, "float64")


def _taken(done: pd.DataFrame) -> list[list[int]]:
    """The places of recorded runs that each run takes over, if it does as `benchmark` runs a suite."""
    contents = [experiment_content(text) for text in done["experiment"]]
    trained = [place for place, is_one in enumerate(done["seed"].notna()) if is_one]
    by_sign = {_sign(contents[place]): place for place in trained}
    shorter: dict[str, list[tuple[int, int]]] = {}
    for place in trained:
        if _may_go_on(contents[place]):
            sign = _sign(contents[place], without=LENGTH)
            shorter.setdefault(sign, []).append((contents[place]["trainer"]["max_steps"], place))
    return [
        [by_sign[sign] for sign in _members(content) if sign in by_sign] + _of_shorter(content, shorter)
        for content in contents
    ]


def _sign(content: Mapping[str, Any], without: tuple[str, ...] = ()) -> str:
    """All of an experiment but some options of the Trainer; precision is chosen by what runs it.

    Arguments that a predictor did not have when one of two records was written are there in both.
    """
    trainer = {key: value for key, value in content.get("trainer", {}).items() if key not in ("precision", *without)}
    model = dict(content.get("model", {}))
    whole = _member(json.dumps(model.get("backbone"), sort_keys=True))
    if whole is not None:
        model["backbone"] = whole.predictor
    return json.dumps({**content, "model": model, "trainer": trainer}, sort_keys=True, default=str)


def _members(content: Mapping[str, Any]) -> Iterator[str]:
    """The signs of the experiments that fit the trained members of an ensemble alone, by member and seed; see
    `tsattn.experiments.members.member_experiments`, which parses each.
    """
    model = content.get("model", {})
    backbone, seed = model.get("backbone"), content.get("seed_everything")
    if not isinstance(backbone, Mapping) or backbone.get("kind") != "ensemble" or seed is None:
        return
    for description in backbone["members"]:
        member = _member(json.dumps(description, sort_keys=True))
        if member is None or not member.is_trained:
            continue
        options = dict(member.options)
        alone = {**content, "model": {**model, "backbone": member.predictor}}
        if model.get("calibrate") is True:
            alone["model"]["calibrate"] = False
        if "context_length" in options:
            arguments = {**content["data"]["init_args"], "context_length": options.pop("context_length")}
            alone["data"] = {**content["data"], "init_args": arguments}
        if "max_steps" in options:
            length = {"max_epochs": None, "max_time": None, "max_steps": options.pop("max_steps")}
            alone["trainer"] = {**content["trainer"], **length}
        alone["model"] |= options
        for number in range(backbone.get("seeds") or 1):
            yield _sign({**alone, "seed_everything": seed + number})


@lru_cache(maxsize=4096)
def _member(description: str) -> Member | None:
    """None of a kind that is not installed here."""
    try:
        return Member.of(json.loads(description))
    except UserError:
        return None


def _of_shorter(content: Mapping[str, Any], shorter: Mapping[str, list[tuple[int, int]]]) -> list[int]:
    """The place of the training that one goes on with: the shortest, after which it is validated for the first time,
    as `tsattn.leaderboard.longer_training.check_longer` demands.
    """
    if not _may_go_on(content):
        return []
    steps, interval = (content["trainer"][name] for name in LENGTH)
    known = shorter.get(_sign(content, without=LENGTH), [])
    before = [(length, place) for length, place in known if length < min(steps, interval)]
    return [min(before)[1]] if before else []


def _may_go_on(content: Mapping[str, Any]) -> bool:
    model, trainer = content.get("model", {}), content.get("trainer", {})
    is_alike = model.get("schedule") == "constant" and model.get("patience") is None
    return is_alike and all(isinstance(trainer.get(name), int) for name in LENGTH)
