"""Numbers that others published, with where they come from, in a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tsattn.errors import UserError, one_of

__all__ = ["PublishedScores", "read_published", "shipped_numbers"]

_KEYS = ("model", "dataset", "context_length", "complete_test", "source", "scores")
_NAME = "published.toml"


@dataclass(frozen=True)
class PublishedScores:
    """What a publication says of a model on a data set.

    Attributes:
        model: its name there.
        dataset: as the registry calls it.
        context_length: the look-back, a number, a range, or how it was chosen.
        complete_test: whether every test window was scored; scores with the last batch left out are of fewer.
        source: where that is written.
        scores: MSE and MAE by horizon; None for what is not given.
    """

    model: str
    dataset: str
    context_length: str
    complete_test: bool
    source: str
    scores: Mapping[int, tuple[float | None, float | None]]


def shipped_numbers() -> Path | None:
    """The file that comes with tsattn; None where it was not installed with it."""
    here = Path(__file__).parent
    places = here / _NAME, here.parents[2] / "benchmarks" / _NAME
    return next((path for path in places if path.is_file()), None)


def read_published(path: str | Path) -> list[PublishedScores]:
    """The numbers in a file, in its order.

    It holds a table ``[[published]]`` for each model and data set, with ``model``, ``dataset``, ``context_length``,
    ``complete_test``, ``source``, and ``scores``, a table of MSE and MAE by horizon: ``96 = [0.366, 0.391]``, of the
    MSE alone ``96 = [0.366]``.

    Raises:
        UserError: if it is not there, is not such a file, or a number in it has no source.
    """
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"no published numbers in {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML: {error}") from error
    entries = content.get("published")
    if not isinstance(entries, list) or set(content) != {"published"}:
        raise UserError(f"{path} holds no published numbers: it must be a list of tables [[published]]")
    return [_entry(entry, f"{path}, entry {number}") for number, entry in enumerate(entries, 1)]


def _entry(entry: Any, place: str) -> PublishedScores:
    if not isinstance(entry, dict):
        raise UserError(f"{place}: must be a table")
    if wrong := sorted(set(entry) ^ set(_KEYS)):
        what = "is missing" if wrong[0] in _KEYS else "is unknown"
        raise UserError(f"{place}: {wrong[0]} {what}; the keys are {one_of(_KEYS)}")
    for name in ("model", "dataset", "source"):
        if not isinstance(entry[name], str) or not entry[name].strip():
            raise UserError(f"{place}: {name} must be text that says something")
    if not isinstance(entry["complete_test"], bool):
        raise UserError(f"{place}: complete_test must be true or false")
    if not isinstance(entry["scores"], dict) or not entry["scores"]:
        raise UserError(f"{place}: scores must be a table of MSE and MAE by horizon")
    scores = {_horizon(name, place): _pair(pair, place) for name, pair in entry["scores"].items()}
    context = str(entry["context_length"])
    return PublishedScores(entry["model"], entry["dataset"], context, entry["complete_test"], entry["source"], scores)


def _horizon(name: str, place: str) -> int:
    if not name.isdigit():
        raise UserError(f"{place}: a horizon must be a number of steps, not {name}")
    return int(name)


def _pair(pair: Any, place: str) -> tuple[float | None, float | None]:
    is_pair = isinstance(pair, list) and 1 <= len(pair) <= 2
    if not is_pair or not all(isinstance(value, float | int) and not isinstance(value, bool) for value in pair):
        raise UserError(f"{place}: scores of a horizon must be [MSE, MAE], or [MSE]")
    return float(pair[0]), float(pair[1]) if len(pair) == 2 else None
