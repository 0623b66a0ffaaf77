"""The search space: values of a configuration to try, in YAML by dotted paths, such as search/mlr.yaml."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import random
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import Trial

from tsattn.descriptions import check_names, check_types, parsed
from tsattn.errors import UserError, did_you_mean, one_line, one_of
from tsattn.experiments import Experiment
from tsattn.experiments.configs import BACKBONE, full_path, get_at, with_values
from tsattn.predictors import complete_predictor

SEARCH_KEYS = ("parameters", "objectives", "constraints", "sampler", "pruner")
PARAMETER_KEYS = ("type", "low", "high", "log", "step", "choices", "when")
_OBJECTIVES = ("error", "flops", "parameters", "seconds", "memory")
_TYPES: dict[str, Any] = {"parameters": Mapping, "constraints": Mapping, "when": Mapping}
_TYPES |= {"sampler": Literal["tpe", "random", "grid"], "pruner": Literal["median", "none"]}
_TYPES |= {"type": Literal["float", "int", "categorical"]}
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_MOST_GRID = 10_000

Distribution: TypeAlias = FloatDistribution | IntDistribution | CategoricalDistribution


@dataclass(frozen=True)
class Parameter:
    """One value that is searched for, by its path in the configuration."""

    path: str
    distribution: Distribution  # what Optuna draws from; the options of a categorical one by name
    choices: Mapping[Any, Any] = field(default_factory=dict)  # the value of each option
    # by path of another parameter, its values (or names) for which this parameter exists
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def is_there(self, taken: Mapping[str, Any]) -> bool:
        """Whether the conditions hold, given the values of other parameters."""
        return all(other in taken and taken[other] in values for other, values in self.when.items())

    def values(self) -> Sequence[Any] | None:
        """All possible values, or None for a number without steps."""
        one = self.distribution
        if isinstance(one, CategoricalDistribution):
            return one.choices
        if isinstance(one, IntDistribution):
            return range(one.low, one.high + 1, one.step)
        if one.step is None:
            return None
        steps = range(round((one.high - one.low) / one.step) + 1)
        return [min(one.low + i * one.step, one.high) for i in steps]  # rounding may lead above the end

    def probes(self) -> list[Any]:
        """Stand for all values when the space is checked: every option, or the ends of a range and its middle."""
        one = self.distribution
        if isinstance(one, CategoricalDistribution):
            return list(one.choices)
        middle = math.sqrt(one.low * one.high) if one.log else (one.low + one.high) / 2
        return list(dict.fromkeys([one.low, one.high, *([middle] if one.step is None else [])]))

    def takes(self, value: Any) -> bool:
        """Whether a trial can take this value."""
        one = self.distribution
        if isinstance(one, CategoricalDistribution):  # True is not 1 here
            return any(value == name and isinstance(value, bool) == isinstance(name, bool) for name in one.choices)
        return isinstance(value, int | float) and not isinstance(value, bool) and one._contains(float(value))


@dataclass(frozen=True)
class Search:
    """A search space and how it is searched, as the file says; `read_search` makes one."""

    file: str
    parameters: Mapping[str, Parameter]  # by path, each after those that it depends on
    objectives: tuple[str, ...]
    constraints: Mapping[str, float]  # by name, the most that a trial may have (bytes of memory)
    sampler: str
    pruner: str
    content: Mapping[str, Any]  # of the file as plain data, which identifies the search

    def taken(self, choose: Callable[[Parameter], Any]) -> dict[str, Any]:
        """Take the value that `choose` gives, for every parameter whose conditions hold."""
        taken: dict[str, Any] = {}
        for path, parameter in self.parameters.items():
            if parameter.is_there(taken):
                taken[path] = choose(parameter)
        return taken

    def suggest(self, trial: Trial) -> dict[str, Any]:
        """Draw every parameter whose conditions hold."""
        return self.taken(lambda parameter: trial._suggest(parameter.path, parameter.distribution))

    def applied(self, config: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of a configuration with the values of a trial."""
        return with_values(config, {path: self.parameters[path].choices.get(one, one) for path, one in taken.items()})

    def experiment(self, base: Experiment, taken: Mapping[str, Any]) -> Experiment:
        """The experiment that a trial runs; a combination that is not valid is a `UserError`."""
        return Experiment.of(self.applied(base.to_dict(), taken))

    def needed(self, path: str) -> dict[str, Any]:
        """Values that other parameters must take for this one to exist; the first of several values."""
        needed: dict[str, Any] = {}
        for other, values in self.parameters[path].when.items():
            needed |= {**self.needed(other), other: values[0]}
        return needed

    def configured(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """The values with which a trial equals the complete configuration, or None if the space does not contain it."""

        def stays(taken: Mapping[str, Any]) -> bool:
            with contextlib.suppress(UserError):
                return complete(self.applied(config, taken)) == config
            return False

        def choose(parameter: Parameter) -> Any:
            if not parameter.choices:
                return get_at(config, parameter.path)
            return next(name for name in parameter.choices if stays({parameter.path: name}))

        with contextlib.suppress(KeyError, StopIteration):
            taken = self.taken(choose)
            if all(self.parameters[path].takes(what) for path, what in taken.items()) and stays(taken):
                return taken
        return None

    def drawn(self, rng: random.Random, fixed: Mapping[str, Any]) -> dict[str, Any]:
        """Random values of all parameters except the fixed ones, to check combinations."""
        return self.taken(lambda one: fixed.get(one.path, rng.choice(one.values() or one.probes())))

    def grid(self) -> list[dict[str, Any]]:
        """Every combination; a `UserError` for a number without steps, or more than ten thousand combinations."""
        points: list[dict[str, Any]] = [{}]
        for path, one in self.parameters.items():
            if (values := one.values()) is None:
                raise UserError(f"a grid needs a step or choices for {path}")
            longer = (({**at, path: value} for value in values) if one.is_there(at) else [at] for at in points)
            points = [*itertools.islice(itertools.chain.from_iterable(longer), _MOST_GRID + 1)]
            if len(points) > _MOST_GRID:
                raise UserError(f"the grid has more than {_MOST_GRID} combinations; use sampler: tpe")
        return points


def read_search(path: Path) -> Search:
    """Read the search space in a YAML file; a `UserError` names the file, the parameter and what is valid."""
    try:
        search = _search(path.name, json.loads(json.dumps(parsed(path.read_text()), default=_refuse)))
        if search.sampler == "grid":
            search.grid()
        return search
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {one_line(error)}") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _refuse(value: object) -> None:
    raise UserError(f"{value!r} must be a number, a text, true, false, null, a list or a mapping")


def _search(file: str, content: Any) -> Search:
    if not isinstance(content, Mapping) or not isinstance(content.get("parameters"), Mapping):
        raise UserError("a search space needs the key parameters: dotted paths such as model.learning_rate")
    check_names(content, SEARCH_KEYS, "the search space")
    check_types(content, _TYPES, "the search space")
    objectives = content.get("objectives", ["error"])
    objectives = objectives if isinstance(objectives, list) else [objectives]
    if objectives[:1] != ["error"] or not all(one in _OBJECTIVES and objectives.count(one) == 1 for one in objectives):
        raise UserError(f"objectives must be a list of {one_of(_OBJECTIVES)}, each once, error first, not {objectives}")
    by_path: dict[str, Parameter] = {}
    for key, description in content["parameters"].items():
        if (path := full_path(key)) in by_path:
            raise UserError(f"{path} is there twice: remove one")
        by_path[path] = _parameter(path, description)
    if not by_path:
        raise UserError("parameters must name at least one value to search for")
    check_names(constraints := content.get("constraints", {}), ("parameters", "flops", "memory"), "constraints")
    limits = {name: _most(name, value) for name, value in constraints.items()}
    drawn = content.get("sampler", "tpe"), content.get("pruner", "median")
    return Search(file, _ordered(by_path), tuple(objectives), limits, *drawn, content)


def _parameter(path: str, description: Any) -> Parameter:
    if isinstance(description, list):
        description = {"type": "categorical", "choices": description}
    if not isinstance(description, Mapping) or "type" not in description:
        raise UserError(f"{path} must be a list of choices, or a mapping with type: float, int or categorical")
    kind = description["type"]
    number = int if kind == "int" else float
    numbers = {"low": number, "high": number, "log": bool, "step": number | None}
    check_types({"type": kind}, _TYPES, path)
    left_out = numbers if kind == "categorical" else ("choices",)
    check_names(description, [key for key in PARAMETER_KEYS if key not in left_out], path)
    given: dict[str, Any] = {"low": None, "high": None, "log": False, "step": None, "when": {}, **description}
    check_types({key: value for key, value in given.items() if key not in left_out}, {**_TYPES, **numbers}, path)
    when = {full_path(k): tuple(some) if isinstance(some, list) else (some,) for k, some in given["when"].items()}
    if kind == "categorical":
        choices = _choices(path, given.get("choices"))
        return Parameter(path, CategoricalDistribution(list(choices)), choices, when)
    low, high, log, step = (given[name] for name in numbers)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UserError(f"{path}: low and high must be finite, not {low} and {high}")
    distribution: Any = IntDistribution if kind == "int" else FloatDistribution
    try:
        with warnings.catch_warnings(action="ignore"):  # of a step that does not divide, which is refused below
            one = distribution(low, high, log, 1 if kind == "int" and step is None else step)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    if not math.isclose(one.high, high, rel_tol=1e-9):
        raise UserError(f"step of {path} must divide high - low, but {step} does not divide {high} - {low}")
    return Parameter(path, one, when=when)


def _choices(path: str, choices: Any) -> dict[Any, Any]:
    """The options by name: a mapping as it is, the options of a list by their value."""
    if not isinstance(choices, Mapping | list) or not choices:
        raise UserError(f"choices of {path} must be a list of values or a mapping of names to values, not {choices!r}")
    if isinstance(choices, Mapping):
        return dict(choices)
    named = {json.dumps(value) if isinstance(value, list | dict) else value: value for value in choices}
    if len(named) < len(choices):
        raise UserError(f"a choice of {path} is there twice: remove one")
    return named


def _ordered(known: dict[str, Parameter]) -> dict[str, Parameter]:
    """Sort parameters after the ones that they depend on; refuse conditions on impossible values."""
    ordered: dict[str, Parameter] = {}

    def add(path: str, above: Sequence[str]) -> None:
        if path in above:
            raise UserError(f"the conditions of {one_of(above)} depend on each other")
        for other, values in known[path].when.items():
            if other not in known:
                raise UserError(f"{path} depends on {other}, which is not searched for{did_you_mean(other, known)}")
            for value in (value for value in values if not known[other].takes(value)):
                raise UserError(f"{path} depends on {other} being {value!r}, which is not one of its values")
            add(other, [*above, path])
        ordered.setdefault(path, known[path])

    for path in known:
        add(path, [])
    return ordered


def _most(name: str, value: Any) -> float:
    found = re.fullmatch(rf"\s*(\d+(?:\.\d+)?)\s*({'|'.join(_BYTES)})\s*", value) if isinstance(value, str) else None
    if name == "memory" and found:
        value = float(found[1]) * _BYTES[found[2]]
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        hint = f", or a number with a unit: {one_of(_BYTES)}" if name == "memory" else ""
        raise UserError(f"the constraint {name} must be a number above 0{hint}, not {value!r}")
    return float(value)


def complete(config: Mapping[str, Any]) -> dict[str, Any]:
    """Copy with all arguments of the predictor written out, so that each has a path and two copies can be compared."""
    return with_values(config, {BACKBONE: complete_predictor(config["model"]["backbone"])})
