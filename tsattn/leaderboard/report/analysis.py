"""All that a report says, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from tsattn.errors import UserError
from tsattn.leaderboard.comparisons import by_block_length, compare_all, confirm
from tsattn.leaderboard.mean_comparisons import MeanPair, compare_means
from tsattn.leaderboard.rank_tests import Ranking, rankings
from tsattn.leaderboard.report.parts import ReportFigure
from tsattn.leaderboard.report.published import PublishedScores
from tsattn.leaderboard.report.wording import listed, percent
from tsattn.leaderboard.standings import RIDGE, STANDARD, RankedArm, Standings
from tsattn.leaderboard.summaries import ROLLING, choices, comparable, horizon_means, scores

__all__ = ["Analysis"]


@dataclass(frozen=True)
class Analysis:
    """A board, and what follows from it.

    Attributes:
        board: what was run.
        published: numbers of others.
        fresh_seeds: those that confirm and have no part in what is found; none for no confirmation.
        pictures: of forecasts.
        why_no_pictures: a sentence, where there are none.
        origins: errors on rolling origins, from `tsattn.leaderboard.origins.read_origins`; None for none.
        resamples: of the bootstrap, by default those of `compare_all`.
    """

    board: Standings
    published: Sequence[PublishedScores] = ()
    fresh_seeds: Sequence[int] = ()
    pictures: Sequence[ReportFigure] = ()
    why_no_pictures: str = ""
    origins: pd.DataFrame | None = None
    resamples: int | None = None

    @cached_property
    def deciding(self) -> Standings:
        """The board without the fresh seeds, of which all is but their confirmation."""
        return self.board.without(self.fresh_seeds)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """See `tsattn.leaderboard.summaries.scores`."""
        return scores(self.deciding)

    @cached_property
    def means(self) -> pd.DataFrame:
        """See `horizon_means`."""
        return horizon_means(self.deciding, self.scores)

    @cached_property
    def choices(self) -> pd.DataFrame:
        """See `tsattn.leaderboard.summaries.choices`."""
        return choices(self.deciding, self.means, self.compared_origins)

    @cached_property
    def recorded_origins(self) -> pd.DataFrame | None:
        """The rows of `origins` of experiments that are among the records: those of others, or of nobody knows which,
        say nothing of an arm that has the same name.
        """
        if self.origins is None:
            return None
        names = ["dataset", "horizon", "predictor", "attention", "key"]
        known = {*self.board.done[names].itertuples(index=False, name=None)}
        rows = self.origins[names].itertuples(index=False, name=None)
        return self.origins[np.array([row in known for row in rows], bool)]

    @cached_property
    def compared_origins(self) -> pd.DataFrame | None:
        """Those of them that can be compared, see `tsattn.leaderboard.summaries.comparable`."""
        return None if self.recorded_origins is None else comparable(self.recorded_origins)

    @cached_property
    def comparisons(self) -> pd.DataFrame:
        """See `compare_all`."""
        return self._found[0]

    @cached_property
    def by_block_length(self) -> pd.DataFrame:
        """See `tsattn.leaderboard.comparisons.by_block_length`."""
        return by_block_length(self.board, self.comparisons, without=self.fresh_seeds, resamples=self.resamples)

    @cached_property
    def chosen_means(self) -> pd.DataFrame:
        """What `compare_means` says of the arms that validation and rolling origins chose among those that hold a
        trained attention, beside standard attention of the same predictor and the ridge. A mean over one horizon has
        the corrected p-value and the verdict that the comparison at that horizon has in `comparisons`.
        """
        pairs = []
        known = {(name, arm) for name, horizon in self.deciding.tables for arm in self.deciding.arms_of(name, horizon)}
        for dataset in self.deciding.datasets:
            for by in ("validation", ROLLING):
                best = self.chosen(dataset, by=by)
                if best is None:
                    continue
                arm = RankedArm(best["predictor"], best["attention"])
                for reference in (RankedArm(arm.predictor, STANDARD), RankedArm(RIDGE)):
                    if reference != arm and (dataset, reference) in known:
                        pairs.append(MeanPair(dataset, arm, reference))
        means = compare_means(self.deciding, pairs, self.resamples)
        for place, row in means.iterrows():
            same = self._compared(row["dataset"], RankedArm(row["predictor"], row["attention"]), row["against"])
            same = same[same["horizon"].isin(row["horizons"])]
            if len(row["horizons"]) == 1 == len(same):
                for name in ("holm", "detectable", "percent_detectable", "verdict"):
                    means.loc[place, name] = same.iloc[0][name]
        return means

    @cached_property
    def confirmation(self) -> pd.DataFrame | None:
        """The second of `confirm`; None where no seeds are there for it."""
        return self._found[1]

    @cached_property
    def rankings(self) -> Sequence[Ranking] | str:
        """See `tsattn.leaderboard.rank_tests.rankings`; a sentence where their package is not installed."""
        try:
            return rankings(self.deciding, self.scores)
        except UserError as error:
            return f"{error}."

    def chosen(self, dataset: str, among: str = "attention", by: str = "validation") -> pd.Series | None:
        """The row of `choices`; None where there is none."""
        found = self.choices
        own = found[(found["dataset"] == dataset) & (found["among"] == among) & (found["by"] == by)]
        return own.iloc[0] if len(own) else None

    def mean_of(self, dataset: str, arm: RankedArm) -> pd.Series | None:
        """The row of `means`; None where there is none."""
        own = self.means[self.means["dataset"] == dataset]
        own = own[(own["predictor"] == arm.predictor) & (own["attention"] == arm.attention)]
        return own.iloc[0] if len(own) else None

    def verdict(self, dataset: str, arm: RankedArm, against: str) -> str:
        """What an arm is beside another over all horizons of a data set: ``tie``, or ``better at 96, 336``, after which
        ``(another loss)`` says that the two were trained by different ones, and at which horizons nothing can be told
        (``one seed at 192, no interval at 720``); nothing where they were not compared.

        Args:
            dataset: of the comparisons.
            arm: what is compared.
            against: ``standard`` or ``ridge``.
        """
        own = self._compared(dataset, arm, against)
        parts = []
        for word in ("better", "worse"):
            found = own[own["verdict"] == word]
            loss = " (another loss)" if found["is_other_loss"].any() else ""
            if len(found) == len(own) > 1:
                parts.append(f"{word} throughout{loss}")
            elif len(found):
                parts.append(f"{word} at {_horizons(found)}{loss}")
        parts = ["; ".join(parts) or ("tie" if (own["verdict"] == "tie").any() else "")]
        for word in ("one seed", "no interval"):
            found = own[own["verdict"] == word]
            parts.append(f"{word} at {_horizons(found)}" if len(found) else "")
        return ", ".join(filter(None, parts))

    def mean_verdict(self, dataset: str, arm: RankedArm, against: str) -> str:
        """What the mean over horizons of a chosen arm is beside another: ``better``, ``worse``, ``tie``, after which
        ``(another loss)`` says that the two were trained by different ones, and at which horizons nothing can be told,
        which are not in that mean: ``tie (−1.2 % over the other horizons), no interval at 720``. Nothing of what is not
        among `chosen_means`.
        """
        found = self.chosen_means
        own = found[(found["dataset"] == dataset) & (found["against"] == against)]
        own = own[(own["predictor"] == arm.predictor) & (own["attention"] == arm.attention)]
        if not len(own):
            return ""
        row = own.iloc[0]
        notes = ["another loss"] if row["is_other_loss"] and row["verdict"] in ("better", "worse") else []
        notes += [f"{percent(row['percent'])} over the other horizons"] if row["undecided"] else []
        parts = [f"{row['verdict']}{f' ({listed(notes)})' if notes else ''}"] if pd.notna(row["p"]) else []
        parts += [f"{why} at {', '.join(map(str, where))}" for why, where in row["undecided"].items()]
        return ", ".join(parts)

    @cached_property
    def mixes(self) -> frozenset[str]:
        """The predictors whose trained member has a part of the weight alone."""
        weights = self.scores["weight"].astype("float64")
        return frozenset(self.scores.loc[(weights > 0) & (weights < 1), "predictor"])

    @cached_property
    def against_standard(self) -> pd.DataFrame:
        """The comparisons of attentions, without ablations, with standard attention."""
        found = self.comparisons[self.comparisons["against"] == STANDARD]
        holds = [self.board.has_attention(RankedArm("", name)) for name in found["attention"]]
        return found[np.array(holds, bool)]

    def _compared(self, dataset: str, arm: RankedArm, against: str) -> pd.DataFrame:
        """The comparisons of two arms in MSE, a row a horizon."""
        found = self.comparisons
        found = found[(found["dataset"] == dataset) & (found["against"] == against) & (found["metric"] == "mse")]
        return found[(found["predictor"] == arm.predictor) & (found["attention"] == arm.attention)]

    @cached_property
    def _found(self) -> tuple[pd.DataFrame, pd.DataFrame | None]:
        if self.fresh_seeds:
            return confirm(self.board, self.fresh_seeds, self.resamples)
        return compare_all(self.board, resamples=self.resamples), None


def _horizons(compared: pd.DataFrame) -> str:
    return ", ".join(map(str, compared["horizon"]))
