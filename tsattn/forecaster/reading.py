"""From frames to panels, as a forecaster needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tsattn.checks import share
from tsattn.data import Panel, panel_from_frame
from tsattn.data.columns import column_name, column_names
from tsattn.data.continued import with_future
from tsattn.data.frequency import Times
from tsattn.data.grid import normalise_frequency
from tsattn.data.lazy_frames import collected
from tsattn.data.mapped.opening import opened_panel, refuse_weights, table_options
from tsattn.data.mapped.panel_folder import is_panel_folder
from tsattn.data.stamps import in_zone_of
from tsattn.data.tables import opened
from tsattn.data.text_format import TextFormat
from tsattn.data.weights import RowWeights, without_column
from tsattn.task import Task

__all__ = ["FrameReader"]


@dataclass(frozen=True)
class FrameReader:
    """How the frames of a forecaster are read.

    Attributes:
        columns: which column is what, see `panel_from_frame`.
        text: how text is written.
        frequency: of the data; None infers it.
        max_filled: the share of the rows of a series that may be filled as missing.
        weights: how much rows and series count in a training; None: all alike.
    """

    columns: Mapping[str, Any]
    text: TextFormat
    frequency: str | int | None
    max_filled: float
    weights: RowWeights | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> FrameReader:
        """The reader that the arguments of a `Forecaster` describe.

        Raises:
            UserError: for one that is not valid.
        """
        target = given["target"]
        columns = {
            "id_column": column_name(given["id_column"], "id_column"),
            "time_column": column_name(given["time_column"], "time_column"),
            "target": None if target is None else column_names(target, "target"),
            **{name: column_names(given[name], name) for name in ("past_covariates", "future_covariates", "static")},
        }
        if given["frequency"] is not None:
            normalise_frequency(given["frequency"])
        text = TextFormat(given["separator"], given["decimal"], given["encoding"], given["date_format"])
        weights = RowWeights.of(*(given[name] for name in ("weight_column", "series_weights", "row_weights")))
        return cls(columns, text, given["frequency"], share("max_filled", given["max_filled"]), weights)

    def read(
        self, frame: Any, source: str, future: Any = None, zone_of: Times | None = None, task: Task | None = None
    ) -> Panel:
        """A frame as a panel.

        Args:
            frame: of pandas, polars or pyarrow, or the path of a file or of a folder that a table was converted to, of
                which all columns are taken where none are named.
            source: what it is, for messages.
            future: future covariates after its end.
            zone_of: time stamps in the time zone that those of the frame are converted to.
            task: says which covariates are categories; None finds them.

        Raises:
            UserError: if it cannot be used.
        """
        if (folder := _converted(frame)) is not None:
            refuse_weights(self.weights, folder)
            return self._panel_in(folder, self.frequency, future)
        table, options = self._opened(frame, source, future)
        categorical = None if task is None else [*task.categories_by_covariate]
        named: dict[str, Any] = {
            "frequency": self.frequency,
            "zone_of": zone_of,
            "categorical": categorical,
            "weights": self.weights,
        }
        return panel_from_frame(table, **options, **named)

    def read_for(self, task: Task, frame: Any, source: str, future: Any = None, zone_of: Times | None = None) -> Panel:
        """The same with the channels, covariates and categories of a task.

        Args:
            task: what a predictor was fitted for.
            frame: as for `read`.
            source: as for `read`.
            future: as for `read`.
            zone_of: time stamps in the time zone that those of the frame are converted to.
        """
        if (folder := _converted(frame)) is not None:
            panel = self._panel_in(folder, task.frequency, future)
            if zone_of is not None:
                panel = replace(
                    panel, time=in_zone_of(zone_of, panel.time, str(folder), "what the model was fitted on")
                )
            return panel.for_task(task, str(folder))
        table, options = self._opened(frame, source, future)
        for role in ("past_covariates", "future_covariates", "static"):
            options[role] = getattr(task, role)  # of a table that was converted, not all are named
        table = table if self.weights is None else without_column(table, self.weights.column)
        if set(task.channels) <= set(map(str, table.columns)):
            options["target"] = task.channels  # of other columns none is a target
        options["categorical"] = [*task.categories_by_covariate]
        panel = panel_from_frame(table, **options, frequency=task.frequency, zone_of=zone_of)
        return panel.for_task(task, options["source"])

    def _panel_in(self, folder: Path, frequency: str | int | None, future: Any) -> Panel:
        """What a table was converted to."""
        panel = opened_panel(folder, table_options(self.columns, frequency, self.max_filled, self.text))
        return panel if future is None else with_future(panel, future, self.text)

    def _opened(self, frame: Any, source: str, future: Any) -> tuple[Any, dict[str, Any]]:
        weight = None if self.weights is None else self.weights.column
        frame = collected(frame, source, **_of_lazy(self.columns), weight=weight)
        named = self.columns["id_column"], self.columns["time_column"]
        table, source, row_of = opened(frame, source, *named, self.text)
        options: dict[str, Any] = {**self.columns, "source": source, "row_of": row_of, "future": future}
        return table, options | {"text": self.text, "max_filled": self.max_filled}


def _of_lazy(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns under the names that `collected` has for them."""
    names = {"past_covariates": "past", "future_covariates": "future"}
    return {names.get(name, name): value for name, value in columns.items()}


def _converted(frame: Any) -> Path | None:
    """The folder that a table was converted to, if it is the path of one."""
    path = Path(frame).expanduser() if isinstance(frame, str | Path) else None
    return path if path is not None and is_panel_folder(path) else None
