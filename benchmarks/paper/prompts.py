"""In-context linear regression as a forecasting task: a window is a prompt laid flat.

Source: Garg et al., *What Can Transformers Learn In-Context?* (2022); Kuang et al. (ICML 2025), section 4.

Shape letters: B prompts, n pairs, d dimensions.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from benchmarks.paper.drawn_data import Drawn, DrawnDataModule
from tsattn.batch import Batch
from tsattn.errors import UserError, whole_number
from tsattn.task import Task


def flat_prompts(x: Tensor, y: Tensor) -> Tensor:
    """Lay points `(B, n, d)` and values `(B, n)` flat: `x_1, y_1, x_2, ..., x_n`, `(B, n (d + 1) - 1)`.

    The last value is left out: a prompt asks for it.
    """
    return torch.cat([x, y[..., None]], dim=-1).flatten(1)[:, :-1]


def pairs_of(batch: Batch, dimensions: int) -> tuple[Tensor, Tensor]:
    """Return the points `(B, n, d)` and values `(B, n - 1)` of flat prompts."""
    flat = batch.past[..., 0]
    rows = torch.cat([flat, flat.new_zeros(len(flat), 1)], dim=1).unflatten(1, (-1, dimensions + 1))
    return rows[..., :-1], rows[:, :-1, -1]


def dimensions_of(task: Task) -> int:
    """Return d of prompts with the sizes of a task, which is refused if it is none of prompts."""
    n = task.prediction_length
    d, rest = divmod(task.context_length + 1 - n, n)
    if rest or d < 1 or task.num_channels != 1:
        raise UserError(
            f"prompts of {n} pairs in d dimensions are one channel with context_length {n} (d + 1) - 1, "
            f"not {task.num_channels} with {task.context_length}"
        )
    return d


class PromptDataModule(DrawnDataModule):
    """Prompts of points `x_i` and values `y_i = w . x_i`, with x and w standard normal, another w in each prompt.

    All values are forecast, each from the pairs before it; in training all count, in validation and testing the last.

    Up to `curriculum`, a share of the training, prompts have fewer dimensions, the others being 0, and fewer pairs:
    d / 4 (at least one) at first, then one more after equal numbers of steps, and twice as many pairs as dimensions.
    """

    def __init__(
        self, dimensions: int = 8, prediction_length: int | None = None, curriculum: float = 0.06, **options: Any
    ) -> None:
        self.dimensions = d = whole_number("dimensions", dimensions)
        n = 2 * d if prediction_length is None else whole_number("prediction_length", prediction_length)
        if not 0 <= curriculum <= 1:
            raise UserError(f"curriculum must be a share from 0 to 1, not {curriculum}")
        self.curriculum = curriculum
        how = f"values in {d} dimensions, fewer in the first {curriculum:g} of the training"
        super().__init__("prompts", n * (d + 1) - 1, n, how, **options)

    def dimensions_at(self, done: float) -> int:
        """Return how many dimensions there are after a share of the training."""
        d = self.dimensions
        first = max(1, d // 4)
        return d if done >= self.curriculum else first + math.floor((d - first) * done / self.curriculum)

    @override
    def draw(self, count: int, generator: torch.Generator, done: float | None = None) -> Drawn:
        n, d = self.prediction_length, self.dimensions
        x = torch.randn(count, n, d, generator=generator)
        w = torch.randn(count, d, 1, generator=generator)
        if done is None:
            scored = torch.arange(n) == n - 1
        else:
            known = self.dimensions_at(done)
            x[..., known:] = 0
            # which pairs follow those that count makes no difference to a model that sees no later token
            scored = torch.arange(n) < max(1, n * known // d)
        y = (x @ w)[..., 0]
        return Drawn(flat_prompts(x, y), y, scored)
