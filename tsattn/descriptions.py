"""Descriptions: plain data that names a kind and its arguments, checked against a table of kinds.

A description is a kind's name, ``mlr``, or ``{kind: mlr, ranks: [32, 16, 16]}``. Being plain data, it can stand in
YAML, on the command line, in a notebook and in a checkpoint that is loaded without unpickling code.

A table of kinds gives the import path of each class as text, ``tsattn.attention.kinds.MLRAttention``: it is imported
when a description first asks for it, so that kinds are listed at no cost, and a lower room can name what lies above.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin

from tsattn.errors import UserError, did_you_mean, one_of, shown

__all__ = [
    "DEFAULT_BACKBONE",
    "Bases",
    "Description",
    "check_names",
    "check_types",
    "class_at",
    "class_of",
    "defaults",
    "difference",
    "import_path",
    "imported",
    "keyword_arguments",
    "named",
    "parse",
    "refuse_imports",
]

Description: TypeAlias = str | Mapping[str, Any]
Bases: TypeAlias = type[Any] | tuple[type[Any], ...]

DEFAULT_BACKBONE: dict[str, Any] = {
    "kind": "patchtst",
    "d_model": 32,
    "num_heads": 4,
    "linear_path": "ridge",
    "dropout": 0.2,
}
"""What forecasts where nobody says what, on the command line and in Python: the ridge, and a small network that learns
what this misses."""


def parse(
    description: object,
    *,
    what: str,
    table: Mapping[str, str],
    base: Bases,
    arguments: Callable[[type[Any]], list[str]],
) -> tuple[str, type[Any], dict[str, Any]]:
    """Name, class and arguments that a description means.

    Args:
        description: what somebody wrote.
        what: the word for it in messages, e.g. ``attention``.
        table: the import path of each kind. A name with a dot is an import path itself: ``my_package.MyAttention``.
        base: the class that such a class must derive from, or several of which one will do.
        arguments: the arguments that a description of a class may name.

    Raises:
        UserError: for a wrong kind or argument; the message lists the valid ones.
    """
    kind, chosen = named(description, what=what, table=table)
    cls = class_of(kind, what=what, table=table, base=base)
    check_names(chosen, arguments(cls), f"{what} {kind}")
    return kind, cls, chosen


def named(description: object, *, what: str, table: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The kind that a description names, and the arguments beside it, unchecked; see `parse`.

    Raises:
        UserError: for what names no kind.
    """
    if isinstance(description, str):
        description = {"kind": description}
    if not isinstance(description, Mapping) or not isinstance(description.get("kind"), str):
        raise UserError(
            f"{what} must be one of {one_of(table)}, or {{kind: NAME, argument: value}}, not {shown(repr(description))}"
        )
    chosen = dict(description)
    return chosen.pop("kind"), chosen


def class_of(kind: str, *, what: str, table: Mapping[str, str], base: Bases) -> type[Any]:
    """The class that a kind of a table names, or an import path of somebody's own; see `parse`.

    Raises:
        UserError: for another kind; the message lists the valid ones. Also for a module that raises an error while it
            is imported, which is the cause.
    """
    if kind in table:
        return imported(table[kind])  # type: ignore[no-any-return]
    found = class_at(kind, what)
    if found is None:
        module, _, name = kind.rpartition(".")
        if module in sys.modules:
            raise UserError(f"{what} {kind}: {module} has no class {name}")
        raise UserError(f"unknown {what} {kind!r}{did_you_mean(kind, table)}; valid: {one_of(table)}")
    if not issubclass(found, base):
        bases = base if isinstance(base, tuple) else (base,)
        raise UserError(f"{what} {kind}: it must derive from {one_of([one.__name__ for one in bases])}")
    return found


def class_at(path: str, what: str) -> type[Any] | None:
    """The class that an import path names; None where there is no such module, or no class of that name in it.

    Args:
        path: ``package.module.Name``.
        what: the word for it in messages.

    Raises:
        UserError: for a module that raises an error while it is imported, which is the cause.
    """
    module, _, name = path.rpartition(".")
    if not module or not all(map(str.isidentifier, path.split("."))):
        return None
    try:
        found = getattr(importlib.import_module(module), name, None)
    except (Exception, SystemExit) as error:  # a module of the user may raise anything
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            return None
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{what} {path}: {module} cannot be imported ({reason})") from error
    return found if inspect.isclass(found) else None


def refuse_imports(description: object, source: str) -> None:
    """Refuse a description that would import a module, as those in weight files must not.

    A text with a dot counts as an import path, wherever it stands. A class that is imported already is no danger.

    Args:
        description: plain data.
        source: the file that it is from, for the message.

    Raises:
        UserError: naming the module.
    """
    if isinstance(description, Mapping | list | tuple):
        for part in description.values() if isinstance(description, Mapping) else description:
            refuse_imports(part, source)
    elif isinstance(description, str) and "." in description:
        module, _, name = description.rpartition(".")
        # not getattr, which imports what a module loads lazily
        if not inspect.isclass(vars(sys.modules.get(module, object)).get(name)):
            raise UserError(
                f"{source} names {shown(description)}, and weights import nothing. If you trust that module, import it "
                "first, then load again"
            )


def imported(path: str) -> Any:
    """What an import path names, ``package.module.Name``.

    Raises:
        ImportError: if there is no such module, or no module in the path.
        AttributeError: if the module has no such name.
    """
    module, _, name = path.rpartition(".")
    if not module:
        raise ImportError(f"{path!r} is no import path, package.module.Name")
    return getattr(importlib.import_module(module), name)


def import_path(cls: type[Any]) -> str:
    """What `imported` finds a class by."""
    return f"{cls.__module__}.{cls.__qualname__}"


def check_names(chosen: Iterable[str], valid: Sequence[str], what: str) -> None:
    """Refuse an argument that is not one of the valid ones.

    Args:
        chosen: the names of arguments of a description.
        valid: those that it may have.
        what: what is described, for the message.

    Raises:
        UserError: naming the first wrong one, and the valid ones.
    """
    for name in chosen:
        if name not in valid:
            raise UserError(
                f"{what} has no argument {name!r}{did_you_mean(name, valid)}; valid: {one_of(valid) or 'none'}"
            )


def keyword_arguments(function: Callable[..., object]) -> list[str]:
    """The names of the keyword-only parameters of a function or class."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]


def defaults(function: Callable[..., object]) -> dict[str, Any]:
    """The default values of the keyword-only parameters that have one."""
    parameters = inspect.signature(function).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default is not inspect.Parameter.empty
    }


def check_types(chosen: Mapping[str, Any], types: Mapping[str, Any], what: str) -> None:
    """Refuse a chosen value that does not fit the annotation of its argument.

    Args:
        chosen: arguments of a description.
        types: the annotation of each argument, as `typing.get_type_hints` gives it; one without takes any value.
        what: what is described, for the message.

    Raises:
        UserError: naming the argument and what it must be.
    """
    for name, value in chosen.items():
        if not _fits(value, types.get(name, Any)):
            raise UserError(f"{what}: {name} must be {_readable(types[name])}, not {shown(repr(value))}")


_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    type(None): "null",
    Sequence: "a list",
    tuple: "a list",
    Mapping: "a mapping",
    dict: "a mapping",
}


def _fits(value: object, hint: Any) -> bool:
    if hint in (Any, object):
        return True
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in inner)
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
    word = _WORDS.get(get_origin(hint) or hint, "another kind of value")
    inner = get_args(hint)
    return f"{word} of {_readable(inner[0]).removeprefix('a ')}s" if word == "a list" and inner != (Any,) else word


def difference(saved: dict[str, Any], asked: dict[str, Any], name: str = "backbone") -> str:
    """The first argument in which two descriptions differ, with both values."""
    for key in [*saved, *asked]:
        one, other = saved.get(key), asked.get(key)
        if isinstance(one, dict) and isinstance(other, dict) and one.get("kind") == other.get("kind") and one != other:
            return difference(one, other, f"{name}.{key}")
        if one != other:
            return f"its {name}.{key} is {one}, but {other} is asked for"
    return f"its {name} is {saved}, but {asked} is asked for"
