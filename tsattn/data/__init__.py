"""From files to batches: source -> frame -> split -> scale -> windows -> batch. Knows nothing of models.

To add a public CSV file, write its card in `registry.py`; for anything else, one file with a subclass of
`ForecastDataModule` that loads a frame and splits it. The names are imported when they are first asked for, so that
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
    from tsattn.data.frequency import future_index, infer_frequency, season_length
    from tsattn.data.public import PublicDataModule
    from tsattn.data.registry import CARDS, Card
    from tsattn.data.scaling import fit_scaler, scaled_series
    from tsattn.data.splits import Split
    from tsattn.data.windows import Series, WindowDataset

_HOMES = {
    "CARDS": "registry",
    "CO2DataModule": "co2",
    "CSVDataModule": "csv_file",
    "Card": "registry",
    "ForecastDataModule": "datamodule",
    "PublicDataModule": "public",
    "Series": "windows",
    "Split": "splits",
    "WindowDataset": "windows",
    "check_frame": "frame",
    "fit_scaler": "scaling",
    "future_index": "frequency",
    "infer_frequency": "frequency",
    "read_csv": "frame",
    "scaled_series": "scaling",
    "season_length": "frequency",
}

__all__ = [
    "CARDS",
    "CO2DataModule",
    "CSVDataModule",
    "Card",
    "ForecastDataModule",
    "PublicDataModule",
    "Series",
    "Split",
    "WindowDataset",
    "check_frame",
    "fit_scaler",
    "future_index",
    "infer_frequency",
    "read_csv",
    "scaled_series",
    "season_length",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tsattn.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tsattn.data.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
