"""A text that every machine has: the documentation strings of Python's standard library."""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tsattn.errors import UserError

__all__ = ["documentation_strings"]

_LEFT_OUT = {"test", "tests", "site-packages", "dist-packages", "idlelib", "lib2to3", "turtledemo", "ensurepip"}
_LEAST = 100_000  # characters, below which there is no library to speak of


@cache
def documentation_strings() -> str:
    """The documentation strings of the modules, classes and functions of the library of the interpreter that runs.

    They are read from its files, none of which is imported. Each is there once. The order of the files is that of
    their hashed names, so that no part of the text is about one thing alone.

    Raises:
        UserError: where the interpreter has no such files.
    """
    root = Path(sysconfig.get_path("stdlib"))
    found: dict[str, None] = {}
    for path in sorted(_files(root), key=lambda path: _hashed(path.relative_to(root).as_posix())):
        try:
            tree = ast.parse(path.read_bytes())
        except SyntaxError:
            continue
        for node in _statements(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    found.setdefault(text)
    whole = "\n\n".join(found)
    if len(whole) < _LEAST:
        raise UserError(f"this Python has no source files of its standard library in {root}: give a text, --text FILE")
    return whole


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """What may hold definitions, in the order of `ast.walk`, without the expressions, which are most of a file."""
    waiting = deque([tree])
    while waiting:
        node = waiting.popleft()
        yield node
        inner = ast.iter_child_nodes(node)
        waiting.extend(one for one in inner if isinstance(one, ast.stmt | ast.excepthandler | ast.match_case))


def _files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).parts
        if not _LEFT_OUT.intersection(parts) and parts[0].removesuffix(".py") in sys.stdlib_module_names:
            yield path


def _hashed(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
