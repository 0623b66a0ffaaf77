"""How near structured matrices come to the scores of a pretrained model, at equal numbers of parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from tsattn.checks import positive_number
from tsattn.chronos.conversions import mean_form
from tsattn.chronos.families import family_of
from tsattn.chronos.swapped_attention import Surroundings
from tsattn.structured import (
    BTT,
    MLBTC,
    MLR,
    Butterfly,
    Kronecker,
    LevelShape,
    LowRank,
    Monarch,
    StructuredMatrix,
    block_sizes,
    prime_factors,
)

__all__ = ["compare_structures"]


def compare_structures(
    pipeline: Any, where: str | Sequence[int | str] = "encoder", *, share: float = 1.0, seed: int = 0
) -> pd.DataFrame:
    """The errors with which structured matrices hold the scores of each head, at most at a given size.

    Each structure is as large as it can be with no more parameters than `share` of those of the original's queries and
    keys; one whose smallest member is larger is left out. Under rotary positions the error counts what a form that is
    the same at every distance cannot hold (see `tsattn.chronos.conversions`).

    Returns:
        Columns `layer`, `head`, `structure`, `parameters` (of a head), `error`, the relative Frobenius error, and
        `low_rank_error`, that of the nearest low-rank matrix of no more parameters.
    """
    share = positive_number("share", share)
    family = family_of(pipeline)
    rows = []
    for site in family.chosen_sites(where):
        around = Surroundings(family, site, family.longest)
        form, left_out, norm = mean_form(around)
        width = form.shape[-1]
        tails = _tails(form)
        budget = int(share * 2 * width * around.head_dim)
        for name, fit in _fits(width, budget, seed).items():
            matrix = fit(form)
            error = torch.linalg.matrix_norm(form - matrix.to_dense())
            errors = _share((error.square() + left_out).sqrt(), norm).tolist()
            parameters = matrix.num_params() // around.num_heads
            rank = min(parameters // (2 * width), width)
            equal = _share((tails[:, rank] + left_out).sqrt(), norm).tolist()
            rows += [
                (site.name, head, name, parameters, *both) for head, both in enumerate(zip(errors, equal, strict=True))
            ]
    return pd.DataFrame(rows, columns=["layer", "head", "structure", "parameters", "error", "low_rank_error"])


def _tails(form: Tensor) -> Tensor:
    """`(H, D + 1)`: the square error of the nearest matrix of rank 0, 1, .. D to each form `(H, D, D)`."""
    squares = torch.linalg.svdvals(form).square()
    return torch.nn.functional.pad(squares.flip(-1).cumsum(-1).flip(-1), (0, 1))


def _share(error: Tensor, whole: Tensor) -> Tensor:
    return torch.where(whole == 0, 0.0, error / whole)


def _fits(width: int, budget: int, seed: int) -> dict[str, Callable[[Tensor], StructuredMatrix]]:
    """What fits each structure of at most so many parameters to forms `(H, D, D)`, by name."""
    found: dict[str, Callable[[Tensor], StructuredMatrix]] = {}
    a, b, c, _ = block_sizes(width)
    rank = budget // (2 * width)
    tt_rank = budget // (width * (b + c))
    restarts: dict[str, Any] = {"restarts": 1, "seed": seed, "tolerance": 1e-3, "max_sweeps": 40}
    if rank:
        found["low_rank"] = lambda form: LowRank.project(form, min(rank, width))
    blocks = [n for n in (1, 2, 4) if width % n == 0]
    if rank >= len(blocks) > 1:
        ranks = _shared(rank, len(blocks))
        found["bilinear_mlr"] = lambda form: MLR.project(form, ranks, blocks, **restarts)
    if tt_rank:
        found["btt"] = lambda form: BTT.project(form, min(tt_rank, a))
    if width * (a + b) <= budget:
        found["monarch"] = Monarch.project
    left = (budget - width * (b + c)) // (2 * width)
    if left > 0:
        shapes = [LevelShape(left), LevelShape(1, b, c, shuffled=True)]
        found["mlbtc"] = lambda form: MLBTC.project(form, shapes, **restarts)
    if a * a + b * b <= budget:
        found["kronecker"] = lambda form: Kronecker.project(form, (a, a))
    # a butterfly of the primes of BTT's blocks, those of `a` first, is a Monarch matrix of these blocks
    radices = tuple(prime for part in (a, b) if part > 1 for prime in prime_factors(part)) or (1,)
    if width * sum(radices) <= budget:
        found["butterfly"] = lambda form: Butterfly.project(form, radices)
    return found


def _shared(rank: int, levels: int) -> list[int]:
    """Half of the rank to the first level, the rest halved again."""
    ranks = []
    for level in range(levels - 1, 0, -1):
        ranks.append(min(max(1, rank // 2), rank - level))
        rank -= ranks[-1]
    return [*ranks, rank]
