"""Numbers that others published, with their sources, in a TOML file."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tsattn.errors import UserError, one_of

__all__ = ["Published", "read_published", "shipped_numbers"]

_NAME = "published.toml"
_MEANS_OVER = ((96, 192, 336, 720), (24, 36, 48, 60))  # the horizons that publications average


@dataclass(frozen=True)
class Published:
    """Test errors that a publication gives for a model on a data set, on the train-standardised scale.

    Attributes:
        model: its name there.
        dataset: as the registry calls it.
        context_length: the look-back, a number, a range, or how it was chosen.
        complete_test: whether every test window was scored; older code leaves the last batch out.
        source: where the numbers are.
        scores: ``(MSE, MAE)`` by horizon, or by ``mean``: over 96, 192, 336 and 720 steps, or 24, 36, 48 and 60.
            An MAE that is not given is NaN.
        note: a caveat.
    """

    model: str
    dataset: str
    context_length: str
    complete_test: bool
    source: str
    scores: Mapping[int | str, tuple[float, float]]
    note: str = ""

    def mean(self, horizons: Sequence[int]) -> tuple[float, float]:
        """MSE and MAE, mean over these horizons; NaN where one is not given."""
        if "mean" in self.scores and tuple(sorted(horizons)) in _MEANS_OVER:
            return self.scores["mean"]
        nothing = math.nan, math.nan
        pairs = [self.scores.get(horizon, nothing) for horizon in horizons]
        mse, mae = (math.fsum(values) / len(pairs) for values in zip(*pairs, strict=True))
        return mse, mae


def shipped_numbers() -> Path | None:
    """The file that is included in tsattn; None where it was not installed."""
    here = Path(__file__).parent
    places = here / _NAME, here.parents[1] / "benchmarks" / _NAME
    return next((path for path in places if path.is_file()), None)


def read_published(path: str | Path) -> list[Published]:
    """Read a list of ``[[published]]`` tables, whose keys are the attributes of `Published`.

    Scores are ``96 = [0.366, 0.391]``, ``mean = [0.338, 0.369]``, or without an MAE ``96 = [0.366]``.

    Raises:
        UserError: naming the file, the entry and what is wrong.
    """
    try:
        entries = tomllib.loads(Path(path).read_text("utf-8")).get("published")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML: {error}") from error
    if not isinstance(entries, list):
        raise UserError(f"{path} has no table [[published]]; add one for each model and data set")
    return [_entry(entry, f"{path}, entry {number}") for number, entry in enumerate(entries, 1)]


def _entry(entry: Mapping[str, Any], place: str) -> Published:
    known = [one.name for one in fields(Published)]
    if wrong := sorted((set(entry) ^ set(known)) - {"note"}):
        raise UserError(
            f"{place}: {wrong[0]} is {'missing' if wrong[0] in known else 'unknown'}; keys: {one_of(known)}"
        )
    if not isinstance(entry["complete_test"], bool):
        raise UserError(f"{place}: complete_test must be true or false")
    if blank := [name for name in ("model", "dataset", "source") if not str(entry[name]).strip()]:
        raise UserError(f"{place}: {blank[0]} must not be empty")
    scores = {_horizon(name, place): _pair(pair, place) for name, pair in entry["scores"].items()}
    if not scores:
        raise UserError(f"{place}: scores must be [MSE, MAE] by horizon")
    return Published(**{**entry, "context_length": str(entry["context_length"]), "scores": scores})


def _horizon(name: str, place: str) -> int | str:
    if name != "mean" and not name.isdigit():
        raise UserError(f"{place}: scores must be by horizon or `mean`, not {name}")
    return name if name == "mean" else int(name)


def _pair(pair: Any, place: str) -> tuple[float, float]:
    try:
        mse, mae = (*map(float, pair), *[math.nan] * (2 - len(pair)))
    except (TypeError, ValueError) as error:
        raise UserError(f"{place}: scores of a horizon must be [MSE, MAE], or [MSE]") from error
    return mse, mae
