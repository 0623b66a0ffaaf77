"""Configurations as files: found by name, and read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tsattn.errors import UserError, one_of

__all__ = ["config_names", "find_config", "read_config"]


def config_names(pattern: str = "*.yaml") -> list[str]:
    """Names of the configurations that can be given without a folder; of search spaces with ``search/*.yaml``."""
    return sorted({str(path.relative_to(folder)) for folder in _folders() for path in folder.glob(pattern)})


def find_config(name: str | Path, what: str = "configuration", pattern: str = "*.yaml") -> Path:
    """The file of this name, or one of those that come with tsattn.

    Raises:
        UserError: if there is none; the message lists those that match the pattern.
    """
    for path in (Path(name), *(folder / file for folder in _folders() for file in (name, f"{name}.yaml"))):
        if path.is_file():
            return path
    raise UserError(f"no {what} {name}: neither a file nor one of {one_of(config_names(pattern))}")


def read_config(path: Path) -> Mapping[str, Any]:
    """The content of a configuration.

    Raises:
        UserError: if it is none.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, Mapping):
        raise UserError(f"{path} is not a configuration: it must hold the keys data, model and trainer")
    return content


def _folders() -> list[Path]:
    package = Path(__file__).resolve().parents[1]
    # installed, the configurations lie inside the package; in a checkout, beside it
    return [folder for folder in (Path("configs"), package / "configs", package.parent / "configs") if folder.is_dir()]
