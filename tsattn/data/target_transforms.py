"""Values that a model takes: the domain of a transform of the targets, its fit to the training rows, and counts.

Shape letters: S series, C channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from tsattn.data.panel import Panel
from tsattn.data.row_ranges import blocks_of, each_row, made_rows
from tsattn.errors import UserError, shown
from tsattn.target_transform import LARGEST_LAMBDA, TRANSFORMS, transformed

__all__ = ["check_counts", "check_domain", "fit_lambdas", "transformed_panel"]

_READ = 1_000_000  # rows that are read of an array in a file
_MOST = 100_000  # values that tell one lambda from another as well as more would


def fit_lambdas(
    panel: Panel, is_train: NDArray[np.bool_], transform: Mapping[str, Any], *, each: bool
) -> tuple[tuple[float, ...], NDArray[np.float64] | None]:
    """Find the lambdas of a transform: those given, or the most likely ones from 0 to 2 of the training rows.

    Args:
        panel: the series, in the domain of the transform.
        is_train: `(rows,)` whether a row is for training.
        transform: as `check_transform` gives it.
        each: whether each series has its own, where they are estimated.

    Returns:
        C lambdas of all series, and `(S, C)` those of each, NaN for a series that has fewer than two values; None where
        all series have the same.
    """
    C = len(panel.channels)
    if transform["kind"] != "box_cox":
        return (0.0,) * C, None
    if "lambda" in transform:
        return (transform["lambda"],) * C, None

    def likely(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([_most_likely(values[:, channel]) for channel in range(C)])

    some = np.flatnonzero(is_train)
    pooled = likely(panel.values[some[:: -(-len(some) // _READ) or 1] if panel.is_mapped else some])
    lambdas = tuple(np.where(np.isnan(pooled), 1.0, pooled).tolist())
    if not each:
        return lambdas, None
    rows = [slice(*panel.starts[number : number + 2]) for number in range(len(panel))]
    return lambdas, np.stack([likely(panel.values[own][is_train[own]]) for own in rows])


def _most_likely(values: NDArray[np.float64]) -> float:
    """The lambda under which values are most likely normal; 1 for a constant, NaN for fewer than two values."""
    known = values[~np.isnan(values)]
    known = known[:: -(-len(known) // _MOST) or 1]
    if len(known) < 2:
        return np.nan
    if (known == known[0]).all():
        return 1.0

    def bounded(likelihood: Any) -> Any:
        return optimize.minimize_scalar(likelihood, bounds=(0.0, LARGEST_LAMBDA), method="bounded")

    with np.errstate(all="ignore"):
        found = float(stats.boxcox_normmax(known, method="mle", optimizer=bounded))
    return min(max(found, 0.0), LARGEST_LAMBDA)


def transformed_panel(panel: Panel, kind: str, lambdas: NDArray[np.float64]) -> Panel:
    """Transform the values of a panel; covariates stay as they are.

    Args:
        panel: the series in original units.
        kind: of the transform.
        lambdas: `(S, C)`.

    Raises:
        UserError: for a value that the transform does not take, naming column, series and row.
    """
    check_domain(panel, kind)

    def values_of(rows: slice) -> NDArray[np.float64]:
        each = each_row(lambdas, panel.starts, rows)
        return transformed(kind, panel.values[rows].astype(np.float64, copy=False), each)

    return replace(panel, values=made_rows(panel.values, values_of))


def check_domain(panel: Panel, kind: str) -> None:
    """Refuse values that a transform does not take; the arguments are those of `transformed_panel`.

    Raises:
        UserError: naming column, series and row of the first.
    """
    for block in blocks_of(panel.values):
        is_bad = panel.values[block] < 0 if kind == "log1p" else panel.values[block] <= 0
        if is_bad.any():
            row, channel = (int(place[0]) for place in is_bad.nonzero())
            others = "log1p takes 0, too; " if kind != "log1p" and panel.values[block][row, channel] == 0 else ""
            raise UserError(
                f"transform {kind} takes values {TRANSFORMS[kind]}, but {_first_cell(panel, is_bad, block.start)}: "
                f"{others}without a transform any value is taken, and an empty cell is masked"
            )


def check_counts(panel: Panel, what: str, of: Panel | None = None) -> None:
    """Refuse values that are no whole numbers from 0.

    Args:
        panel: the series, NaN where missing.
        what: needs counts, as the message says it.
        of: the series that these are the ends of, by whose rows the message speaks; None of whole ones.

    Raises:
        UserError: naming column, series and row of the first.
    """
    for block in blocks_of(panel.values):
        values = panel.values[block]
        with np.errstate(invalid="ignore"):
            is_bad = ~np.isnan(values) & ((values < 0) | (values != np.round(values)))
        if is_bad.any():
            raise UserError(
                f"{what} takes counts, whole numbers from 0, but {_first_cell(panel, is_bad, block.start, of)}; "
                "models with distribution normal or student_t take any value"
            )


def _first_cell(panel: Panel, is_bad: NDArray[np.bool_], first: int, of: Panel | None = None) -> str:
    """The first bad cell in words, from the row `first` on; rows are those of `of`, if that is given."""
    row, channel = (int(place[0]) for place in is_bad.nonzero())
    row += first
    number = int(panel.starts.searchsorted(row, side="right")) - 1
    place = row - int(panel.starts[number]) + 1
    place += 0 if of is None else int(of.lengths[number] - panel.lengths[number])
    return (
        f"column {shown(panel.channels[channel])} has {panel.values[row, channel]:g} in row {place}"
        f"{'' if panel.is_wide else f' of series {shown(panel.ids[number])}'}, {panel.time[row]}"
    )
