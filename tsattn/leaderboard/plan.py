"""What a suite comes to: entries, each of which is one experiment, and the studies that choose their values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tsattn.experiments import Experiment
from tsattn.leaderboard.suite import Suite
from tsattn.tuning import Search

__all__ = ["Entry", "Plan", "StudyEntry", "in_order"]


@dataclass(frozen=True)
class Entry:
    """One run, or why there is none.

    Attributes:
        dataset: the name of the data set.
        horizon: steps ahead.
        predictor: its name in the suite.
        attention: its name in the suite; empty where the predictor has none.
        seed: None where nothing is drawn.
        experiment: what is run; None for what does not apply, or waits for a study.
        key: of the experiment; empty without one.
        reason: why it does not apply; empty for what is run.
        members: the keys of the experiments that fit the members of an ensemble, or of the shorter training that this
            one goes on with.
        studies: the names of those whose values it has, or waits for.
        is_mix: whether it is a mix of what other entries have trained.
    """

    dataset: str
    horizon: int
    predictor: str
    attention: str
    seed: int | None
    experiment: Experiment | None = None
    key: str = ""
    reason: str = ""
    members: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()
    is_mix: bool = False

    @property
    def waits(self) -> bool:
        """Whether a study has not chosen its values yet."""
        return self.experiment is None and not self.reason

    @property
    def labels(self) -> dict[str, Any]:
        """By what tables call it, see `tsattn.leaderboard.run_record.LABELS`."""
        names = ("dataset", "horizon", "predictor", "attention", "seed")
        return {name: getattr(self, name) for name in names}

    @property
    def name(self) -> str:
        """The same as words."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.dataset} {self.horizon}: {' '.join(filter(None, (self.predictor, self.attention)))}{seed}"


@dataclass(frozen=True)
class StudyEntry:
    """One study: values of a predictor on a data set, chosen by validation alone.

    Attributes:
        name: tells it from all others, also from one of other data, values or search space.
        dataset: the name of the data set.
        predictor: its name in the suite.
        attention: its name in the suite; empty where the predictor has none, or all have the same values.
        experiment: what is searched around.
        search: the part of the search space that the predictor has.
        trials: how many.
        folds: rolling origins; 0 for the validation part.
    """

    name: str
    dataset: str
    predictor: str
    attention: str
    experiment: Experiment
    search: Search
    trials: int
    folds: int

    @property
    def title(self) -> str:
        """What it is about, as words."""
        return f"{self.dataset}: {' '.join(filter(None, (self.predictor, self.attention)))}"


@dataclass(frozen=True)
class Plan:
    """What a suite comes to.

    Attributes:
        entries: in the order in which they are run.
        studies: in the order in which they are needed.
    """

    entries: tuple[Entry, ...]
    studies: tuple[StudyEntry, ...]


def in_order(suite: Suite, entries: Iterable[Entry]) -> list[Entry]:
    """Entries in the order of their suite."""
    places: dict[str, dict[Any, int]] = {
        "dataset": {name: number for number, name in enumerate(suite.data)},
        "horizon": {horizon: number for number, horizon in enumerate(suite.horizons)},
        "predictor": {name: number for number, name in enumerate(suite.predictors)},
        "attention": {name: number for number, name in enumerate(["", *suite.attentions])},
    }

    def rank(entry: Entry) -> tuple[int, ...]:
        ranks = {name: table[getattr(entry, name)] for name, table in places.items()}
        ranks["seed"] = suite.first_seed if entry.seed is None else entry.seed  # what draws nothing is run once, early
        return tuple(ranks[name] for name in suite.order)

    return sorted(entries, key=rank)
