"""From files to batches: source -> frame -> split -> scale -> windows -> batch. Knows nothing of models.

To add a data set, write one file with a subclass of `ForecastDataModule` that loads a frame and splits it.
"""

from tsattn.data.co2 import CO2DataModule
from tsattn.data.csv_file import CSVDataModule
from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.ett import ETTDataModule
from tsattn.data.frame import check_frame, read_csv
from tsattn.data.frequency import future_index, infer_frequency, season_length
from tsattn.data.scaling import fit_scaler, scaled_series
from tsattn.data.splits import Split
from tsattn.data.windows import Series, WindowDataset

__all__ = [
    "CO2DataModule",
    "CSVDataModule",
    "ETTDataModule",
    "ForecastDataModule",
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
