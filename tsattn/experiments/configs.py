"""Configurations as files and their values by dotted paths, and a sentence for each way in which a parser refuses one.

Nothing here needs Lightning. Parsers say what they refuse as text alone, so it is read by regular expressions.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tsattn.descriptions import DEFAULT_BACKBONE, parsed
from tsattn.errors import UserError, did_you_mean, one_of, shown
from tsattn.predictors import complete_predictor

__all__ = ["BACKBONE", "SECTIONS", "check_sections", "complete", "config_names", "find_config", "full_path", "get_at"]
__all__ += ["paths", "read_config", "sentence", "under_key", "with_values"]

BACKBONE = "model.backbone"
SECTIONS = ("seed_everything", "data", "model", "trainer")
_KINDS = {
    **{"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"},
    "Sequence": 'a list, such as "[a, b]"',
}
_NONE = object()
# the option that a file alone was most likely meant for
_OWN_FILE = "--data CSVDataModule --data.path"
_FILES = {
    **dict.fromkeys((".csv", ".csv.gz", ".parquet", ".arrow"), _OWN_FILE),
    **dict.fromkeys((".yaml", ".yml"), "--config"),
}


def config_names(pattern: str = "*.yaml") -> list[str]:
    """Names of the configurations that can be given without a folder; of search spaces with ``search/*.yaml``."""
    return sorted({str(path.relative_to(folder)) for folder in _folders() for path in folder.glob(pattern)})


def find_config(name: str | Path, what: str = "configuration", pattern: str = "*.yaml") -> Path:
    """The file of this name, or an included one.

    Raises:
        UserError: if there is none; the message lists those that match the pattern.
    """
    for path in (Path(name), *(folder / file for folder in _folders() for file in (name, f"{name}.yaml"))):
        if path.is_file():
            return path
    known = config_names(pattern)
    meant = did_you_mean(Path(name).stem, [Path(one).stem for one in known])
    meant = meant.replace("mean ", f"mean {pattern.removesuffix('*.yaml')}")
    raise UserError(f"no {what} {name}{meant}: neither a file nor one of {one_of(known)}")


def _folders() -> list[Path]:
    package = Path(__file__).resolve().parents[1]
    # installed, the configurations lie inside the package; in a checkout, beside it
    return [folder for folder in (Path("configs"), package / "configs", package.parent / "configs") if folder.is_dir()]


def read_config(path: Path) -> Mapping[str, Any]:
    """The content of a configuration; a `UserError` if it is none."""
    try:
        content = parsed(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, Mapping):
        raise UserError(f"{path} is not a configuration: it must hold the keys data, model and trainer")
    check_sections(content, f"{path}: ")
    return content


def check_sections(content: Mapping[str, Any], source: str = "") -> None:
    """Refuse a description whose keys are not those of an experiment; the source begins the message."""
    if not isinstance(content, Mapping):
        what = f"{source}an experiment is a mapping of {one_of(SECTIONS)}, not {shown(repr(content))}"
        raise UserError(f"{what}; read a file with `Experiment.read(NAME)`")
    for name, value in content.items():
        if name not in SECTIONS:
            meant = did_you_mean(name, SECTIONS)
            raise UserError(f"{source}an experiment has no key {name!r}{meant}; valid: {one_of(SECTIONS)}")
        if name in ("model", "trainer") and not isinstance(value, Mapping):
            raise UserError(f"{source}{name} must hold options by their names, not {shown(repr(value))}")
    data = content.get("data", {})
    if not isinstance(data, str | Mapping):
        raise UserError(f"{source}data must be a class, or hold class_path and init_args, not {shown(repr(data))}")
    if isinstance(data, Mapping) and data and not {"class_path", "init_args"} & set(data):
        raise UserError(f"{source}data must name a class as class_path, with the arguments of that under init_args")
    if isinstance(data, Mapping) and "class_path" in data:
        for name in {*data} - {"class_path", "init_args", "dict_kwargs"}:
            what = f"{source}data has no key {name!r} beside class_path"
            raise UserError(f"{what}; arguments of the class belong under init_args")


# values by their dotted paths, e.g. ``model.backbone.attention.ranks``


def full_path(path: str) -> str:
    """The path in the YAML of what may be written as on the command line: ``attention.ranks``, ``data.batch_size``."""
    if path == "attention" or path.startswith("attention."):
        return f"{BACKBONE}.{path}"
    if path.startswith("data.") and not path.startswith("data.init_args.") and path != "data.class_path":
        return f"data.init_args.{path.removeprefix('data.')}"
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
    """The value at a dotted path of plain data, or the default; without one, a KeyError says what is not there."""
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
    """Copy a configuration with other values at some paths, whose way must not lead through a value without parts.

    Another ``kind`` starts its description afresh, as on the command line, so that no argument of the old kind stays;
    the kind that is there already changes nothing. Short paths come first, and kinds before their arguments, whatever
    the order of `values`.
    """
    changed = copy.deepcopy(dict(config))
    for path in sorted(values, key=lambda one: (one.count("."), one.rpartition(".")[2] != "kind")):
        *parents, last = path.split(".")
        at: Any = changed
        for depth, name in enumerate(parents):
            at = _part(at, name, ".".join(parents[:depth]))
        if isinstance(at, dict) and last == "kind" and at.get("kind") != values[path]:
            at.clear()
        at[_place(at, last, path)] = copy.deepcopy(values[path])
    return changed


def _part(at: Any, name: str, above: str) -> Any:
    """A part that has parts itself; what is missing is begun, as its default in the description of a predictor."""
    path = f"{above}.{name}".lstrip(".")
    key = _place(at, name, path)
    if isinstance(at, dict) and name not in at:
        if path == BACKBONE:
            at[name] = dict(DEFAULT_BACKBONE)
        elif re.fullmatch(r"model\.backbone(\.members\.\d+)?", above) and "kind" in at:  # of a predictor
            at[name] = complete_predictor({"kind": at["kind"]}).get(name)
        else:
            at[name] = {}
    part = at[key]
    if isinstance(part, str) and f"{path}.".startswith(f"{BACKBONE}."):  # a kind's bare name
        part = at[key] = {"kind": part}
    if not isinstance(part, dict | list):
        raise UserError(f"{path} is {part!r}, so nothing inside it can be set")
    return part


def _place(at: Any, name: str, path: str) -> Any:
    """The key of a part; of a list its number, checked."""
    if not isinstance(at, list):
        return name
    if not (name.isdecimal() and int(name) < len(at)):
        raise UserError(f"{path.rpartition('.')[0]} is a list of {len(at)}, so there is no {path}")
    return int(name)


# sentences


def sentence(message: str, *, options: Iterable[str], data_sets: Iterable[str] = (), prog: str = "tsattn") -> str:
    """A parser's message as one sentence that names the argument and says what is valid, of its options.

    The data sets are the names of the DataModules that ``--data`` takes, `prog` is the command as it is typed.
    """
    hidden = ("--help", "--print_config", "--print_shtab")
    # with a plus at its end an option adds to a list
    names = [one for one in options if one.startswith("--") and not one.endswith("+") and not one.startswith(hidden)]
    if found := re.search(
        r"unrecognized arguments: (\S+)|Option '([^']+)' is not accepted|Key '([^']+)' is not expected", message, re.I
    ):
        return _unknown(next(filter(None, found.groups())), names, prog)
    if found := re.search(r"Group '([^']+)' does not accept option '([^']+)'", message):
        return _unknown(f"--{found[1]}.{found[2]}", names, prog)
    if found := re.search(r"arguments are required: (\w+)", message):
        if found[1] not in ("data", "source"):
            return f"{_flag(found[1], names)} is missing"
        public = "--data PublicDataModule --data.name NAME"
        return f"`--data` names no class; give `--config NAME`, `{_OWN_FILE} FILE` or `{public}`"
    if found := re.search(r"argument (?:-\w/)?(--[\w.-]+)\S*: expected", message):
        return f"{found[1]} needs a value"
    if found := re.search(r"argument (--\S+): invalid (\w+) value: '(.*)'", message):
        return f"{found[1]} must be {_KINDS.get(found[2], found[2])}, not {found[3]}"
    key = re.search(r'(?:Parser key|key) "([^"]+)"', message)
    value = re.search(r"(?:Given|Got) value: (.{0,100})", message)
    given = f"not {value[1].strip()}" if value else "not what was given"
    if key and key[1] == "data":
        if found := re.search(r"Multiple subclasses with name (\S+)\. .*?: (.*)\.", message):
            return f"--data {found[1]} names more than one class; give the import path of one: {found[2]}"
        return f"--data must be one of {one_of(data_sets)}, or the import path of a ForecastDataModule, {given}"
    if not key or not value:
        return " ".join(message.split())[:400]
    flag, expected = _flag(key[1], names), message.split("Given value type")[0]
    choices = [name.strip("'") for some in re.findall(r"Literal\[([^\]]*)\]", expected) for name in some.split(", ")]
    if choices:
        number = ", or a whole number" if "<class 'int'>" in expected else ""
        return f"{flag} must be one of {one_of(dict.fromkeys(choices))}{number}, {given}"
    if found := re.search(r"Expected a dot import path string: (\S+)", message):
        return f"{flag} names no class: {found[1]}; valid is one of Lightning's by its name, or an import path"
    types = [name for name in re.findall(r"<class '(?:\w+\.)*(\w+)'>", expected) if name != "NoneType"]
    kinds = " or ".join(_KINDS.get(name, name) for name in dict.fromkeys(types)) or "another kind of value"
    return f"{flag} must be {kinds}, {given}"


def _unknown(name: str, names: list[str], prog: str) -> str:
    option = next((one for suffix, one in _FILES.items() if name.endswith(suffix)), None)
    if option == _OWN_FILE and "--input" in names:
        option = "--input"
    if option is not None and not name.startswith("-") and option.split()[0] in names:
        return f"Did you mean: {prog} {option} {name}?"
    group = name.rpartition(".")[0]
    # of a command with a hundred options, those of the group, if they are few
    near = [option for option in names if group and option.rpartition(".")[0] == group]
    valid = one_of(names)
    if len(names) >= 20 and any("." in option for option in names):
        valid = one_of(near) if 0 < len(near) < 20 else "all those that `--help-all` lists"
    # a whole group is not what somebody meant who has named an option of it
    hint = did_you_mean(name, (option for option in names if not name.startswith(f"{option}.")))
    return f"unknown argument {name}{hint}; valid: {valid}"


def _flag(key: str, names: Iterable[str]) -> str:
    """The flag of a key, also of one that the parser names without the class that it is an argument of."""
    flag = f"--{key.removeprefix('--')}"
    full = [name for name in names if name.endswith(f".{key}")]
    return full[0] if flag not in names and len(full) == 1 else flag


def under_key(text: str, message: str) -> str:
    """Name an argument as on the command line in what the parser of a class says of it.

    The message is that of the parser of the command, which names the key of the class, such as ``data``.
    """
    key = re.search(r'Parser key "([\w.]+)"', message)
    if key is not None and text.startswith("--") and not text.startswith(f"--{key[1]}"):
        return f"--{key[1]}.{text.removeprefix('--')}"
    if key is None or not text.startswith("unknown argument "):
        return text
    return re.sub(r"(?<![\w.-])--(?=\w)", f"--{key[1]}.", re.sub("(?<=^unknown argument )(--)?(?=[^-])", "--", text))
