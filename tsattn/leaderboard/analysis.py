"""Scores, differences and answers from records: everything that a page, a figure or a table shows.

A *model* is a predictor with an attention, ``patchtst, mlr``, or without one, ``ridge``. On each data set attentions
of one predictor are *shown*, and compared with ``standard``, their *reference*. Where no predictor has several
attentions, all models are compared with the linear one. Errors are means over seeds and horizons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tsattn.descriptions import parsed
from tsattn.errors import UserError
from tsattn.leaderboard.published import Published
from tsattn.leaderboard.records import LABELS, Records, stretch_of
from tsattn.leaderboard.statistics import (
    Claim,
    Difference,
    ModelErrors,
    difference,
    holm,
    over_data_sets,
    seed_variance,
)
from tsattn.leaderboard.suite import Question, Suite, label
from tsattn.predictors.ridge import ridge_label

STANDARD = "standard"
METRICS = ("mse", "mae")
LINEAR = ("ridge", "dlinear", "nlinear")
"""Kinds of linear models, the one to compare with first; a mean of linear models is one, too."""
NAIVE = ("persistence", "seasonal_naive", "window_mean")
"""Kinds of forecasts that learn nothing."""
_FIXED = ("identity", "uniform", "fixed_mixing")  # they look at no token, so there is nothing to train
FEWEST_SETS = 3  # a mean over two data sets has an interval too wide to say anything
_MEANS = ("mse", "mae", "mase", "validation_mse", "parameters", "seconds")


@dataclass(frozen=True)
class Pair:
    """A model compared with the reference on one data set.

    Attributes:
        dataset: its name.
        model: the compared model.
        against: the reference.
        horizon: None for the mean over all.
        mse: difference of the MSE.
        mae: difference of the MAE.
        margin: differences below it count as equal.
    """

    dataset: str
    model: str
    against: str
    horizon: int | None
    mse: Difference
    mae: Difference
    margin: float

    @property
    def verdict(self) -> str:
        """The verdict on the MSE."""
        return self.mse.verdict(self.margin)


@dataclass(frozen=True)
class Answer:
    """The answer of the records to a question.

    Attributes:
        question: of a suite, or one that no suite poses.
        data: the data sets that have all models of the question.
        estimate: a difference for one data set, a claim for several; None without a data set.
        corrected: the p-value after Holm's correction; None for exploration.
        margin: differences below it count as equal.
    """

    question: Question
    data: tuple[str, ...]
    estimate: Difference | Claim | None
    corrected: float | None = None
    margin: float = 0.01

    @property
    def verdict(self) -> str:
        """The verdict; ``undecided`` if Holm's correction leaves open what the interval alone decides."""
        verdict = "undecided" if self.estimate is None else self.estimate.verdict(self.margin)
        is_open = self.corrected is not None and not self.corrected < 0.05
        return "undecided" if is_open and verdict in ("better", "worse") else verdict


class Analysis:
    """Analysis of the records of one suite or several suites.

    Args:
        records: of runs.
        published: numbers that others published.

    Raises:
        UserError: if no run is done, or suites call different runs by the same name.
    """

    def __init__(self, records: Records, published: Iterable[Published] = ()) -> None:
        runs = records.done
        if runs.empty:
            raise UserError("no run of these records is done; run `benchmark` first")
        if (twice := runs[runs.duplicated([*LABELS])]).size:
            row = twice.iloc[0]
            name = label(row["predictor"], row["attention"])
            raise UserError(f"two runs are called {name} on {row['dataset']}; report their suites one at a time")
        self.records = records
        self.suites = {name: Suite.of(name, text) for name, text in records.suites.items()}
        names = list(zip(runs["predictor"], runs["attention"], strict=True))
        models = [label(*pair) for pair in names]
        self.parts = dict(zip(models, names, strict=True))
        self.runs = runs.assign(model=models)
        self._published = list(published)
        self._errors: dict[tuple[str, int, str, str], ModelErrors] = {}

    @cached_property
    def datasets(self) -> tuple[str, ...]:
        """Names of the data sets, in the order of the suites."""
        return _ordered(self.runs["dataset"], (name for suite in self.suites.values() for name in suite.data))

    @cached_property
    def models(self) -> Mapping[str, tuple[str, ...]]:
        """The models of each data set, in the order of its suite."""
        listed = [name for suite in self.suites.values() for name in suite.models]
        by_dataset = self.runs.groupby("dataset")["model"]
        return {name: _ordered(by_dataset.get_group(name), listed) for name in self.datasets}

    @cached_property
    def kinds(self) -> Mapping[str, tuple[str, ...]]:
        """The kinds of predictor that a model is made of, and then the kinds of its attention."""
        first = self.runs.drop_duplicates("model")
        texts = zip(first["model"], first["experiment"], strict=True)
        return {model: tuple(_kinds(parsed(text)["model"]["backbone"])) for model, text in texts}

    def suite_of(self, dataset: str) -> Suite | None:
        """The suite that a data set was run for."""
        return self.suites.get(self.runs.loc[self.runs["dataset"] == dataset, "suite"].iloc[0])

    def margin(self, datasets: Iterable[str]) -> float:
        """The margin on these data sets, the narrowest of their suites: differences below it count as equal."""
        suites = filter(None, map(self.suite_of, datasets))
        return min((suite.margin for suite in suites), default=0.01)

    @cached_property
    def shown(self) -> Mapping[str, tuple[str, ...]]:
        """By data set, the models that are compared, the reference first.

        These are the attentions of the first predictor with several, or else the linear model and all others that learn
        something.
        """
        found = {}
        for name in self.datasets:
            linear = self.linear(name)
            others = [one for one in self._scored(name) if one != linear and one not in self.naive(name)]
            found[name] = self._attentions[name] or ((linear, *others) if linear else ())
        return found

    @cached_property
    def _attentions(self) -> Mapping[str, tuple[str, ...]]:
        found = {}
        for dataset in self.datasets:
            by_predictor: dict[str, list[str]] = {}
            for model in self.models[dataset]:
                if self._is_trained(model):
                    by_predictor.setdefault(self.parts[model][0], []).append(model)
            several = [models for models in by_predictor.values() if len(models) > 1]
            models = next(iter(several), [])
            found[dataset] = tuple(sorted(models, key=lambda model: self.parts[model][1] != STANDARD))
        return found

    def label(self, dataset: str, model: str) -> str:
        """The name of a model; a ridge is named with its context: ``ridge (context 104)``."""
        if self.kinds[model] != ("ridge",):
            return model
        runs = self.runs[(self.runs["dataset"] == dataset) & (self.runs["model"] == model)]
        contexts = runs["context_length"].dropna().astype(int)  # a run that failed early has none
        return model if contexts.empty else ridge_label(contexts, model)

    def short(self, model: str) -> str:
        """The short name of a shown model: its attention, or the whole name if no attentions are compared."""
        return self.parts[model][1] if any(model in models for models in self._attentions.values()) else model

    @cached_property
    def horizons(self) -> Mapping[str, tuple[int, ...]]:
        """By data set, the horizons at which its reference attention was run; all if it has none."""
        found = {}
        for name in self.datasets:
            models = self._attentions[name][:1] or self.models[name]
            runs = self.runs[(self.runs["dataset"] == name) & self.runs["model"].isin(models)]
            found[name] = tuple(sorted(map(int, runs["horizon"].unique())))
        return found

    @cached_property
    def _runs_of(self) -> Mapping[tuple[str, int, str], Sequence[tuple[int | None, str]]]:
        """Seed and key of each run, by data set, horizon and model."""
        found: dict[tuple[str, int, str], list[tuple[int | None, str]]] = {}
        columns = ["dataset", "horizon", "model", "seed", "key"]
        for dataset, horizon, model, seed, key in self.runs[columns].itertuples(index=False):
            found.setdefault((dataset, int(horizon), model), []).append((None if pd.isna(seed) else int(seed), key))
        return found

    @cached_property
    def by_horizon(self) -> pd.DataFrame:
        """A row for each data set, model and horizon: means over seeds, and the number of ``seeds``."""
        keys = ["dataset", "model", "horizon"]
        runs = self.runs.astype(dict.fromkeys(_MEANS, float))
        grouped = runs.groupby(keys, sort=False)
        return grouped[[*_MEANS]].mean().assign(seeds=grouped.size()).reset_index()

    @cached_property
    def scores(self) -> pd.DataFrame:
        """A row for each data set and model: means over seeds and horizons; no row for a model that lacks a horizon."""
        parts = []
        for name in self.datasets:
            horizons = self.horizons[name]
            own = self.by_horizon[(self.by_horizon["dataset"] == name) & self.by_horizon["horizon"].isin(horizons)]
            grouped = own[own.groupby("model")["horizon"].transform("size") == len(horizons)].groupby("model")
            means = grouped[[*_MEANS]].mean().assign(seeds=grouped["seeds"].min(), most_seeds=grouped["seeds"].max())
            parts.append(means.reindex([one for one in self.models[name] if one in means.index]).assign(dataset=name))
        return pd.concat(parts).reset_index().set_index(["dataset", "model"])

    def score(self, dataset: str, model: str, column: str = "mse") -> float:
        """A mean over seeds and horizons; NaN if a horizon is missing."""
        return float(self.scores[column].get((dataset, model), math.nan))

    def linear(self, dataset: str) -> str | None:
        """The linear model to compare with: the ridge, or without one another linear model.

        If there are several, validation chooses.
        """
        kinds = {name: self.kinds[name] for name in self.models[dataset]}
        linear = [name for name, own in kinds.items() if {*LINEAR} & {*own} and {*own} <= {*LINEAR, "ensemble", "auto"}]
        alone = ([name for name in linear if kinds[name] == (kind,)] for kind in LINEAR)
        return self.lowest(dataset, "validation_mse", next(filter(None, alone), linear).__contains__)

    def naive(self, dataset: str) -> tuple[str, ...]:
        """The forecasts that learn nothing."""
        return tuple(one for one in self._scored(dataset) if set(self.kinds[one]) <= set(NAIVE))

    def chosen(self, dataset: str, *, attention: bool = False) -> str | None:
        """The model with the lowest validation MSE, among all or among those with a trained attention."""
        return self.lowest(dataset, "validation_mse", self._is_trained if attention else None)

    def _is_trained(self, model: str) -> bool:
        """Whether a model has an attention that looks at tokens."""
        return bool(self.parts[model][1]) and not set(_FIXED) & set(self.kinds[model])

    def _scored(self, dataset: str) -> list[str]:
        return list(self.scores.loc[dataset].index) if dataset in self.scores.index else []

    def lowest(self, dataset: str, column: str, fits: Callable[[str], bool] | None = None) -> str | None:
        """The model with the lowest score among those that fit and have all horizons; None without one."""
        values = {one: self.score(dataset, one, column) for one in self._scored(dataset) if fits is None or fits(one)}
        values = {one: value for one, value in values.items() if not math.isnan(value)}
        return min(values, key=values.__getitem__, default=None)

    def published(self, dataset: str) -> list[tuple[Published, float, float]]:
        """Published numbers with mean MSE and MAE over a data set's horizons: complete tests first, then by MSE."""
        horizons = self.horizons[dataset]
        found = [(one, *one.mean(horizons)) for one in self._published if one.dataset == dataset]
        return sorted(
            (one for one in found if not math.isnan(one[1])), key=lambda one: (not one[0].complete_test, one[1])
        )

    def lowest_published(self, dataset: str) -> tuple[Published, float, float] | None:
        """The lowest published mean MSE over all horizons of a data set and all its test windows."""
        return next((one for one in self.published(dataset) if one[0].complete_test), None)

    def difference(
        self,
        dataset: str,
        models: Sequence[str],
        against: str,
        metric: str = "mse",
        horizons: Sequence[int] | None = None,
        alike: Collection[str] = (),
    ) -> Difference:
        """Compare the mean log error of models with another model's; if that is impossible, return only a reason.

        Args:
            dataset: its name.
            models: compared models, all with the same weight.
            against: the model that they are compared with.
            metric: ``mse`` or ``mae``.
            horizons: all of the data set by default.
            alike: more models for the seed variance; by default all models of the same predictors, or all shown models
                if no predictor has several attentions.
        """
        weights = {against: -1.0} | dict.fromkeys(models, 1 / len(models))
        chosen = self.horizons[dataset] if horizons is None else horizons
        blank = Difference(estimate=math.nan, blocks=0, seeds=0)
        for horizon in chosen:
            if lacking := [one for one in weights if (dataset, horizon, one) not in self._runs_of]:
                return replace(blank, reason=f"{lacking[0]} has no runs on {dataset} at horizon {horizon}")
        predictors = {self.parts[one][0] for one in weights}
        if not alike and self._attentions[dataset]:
            alike = [one for one in self.models[dataset] if self.parts[one][0] in predictors]
        names = [*dict.fromkeys([*(alike or self.shown[dataset]), *weights])]
        try:
            tables = [self._table(dataset, horizon, metric, names) for horizon in chosen]
            variances = [seed_variance(table) for table in tables]
            if not all(one.df for one in variances):  # another horizon lends its variance
                others = (self._table(dataset, horizon, metric, names) for horizon in self.horizons[dataset])
                known = next((one for one in map(seed_variance, others) if one.df), variances[0])
                variances = [one if one.df else known for one in variances]
            lengths = [math.ceil(horizon / stretch_of(horizon)) for horizon in chosen]
            found = difference(tables, weights, horizons=lengths, variances=variances)
            few = f"{dataset} has too few test windows for two blocks at horizon {max(chosen)}"
            return replace(found, reason=few) if found.blocks < 2 else found  # the reason counts steps, not stretches
        except UserError as error:
            return replace(blank, reason=str(error))

    def _table(self, dataset: str, horizon: int, metric: str, models: Collection[str]) -> dict[str, ModelErrors]:
        found = {}
        for model in models:
            runs = self._runs_of.get((dataset, horizon, model))
            place = dataset, horizon, metric, model
            if runs is not None and place not in self._errors:
                parts = [self.records.errors(key, metric) for _, key in runs]
                _, counts, origins = parts[0]
                if not all(np.array_equal(one[1], counts) and np.array_equal(one[2], origins) for one in parts):
                    raise UserError(f"seeds of {model} were tested on different windows; run it again")
                sums = np.stack([one[0] for one in parts])
                self._errors[place] = ModelErrors(sums, counts, origins, tuple(seed for seed, _ in runs))
            if runs is not None:
                found[model] = self._errors[place]
        return found

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Each shown model against the reference, on each data set: over all horizons, then at each."""
        found = []
        for dataset in self.datasets:
            reference, *others = self.shown[dataset] or ("",)
            horizons = self.horizons[dataset]
            for model in others:
                for horizon in (None, *horizons) if len(horizons) > 1 else (None,):
                    only = horizons if horizon is None else [horizon]
                    mse, mae = (self.difference(dataset, [model], reference, metric, only) for metric in METRICS)
                    found.append(Pair(dataset, model, reference, horizon, mse, mae, self.margin([dataset])))
        return tuple(found)

    @cached_property
    def means(self) -> tuple[Pair, ...]:
        """The pairs over all horizons, on the data sets whose reference is the most common one."""
        pairs = [pair for pair in self.pairs if pair.horizon is None]
        references = {pair.dataset: self.parts[pair.against][1] for pair in pairs}
        usual = max(names := [*references.values()], key=names.count, default="")
        return tuple(pair for pair in pairs if references[pair.dataset] == usual)

    @cached_property
    def claims(self) -> Mapping[str, tuple[Claim, str]]:
        """By short name, the mean difference in MSE from the reference over at least three data sets, and the verdict.

        If a suite asked for it before the runs, it is the answer: over the data sets of the question, and corrected.
        """
        asked = {
            (*one.question.models, one.question.against): (one.estimate, one.verdict)
            for one in self.answers
            if isinstance(one.estimate, Claim) and len(one.data) >= FEWEST_SETS and one.question.posed_before
            if (one.question.metric, one.question.data, one.question.horizons) == ("mse", None, None)
        }
        by_attention: dict[str, list[Pair]] = {}
        for pair in self.means:
            if not math.isnan(pair.mse.estimate):
                by_attention.setdefault(self.short(pair.model), []).append(pair)
        found = {}
        for name, pairs in by_attention.items():
            answers = [asked[key] for pair in pairs if (key := (pair.model, pair.against)) in asked]
            if answers:
                found[name] = answers[0]
            elif len(pairs) >= FEWEST_SETS:
                claim = over_data_sets({pair.dataset: pair.mse for pair in pairs}, self.sources)
                found[name] = claim, claim.verdict(self.margin(self.datasets))
        return found

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """The source of each data set, as its suite names it."""
        return {name: suite.data[name].source for name in self.datasets if (suite := self.suite_of(name)) is not None}

    @cached_property
    def answers(self) -> tuple[Answer, ...]:
        """Answers to the suites' questions: first questions posed before the runs, corrected for each other."""
        asked: dict[Question, tuple[str, ...]] = {}
        for suite in self.suites.values():
            for question in suite.questions:
                own = question.data or tuple(suite.data if question.posed_before else self.datasets)
                asked[question] = (*asked.get(question, ()), *(one for one in own if one in self.datasets))
        answers = [self._answer(question, dict.fromkeys(data)) for question, data in asked.items()]
        before = [one for one in answers if one.question.posed_before]
        p_values = [math.nan if one.estimate is None else one.estimate.p_value for one in before]
        corrected = [replace(one, corrected=float(p)) for one, p in zip(before, holm(p_values), strict=True)]
        return (*corrected, *(one for one in answers if not one.question.posed_before))

    def _answer(self, question: Question, data: Iterable[str]) -> Answer:
        needed = {*question.models, question.against}
        found = {}
        for one in data:
            horizons = [step for step in self.horizons[one] if question.horizons is None or step in question.horizons]
            if horizons and needed <= set(self.models[one]):
                found[one] = self.difference(one, question.models, question.against, question.metric, horizons)
        there = tuple(found)
        estimate: Difference | Claim | None = None
        if found:
            estimate = over_data_sets(found, self.sources) if len(found) > 1 else found[there[0]]
        return Answer(question, there, estimate, margin=self.margin(there))

    @cached_property
    def failed(self) -> pd.DataFrame:
        """Runs that failed: labels and ``reason``."""
        frame = self.records.frame
        return frame.loc[frame["status"] == "failed", ["suite", *LABELS, "reason"]].drop_duplicates()


def _ordered(names: Iterable[str], listed: Iterable[str]) -> tuple[str, ...]:
    """Names without repetition: first the listed ones in their order, then the others."""
    own = dict.fromkeys(names)
    return tuple(dict.fromkeys([*(name for name in listed if name in own), *own]))


def _kinds(described: Any) -> Iterable[str]:
    """The kinds in a description: of its predictor, its members and their attentions."""
    if isinstance(described, str):
        yield described
    elif isinstance(described, list):
        for part in described:
            yield from _kinds(part)
    elif isinstance(described, Mapping):
        yield str(described.get("kind"))
        yield from _kinds(described.get("members"))
        yield from _kinds(described.get("attention"))
