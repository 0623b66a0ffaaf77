"""Configurations as files: found by name, and read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tsattn.descriptions import parsed
from tsattn.errors import UserError, did_you_mean, one_of, shown

__all__ = ["SECTIONS", "check_sections", "config_names", "find_config", "read_config"]

SECTIONS = ("seed_everything", "data", "model", "trainer")


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


def read_config(path: Path) -> Mapping[str, Any]:
    """The content of a configuration.

    Raises:
        UserError: if it is none.
    """
    try:
        content = parsed(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, Mapping):
        raise UserError(f"{path} is not a configuration: it must hold the keys data, model and trainer")
    check_sections(content, f"{path}: ")
    return content


def check_sections(content: Mapping[str, Any], source: str = "") -> None:
    """Refuse a description whose keys are not those of an experiment, or that holds no options under them.

    Args:
        content: plain data by the keys of the YAML.
        source: the beginning of the message.
    """
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
    others = (
        {*data} - {"class_path", "init_args", "dict_kwargs"}
        if isinstance(data, Mapping) and "class_path" in data
        else ()
    )
    for name in others:
        raise UserError(
            f"{source}data has no key {name!r} beside class_path; arguments of the class belong under init_args"
        )


def _folders() -> list[Path]:
    package = Path(__file__).resolve().parents[1]
    # installed, the configurations lie inside the package; in a checkout, beside it
    return [folder for folder in (Path("configs"), package / "configs", package.parent / "configs") if folder.is_dir()]
