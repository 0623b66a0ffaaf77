"""Stands in for statsforecast: as much of it as the worker calls."""

import pandas as pd


class StatsForecast:
    def __init__(self, models, freq, n_jobs):
        assert freq == 1
        (self.model,) = models

    def forecast(self, df, h, level=None):
        assert list(df.columns) == ["unique_id", "ds", "y"]
        parts = []
        for name, part in df.groupby("unique_id", sort=False):
            made = {"unique_id": name, "ds": part["ds"].max() + 1 + pd.RangeIndex(h).to_numpy()}
            made[repr(self.model)] = self.model.point(part["y"].to_numpy())
            for one in level or []:
                made[f"{self.model!r}-lo-{one}"] = made[repr(self.model)] - one
                made[f"{self.model!r}-hi-{one}"] = made[repr(self.model)] + one
            parts.append(pd.DataFrame(made))
        return pd.concat(parts[::-1])  # in whatever order
