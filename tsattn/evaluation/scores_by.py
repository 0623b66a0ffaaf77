"""Scores by series, by step of the horizon or by origin, of all that was measured on the same windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tsattn.data import Panel
from tsattn.errors import UserError, one_of, shown
from tsattn.evaluation.error_table import ErrorTable
from tsattn.evaluation.reductions import is_score

__all__ = ["BY", "check_by", "check_group", "scores_by"]

BY = ("series", "step", "origin")
_FORECASTER = "forecaster"


def check_by(by: str) -> str:
    """What scores are grouped by.

    Raises:
        UserError: if it is not one of `BY`.
    """
    if by not in BY:
        raise UserError(f"scores are given by one of {one_of(BY)}, not {shown(by)}")
    return by


def check_group(by: str, id_name: str) -> None:
    """Refuse scores by series whose ids are in a column of the name of another column of the scores.

    Args:
        by: one of `BY`.
        id_name: of the column of ids.

    Raises:
        UserError: saying which column to rename.
    """
    if check_by(by) == "series" and (id_name == _FORECASTER or is_score(id_name)):
        raise UserError(f"column {shown(id_name)} of the series would be one of the scores, too: rename it")


def scores_by(tables: Mapping[str, ErrorTable], by: str, panel: Panel) -> pd.DataFrame:
    """All scores of each group of windows (or, by step, of errors) of each table.

    Args:
        tables: of errors, by the names of the forecasters.
        by: one of `BY`. The columns of a wide panel count as its series, as they do in forecasts.
        panel: what was forecast.

    Returns:
        the columns of `ErrorTable.scores`; the index has the name of the forecaster (``forecaster``) and the group: the
        id of the series under its name in the panel, ``step`` from 1, or ``origin``, the last time stamp before the
        horizon, or step, exact to the second. Where clocks are set back, the origins of both hours of one name are one.

    Raises:
        UserError: for another `by`, and if a table was measured without its rows or steps.
    """
    key = "channel" if check_by(by) == "series" and panel.is_wide else by
    frames = {name: table.scores_by(key) for name, table in tables.items()}
    group = panel.id_name if by == "series" else by
    frame = pd.concat(frames, names=[_FORECASTER, group])
    zone = panel.time.tz if by == "origin" and isinstance(panel.time, pd.DatetimeIndex) else None
    if zone is None:
        return frame
    index: Any = frame.index
    origins = index.levels[1]
    local = origins.tz_localize(zone, ambiguous=np.zeros(len(origins), dtype=bool), nonexistent="shift_forward")
    return frame.set_axis(index.set_levels(local, level=1))
