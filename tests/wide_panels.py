"""Panels of one series, of frames in memory."""

import numpy as np
import pandas as pd

from tsattn.data import Panel
from tsattn.data.frequency import usual_frequency
from tsattn.data.table_rows import NO_NAME


def wide_panel(frame: pd.DataFrame, source: str, *, frequency: str | None = None) -> Panel:
    """One series from a checked frame: float columns over regular time stamps.

    Args:
        frame: the columns are the channels.
        source: what the frame was read from.
        frequency: of its time stamps; None infers it.
    """
    time = pd.DatetimeIndex(frame.index)
    frequency = frequency or usual_frequency(time)
    return Panel(
        ids=("series",),
        channels=tuple(map(str, frame.columns)),
        frequency=frequency,
        time=time,
        starts=np.array([0, len(frame)]),
        values=frame.to_numpy(dtype=np.float64),
        past_covariates=None,
        past_names=(),
        future_covariates=None,
        future_names=(),
        ahead=None,
        ahead_starts=np.zeros(2, np.int64),
        static=None,
        static_names=(),
        static_categories=(),
        is_wide=True,
        time_name=str(frame.index.name or NO_NAME),
    )
