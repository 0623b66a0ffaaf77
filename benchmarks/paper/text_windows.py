"""Pieces of a text as a forecasting task: a window holds characters, and what is forecast is how they surprise.

The target is 0 everywhere, and a model answers with its surprise at each character, the negative logarithm of the
probability that it gave to it: so the absolute error is the cross-entropy in nats.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from benchmarks.paper.documentation import documentation_strings
from benchmarks.paper.drawn_data import Drawn, DrawnDataModule
from tsattn.errors import UserError
from tsattn.task import Task

__all__ = ["SYMBOLS", "TextDataModule", "check_text_task"]

SYMBOLS = 256
"""What a character can be: a byte of UTF-8."""

_SHARES = {"train": (0.0, 0.9), "val": (0.9, 0.95), "test": (0.95, 1.0)}


def check_text_task(task: Task) -> int:
    """T, the characters of a piece that are forecast, of a task with its sizes.

    Raises:
        UserError: if the task is none of texts.
    """
    if task.num_channels != 1 or task.context_length != task.prediction_length + 1:
        raise UserError(
            f"pieces of a text are one channel with context_length prediction_length + 1, not {task.num_channels} with "
            f"{task.context_length} and {task.prediction_length}"
        )
    return task.prediction_length


class TextDataModule(DrawnDataModule):
    """Pieces of a text, as bytes of UTF-8: each of the last T from those before it in its piece.

    The first nine tenths of the text are for training, where pieces begin anywhere; the rest is halved for validation
    and testing, where they are spread evenly. A window is `T + 1` bytes as numbers.

    Args:
        text: a file; by default the documentation strings of Python's standard library.
        prediction_length: T.
        val_draws: pieces for validation.
        test_draws: pieces for testing.
        **options: see `DrawnDataModule`.

    Raises:
        UserError: for a text that cannot be read, or is too short for a piece of each part.
    """

    def __init__(
        self,
        text: str | None = None,
        prediction_length: int = 256,
        val_draws: int = 256,
        test_draws: int = 256,
        **options: Any,
    ) -> None:
        content = _content(text)
        self.text = text
        self._bytes = torch.from_numpy(np.frombuffer(content, np.uint8).copy())
        name = "documentation" if text is None else Path(text).stem
        how = f"{len(content)} bytes {hashlib.sha256(content).hexdigest()[:12]}"
        super().__init__(name, prediction_length + 1, prediction_length, how, val_draws, test_draws, **options)
        for part in _SHARES:
            if len(self.part_of(part)) <= self.prediction_length + 1:
                raise UserError(
                    f"the text {name} has {len(content)} bytes, too few for pieces of {prediction_length}: it takes "
                    f"{20 * (prediction_length + 2)} bytes or more"
                )

    def part_of(self, part: str) -> Tensor:
        """The bytes of ``train``, ``val`` or ``test``, uint8."""
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
        T = self.prediction_length
        past = text[starts[:, None] + torch.arange(T + 1)].float()
        return Drawn(past, torch.zeros(len(past), T))


def _content(text: str | None) -> bytes:
    if text is None:
        return documentation_strings().encode()
    try:
        return Path(text).read_bytes()
    except OSError as error:
        raise UserError(f"the text {text} cannot be read: {error.strerror}") from error
