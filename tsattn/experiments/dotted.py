"""Values of a configuration by their dotted paths, e.g. ``model.backbone.attention.ranks``."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tsattn.descriptions import DEFAULT_BACKBONE
from tsattn.errors import UserError
from tsattn.predictors import complete_predictor

__all__ = ["complete", "full_path", "get_at", "paths", "with_values"]

BACKBONE = "model.backbone"
_DATA = "data.init_args."
_PREDICTOR = re.compile(rf"{re.escape(BACKBONE)}(\.members\.\d+)?")  # a description of a predictor
_NONE = object()


def full_path(path: str) -> str:
    """The path in the YAML of what may be written as on the command line: ``attention.ranks``, ``data.batch_size``."""
    if path == "attention" or path.startswith("attention."):
        return f"{BACKBONE}.{path}"
    if path.startswith("data.") and not path.startswith(_DATA) and path != "data.class_path":
        return _DATA + path.removeprefix("data.")
    return path


def complete(config: Mapping[str, Any]) -> dict[str, Any]:
    """Copy with every argument of the predictor written out, so that each has its path and two can be compared."""
    copied = copy.deepcopy(dict(config))
    copied["model"]["backbone"] = complete_predictor(copied["model"]["backbone"])
    return copied


def paths(config: Any, prefix: str = "") -> Iterator[str]:
    """The dotted paths of all values, mappings included."""
    if isinstance(config, Mapping):
        for name, value in config.items():
            yield f"{prefix}{name}"
            yield from paths(value, f"{prefix}{name}.")
    elif isinstance(config, list):
        yield from paths({str(i): value for i, value in enumerate(config) if isinstance(value, Mapping)}, prefix)


def get_at(config: Any, path: str, default: Any = _NONE) -> Any:
    """The value at a dotted path of plain data, or the default.

    Raises:
        KeyError: if there is neither.
    """
    for name in path.split("."):
        if isinstance(config, list) and name.isdecimal() and int(name) < len(config):
            config = config[int(name)]
        elif isinstance(config, Mapping) and name in config:
            config = config[name]
        elif default is _NONE:
            raise KeyError(path)
        else:
            return default
    return config


def with_values(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a configuration with other values at some paths.

    Another ``kind`` starts its description afresh, as on the command line, so that no argument of the old kind stays;
    the kind that is there already changes nothing. Short paths come first, and kinds before their arguments, whatever
    the order of `values`.

    Raises:
        UserError: if a path leads through a value that has no parts.
    """
    changed = copy.deepcopy(dict(config))
    for path in sorted(values, key=lambda one: (one.count("."), one.rpartition(".")[2] != "kind")):
        _set(changed, path, copy.deepcopy(values[path]))
    return changed


def _set(config: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    at: Any = config
    for depth, name in enumerate(parents):
        at = _part(at, name, ".".join(parents[:depth]))
    if isinstance(at, list):
        at[_place(at, last, path)] = value
    elif last == "kind" and at.get("kind") != value:
        at.clear()
        at["kind"] = value
    else:
        at[last] = value


def _part(at: Any, name: str, above: str) -> Any:
    """A part that has parts itself; what is missing is begun, as its default in the description of a predictor."""
    path = f"{above}.{name}".lstrip(".")
    key: Any = _place(at, name, path) if isinstance(at, list) else name
    if isinstance(at, dict) and name not in at:
        if path == BACKBONE:
            at[name] = dict(DEFAULT_BACKBONE)
        elif _PREDICTOR.fullmatch(above) and "kind" in at:
            at[name] = complete_predictor({"kind": at["kind"]}).get(name)
        else:
            at[name] = {}
    part = at[key]
    if isinstance(part, str) and f"{path}.".startswith(f"{BACKBONE}."):  # a kind's bare name
        part = at[key] = {"kind": part}
    if not isinstance(part, dict | list):
        raise UserError(f"{path} is {part!r}, so nothing inside it can be set")
    return part


def _place(at: list[Any], name: str, path: str) -> int:
    """The number of an element, checked."""
    if not (name.isdecimal() and int(name) < len(at)):
        raise UserError(f"{path.rpartition('.')[0]} is a list of {len(at)}, so there is no {path}")
    return int(name)
