"""Several futures of the covariates, and a forecast for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from tsattn.errors import UserError, shown

__all__ = ["SCENARIO", "in_scenario", "scenarios_of"]

SCENARIO = "scenario"
"""The column of its name, after those of ids and time stamps."""


def scenarios_of(future: Any) -> dict[Any, Any] | None:
    """The futures of several scenarios by their names; None for a single one, which has no name.

    Args:
        future: a frame or file; a list of such, which are counted from 0; or such by names.

    Raises:
        UserError: for no scenario, or a name that is neither a text nor a number.
    """
    if not isinstance(future, list | tuple | Mapping):
        return None
    named = dict(future) if isinstance(future, Mapping) else dict(enumerate(future))
    if not named:
        raise UserError("future has no scenario: give a frame, a list of frames, or frames by their names")
    for name in named:
        if not isinstance(name, str | int | float):
            raise UserError(f"a scenario is named by a text or a number, not by {shown(repr(name))}")
    return named


def in_scenario(frames: Iterable[pd.DataFrame], name: Any) -> Iterator[pd.DataFrame]:
    """Frames of `future_frame` with the name of their scenario.

    Raises:
        UserError: if ids or time stamps have its column.
    """
    for frame in frames:
        if SCENARIO in frame.columns:
            raise UserError(f"column {SCENARIO} of the series would be that of scenarios, too: rename it")
        frame.insert(2, SCENARIO, name)
        yield frame
