"""Series end to end."""

import numpy as np
import torch


class TimeSeriesDataset:
    def __init__(self, temporal, temporal_cols, indptr, y_idx):
        assert list(temporal_cols) == ["y", "available_mask"]
        assert y_idx == 0
        self.temporal = torch.as_tensor(np.asarray(temporal)).float()
        self.indptr = indptr

    @staticmethod
    def from_df(df):
        assert list(df.columns) == ["unique_id", "ds", "y", "available_mask"]
        assert df.sort_values(["unique_id", "ds"]).index.equals(df.index), "rows are in order"
        ends = np.flatnonzero(np.diff(df["unique_id"].to_numpy(), append=-1)) + 1
        columns = ["y", "available_mask"]
        return (TimeSeriesDataset(df[columns].to_numpy(), columns, np.array([0, *ends]), 0),)

    def series(self):
        return [self.temporal[a:b] for a, b in zip(self.indptr[:-1], self.indptr[1:], strict=True)]
