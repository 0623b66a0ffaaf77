"""Pieces of a text as a forecasting task: a window holds characters, and the forecast is their surprise.

The target is 0 everywhere, and a model answers with its surprise at each character, the negative logarithm of the
probability that it gave to it: so the absolute error is the cross-entropy in nats.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from benchmarks.paper.drawn_data import Drawn, DrawnDataModule
from tsattn.errors import UserError
from tsattn.task import Task

SYMBOLS = 256  # a character is a byte of UTF-8
_SHARES = {"train": (0.0, 0.9), "val": (0.9, 0.95), "test": (0.95, 1.0)}
_LEFT_OUT = {"test", "tests", "site-packages", "dist-packages", "idlelib", "lib2to3", "turtledemo", "ensurepip"}
_LEAST = 100_000  # characters of a library


def check_text_task(task: Task) -> int:
    """Return T, the characters of a piece that are forecast; a task that is none of texts is refused."""
    if task.num_channels != 1 or task.context_length != task.prediction_length + 1:
        raise UserError(
            f"pieces of a text are one channel with context_length prediction_length + 1, not {task.num_channels} with "
            f"{task.context_length} and {task.prediction_length}"
        )
    return task.prediction_length


class TextDataModule(DrawnDataModule):
    """Pieces of a text, as bytes of UTF-8: each of the last T from those before it in its piece.

    The first nine tenths of the text are for training, where pieces begin anywhere; the rest is halved for validation
    and testing, where they are spread evenly. A window is `T + 1` bytes as numbers. The text is a file, by default the
    documentation strings of Python's standard library.
    """

    def __init__(
        self,
        text: str | None = None,
        prediction_length: int = 256,
        val_draws: int = 256,
        test_draws: int = 256,
        **options: Any,
    ) -> None:
        try:
            content = documentation_strings().encode() if text is None else Path(text).read_bytes()
        except OSError as error:
            raise UserError(f"the text {text} cannot be read: {error.strerror}") from error
        self.text = text
        self._bytes = torch.from_numpy(np.frombuffer(content, np.uint8).copy())
        name = "documentation" if text is None else Path(text).stem
        how = f"{len(content)} bytes {hashlib.sha256(content).hexdigest()[:12]}"
        super().__init__(name, prediction_length + 1, prediction_length, how, val_draws, test_draws, **options)
        if any(len(self.part_of(part)) <= prediction_length + 1 for part in _SHARES):
            raise UserError(
                f"the text {name} has {len(content)} bytes, too few for pieces of {prediction_length}: it takes "
                f"{20 * (prediction_length + 2)} bytes or more"
            )

    def part_of(self, part: str) -> Tensor:
        first, last = (round(share * len(self._bytes)) for share in _SHARES[part])
        return self._bytes[first:last]

    @override
    def draw(self, count: int, generator: torch.Generator, done: float | None = None) -> Drawn:
        text = self.part_of("train")
        return self._pieces(text, torch.randint(len(text) - self.prediction_length, (count,), generator=generator))

    @override
    def held_out(self, part: str, count: int, generator: torch.Generator) -> Drawn:
        text = self.part_of(part)
        last = len(text) - self.prediction_length - 1
        # float32 knows no odd numbers above 16 million
        return self._pieces(text, torch.linspace(0, last, count, dtype=torch.float64).long())

    def _pieces(self, text: Tensor, starts: Tensor) -> Drawn:
        past = text[starts[:, None] + torch.arange(self.prediction_length + 1)].float()
        return Drawn(past, torch.zeros(len(past), self.prediction_length))


@cache
def documentation_strings() -> str:
    """Read the documentation strings of the interpreter's library from its files, none of which is imported.

    Each is there once. Files are ordered by their hashed names, so that no part of the text is about one thing alone.
    """
    root = Path(sysconfig.get_path("stdlib"))
    found: dict[str, None] = {}
    names = {path.relative_to(root).as_posix(): path for path in _library(root)}
    for name in sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest()):
        try:
            tree = ast.parse(names[name].read_bytes())
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    found.setdefault(text)
    whole = "\n\n".join(found)
    if len(whole) < _LEAST:
        raise UserError(f"this Python has no source files of its standard library in {root}: give a text")
    return whole


def _library(root: Path) -> Iterator[Path]:
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).parts
        if not _LEFT_OUT.intersection(parts) and parts[0].removesuffix(".py") in sys.stdlib_module_names:
            yield path
