"""Series in the time zone that a model was trained in."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from tsattn.data.frequency import Times
from tsattn.data.stamps import in_zone_of
from tsattn.data.time_numbers import no_times_of, time_zone
from tsattn.task import UNKNOWN_ZONE, Task

if TYPE_CHECKING:
    from tsattn.data.panel import Panel

__all__ = ["in_zone_of_model", "in_zone_of_task", "warn_of_unknown_zone"]

logger = logging.getLogger("tsattn")


def in_zone_of_model(panel: Panel, time: Times, source: str) -> Panel:
    """The same panel in the time zone of time stamps that a model was fitted on.

    Args:
        panel: the series.
        time: these; one is enough, or none.
        source: what the table is, for messages.

    Raises:
        UserError: if one has a zone and the other has not, one counts steps, or days are no days there.
    """
    return replace(panel, time=in_zone_of(time, panel.time, source, "what the model was fitted on"))


def in_zone_of_task(panel: Panel, task: Task, source: str) -> Panel:
    """The same in the time zone of a task; as it is where that is not known."""
    times = no_times_of(task)
    return panel if times is None else in_zone_of_model(panel, times, source)


def warn_of_unknown_zone(panel: Panel, task: Task, source: str) -> None:
    """Log that time stamps have a zone, but that of the model is not known, as it was not kept when it was saved."""
    zone = time_zone(panel.time)
    if task.time_zone == UNKNOWN_ZONE and zone is not None:
        logger.warning(
            "%s: the time zone of the model was not kept when it was saved; time stamps are taken in theirs, %s, as if "
            "that were the same",
            source,
            zone,
        )
