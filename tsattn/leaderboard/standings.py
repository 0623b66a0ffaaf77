"""Records as a board: arms, their runs, and what these came to in each table of one data set and horizon."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.backbones.ridge_solution import ALPHA
from tsattn.errors import UserError
from tsattn.leaderboard.attention_share import is_ablation
from tsattn.leaderboard.experiment_text import backbone_of, experiment_content
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.run_record import called_twice
from tsattn.leaderboard.same_data import check_same_data
from tsattn.predictors.ridge import ridge_label

__all__ = ["METRICS", "RIDGE", "STANDARD", "OriginErrors", "RankedArm", "Standings"]

METRICS = {"mse": "squared", "mae": "absolute"}
"""The scores that are compared, and the column of errors by window that each is the mean of."""

RIDGE, STANDARD = "ridge", "standard"
_NAMES = ["dataset", "horizon", "predictor", "attention"]


@dataclass(frozen=True, order=True)
class RankedArm:
    """What is ranked: a predictor with an attention, or one that has none.

    Attributes:
        predictor: the name of the predictor in its suite.
        attention: its name in the suite; empty where there is none.
    """

    predictor: str
    attention: str = ""

    def __str__(self) -> str:
        """``patchtst, mlr``."""
        return f"{self.predictor}, {self.attention}" if self.attention else self.predictor


@dataclass(frozen=True)
class OriginErrors:
    """Errors of runs on the same test windows, summed over the windows that start at one time.

    Attributes:
        sums: `(S, n)` for each run and origin.
        counts: `(n,)` observed targets.
        origins: `(n,)` in rising order.
    """

    sums: NDArray[np.float64]
    counts: NDArray[np.float64]
    origins: NDArray[np.int64]

    def has_windows_of(self, other: OriginErrors) -> bool:
        """Whether the other runs were tested on the same windows."""
        return np.array_equal(self.origins, other.origins) and np.array_equal(self.counts, other.counts)


class Standings:
    """What was run, by data set, horizon and arm.

    Args:
        records: of one suite or several.

    Attributes:
        suites: what the records say of suites besides their runs, by name.
        entries: a row an entry of the records, with what failed and what does not apply.
        done: those that are done.

    Raises:
        UserError: if two different experiments, or the data of two suites, are called the same, as none says which of
            them is meant.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self.suites = records.suites
        self.entries = records.frame
        done = self.entries[self.entries["status"] == "done"]
        # suites may share a run
        self.done = done.drop_duplicates([*_NAMES, "seed", "key"]).reset_index(drop=True)
        twice = self.done[self.done.duplicated([*_NAMES, "seed"])]
        if len(twice):
            raise called_twice({str(name): value for name, value in twice.iloc[0].items()})
        check_same_data(done)

    @cached_property
    def datasets(self) -> list[str]:
        """All that anything was planned for, also where nothing was run yet; ETT first as everybody lists them."""
        planned = {name for facts in self.suites.values() for name, count in facts.planned.items() if count}
        known = planned | {str(name) for name in self.entries["dataset"].unique()}
        return sorted(known, key=lambda name: (not name.startswith("ETT"), name))

    @cached_property
    def tables(self) -> list[tuple[str, int]]:
        """Data set and horizon of all that is done, in the order of `datasets`."""
        known = {(str(name), int(horizon)) for name, horizon in self.done[["dataset", "horizon"]].to_numpy()}
        return sorted(known, key=lambda table: (self.datasets.index(table[0]), table[1]))

    @cached_property
    def arms(self) -> list[RankedArm]:
        """All that are done anywhere: those with an attention first, standard attention before the others."""
        known = {RankedArm(*names) for names in self.done[["predictor", "attention"]].itertuples(index=False)}
        return sorted(
            known,
            key=lambda arm: (not arm.attention, arm.predictor, self.is_ablation(arm), arm.attention != STANDARD, arm),
        )

    def is_ablation(self, arm: RankedArm) -> bool:
        """Whether its attention is none."""
        # before a suite's records said of which kind it is, it was by its name
        found = {kind for facts in self.suites.values() for kind in facts.kinds.get(arm.attention, ())}
        return is_ablation(found or {arm.attention})

    def has_attention(self, arm: RankedArm) -> bool:
        """Whether it holds an attention that looks at what tokens hold."""
        return bool(arm.attention) and not self.is_ablation(arm)

    def label(self, arm: RankedArm, dataset: str, horizon: int | None = None) -> str:
        """Name of an arm in a table; a ridge says its context and penalty, in which ridges of other tables differ.

        Args:
            arm: what is ranked.
            dataset: of the table.
            horizon: of the table; None for all.
        """
        done = self.done
        own = done[(done["dataset"] == dataset) & (done["predictor"] == arm.predictor) & (done["attention"] == "")]
        own = own if horizon is None else own[own["horizon"] == horizon]
        own = own[own["parameters"] > 0]
        backbone: Mapping[str, Any] = backbone_of(own["experiment"].iloc[0]) if len(own) else {"kind": ""}
        if arm.attention or backbone["kind"] != RIDGE:
            return str(arm)
        contexts = (own["parameters"] / own["horizon"]).round().astype(int)
        return ridge_label(contexts, backbone.get("alpha", ALPHA), arm.predictor)

    def without_attention(self, arm: RankedArm) -> str:
        """What is left of an arm without the member that holds its attention: ``ridge`` of a mix of PatchTST and
        ridge; nothing of one alone.
        """
        if not arm.attention:
            return ""
        known = (facts.without[arm.predictor] for facts in self.suites.values() if arm.predictor in facts.without)
        # before a suite's records said so, the name of a mix did
        return next(known, arm.predictor.partition("+")[2])

    def without(self, seeds: Collection[int]) -> Standings:
        """The board of all that was run but some seeds."""
        return Standings(self._records.without_seeds(seeds)) if seeds else self

    def horizons(self, dataset: str) -> list[int]:
        """Those of a data set at which anything was planned, whether or not it is done."""
        planned = {horizon for facts in self.suites.values() for horizon in facts.horizons.get(dataset, ())}
        return sorted(
            planned | {int(value) for value in self.entries.loc[self.entries["dataset"] == dataset, "horizon"]}
        )

    def arms_of(self, dataset: str, horizon: int) -> list[RankedArm]:
        """Those that are done in a table."""
        return [arm for arm in self.arms if (dataset, horizon, arm) in self._rows]

    def runs(self, dataset: str, horizon: int, arm: RankedArm) -> pd.DataFrame:
        """The rows of an arm in a table, a row a seed; none where it was not run."""
        return self.done.iloc[self._rows.get((dataset, horizon, arm), [])]

    def loss(self, dataset: str, horizon: int, arm: RankedArm) -> str:
        """What an arm was trained by in a table: ``mae``; empty of one that is fitted in closed form, or not there."""
        runs = self.runs(dataset, horizon, arm)
        return " and ".join(sorted({_loss(text) for text in runs.loc[runs["seed"].notna(), "experiment"]} - {""}))

    def origin_errors(self, keys: Sequence[str], metric: str) -> OriginErrors:
        """Errors of runs on the same windows.

        Args:
            keys: S of them.
            metric: one of `METRICS`.

        Raises:
            UserError: if they were tested on different windows.
        """
        runs = [self._collapsed(key, METRICS[metric]) for key in keys]
        for key, run in zip(keys, runs, strict=True):
            if not run.has_windows_of(runs[0]):
                raise UserError(f"runs of one arm were tested on different windows: the keys {keys[0]} and {key}")
        return OriginErrors(np.concatenate([run.sums for run in runs]), runs[0].counts, runs[0].origins)

    @cached_property
    def _rows(self) -> dict[tuple[str, int, RankedArm], list[int]]:
        rows: dict[tuple[str, int, RankedArm], list[int]] = {}
        for number, (dataset, horizon, *names) in enumerate(self.done[_NAMES].itertuples(index=False, name=None)):
            rows.setdefault((dataset, int(horizon), RankedArm(*names)), []).append(number)
        return rows

    def _collapsed(self, key: str, column: str) -> OriginErrors:
        """One run."""
        windows = self._records.windows(key)
        origins, places = np.unique(windows["origin"].to_numpy(np.int64), return_inverse=True)
        sums, counts = (
            np.bincount(places, windows[name], len(origins)).astype(np.float64) for name in (column, "count")
        )
        return OriginErrors(sums[None], counts, origins)


def _loss(experiment: str) -> str:
    """That of an experiment, by its text."""
    return str(experiment_content(experiment).get("model", {}).get("loss") or "")
