"""Which context and penalty a ridge takes, of several: by validation windows, or by leaving out blocks of windows.

Shape letters: L context length, T prediction length, A penalties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tsattn.backbones.ridge_solution import (
    apply_ridge,
    normal_equations,
    regression_rows,
    solve_normal_equations,
)
from tsattn.batch import Batch
from tsattn.errors import UserError, number_of
from tsattn.predictors.contexts import last_context

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule

__all__ = ["SELECTORS", "Candidate", "least", "leave_block_out_errors", "ridge_maps", "validation_errors"]

SELECTORS = ("validation", "leave_block_out")

NUM_BLOCKS = 10


@dataclass(frozen=True)
class Candidate:
    """A ridge that may be chosen.

    Attributes:
        context_length: L.
        alpha: its penalty.
        mse: its mean squared error on the scale of the data.
    """

    context_length: int
    alpha: float
    mse: float

    @property
    def facts(self) -> dict[str, Any]:
        """As plain data."""
        return {"context_length": self.context_length, "alpha": self.alpha, "mse_scaled": self.mse}


def least(candidates: Iterable[Candidate]) -> Candidate:
    """The candidate of the least error, the first of several."""
    return min(candidates, key=lambda candidate: candidate.mse)


def ridge_maps(gram: Tensor, moment: Tensor, alphas: Sequence[float]) -> Tensor:
    """The map of each penalty, `(A, L, T)`, by one eigendecomposition for all of them.

    Args:
        gram: `(L, L)`, see `normal_equations`.
        moment: `(L, T)`.
        alphas: A penalties above 0.
    """
    if len(alphas) == 1:
        return solve_normal_equations(gram, moment, alphas[0])[None]
    values, vectors = torch.linalg.eigh(gram)
    shrunk = values.clamp(min=0) + values.new_tensor(alphas)[:, None]
    maps: Tensor = vectors @ ((vectors.T @ moment) / shrunk[..., None])
    return maps


def validation_errors(
    data: ForecastDataModule, contexts: Sequence[int], alphas: Sequence[float], say: Callable[[str], None]
) -> list[Candidate]:
    """The error of each context and penalty, fitted to the training windows, on all validation windows.

    Each context has its own training windows, all those that it leaves, and the same validation windows.

    Args:
        data: set up.
        contexts: L of each.
        alphas: penalties, each with every context.
        say: takes a line after each context.

    Raises:
        UserError: where no window is held out for validation.
    """
    if "val" not in data.parts:
        raise UserError(
            "a ridge of several alphas or contexts is chosen by validation windows, and the data has none; give one of "
            "each, or select: leave_block_out"
        )
    found: list[Candidate] = []
    for context in contexts:
        equations = normal_equations(data.eval_dataloader("train", context, data.thinning("train", context)))
        maps = ridge_maps(*equations, alphas)
        # side by side, as one map of A T outputs
        flat = maps.permute(1, 0, 2).flatten(1)
        squared, count = torch.zeros(len(alphas), dtype=torch.float64), 0.0
        for batch in data.eval_dataloader("val", context):
            assert batch.target is not None
            forecast = apply_ridge(flat, batch).unflatten(1, (len(alphas), -1))  # type: ignore[no-untyped-call]
            error = (forecast - batch.target.double()[:, None]).square()
            if batch.target_observed is not None:
                error = error.masked_fill(~batch.target_observed[:, None], 0.0)
                count += float(batch.target_observed.sum())
            else:
                count += batch.target.numel()
            squared += error.sum((0, 2, 3))
        found += _candidates(context, alphas, squared / count)
        _say_best(found[-len(alphas) :], "validation MSE", say)
    return found


def leave_block_out_errors(
    data: ForecastDataModule, contexts: Sequence[int], alphas: Sequence[float], say: Callable[[str], None]
) -> list[Candidate]:
    """The error of each context and penalty on blocks of training windows that were left out in their turn.

    Leaving out one window at a time would be no test, as its neighbours are the same but for a step. So the windows, in
    the order of series and time, are cut into ten blocks, and each is forecast by the map of all others but itself and
    its two neighbours, of which the nearest windows share rows with its own. (Where a block has fewer windows than a
    window has rows, some are shared still.) All contexts are compared on the windows that the longest leaves. It takes
    one pass over these: the errors follow from the normal equations of each block. Source: Racine, *Consistent
    cross-validatory model-selection for dependent data: hv-block cross-validation* (Journal of Econometrics, 2000).

    Args:
        data: set up.
        contexts: L of each.
        alphas: penalties, each with every context.
        say: takes a line before the pass, and one for each context.

    Raises:
        UserError: for fewer training windows than blocks.
    """
    longest = max(contexts)
    every = data.thinning("train", longest)
    windows = -(-len(data.windows("train", longest)) // every)
    if windows < NUM_BLOCKS:
        raise UserError(f"leave_block_out needs {NUM_BLOCKS} training windows or more, and there are {windows}")
    say(f"ridge: {windows} training windows in {NUM_BLOCKS} blocks, for {number_of(len(contexts), 'context')}")
    blocks = [[_Block(context, data.prediction_length) for _ in range(NUM_BLOCKS)] for context in contexts]
    bounds = [-(-windows * number // NUM_BLOCKS) for number in range(NUM_BLOCKS + 1)]
    first = 0
    for batch in data.eval_dataloader("train", longest, every):
        for place, (start, end) in enumerate(pairwise(bounds)):
            part = batch.rows(max(0, start - first), max(0, end - first))
            if len(part):
                for context, of_context in zip(contexts, blocks, strict=True):
                    of_context[place].add(last_context(part, context))
        first += len(batch)
    found: list[Candidate] = []
    for context, of_context in zip(contexts, blocks, strict=True):
        squared, count = torch.zeros(len(alphas), dtype=torch.float64), 0
        for place, block in enumerate(of_context):
            rest = [one for other, one in enumerate(of_context) if abs(other - place) > 1 and one.count]
            if not block.count or not rest:
                continue
            gram, moment = (
                torch.stack([*parts]).sum(0) for parts in ([r.gram for r in rest], [r.moment for r in rest])
            )
            maps = ridge_maps(gram, moment, alphas)
            squared += block.squared_errors(maps)
            count += block.count
        if not count:
            raise UserError("leave_block_out needs training windows with known targets in more than one block of them")
        found += _candidates(context, alphas, squared / count)
        _say_best(found[-len(alphas) :], "MSE of blocks left out", say)
    return found


class _Block:
    """The normal equations of a block of windows, and what the squared error of a map follows from."""

    def __init__(self, context_length: int, prediction_length: int) -> None:
        self.gram = torch.zeros(context_length, context_length, dtype=torch.float64)
        self.moment = torch.zeros(context_length, prediction_length, dtype=torch.float64)
        self.targets = torch.zeros((), dtype=torch.float64)
        self.count = 0

    def add(self, batch: Batch) -> None:
        """Windows of the block."""
        x, y = regression_rows(batch)
        self.gram += x.T @ x
        self.moment += x.T @ y
        self.targets += y.square().sum()
        self.count += y.numel()

    def squared_errors(self, maps: Tensor) -> Tensor:
        """`(A,)` of the maps `(A, L, T)`: `|Y|^2 - 2 <W, X' Y> + <W, X' X W>`."""
        return self.targets + ((self.gram @ maps - 2 * self.moment) * maps).sum((1, 2))


def _candidates(context: int, alphas: Sequence[float], errors: Tensor) -> list[Candidate]:
    return [Candidate(context, alpha, mse) for alpha, mse in zip(alphas, errors.tolist(), strict=True)]


def _say_best(candidates: Sequence[Candidate], what: str, say: Callable[[str], None]) -> None:
    best = least(candidates)
    say(f"ridge (context {best.context_length}): {what} {best.mse:.4g}, with alpha {best.alpha:g}")
