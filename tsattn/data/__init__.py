"""Data from files and frames to batches.

Where things are, in the order of the way:

- from cells to a `Panel`, all series end to end in original units: `tables.py` opens a table (`csv_cells.py` a CSV
  file), `roles.py` finds which column is what, `table_rows.py` reads rows (`columns.py` turns cells into numbers,
  categories and ids, `stamps.py` into time), `assembly.py` puts each row at its place on the grid of its series
  (`grid.py`, `frequency.py`), `reader.py` goes the whole way in memory and `mapped/convert.py` part by part,
  `panel.py` is the record, which `continued.py` lets go on; `sources.py` says where it comes from;
- from a panel to a batch: `splits.py`, by a rule of `split_rule.py`, `scaling.py`, `windows.py` (after the end of the
  data: `future_windows.py`), `batch_order.py` for the order of training windows, `window_loaders.py` for where they are
  cut;
- around that, the one `LightningDataModule` of `datamodule.py`, and thin ones over it that name its source and rule:
  `own_data.py` (a user's frame, file or panel), `public/public_data.py` (the public data sets, with their cards and
  files), `mapped/mapped_data.py` (tables larger than memory, see `mapped/`), `pretraining/pretraining_data.py` (series
  that are generated and mixed).

To add a public CSV file, write its card in `public/cards.toml`; for anything else, one file with a subclass of
`ForecastDataModule` that names a source and a rule, as `public/co2.py`, and its line in `DATA_MODULES`. The names are
imported when they are first asked for, so that the cards can be read without pandas or torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsattn.descriptions import imported

if TYPE_CHECKING:
    from tsattn.data.datamodule import ForecastDataModule
    from tsattn.data.frequency import future_index, season_length
    from tsattn.data.future_windows import FutureWindows
    from tsattn.data.grid import infer_frequency
    from tsattn.data.mapped.mapped_data import MappedDataModule
    from tsattn.data.own_data import CSVDataModule, FrameDataModule, PanelDataModule
    from tsattn.data.panel import Panel
    from tsattn.data.pretraining.pretraining_data import PretrainingDataModule
    from tsattn.data.public.cards import CARDS, Card
    from tsattn.data.public.co2 import CO2DataModule
    from tsattn.data.public.public_data import PublicDataModule
    from tsattn.data.reader import TableReader, panel_from_frame
    from tsattn.data.scaling import scaled_series
    from tsattn.data.sources import FrameSource, Source
    from tsattn.data.split_rule import ByCount, ByDate, ByShare, SplitRule
    from tsattn.data.splits import Split
    from tsattn.data.tables import read_table
    from tsattn.data.windows import Series, WindowDataset

DATA_MODULES = {
    "CO2DataModule": "tsattn.data.public.co2.CO2DataModule",
    "CSVDataModule": "tsattn.data.own_data.CSVDataModule",
    "MappedDataModule": "tsattn.data.mapped.mapped_data.MappedDataModule",
    "PretrainingDataModule": "tsattn.data.pretraining.pretraining_data.PretrainingDataModule",
    "PublicDataModule": "tsattn.data.public.public_data.PublicDataModule",
}
"""The import path of each data set that a configuration can name; its class is a name of this package too."""

_HOMES = {
    "ByCount": "split_rule",
    "ByDate": "split_rule",
    "ByShare": "split_rule",
    "CARDS": "public.cards",
    "Card": "public.cards",
    "ForecastDataModule": "datamodule",
    "FrameDataModule": "own_data",
    "FrameSource": "sources",
    "FutureWindows": "future_windows",
    "Panel": "panel",
    "PanelDataModule": "own_data",
    "Series": "windows",
    "Source": "sources",
    "Split": "splits",
    "SplitRule": "split_rule",
    "TableReader": "reader",
    "WindowDataset": "windows",
    "future_index": "frequency",
    "infer_frequency": "grid",
    "panel_from_frame": "reader",
    "read_table": "tables",
    "scaled_series": "scaling",
    "season_length": "frequency",
}

__all__ = [
    "CARDS",
    "DATA_MODULES",
    "ByCount",
    "ByDate",
    "ByShare",
    "CO2DataModule",
    "CSVDataModule",
    "Card",
    "ForecastDataModule",
    "FrameDataModule",
    "FrameSource",
    "FutureWindows",
    "MappedDataModule",
    "Panel",
    "PanelDataModule",
    "PretrainingDataModule",
    "PublicDataModule",
    "Series",
    "Source",
    "Split",
    "SplitRule",
    "TableReader",
    "WindowDataset",
    "future_index",
    "infer_frequency",
    "panel_from_frame",
    "read_table",
    "scaled_series",
    "season_length",
]


def __getattr__(name: str) -> Any:
    if name in DATA_MODULES:
        return imported(DATA_MODULES[name])
    if name not in _HOMES:
        raise AttributeError(f"module 'tsattn.data' has no attribute {name!r}")
    return imported(f"tsattn.data.{_HOMES[name]}.{name}")


def __dir__() -> list[str]:
    return __all__
