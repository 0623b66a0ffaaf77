"""Whether series are counts."""

from __future__ import annotations

import numpy as np

from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.panel import Panel
from tsattn.errors import UserError, shown
from tsattn.task import Output

__all__ = ["check_counts", "check_distribution"]


def check_distribution(output: Output, data: ForecastDataModule) -> None:
    """Refuse data that the distribution of an output cannot be of.

    Args:
        output: of the model.
        data: set up.

    Raises:
        UserError: for a distribution of counts and values that are none, or are transformed.
    """
    if output.distribution != "negative_binomial" or data.panel is None:
        return
    if data.transform is not None:
        raise UserError(
            f"distribution {output.distribution} is of counts as they are: leave out transform "
            f"{data.transform['kind']}, or take distribution student_t"
        )
    check_counts(data.panel, f"distribution {output.distribution}")


def check_counts(panel: Panel, what: str, of: Panel | None = None) -> None:
    """Refuse values that are no whole numbers from 0.

    Args:
        panel: the series, NaN where missing.
        what: needs counts, as the message says it.
        of: the series that these are the ends of, by whose rows the message speaks; None of whole ones.

    Raises:
        UserError: naming column, series and row of the first.
    """
    values = panel.values
    with np.errstate(invalid="ignore"):
        is_bad = ~np.isnan(values) & ((values < 0) | (values != np.round(values)))
    if not is_bad.any():
        return
    row, channel = (int(place[0]) for place in is_bad.nonzero())
    number = int(panel.starts.searchsorted(row, side="right")) - 1
    of_series = "" if panel.is_wide else f" of series {shown(panel.ids[number])}"
    place = row - int(panel.starts[number]) + 1
    place += 0 if of is None else int(of.lengths[number] - panel.lengths[number])
    raise UserError(
        f"{what} takes counts, whole numbers from 0, but column {shown(panel.channels[channel])} has "
        f"{values[row, channel]:g} in row {place}{of_series}, {panel.time[row]}; "
        "models with distribution normal or student_t take any value"
    )
