"""Configurations as files, and their values by dotted paths; nothing here needs Lightning."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tsattn.descriptions import parsed
from tsattn.errors import UserError, did_you_mean, one_line, one_of, shown
from tsattn.predictors import DEFAULT, complete_predictor, network_for

BACKBONE = "model.backbone"
SECTIONS = ("seed_everything", "data", "model", "trainer")
_NONE = object()


def config_names(pattern: str = "*.yaml") -> list[str]:
    """Names of the configurations that need no folder; with ``search/*.yaml``, names of search spaces."""
    return sorted({str(path.relative_to(folder)) for folder in _folders() for path in folder.glob(pattern)})


def find_config(name: str | Path, what: str = "configuration", folder: str = "") -> Path:
    """Find a file by its name, or an included file, whose folder may be left out; a `UserError` lists these."""
    inside = "" if Path(name).parts[:1] == (folder,) else folder
    places = [place / inside for place in _folders()]
    for path in (Path(name), *(place / file for place in places for file in (name, f"{name}.yaml"))):
        if path.is_file():
            return path
    known = config_names(str(Path(folder, "*.yaml")))
    stems = [Path(one).stem for one in known]
    listed = one_of(stems if folder else known)
    raise UserError(f"no {what} {name}{did_you_mean(Path(name).stem, stems)}: neither a file nor one of {listed}")


def _folders() -> list[Path]:
    package = Path(__file__).resolve().parents[1]  # holds the configurations once it is installed
    return [folder for folder in (Path("configs"), package / "configs", package.parent / "configs") if folder.is_dir()]


def read_config(path: Path) -> Mapping[str, Any]:
    """Read a configuration; a `UserError` if the file holds none."""
    try:
        content = parsed(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {one_line(error)}") from error
    if not isinstance(content, Mapping):
        raise UserError(f"{path} is not a configuration: it must hold the keys data, model and trainer")
    check_sections(content, f"{path}: ")
    return content


def check_sections(content: Mapping[str, Any], source: str = "") -> None:
    """Refuse a description with keys that an experiment does not have; the source begins the message."""
    if not isinstance(content, Mapping):
        what = f"{source}an experiment must hold the keys {one_of(SECTIONS)}, not {shown(repr(content))}"
        raise UserError(f"{what}; read a file with `Experiment.read(NAME)`")
    for name, value in content.items():
        if name not in SECTIONS:
            meant = did_you_mean(name, SECTIONS)
            raise UserError(f"{source}an experiment has no key {name!r}{meant}; valid: {one_of(SECTIONS)}")
        if name in ("model", "trainer") and not isinstance(value, Mapping):
            raise UserError(f"{source}{name} must hold options by their names, not {shown(repr(value))}")
    data = content.get("data", {})
    keys = {*data} if isinstance(data, Mapping) else {data}
    if not isinstance(data, str) and not keys <= {"class_path", "init_args", "dict_kwargs"}:
        what = "data must name a class, or hold class_path and init_args"
        raise UserError(f"{source}{what}, not {shown(repr(data))}")


def full_path(path: str) -> str:
    """The path in the YAML, given a path as on the command line: ``attention.ranks``, ``data.batch_size``."""
    if f"{path}.".startswith("attention."):
        return f"{BACKBONE}.{path}"
    if path.startswith("data.") and not path.startswith("data.init_args.") and path != "data.class_path":
        return f"data.init_args.{path.removeprefix('data.')}"
    return path


def paths(config: Any, prefix: str = "") -> Iterator[str]:
    """The dotted paths of all values, mappings included."""
    if isinstance(config, Mapping):
        for name, value in config.items():
            yield f"{prefix}{name}"
            yield from paths(value, f"{prefix}{name}.")
    elif isinstance(config, list):
        yield from paths({str(i): value for i, value in enumerate(config) if isinstance(value, Mapping)}, prefix)


def get_at(config: Any, path: str, default: Any = _NONE) -> Any:
    """The value at a dotted path of plain data, or the default; without a default, a KeyError names the path."""
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
    """Copy a configuration with other values at some paths; another ``kind`` drops the arguments of the old one."""
    changed, values = copy.deepcopy(dict(config)), {full_path(path): value for path, value in values.items()}
    for path in sorted(values, key=lambda one: (one.count("."), one.rpartition(".")[2] != "kind")):
        whole = isinstance(given := values[path], str) or (isinstance(given, Mapping) and "class_path" in given)
        if path in ("model", "trainer") or (path == "data" and not whole):  # would lose the rest
            raise UserError(f"{path} is a section; name an option, such as model.learning_rate or data.batch_size")
        at: Any = changed
        above, _, last = path.rpartition(".")
        for depth, name in enumerate(above.split(".") if above else ()):
            at = _part(at, name, ".".join(above.split(".")[:depth]))
        if isinstance(at, dict) and last == "kind" and at.get("kind") != values[path]:
            at.clear()
        at[_place(at, last, path)] = copy.deepcopy(values[path])
    return changed


def _part(at: Any, name: str, above: str) -> Any:
    """Return an inner part; a missing part is begun, with the predictor's default in a predictor's description."""
    path = f"{above}.{name}".lstrip(".")
    key = _place(at, name, path)
    if path == BACKBONE:  # the default takes arguments of its network
        at[key] = network_for(at.get(key, DEFAULT))
    elif path == "data" and isinstance(at.get(key), str):  # a bare name of a class
        at[key] = {"class_path": at[key]}
    elif isinstance(at, dict) and name not in at:
        at[name] = {}
        if re.fullmatch(r"model\.backbone(\.members\.\d+)?", above) and "kind" in at:  # of a predictor
            at[name] = complete_predictor({"kind": at["kind"]}).get(name)
    if isinstance(at[key], str) and f"{path}.".startswith(f"{BACKBONE}."):  # a kind's bare name
        at[key] = {"kind": at[key]}
    if not isinstance(at[key], dict | list):
        raise UserError(f"{path} is {at[key]!r}, so nothing inside it can be set")
    return at[key]


def _place(at: Any, name: str, path: str) -> Any:
    """The key of a part; in a list its number, which is checked."""
    if isinstance(at, list) and not (name.isdecimal() and int(name) < len(at)):
        raise UserError(f"{path.rpartition('.')[0]} is a list of {len(at)}, so there is no {path}")
    return int(name) if isinstance(at, list) else name
