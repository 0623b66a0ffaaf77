"""The types of the public names, as a user's script meets them: `make lint` holds it to `mypy --strict`."""

import ast
import importlib.metadata
import tomllib
from pathlib import Path

import tsattn

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("users_script.py")


def test_a_script_that_uses_every_public_name_is_checked() -> None:
    tree = ast.parse(SCRIPT.read_text())
    (imported,) = [one for one in tree.body if isinstance(one, ast.ImportFrom) and one.module == "tsattn"]
    names = {alias.name for alias in imported.names} - {"__version__"}
    assert names == set(tsattn.__all__)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert names <= used
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert settings["strict"]
    assert "tests.release.users_script" in settings["modules"]


def test_the_version_is_that_of_the_project() -> None:
    assert tsattn.__version__ == importlib.metadata.version("tsattn")
    assert "__version__" not in vars(tsattn), "it is looked up when it is asked for"
    assert tsattn.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
