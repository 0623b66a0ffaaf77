"""The search space: which values of a configuration are tried, as YAML keyed by the configuration's dotted paths.

::

    sampler: tpe                # the default; or random, grid
    pruner: median              # the default; or none
    objectives: [error]         # the default; beside it flops, parameters, seconds, memory
    constraints: {parameters: 200_000, flops: 1e9, memory: 2 GB}
    parameters:
      model.learning_rate: {type: float, low: 1e-5, high: 5e-3, log: true}
      model.backbone.num_layers: {type: int, low: 1, high: 3}
      model.backbone.linear_path: [none, ridge]
      attention.kind: [mlr, swa]
      attention.ranks:
        type: categorical
        choices: {even: [3, 3, 2], coarse: [6, 1, 1]}
        when: {attention.kind: mlr}
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import Trial

from tsattn.errors import UserError, one_of
from tsattn.experiments import Experiment
from tsattn.experiments.dotted import complete, did_you_mean, full_path, get_at, with_values

__all__ = ["OBJECTIVES", "Parameter", "Search", "read_search"]

OBJECTIVES = ("error", "flops", "parameters", "seconds", "memory")
CONSTRAINTS = ("parameters", "flops", "memory")
SAMPLERS = ("tpe", "random", "grid")
PRUNERS = ("median", "none")
TYPES = ("float", "int", "categorical")

_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_MOST_GRID = 10_000


@dataclass(frozen=True)
class Parameter:
    """One value that is searched for.

    Attributes:
        path: where it stands in the configuration.
        type: ``float``, ``int`` or ``categorical``.
        low: the least value of a number.
        high: the greatest, included.
        log: whether a number is drawn evenly on a logarithmic scale.
        step: distance of the values of a number, or None.
        choices: of a categorical one, the name of each option, as tables and the storage have it, and its value.
        when: by path of another parameter, the values (or names) of it for which this one is there.
    """

    path: str
    type: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float | None = None
    choices: Mapping[Any, Any] = field(default_factory=dict)
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def distribution(self) -> BaseDistribution:
        """What Optuna draws from."""
        if self.type == "float":
            return FloatDistribution(self.low, self.high, log=self.log, step=self.step)
        if self.type == "int":
            return IntDistribution(int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
        return CategoricalDistribution(list(self.choices))

    def suggest(self, trial: Trial) -> Any:
        """What a trial takes: a number, or the name of an option."""
        if self.type == "float":
            return trial.suggest_float(self.path, self.low, self.high, log=self.log, step=self.step)
        if self.type == "int":
            step = int(self.step or 1)
            return trial.suggest_int(self.path, int(self.low), int(self.high), log=self.log, step=step)
        return trial.suggest_categorical(self.path, list(self.choices))

    def value(self, taken: Any) -> Any:
        """The value in the configuration of what a trial took."""
        return self.choices[taken] if self.type == "categorical" else taken

    def values(self) -> list[Any] | None:
        """All that can be taken, or None of a number without steps."""
        if self.type == "categorical":
            return list(self.choices)
        if self.type == "int":
            return list(range(int(self.low), int(self.high) + 1, int(self.step or 1)))
        if self.step is None:
            return None
        return [self.low + i * self.step for i in range(round((self.high - self.low) / self.step) + 1)]

    def probes(self) -> list[Any]:
        """What stands for all when the space is checked: every option, or the ends of a range and its middle."""
        if self.type == "categorical":
            return list(self.choices)
        if self.type == "int":
            return list(dict.fromkeys([int(self.low), int(self.high)]))
        middle = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        return list(dict.fromkeys([self.low, self.high, *([middle] if self.step is None else [])]))

    def takes(self, value: Any) -> bool:
        """Whether a trial can take this."""
        if self.type == "categorical":  # True is not 1 here
            return any(value == name and isinstance(value, bool) == isinstance(name, bool) for name in self.choices)
        if isinstance(value, bool) or not isinstance(value, int if self.type == "int" else int | float):
            return False
        steps = (value - self.low) / (self.step or 1)
        stepless = self.type == "float" and self.step is None
        return self.low <= value <= self.high and (stepless or abs(steps - round(steps)) < 1e-9)

    def draw(self, rng: random.Random) -> Any:
        """One of the values at random, to check combinations."""
        return rng.choice(self.values() or self.probes())


@dataclass(frozen=True)
class Search:
    """A search space and how it is searched; `read_search` makes one.

    Attributes:
        file: where it was read from, for messages.
        parameters: by path, each behind those that it depends on.
        objectives: what is made small.
        constraints: by name, the most that a trial may have (bytes of memory).
        sampler: one of `SAMPLERS`.
        pruner: one of `PRUNERS`.
        content: the file's content as plain data, which tells searches apart.
    """

    file: str
    parameters: Mapping[str, Parameter]
    objectives: tuple[str, ...] = ("error",)
    constraints: Mapping[str, float] = field(default_factory=dict)
    sampler: str = "tpe"
    pruner: str = "median"
    content: Mapping[str, Any] = field(default_factory=dict)

    def taken(self, choose: Callable[[Parameter], Any]) -> dict[str, Any]:
        """What is taken of every parameter that is there, its conditions holding, when `choose` decides."""
        taken: dict[str, Any] = {}
        for path, parameter in self.parameters.items():
            if all(other in taken and taken[other] in values for other, values in parameter.when.items()):
                taken[path] = choose(parameter)
        return taken

    def suggest(self, trial: Trial) -> dict[str, Any]:
        """What a trial takes of every parameter that is there."""
        return self.taken(lambda parameter: parameter.suggest(trial))

    def applied(self, config: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of a configuration with what a trial took."""
        values = {path: self.parameters[path].value(what) for path, what in taken.items()}
        return with_values(config, values)

    def experiment(self, base: Experiment, taken: Mapping[str, Any]) -> Experiment:
        """The experiment that a trial runs.

        Raises:
            UserError: for a combination that is not valid.
        """
        return Experiment.of(self.applied(base.to_dict(), taken))

    def needed(self, path: str) -> dict[str, Any]:
        """What must be taken of other parameters for this one to be there; the first of several values."""
        needed: dict[str, Any] = {}
        for other, values in self.parameters[path].when.items():
            needed |= {**self.needed(other), other: values[0]}
        return needed

    def configured(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """What a trial would have to take to be the configuration as it is, or None if the space does not hold that.

        Args:
            config: complete, see `tsattn.experiments.dotted.complete`.
        """

        def choose(parameter: Parameter) -> Any:
            if parameter.type != "categorical":
                return get_at(config, parameter.path)
            return next(what for what in parameter.choices if self._is(config, {parameter.path: what}))

        try:
            taken = self.taken(choose)
        except (KeyError, StopIteration):
            return None
        fits = all(self.parameters[path].takes(what) for path, what in taken.items())
        return taken if fits and self._is(config, taken) else None

    def _is(self, config: Mapping[str, Any], taken: Mapping[str, Any]) -> bool:
        """Whether a configuration stays the same when this is taken."""
        try:
            return complete(self.applied(config, taken)) == config
        except UserError:
            return False

    def grid(self) -> list[dict[str, Any]]:
        """Every combination.

        Raises:
            UserError: if a number has no step, or there are more than ten thousand.
        """
        combinations: list[dict[str, Any]] = [{}]
        for path, parameter in self.parameters.items():
            values = parameter.values()
            if values is None:
                raise UserError(f"{self.file}: a grid needs a step or choices for {path}")
            longer: list[dict[str, Any]] = []
            for one in combinations:
                is_there = all(one.get(other) in needed for other, needed in parameter.when.items())
                longer += [{**one, path: value} for value in values] if is_there else [one]
            if len(longer) > _MOST_GRID:
                raise UserError(f"{self.file}: the grid has more than {_MOST_GRID} combinations; use sampler: tpe")
            combinations = longer
        return combinations


class _Loader(yaml.SafeLoader):
    """YAML in which `1e-5` is a number, as in the configurations; PyYAML alone asks for a point."""


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789"))


def read_search(path: Path) -> Search:
    """The search space in a YAML file.

    Raises:
        UserError: if it is not one; the message names the file, the parameter and what is valid.
    """
    try:
        content = yaml.load(path.read_text(), Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    try:
        return _search(path.name, content)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _search(file: str, content: Any) -> Search:
    keys = ("parameters", "objectives", "constraints", "sampler", "pruner")
    if not isinstance(content, Mapping) or not isinstance(content.get("parameters"), Mapping):
        raise UserError("a search space is a mapping with the key parameters, a mapping of dotted paths")
    _check_keys(content, keys, "the search space")
    objectives = content.get("objectives", ["error"])
    objectives = [objectives] if isinstance(objectives, str) else objectives
    if not isinstance(objectives, list) or not objectives or len(set(map(str, objectives))) < len(objectives):
        raise UserError(f"objectives must be a list of {one_of(OBJECTIVES)}, each once, not {objectives!r}")
    for objective in objectives:
        _check_one(objective, OBJECTIVES, "an objective")
    if objectives[0] != "error":
        raise UserError(f"the first objective must be error, not {objectives[0]}")
    for key, valid in (("sampler", SAMPLERS), ("pruner", PRUNERS)):
        _check_one(content.get(key, valid[0]), valid, key)
    parameters: dict[str, Parameter] = {}
    for written, description in content["parameters"].items():
        parameter = _parameter(full_path(str(written)), description)
        if parameter.path in parameters:
            raise UserError(f"{parameter.path} is there twice")
        parameters[parameter.path] = parameter
    if not parameters:
        raise UserError("parameters must name at least one value to search for")
    search = Search(
        file=file,
        parameters=_ordered(parameters),
        objectives=tuple(objectives),
        constraints=_constraints(content.get("constraints") or {}),
        sampler=content.get("sampler", SAMPLERS[0]),
        pruner=content.get("pruner", PRUNERS[0]),
        content=json.loads(json.dumps(content)),
    )
    if search.sampler == "grid":
        search.grid()
    return search


def _parameter(path: str, description: Any) -> Parameter:
    if isinstance(description, list):
        description = {"type": "categorical", "choices": description}
    if not isinstance(description, Mapping) or "type" not in description:
        raise UserError(f"{path} must be a list of choices, or a mapping with type: one of {one_of(TYPES)}")
    kind = description["type"]
    _check_one(kind, TYPES, f"the type of {path}")
    when = description.get("when", {})
    if not isinstance(when, Mapping):
        raise UserError(f"when of {path} must be a mapping of other paths to their values, not {when!r}")
    conditions = {
        full_path(str(other)): tuple(values) if isinstance(values, list) else (values,)
        for other, values in when.items()
    }
    if kind == "categorical":
        _check_keys(description, ("type", "choices", "when"), path)
        return Parameter(path, kind, choices=_choices(path, description.get("choices")), when=conditions)
    _check_keys(description, ("type", "low", "high", "log", "step", "when"), path)
    numbers: dict[str, Any] = {name: description.get(name) for name in ("low", "high", "step")}
    whole = kind == "int"
    for name, number in numbers.items():
        fits = isinstance(number, int if whole else int | float) and not isinstance(number, bool)
        if not (fits or (name == "step" and number is None)):
            raise UserError(f"{name} of {path} must be a {'whole ' if whole else ''}number, not {number!r}")
    low, high, step = numbers["low"], numbers["high"], numbers["step"]
    log = description.get("log", False)
    if not isinstance(log, bool):
        raise UserError(f"log of {path} must be true or false, not {log!r}")
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise UserError(f"low of {path} must not be above high, but low is {low} and high {high}")
    if log and not low > 0:
        raise UserError(f"low of {path} must be above 0 on a logarithmic scale, not {low}")
    if log and step is not None:
        raise UserError(f"{path} has both log and step; give one of them")
    if step is not None and not step > 0:
        raise UserError(f"step of {path} must be above 0, not {step}")
    if step is not None and abs((high - low) / step - round((high - low) / step)) > 1e-9:
        raise UserError(f"step of {path} must divide high - low, but {step} does not divide {high} - {low}")
    return Parameter(path, kind, low=low, high=high, log=log, step=step, when=conditions)


def _choices(path: str, choices: Any) -> dict[Any, Any]:
    """The options by name: those of a mapping as it has them, those of a list by their value."""
    if isinstance(choices, Mapping) and choices:
        return {str(name): value for name, value in choices.items()}
    if isinstance(choices, list) and choices:
        plain = (type(None), bool, int, float, str)
        named = [value if isinstance(value, plain) else json.dumps(value) for value in choices]
        if len(set(named)) < len(named):
            raise UserError(f"a choice of {path} is there twice")
        return dict(zip(named, choices, strict=True))
    raise UserError(f"choices of {path} must be a list of values or a mapping of names to values, not {choices!r}")


def _ordered(parameters: dict[str, Parameter]) -> dict[str, Parameter]:
    """Each behind those that it depends on, whose values it may only name if they can be taken."""
    for path, parameter in parameters.items():
        for other, values in parameter.when.items():
            if other not in parameters:
                hint = did_you_mean(other, parameters)
                raise UserError(f"{path} depends on {other}, which is not searched for{hint}")
            for value in values:
                if not parameters[other].takes(value):
                    raise UserError(f"{path} depends on {other} being {value!r}, which it never is")
    ordered: dict[str, Parameter] = {}

    def add(path: str, above: Sequence[str]) -> None:
        if path in above:
            raise UserError(f"the conditions of {one_of(above)} depend on each other")
        for other in parameters[path].when:
            add(other, [*above, path])
        ordered[path] = parameters[path]

    for path in parameters:
        if path not in ordered:
            add(path, [])
    return ordered


def _constraints(given: Any) -> dict[str, float]:
    if not isinstance(given, Mapping):
        raise UserError(f"constraints must be a mapping of {one_of(CONSTRAINTS)} to the most that is allowed")
    _check_keys(given, CONSTRAINTS, "constraints")
    return {name: _most(name, value) for name, value in given.items()}


def _most(name: str, value: Any) -> float:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMG]i?B|B)\s*", value) if isinstance(value, str) else None
    if name == "memory" and found and found[2] in _BYTES:
        value = float(found[1]) * _BYTES[found[2]]
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        units = f", or one with a unit: {one_of(_BYTES)}" if name == "memory" else ""
        raise UserError(f"the constraint {name} must be a number above 0{units}, not {value!r}")
    return float(value)


def _check_keys(given: Mapping[Any, Any], valid: Sequence[str], what: str) -> None:
    for key in given:
        if key not in valid:
            hint = did_you_mean(str(key), valid)
            raise UserError(f"{what} has no key {key!r}{hint}; valid: {one_of(valid)}")


def _check_one(given: Any, valid: Sequence[str], what: str) -> None:
    if given not in valid:
        raise UserError(f"{what} must be one of {one_of(valid)}, not {given!r}")
