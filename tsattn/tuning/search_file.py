"""Reading a search space: YAML keyed by the configuration's dotted paths.

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
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from tsattn.errors import UserError, did_you_mean, one_of
from tsattn.experiments.dotted import full_path
from tsattn.tuning import search_keys
from tsattn.tuning.search import Parameter, Search
from tsattn.yaml_text import parsed

__all__ = ["read_search"]

OBJECTIVES = ("error", "flops", "parameters", "seconds", "memory")
CONSTRAINTS = ("parameters", "flops", "memory")
SAMPLERS = ("tpe", "random", "grid")
PRUNERS = ("median", "none")
TYPES = ("float", "int", "categorical")

_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def read_search(path: Path) -> Search:
    """The search space in a YAML file.

    Raises:
        UserError: if it is not one; the message names the file, the parameter and what is valid.
    """
    try:
        content = parsed(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    try:
        return _search(path.name, _plain(content))
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _plain(value: Any) -> Any:
    """What YAML says as JSON has it: dates as text, as in a configuration.

    Raises:
        UserError: for what neither has.
    """
    if isinstance(value, Mapping):
        return {_plain(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [*map(_plain, value)]
    if isinstance(value, date):  # or a time on one
        return str(value)
    if isinstance(value, bool | int | float | str | None):
        return value
    raise UserError(f"{value!r} is neither a number, a text, true, false, null, a list nor a mapping")


def _search(file: str, content: Any) -> Search:
    if not isinstance(content, Mapping) or not isinstance(content.get("parameters"), Mapping):
        raise UserError("a search space is a mapping with the key parameters, a mapping of dotted paths")
    _check_keys(content, search_keys.SEARCH, "the search space")
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
        _check_keys(description, search_keys.CATEGORICAL, path)
        return Parameter(path, kind, choices=_choices(path, description.get("choices")), when=conditions)
    _check_keys(description, search_keys.NUMBER, path)
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
    """Each after those that it depends on, whose values it may only name if they can be taken."""
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


def _check_keys(given: Mapping[Any, Any], valid: Iterable[str], what: str) -> None:
    for key in given:
        if key not in valid:
            hint = did_you_mean(str(key), valid)
            raise UserError(f"{what} has no key {key!r}{hint}; valid: {one_of(valid)}")


def _check_one(given: Any, valid: Sequence[str], what: str) -> None:
    if given not in valid:
        raise UserError(f"{what} must be one of {one_of(valid)}, not {given!r}")
