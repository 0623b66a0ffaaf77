"""How long runs took beside what they took over from others: mixes and longer trainings begin with what is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pandas as pd
import yaml

from tsattn.predictors.ensemble import TRAINING_OPTIONS

__all__ = ["own_seconds"]

_PLACE = ["dataset", "horizon", "seed"]


def own_seconds(done: pd.DataFrame) -> pd.Series[float]:
    """Seconds of each run without those of recorded runs that are members of it, as these count by themselves.

    Args:
        done: rows of `tsattn.leaderboard.standings.Standings.done`, each run once.
    """
    seconds = done["seconds"].astype("float64").fillna(0.0)
    places = [*done[_PLACE].itertuples(index=False, name=None)]
    known: dict[tuple[Any, ...], float] = {}
    for (dataset, horizon, seed), text, one in zip(places, done["experiment"], seconds, strict=True):
        known[(dataset, horizon, _seed(seed), _sign(_backbone(text)))] = float(one)
    own = []
    for (dataset, horizon, seed), text, one in zip(places, done["experiment"], seconds, strict=True):
        backbone = _backbone(text)
        first = _seed(seed)
        for member in backbone.get("members", ()) if backbone.get("kind") == "ensemble" else ():
            sign = _sign(member)
            for number in range(backbone.get("seeds") or 1):
                drawn = None if first is None else first + number
                one -= known.get((dataset, horizon, drawn, sign), 0.0)
        own.append(max(0.0, one))
    return pd.Series(own, index=done.index, dtype="float64")


def _seed(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _sign(description: Any) -> str:
    """A description as text, without what a member has of its own training."""
    if isinstance(description, Mapping):
        description = {name: value for name, value in description.items() if name not in TRAINING_OPTIONS}
    return json.dumps(description, sort_keys=True, default=str)


@lru_cache(maxsize=4096)
def _backbone(experiment: str) -> dict[str, Any]:
    content = yaml.load(experiment, yaml.CSafeLoader) or {}
    backbone = content.get("model", {}).get("backbone")
    return dict(backbone) if isinstance(backbone, Mapping) else {"kind": backbone}
