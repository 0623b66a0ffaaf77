"""From files to batches: source -> panel -> split -> scale -> windows -> batch. Knows nothing of models.

To add a public CSV file, write its card in `registry.py`; for anything else, one file with a subclass of
`ForecastDataModule` that loads a panel and splits it. The names are imported when they are first asked for, so that
the cards can be read without pandas or torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsattn.data.co2 import CO2DataModule
    from tsattn.data.csv_file import CSVDataModule
    from tsattn.data.datamodule import ForecastDataModule
    from tsattn.data.frame import check_frame, read_csv
    from tsattn.data.frame_data import FrameDataModule
    from tsattn.data.frequency import future_index, infer_frequency, season_length
    from tsattn.data.future_windows import FutureWindows
    from tsattn.data.mapped import MappedDataModule
    from tsattn.data.panel import Panel, wide_panel
    from tsattn.data.panel_data import PanelDataModule
    from tsattn.data.public import PublicDataModule
    from tsattn.data.reader import panel_from_frame
    from tsattn.data.registry import CARDS, Card
    from tsattn.data.scaling import fit_scaler, scaled_series
    from tsattn.data.splits import Split
    from tsattn.data.tables import read_table
    from tsattn.data.windows import Series, WindowDataset

_HOMES = {
    "CARDS": "registry",
    "CO2DataModule": "co2",
    "CSVDataModule": "csv_file",
    "Card": "registry",
    "ForecastDataModule": "datamodule",
    "FrameDataModule": "frame_data",
    "FutureWindows": "future_windows",
    "MappedDataModule": "mapped",
    "Panel": "panel",
    "PanelDataModule": "panel_data",
    "PublicDataModule": "public",
    "Series": "windows",
    "Split": "splits",
    "WindowDataset": "windows",
    "check_frame": "frame",
    "fit_scaler": "scaling",
    "future_index": "frequency",
    "infer_frequency": "frequency",
    "panel_from_frame": "reader",
    "read_csv": "frame",
    "read_table": "tables",
    "scaled_series": "scaling",
    "season_length": "frequency",
    "wide_panel": "panel",
}

__all__ = [
    "CARDS",
    "CO2DataModule",
    "CSVDataModule",
    "Card",
    "ForecastDataModule",
    "FrameDataModule",
    "FutureWindows",
    "MappedDataModule",
    "Panel",
    "PanelDataModule",
    "PublicDataModule",
    "Series",
    "Split",
    "WindowDataset",
    "check_frame",
    "fit_scaler",
    "future_index",
    "infer_frequency",
    "panel_from_frame",
    "read_csv",
    "read_table",
    "scaled_series",
    "season_length",
    "wide_panel",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tsattn.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tsattn.data.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
