"""Whether data sets that suites call the same are the same, as far as their experiments say."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tsattn.errors import UserError, shown
from tsattn.experiments.experiment import OF_DATA
from tsattn.leaderboard.experiment_text import experiment_content

__all__ = ["check_same_data"]

_OF_MACHINES = ("num_workers", "resident_gb", "root", "folder", "verify")
_OF_RUNS = {*OF_DATA, *_OF_MACHINES} - {"scaling"}  # errors are on the scale
_NOTHING = (None, False)  # what an option that came later says of what was before


def check_same_data(done: pd.DataFrame) -> None:
    """Refuse data sets of one name whose files, splits or scales differ from suite to suite.

    Suites that share a run of it are of the same data, wherever its file lies.

    Args:
        done: rows of ``records.parquet``.

    Raises:
        UserError: naming the data set, the suites, and what differs.
    """
    for dataset, rows in done.groupby("dataset", sort=False):
        if rows["suite"].nunique() < 2:
            continue
        by_suite = {str(name): part for name, part in rows.groupby("suite", sort=False)}
        known = {
            name: {text: one for one in map(_data_of, part["experiment"].unique()) if (text := _text(one)) is not None}
            for name, part in by_suite.items()
        }
        for (one, first), (two, second) in itertools.combinations(known.items(), 2):
            shares_a_run = {*by_suite[one]["key"]} & {*by_suite[two]["key"]}
            if first and second and not {*first} & {*second} and not shares_a_run:
                what = _difference(next(iter(first.values())), next(iter(second.values())))
                raise UserError(
                    f"the suites {one} and {two} call different data {shown(str(dataset))}: {what}; report their "
                    "records apart, or give one another name"
                )


def _data_of(experiment: str) -> Mapping[str, Any]:
    """The class of the data and its arguments, but for those that are each run's own."""
    data = experiment_content(experiment).get("data") or {}
    arguments = {
        name: value
        for name, value in (data.get("init_args") or {}).items()
        if name not in _OF_RUNS and not any(value is nothing for nothing in _NOTHING)
    }
    return {"class_path": data.get("class_path"), **arguments}


def _text(data: Mapping[str, Any]) -> str | None:
    """To compare; None where nothing is known."""
    return None if data["class_path"] is None else json.dumps(data, sort_keys=True, default=str)


def _difference(one: Mapping[str, Any], two: Mapping[str, Any]) -> str:
    name = next(name for name in {**one, **two} if json.dumps(one.get(name)) != json.dumps(two.get(name)))
    return f"data.{name} is {shown(str(one.get(name)))} in the one and {shown(str(two.get(name)))} in the other"
