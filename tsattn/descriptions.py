"""Plain data: descriptions that name a kind and its arguments, records that are saved, and YAML.

A description is a kind's name, ``mlr``, or ``{kind: mlr, ranks: [32, 16, 16]}``. A table of kinds has the import path
of each class. It is imported when a description first asks for it, so a lower module can name a higher one.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import UnionType
from typing import Any, Literal, Self, TypeAlias, Union, get_args, get_origin, get_type_hints

from tsattn.errors import UserError, did_you_mean, one_line, one_of, shown

Description: TypeAlias = str | Mapping[str, Any]

DEFAULT_BACKBONE = {"kind": "patchtst", "d_model": 32, "num_heads": 4, "linear_path": "ridge", "dropout": 0.2}
"""Default network: a ridge, and a small network that learns the rest."""


def named(description: object, *, what: str, table: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return kind and arguments of a description of `what`, unchecked; `table` has the import path of each kind."""
    if isinstance(description, str):
        description = {"kind": description}
    if not isinstance(description, Mapping) or not isinstance(description.get("kind"), str):
        valid = f"one of {one_of(table)}, or {{kind: NAME, argument: value}}"
        raise UserError(f"{what} must be {valid}, not {shown(repr(description))}")
    chosen = dict(description)
    return chosen.pop("kind"), chosen


def class_of(kind: str, *bases: type[Any], what: str, table: Mapping[str, str]) -> type[Any]:
    """Return the class of a kind of `what`, or of an import path, that derives from one of `bases`."""
    if kind in table:
        return imported(table[kind])  # type: ignore[no-any-return]
    found = class_at(kind, what)
    if found is None:
        module, _, name = kind.rpartition(".")
        if module in sys.modules:
            raise UserError(f"{what} {kind}: {module} has no class {name}")
        raise UserError(f"unknown {what} {kind!r}{did_you_mean(kind, table)}; valid: {one_of(table)}")
    if not issubclass(found, bases):
        raise UserError(f"{what} {kind}: it must derive from {one_of(base.__name__ for base in bases)}")
    return found


def class_at(path: str, what: str) -> type[Any] | None:
    """Import the class at a path; None if its module or class is not there."""
    module, _, name = path.rpartition(".")
    if not module or not all(map(str.isidentifier, path.split("."))):
        return None
    try:
        found = getattr(importlib.import_module(module), name, None)
    except (Exception, SystemExit) as error:  # a module of the user may raise anything
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            return None
        reason = one_line(f"{type(error).__name__}: {error}")
        raise UserError(f"{what} {path}: {module} cannot be imported ({reason})") from error
    return found if inspect.isclass(found) else None


def imported(path: str) -> Any:
    """Import what a path names, ``package.module.Name``."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def late(package: str, paths: Iterable[str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports what these paths name when it is first asked for."""
    homes = {path.rpartition(".")[2]: path for path in paths}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return imported(homes[name])

    return get


def check_names(chosen: Iterable[str], valid: Sequence[str], what: str) -> None:
    """Refuse the name of an argument that is not valid."""
    for name in chosen:
        if name not in valid:
            hint = did_you_mean(name, valid)
            raise UserError(f"{what} has no argument {name!r}{hint}; valid: {one_of(valid) or 'none'}")


def keyword_arguments(function: Callable[..., object]) -> list[str]:
    """Return the names of the keyword-only parameters of a function or class."""
    return [name for name, one in inspect.signature(function).parameters.items() if one.kind is one.KEYWORD_ONLY]


def defaults(function: Callable[..., object]) -> dict[str, Any]:
    """Return the default values of the keyword-only parameters that have one."""
    all_of = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in all_of if one.kind is one.KEYWORD_ONLY and one.default is not one.empty}


def check_types(chosen: Mapping[str, Any], types: Mapping[str, Any], what: str) -> None:
    """Refuse a chosen value that does not fit its annotation, as `typing.get_type_hints` gives it."""
    for name, value in chosen.items():
        if not _fits(value, types.get(name, Any)):
            raise UserError(f"{what}: {name} must be {_readable(types[name])}, not {shown(repr(value))}")


_WORDS: dict[Any, str] = {
    **{int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"},
    **{Sequence: "a list", tuple: "a list", Mapping: "a mapping", dict: "a mapping"},
}


def _fits(value: object, hint: Any) -> bool:
    if hint in (Any, object):
        return True
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is not bool and isinstance(value, bool):
        return False
    if origin is float:  # a whole number may be beyond the largest one
        return isinstance(value, float) or (isinstance(value, int) and abs(value) <= sys.float_info.max)
    if origin is Sequence or (origin is tuple and inner[1:] == (...,)):
        return isinstance(value, origin) and not isinstance(value, str) and all(_fits(x, inner[0]) for x in value)
    if origin is dict and inner:
        return isinstance(value, dict) and all(_fits(x, inner[1]) for x in value.values())
    return isinstance(value, origin)


def _readable(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(dict.fromkeys(_readable(part) for part in get_args(hint)))
    if get_origin(hint) is Literal:
        return f"one of {one_of(get_args(hint))}"
    word = _WORDS.get(get_origin(hint) or hint, "another kind of value")
    inner = get_args(hint)
    return f"{word} of {_readable(inner[0]).removeprefix('a ')}s" if word == "a list" and inner != (Any,) else word


@dataclass(frozen=True)
class PlainData:
    """Record of numbers, texts and nested tuples, saved as lists; `from_dict` must read an inner record itself."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (str, int, float, tuple, dict) for checkpoints and JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Invert `to_dict`; see `typed`."""
        return cls(**typed(data, get_type_hints(cls), cls.__name__))


def typed(data: object, types: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Read saved plain data by name, with tuples for lists; a TypeError for other names or types."""
    if not isinstance(data, Mapping):
        raise TypeError(f"{what} must be a mapping, not {shown(repr(data))}")
    for name in {**types, **data}:
        if name not in types or name not in data:
            raise TypeError(f"{what} {'lacks' if name in types else 'has no'} {shown(repr(name))}")
    values = {name: _tuples(data[name]) for name in types}
    check_types(values, types, what)
    return values


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value


@functools.cache
def _loader() -> Any:
    import yaml  # a first forecast reads none

    class Loader(yaml.SafeLoader):
        """Refuses a key that is there twice, and reads ``1e-3`` as a number, which YAML 1.1 takes for text."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        twice = f"the key {key.value!r} is there twice"
                        raise yaml.constructor.ConstructorError(problem=twice, problem_mark=key.start_mark)
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

    number = re.compile(r"^[-+]?\d+[eE][-+]?\d+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
    Loader.yaml_implicit_resolvers = {  # a date is text, as JSON and a checkpoint have it
        first: [one for one in resolvers if one[0] != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in Loader.yaml_implicit_resolvers.items()
    }
    return Loader


def parsed(text: str) -> Any:
    """Read YAML; a yaml.YAMLError for anything else, or a key that is there twice."""
    import yaml

    return yaml.load(text, Loader=_loader())
