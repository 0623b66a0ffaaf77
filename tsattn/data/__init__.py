"""From files and frames to batches of windows. Names are imported lazily, so that cards need no pandas or torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsattn.descriptions import late

if TYPE_CHECKING:
    from tsattn.data.data_options import DataOptions, WindowOptions
    from tsattn.data.datamodule import (
        CSVDataModule,
        ForecastDataModule,
        FrameDataModule,
        FrameSource,
        MappedDataModule,
        PanelDataModule,
        Source,
    )
    from tsattn.data.frequency import future_index, season_length
    from tsattn.data.panel import Panel
    from tsattn.data.public.cards import CARDS, Card
    from tsattn.data.public.public_data import CO2DataModule, PublicDataModule
    from tsattn.data.reader import TableReader, panel_from_frame
    from tsattn.data.scaling import scaled_series
    from tsattn.data.splits import ByCount, ByDate, ByShare, Split, SplitRule
    from tsattn.data.tables import read_table
    from tsattn.data.windows import FutureWindows, Series, WindowDataset

DATA_MODULES = {
    "CO2DataModule": "tsattn.data.public.public_data.CO2DataModule",
    "CSVDataModule": "tsattn.data.datamodule.CSVDataModule",
    "MappedDataModule": "tsattn.data.datamodule.MappedDataModule",
    "PublicDataModule": "tsattn.data.public.public_data.PublicDataModule",
}
"""Import path of each data set that a configuration can name. Each class can also be imported from this package."""

_HOMES = {
    "data_options": ("DataOptions", "WindowOptions"),
    "datamodule": ("ForecastDataModule", "FrameDataModule", "FrameSource", "PanelDataModule", "Source"),
    "frequency": ("future_index", "season_length"),
    "panel": ("Panel",),
    "public.cards": ("CARDS", "Card"),
    "reader": ("TableReader", "panel_from_frame"),
    "scaling": ("scaled_series",),
    "splits": ("ByCount", "ByDate", "ByShare", "Split", "SplitRule"),
    "tables": ("read_table",),
    "windows": ("FutureWindows", "Series", "WindowDataset"),
}

__all__ = ["CARDS", "DATA_MODULES", "ByCount", "ByDate", "ByShare", "CO2DataModule", "CSVDataModule", "Card"]
__all__ += ["DataOptions", "ForecastDataModule", "FrameDataModule", "FrameSource", "FutureWindows", "MappedDataModule"]
__all__ += ["Panel", "PanelDataModule", "PublicDataModule", "Series", "Source", "Split"]
__all__ += ["SplitRule", "TableReader", "WindowDataset", "WindowOptions", "future_index"]
__all__ += ["panel_from_frame", "read_table", "scaled_series", "season_length"]


_PATHS = [f"tsattn.data.{home}.{name}" for home, names in _HOMES.items() for name in names]
__getattr__ = late(__name__, (*DATA_MODULES.values(), *_PATHS))


def __dir__() -> list[str]:
    return __all__
