"""Covariates that are categories: numbered when they are read, the numbers of training kept ever after.

A category is a number from 1 on, by its place among the sorted texts; 0 is one that training has not seen. So they
travel in the arrays of the other covariates, where NaN is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsattn.data.row_ranges import made_rows
from tsattn.errors import UserError, one_of, shown

__all__ = ["MOST", "UNSEEN", "Categories", "aligned_categories", "category_names", "in_categories", "recoded"]

logger = logging.getLogger("tsattn")

Categories = Mapping[str, tuple[str, ...]]
"""By the name of a covariate its categories, sorted; a covariate of numbers is not there."""

MOST = 256  # numbers that every precision of a training holds exactly
UNSEEN = "(not seen in training)"
"""The text of a category that a model was not trained with."""


def in_categories(
    part: NDArray[np.float64] | None, names: Sequence[str], have: Categories, wanted: Categories, source: str
) -> NDArray[np.float64] | None:
    """Covariates `(rows, columns)` in the categories of a trained model; others than those are 0, which is logged.

    Raises:
        UserError: for numbers where the model was trained on categories, or the other way round.
    """
    for name in names:
        if (name in have) != (name in wanted):
            kinds = ("categories", "numbers") if name in have else ("numbers", "categories")
            raise UserError(f"{source} has {kinds[0]} in covariate {shown(name)}; the model was trained on {kinds[1]}")
        unseen = [category for category in have.get(name, ()) if category not in wanted[name] and category != UNSEEN]
        if unseen:
            logger.warning(
                "%s: covariate %s: %s not seen in training: the mean of all that were takes the place",
                *(source, shown(name), one_of(map(shown, unseen[:12])) + (", ..." if len(unseen) > 12 else "")),
            )
    return None if part is None else recoded(part, have, names, wanted)


def aligned_categories(names: Sequence[str], categories: Categories) -> tuple[tuple[str, ...], ...]:
    """The categories of each covariate, none for one of numbers; empty where all are numbers."""
    return tuple(categories.get(name, ()) for name in names) if categories else ()


def category_names(codes: NDArray[np.float64], categories: Sequence[str]) -> NDArray[np.object_]:
    """Numbers of categories as text, None where missing."""
    texts = np.array([UNSEEN, *categories, None], dtype=object)
    found: NDArray[np.object_] = texts[np.where(np.isnan(codes), len(categories) + 1, codes).astype(np.int64)]
    return found


def recoded(
    part: NDArray[np.float64], have: Categories, names: Sequence[str], wanted: Categories
) -> NDArray[np.float64]:
    """The same columns with the numbers of other categories; those of a file lie in a file, too."""
    changed = {k: name for k, name in enumerate(names) if name in wanted and (*have[name],) != (*wanted[name],)}
    if not changed:
        return part

    def rows_of(rows: slice) -> NDArray[np.float64]:
        out = part[rows].astype(np.float64)
        for k, name in changed.items():
            number: dict[Any, float] = {text: float(place) for place, text in enumerate(wanted[name], 1)}
            codes = np.array([0.0, *(number.get(text, 0.0) for text in have[name]), np.nan])
            out[:, k] = codes[np.where(np.isnan(out[:, k]), -1, out[:, k]).astype(np.int64)]
        return out

    return made_rows(part, rows_of)
