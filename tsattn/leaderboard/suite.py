"""A suite: a grid of experiments, and the questions that it is to answer, as YAML.

::

    data:
      - ETTh1                           # a public data set
      - {name: weather, seeds: 2, values: {data.batch_size: 24}}
      - {name: shops, class_path: CSVDataModule, init_args: {path: shops.csv, target: [sales]}}
    horizons: [96, 336, 192, 720]       # the most important first
    seeds: {96: 5, 336: 5, 192: 3, 720: 3}   # or one number
    values: {data.context_length: 512}  # of all experiments, by their dotted paths
    attentions:
      standard: standard                # a kind, or a description
      mlr: {kind: mlr, ranks: [2, 2]}
      wide: {attention: {kind: mlr, ranks: [2, 2]}, by_data: {weather: {kind: mlr, ranks: [4, 4]}}}
    predictors:
      ridge: ridge                      # a kind, or an import path
      patchtst:
        backbone: {kind: patchtst, d_model: 16}
        values: {model.learning_rate: 0.001}
        by_data: {weather: {trainer.max_steps: 800}}
        attentions: [standard, mlr]     # all by default; `none` leaves the description as it is
      patchtst+ridge:
        mix: {of: [patchtst, ridge], weights: [0.5, 0.5]}   # `seeds: 5` is the mean of five trainings
    questions:                          # written before the suite runs
      - {ask: "Does mlr help?", models: ["patchtst, mlr"], against: "patchtst, standard"}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import yaml

from tsattn.data.public.cards import card_of
from tsattn.descriptions import Description, parsed
from tsattn.errors import UserError, did_you_mean, is_whole_number, one_line, one_of, shown, whole_number
from tsattn.experiments.configs import full_path

ORDER = ("seed", "horizon", "dataset", "predictor", "attention")
"""Default order of the runs; what changes least comes first."""

_SET_BY_SUITE = "model.backbone model.backbone.kind data.class_path data.init_args.prediction_length seed_everything"

_LIMITS = {
    "horizons": "only at these horizons of the suite",
    "seeds": "at most so many seeds; a number, or one for each horizon",
    "data": "only on these data sets of the suite",
    "predictors": "only with these predictors of the suite",
    "attentions": "only with these attentions of the suite",
}


def _limits_but(own: str) -> dict[str, str]:
    return {key: text for key, text in _LIMITS.items() if key != own}


KEYS = {
    "Keys": {
        "data": "list of data sets: the name of a public one, or a mapping (see below)",
        "horizons": "list of steps to forecast, the most important first",
        "seeds": "number of seeds, or a number for each horizon: `{96: 5, 720: 3}`; 1 by default",
        "predictors": "names of predictors, each with a kind, an import path, or a mapping (see below)",
        "attentions": "names of attentions, each with a kind, a description, or a mapping (see below)",
        "values": "values of all runs, by the dotted paths of a configuration: `{data.context_length: 512}`",
        "questions": "list of questions to answer (see below), written before the suite runs",
        "margin": "differences below it count as equal; 0.01 (1 %) by default",
        "first_seed": "number of the first seed; 1 by default",
        "caveats": "list of sentences that the report prints",
        "order": "order of the runs, what changes least first: list of seed, horizon, dataset, predictor and attention",
    },
    "A data set": {
        "name": "name of the data set; without `class_path`, of a public one",
        "class_path": "class that reads other data: `CSVDataModule`",
        "init_args": "its arguments: `{path: shops.csv, target: [sales]}`",
        "source": "where the data come from, by default their name; data sets of one source count as one in means",
        "values": "values of its runs, by dotted paths",
        **_limits_but("data"),
    },
    "A predictor": {
        "backbone": "description of the model; each attention takes its place there",
        "mix": "instead of `backbone`: an ensemble of other predictors of the suite, which are not trained again",
        "values": "values of its runs, by dotted paths",
        "by_data": "other values on one data set: `{weather: {trainer.max_steps: 800}}`",
        **_limits_but("predictors"),
        "attentions": "list of attentions to run it with, all by default; `none` leaves its description as it is",
    },
    "A mix": {
        "of": "list of predictors, by name",
        "weights": "list of numbers, or `validation`: by validation errors, as in `auto`; equal by default",
        "seeds": "number of trainings of each, which are averaged; 1 by default",
    },
    "An attention": {
        "attention": "kind or description",
        "by_data": "other description on one data set: `{weather: {kind: mlr, ranks: [4, 4]}}`",
        **_limits_but("attentions"),
    },
    "A question": {
        "ask": "question, a sentence",
        "models": "list of models whose mean is compared, such as `patchtst, mlr`",
        "against": "model that they are compared with",
        "metric": "`mse` or `mae`; `mse` by default",
        "data": "list of data sets; all by default",
        "horizons": "list of horizons; all by default",
        "posed": "`before` the runs, or `after` their results were seen; `before` by default",
    },
}
"""Keys of the YAML and their meaning, for the parser and for the reference."""


@dataclass(frozen=True)
class Limits:
    """Restrictions of a data set, a predictor or an attention; None restricts nothing."""

    horizons: tuple[int, ...] | None = None
    seeds: int | Mapping[int, int] | None = None
    data: tuple[str, ...] | None = None
    predictors: tuple[str, ...] | None = None
    attentions: tuple[str, ...] | None = None

    def most_seeds(self, dataset: str, horizon: int, predictor: str, attention: str) -> float:
        """The most seeds of a run; `attention` is empty for a predictor without attention."""
        given = {"data": dataset, "horizons": horizon, "predictors": predictor, "attentions": attention or None}
        for key, value in given.items():
            allowed = getattr(self, key)
            if allowed is not None and value is not None and value not in allowed:
                return 0
        if self.seeds is None:
            return float("inf")
        return self.seeds.get(horizon, 0) if isinstance(self.seeds, Mapping) else self.seeds


@dataclass(frozen=True)
class SuiteData:
    """A data set: its name in tables, ``class_path`` and ``init_args`` of its DataModule, and values by dotted path.

    `source` names where the data come from.
    """

    name: str
    data_module: Mapping[str, Any]
    values: Mapping[str, Any]
    limits: Limits
    source: str


@dataclass(frozen=True)
class Mix:
    """A weighted mean of predictors of the suite, equal for None; `seeds` is the number of trainings of each.

    With the weights ``validation``, `auto` chooses them by validation error.
    """

    of: tuple[str, ...]
    weights: tuple[float, ...] | Literal["validation"] | None = None
    seeds: int = 1


@dataclass(frozen=True)
class SuitePredictor:
    """A predictor and how it is trained.

    A mix has no `backbone`. `by_data` overrides `values` on a data set; `has_attentions` says whether each attention of
    the suite is put into the predictor's slot, if it has a slot.
    """

    name: str
    backbone: Description | None
    values: Mapping[str, Any] = field(default_factory=dict)
    by_data: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    mix: Mix | None = None
    has_attentions: bool = True
    limits: Limits = Limits()


@dataclass(frozen=True)
class SuiteAttention:
    """An attention: its name in tables, its description, and descriptions that replace it on a data set."""

    name: str
    description: Description
    by_data: Mapping[str, Description] = field(default_factory=dict)
    limits: Limits = Limits()


@dataclass(frozen=True)
class Question:
    """A question of a suite: does the mean log error of `models` differ from the log error of `against`?

    None stands for all `data` or `horizons`. A question that was posed after the runs is exploration.
    """

    ask: str
    models: tuple[str, ...]
    against: str
    metric: str = "mse"
    data: tuple[str, ...] | None = None
    horizons: tuple[int, ...] | None = None
    posed_before: bool = True


@dataclass(frozen=True)
class Suite:
    """Experiments to run and questions to answer; `KEYS` describes each attribute.

    Attributes:
        text: the YAML that it was read from.
    """

    name: str
    data: Mapping[str, SuiteData]
    horizons: tuple[int, ...]
    predictors: Mapping[str, SuitePredictor]
    seeds: Mapping[int, int]
    attentions: Mapping[str, SuiteAttention] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    questions: tuple[Question, ...] = ()
    margin: float = 0.01
    first_seed: int = 1
    caveats: tuple[str, ...] = ()
    order: tuple[str, ...] = ORDER
    text: str = ""

    @classmethod
    def of(cls, name: str, text: str) -> Self:
        """Read a suite from YAML.

        Args:
            name: of the suite.
            text: YAML.

        Raises:
            UserError: for an invalid suite; the message names the key and the valid values.
        """
        try:
            content = parsed(text)
        except yaml.YAMLError as error:
            raise UserError(f"not YAML: {one_line(error)}") from error
        given = _checked(content, "Keys", "a suite")
        for key in ("data", "horizons", "predictors"):
            if not given.get(key):
                raise UserError(f"a suite needs the key {key}")
        horizons = _horizons(given["horizons"], "horizons")
        seeds = _seeds(given.get("seeds", 1), "seeds")
        seeds = seeds if isinstance(seeds, Mapping) else dict.fromkeys(horizons, seeds)
        if lacking := [one for one in horizons if one not in seeds]:
            raise UserError(f"seeds gives no number for horizon {lacking[0]}")
        order = given.get("order", ORDER)
        if not isinstance(order, list | tuple) or sorted(map(str, order)) != sorted(ORDER):
            raise UserError(f"order must name each of {one_of(ORDER)} once, not {shown(order)}")
        margin = given.get("margin", 0.01)
        if not isinstance(margin, int | float) or not 0 < margin < 1:
            raise UserError(f"margin must lie between 0 and 1, not {shown(margin)}")
        suite = cls(
            name=name,
            data=_named([_data(one) for one in _checked_list(given["data"], "data")]),
            horizons=horizons,
            seeds=seeds,
            predictors={name: _predictor(name, one) for name, one in _map(given["predictors"], "predictors").items()},
            attentions={
                name: _attention(name, one) for name, one in _map(given.get("attentions"), "attentions").items()
            },
            values=_values(given.get("values"), "values"),
            questions=tuple(map(_question, _listed(given, "questions"))),
            margin=float(margin),
            first_seed=whole_number("first_seed", given.get("first_seed", 1), least=0),
            caveats=tuple(map(one_line, _listed(given, "caveats"))),
            order=tuple(order),
            text=text,
        )
        suite._check_names()
        return suite

    @property
    def models(self) -> list[str]:
        """Names of all predictors, alone and with each attention, whether they are run or not."""
        return [label(name, attention) for name in self.predictors for attention in ("", *self.attentions)]

    def narrowed(self, **parts: Sequence[Any] | int | None) -> Self:
        """The part with these ``data``, ``predictors``, ``attentions`` or ``horizons``, and at most ``seeds`` seeds.

        A mix includes its predictors.

        Raises:
            UserError: for a name that the suite does not have; the message lists the valid names.
        """
        chosen: dict[str, Any] = {}
        for key in ("data", "predictors", "attentions", "horizons"):
            asked, known = parts.get(key), getattr(self, key)
            if not isinstance(asked, Sequence):
                continue
            for name in asked:
                if name not in known:
                    hint, valid = did_you_mean(name, known), one_of(map(str, known))
                    raise UserError(f"the suite {self.name} has no {name} in {key}{hint}; it has {valid}")
            chosen[key] = tuple(asked) if key == "horizons" else {name: known[name] for name in asked}
        if "predictors" in chosen:
            mixes = [predictor.mix for predictor in chosen["predictors"].values() if predictor.mix is not None]
            members = {name: self.predictors[name] for mix in mixes for name in mix.of}
            chosen["predictors"] = {**members, **chosen["predictors"]}
        seeds = parts.get("seeds")
        if isinstance(seeds, int):
            chosen["seeds"] = {horizon: min(seeds, number) for horizon, number in self.seeds.items()}
        return replace(self, **chosen)

    def seeds_of(self, dataset: str, horizon: int, predictor: str, attention: str) -> range:
        """The seeds of a predictor with its attention on a data set; empty if the suite leaves it out."""
        limits = [self.data[dataset].limits, self.predictors[predictor].limits]
        limits += [self.attentions[attention].limits] if attention else []
        most = (one.most_seeds(dataset, horizon, predictor, attention) for one in limits)
        count = min(self.seeds[horizon], *most)
        return range(self.first_seed, self.first_seed + int(count))

    def _check_names(self) -> None:
        for name in (*self.data, *self.predictors, *self.attentions):
            if "," in name:
                raise UserError(f"the name {name!r} has a comma, which joins names of predictors and attentions")
        parts: list[SuiteData | SuitePredictor | SuiteAttention] = [*self.data.values(), *self.predictors.values()]
        for part in (*parts, *self.attentions.values()):
            for key in ("horizons", "data", "predictors", "attentions"):
                _check_names(f"{part.name} is restricted to", getattr(part.limits, key) or (), getattr(self, key), key)
            _check_names(f"by_data of {part.name} names", getattr(part, "by_data", ()), self.data, "data")
        single = [name for name, predictor in self.predictors.items() if predictor.mix is None]
        for predictor in self.predictors.values():
            if predictor.mix is not None:
                _check_names(f"the mix {predictor.name} is of", predictor.mix.of, single, "predictors, mixes aside")
        for question in self.questions:
            what = f"the question {question.ask!r} names"
            _check_names(what, (*question.models, question.against), self.models, "the models of the suite")
            _check_names(what, question.data or (), self.data, "data")
            _check_names(what, question.horizons or (), self.horizons, "horizons")


def label(predictor: str, attention: str = "") -> str:
    """Name a predictor with its attention as in tables and questions: ``patchtst, mlr``, or ``ridge``."""
    return f"{predictor}, {attention}" if attention else predictor


def read_suite(path: Path) -> Suite:
    """The suite in a YAML file.

    Raises:
        UserError: for an invalid suite; the message names the file, the key and the valid values.
    """
    try:
        return Suite.of(path.stem, path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text in UTF-8") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _data(given: Any) -> SuiteData:
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise UserError(f"a data set must be a public name, or a mapping with a name, not {shown(given)}")
    name = given["name"]
    _checked(given, "A data set", f"the data set {name}")
    arguments = _map(given.get("init_args"), f"init_args of {name}")
    if "class_path" in given:
        data_module = {"class_path": given["class_path"], "init_args": arguments}
    else:
        card_of(name, files_only=True)
        data_module = {"class_path": "PublicDataModule", "init_args": {"name": name, **arguments}}
    values = _values(given.get("values"), f"values of {name}")
    source = name if given.get("source") is None else given["source"]
    is_name = isinstance(source, str | int | float) and not isinstance(source, bool) and source == source  # not NaN
    if not is_name or not str(source).strip():
        raise UserError(f"source of {name} must be a name or a number, which data sets share, not {shown(source)}")
    return SuiteData(name, data_module, values, _limits(given, name), str(source).strip())


def _predictor(name: str, given: Any) -> SuitePredictor:
    given = {"backbone": given} if isinstance(given, str) else given
    _checked(given, "A predictor", f"the predictor {name}")
    if ("backbone" in given) == ("mix" in given):
        raise UserError(f"the predictor {name} needs either a backbone, its description, or a mix of others")
    mix = _mix(name, given["mix"]) if "mix" in given else None
    if mix is not None and set(given) & {"values", "by_data"}:
        raise UserError(f"{name} is a mix: give values and by_data to its predictors instead")
    limits = {key: one for key, one in given.items() if key != "attentions" or one != "none"}
    backbone = given.get("backbone")
    seeds = mix.seeds if mix is not None else backbone.get("seeds") if isinstance(backbone, Mapping) else 1
    if isinstance(seeds, int) and seeds > 1:
        if given.get("seeds", 1) != 1:
            raise UserError(f"{name} is a mean of seeds already: give seeds in its mix only")
        limits["seeds"] = 1
    by_data = _map(given.get("by_data"), f"by_data of {name}")
    return SuitePredictor(
        name=name,
        backbone=backbone,
        values=_values(given.get("values"), f"values of {name}"),
        by_data={data: _values(values, f"values of {name} on {data}") for data, values in by_data.items()},
        mix=mix,
        has_attentions=given.get("attentions") != "none",
        limits=_limits(limits, name),
    )


def _mix(name: str, given: Any) -> Mix:
    _checked(given, "A mix", f"the mix {name}")
    of, weights = given.get("of"), given.get("weights")
    if not isinstance(of, list) or not of or name in of:
        raise UserError(f"the mix {name} must list its predictors under `of`, without itself")
    if weights not in (None, "validation") and (
        not isinstance(weights, list)
        or len(weights) != len(of)
        or not all(isinstance(one, int | float) and one >= 0 for one in weights)
        or not sum(weights)
    ):
        raise UserError(
            f"weights of the mix {name} must be {len(of)} numbers of at least 0, or validation, not {shown(weights)}"
        )
    seeds = whole_number(f"seeds of the mix {name}", given.get("seeds", 1))
    return Mix(tuple(map(str, of)), tuple(map(float, weights)) if isinstance(weights, list) else weights, seeds)


def _attention(name: str, given: Any) -> SuiteAttention:
    if isinstance(given, Mapping) and "attention" in given:
        _checked(given, "An attention", f"the attention {name}")
        by_data = _map(given.get("by_data"), f"by_data of {name}")
        return SuiteAttention(name, given["attention"], by_data, _limits(given, name))
    if not isinstance(given, str | Mapping):
        raise UserError(f"the attention {name} must be a kind or a description, not {shown(given)}")
    return SuiteAttention(name, given)


def _question(given: Any) -> Question:
    _checked(given, "A question", "a question")
    for key in ("ask", "models", "against"):
        if not given.get(key):
            raise UserError(f"a question needs {key}")
    metric, posed = given.get("metric", "mse"), given.get("posed", "before")
    if metric not in ("mse", "mae"):
        raise UserError(f"metric of a question must be mse or mae, not {shown(metric)}")
    if posed not in ("before", "after"):
        raise UserError(f"posed of a question must be before or after, not {shown(posed)}")
    models, against = _names(given["models"], "models of a question"), str(given["against"])
    if len({*models, against}) <= len(models):
        raise UserError(f"a question must name each model once, not {one_of(models)} against {against}")
    limits = _limits({key: given.get(key) for key in ("data", "horizons")}, "a question")
    return Question(
        ask=one_line(given["ask"]),
        models=models,
        against=against,
        metric=metric,
        data=limits.data,
        horizons=limits.horizons,
        posed_before=posed == "before",
    )


def _limits(given: Mapping[str, Any], name: str) -> Limits:
    readers: dict[str, Callable[[Any, str], Any]] = {**dict.fromkeys(_LIMITS, _names), "horizons": _horizons}
    readers["seeds"] = _seeds
    asked = {key: given[key] for key in _LIMITS if given.get(key) is not None}
    return Limits(**{key: readers[key](one, f"{key} of {name}") for key, one in asked.items()})


def _named(data: Sequence[SuiteData]) -> dict[str, SuiteData]:
    by_name = {one.name: one for one in data}
    if len(by_name) < len(data):
        raise UserError("two data sets have the same name; rename one")
    for one in data:
        other = by_name.get(one.source, one)
        if other.source != one.source:
            raise UserError(f"source of {one.name} is the data set {other.name}, whose own source is {other.source}")
    return by_name


def _horizons(given: Any, what: str) -> tuple[int, ...]:
    found = [whole_number(f"each of {what}", one) for one in _checked_list(given, what)]
    if len(set(found)) < len(found):
        raise UserError(f"{what} names a horizon twice")
    return tuple(found)


def _seeds(given: Any, what: str) -> int | dict[int, int]:
    if not isinstance(given, Mapping):
        return whole_number(what, given)
    if not all(is_whole_number(horizon) for horizon in given):
        raise UserError(f"{what} must be a number, or one for each horizon, not {shown(given)}")
    return {int(horizon): whole_number(what, number) for horizon, number in given.items()}


def _values(given: Any, what: str) -> dict[str, Any]:
    values = {full_path(path): value for path, value in _map(given, what).items()}
    for path in values:
        if path in ("data", "data.init_args", "model", "trainer"):
            raise UserError(f"{what} cannot set all of {path}; name an option by its path, such as data.batch_size")
        if path in _SET_BY_SUITE.split():
            raise UserError(f"{what} cannot set {path}, which other keys of the suite set")
    return values


def _map(given: Any, what: str) -> dict[str, Any]:
    if not isinstance(given, Mapping | None):
        raise UserError(f"{what} must be a mapping, not {shown(given)}")
    return {str(name): value for name, value in (given or {}).items()}


def _names(given: Any, what: str) -> tuple[str, ...]:
    return tuple(map(str, _checked_list(given, what)))


def _listed(given: Mapping[str, Any], key: str) -> list[Any]:
    return [] if given.get(key) in (None, []) else _checked_list(given[key], key)


def _checked_list(given: Any, what: str) -> list[Any]:
    if not isinstance(given, list) or not given:
        raise UserError(f"{what} must be a list, not {shown(given)}")
    return given


def _checked(given: Any, part: str, what: str) -> Mapping[str, Any]:
    """Return a mapping; a `UserError` if it has a key that its part may not have."""
    if not isinstance(given, Mapping):
        raise UserError(f"{what} must be a mapping with the keys {one_of(KEYS[part])}, not {shown(given)}")
    _check_names(f"{what} has the key", given, KEYS[part], "its keys")
    return given


def _check_names(what: str, names: Iterable[Any], valid: Collection[Any], where: str) -> None:
    for name in names:
        if name not in valid:
            hint = did_you_mean(name, valid)
            listed = f"; valid: {one_of(map(str, valid))}" if len(valid) <= 20 else ""
            raise UserError(f"{what} {name!r}, which is not among {where}{hint}{listed}")
