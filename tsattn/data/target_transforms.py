"""Fitting a transform of the target to the training rows, and applying it to a panel.

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
from tsattn.data.row_ranges import blocks_of, made_rows, owners
from tsattn.errors import UserError, shown
from tsattn.scaler import LARGEST_LAMBDA, TRANSFORMS, transformed

__all__ = ["check_domain", "fit_lambdas", "transformed_panel"]

_READ = 1_000_000  # rows that are read of an array in a file
_MOST = 100_000  # values that tell one lambda from another as well as more would


def fit_lambdas(
    panel: Panel, is_train: NDArray[np.bool_], transform: Mapping[str, Any], *, each: bool
) -> tuple[tuple[float, ...], NDArray[np.float64] | None]:
    """The lambdas of a transform: those given, or the most likely ones from 0 to 2 of the training rows.

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
    some = np.flatnonzero(is_train)
    train = panel.values[some[:: -(-len(some) // _READ) or 1] if panel.is_mapped else some]
    pooled = (_most_likely(train[:, channel]) for channel in range(C))
    lambdas = tuple(1.0 if np.isnan(one) else one for one in pooled)
    if not each:
        return lambdas, None
    own = np.empty((len(panel), C))
    for number in range(len(panel)):
        rows = slice(panel.starts[number], panel.starts[number + 1])
        part = panel.values[rows][is_train[rows]]
        own[number] = [_most_likely(part[:, channel]) for channel in range(C)]
    return lambdas, own


def transformed_panel(panel: Panel, kind: str, lambdas: NDArray[np.float64]) -> Panel:
    """The panel with transformed values; covariates stay as they are.

    Args:
        panel: the series in original units.
        kind: of the transform.
        lambdas: `(S, C)`.

    Raises:
        UserError: for a value that the transform does not take, naming column, series and row.
    """
    check_domain(panel, kind)

    def values_of(rows: slice) -> NDArray[np.float64]:
        each = lambdas[owners(panel.starts, rows)]
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
            break
    else:
        return
    row, channel = (int(place[0]) for place in is_bad.nonzero())
    row += block.start
    number, name = int(panel.starts.searchsorted(row, side="right")) - 1, panel.channels[channel]
    of_series = "" if panel.is_wide else f" of series {shown(panel.ids[number])}"
    value = panel.values[row, channel]
    others = "log1p takes 0, too; " if kind != "log1p" and value == 0 else ""
    raise UserError(
        f"transform {kind} takes values {TRANSFORMS[kind]}, but column {shown(name)} has {value:g} in row "
        f"{row - int(panel.starts[number]) + 1}{of_series}, {panel.time[row]}: {others}without a transform any "
        "value is taken, and an empty cell is masked"
    )


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
