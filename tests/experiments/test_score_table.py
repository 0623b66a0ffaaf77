"""The scores of several predictors as text."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from tsattn.experiments.score_table import group_table, score_table


class Table:
    """Says these scores of its errors."""

    def __init__(self, **scores: float) -> None:
        self._scores = scores

    def scores(self) -> dict[str, float]:
        return self._scores


POINT = {"mse_scaled": 0.5, "mae_scaled": 0.6, "mse_original": 5.0, "mae_original": 6.0, "mase": 0.75}
QUANTILES = {"wql": 0.125, "crps_original": 2.5, "coverage_80": 0.783, "coverage_80_by_channel": 0.9}


def test_the_quantiles_of_a_point_forecast_are_blank_and_the_best_is_marked() -> None:
    tables: dict[str, Any] = {"mine": Table(**{**POINT, "mse_scaled": 0.4}, **QUANTILES), "persistence": Table(**POINT)}
    table = score_table("toy", tables).splitlines()
    assert table[0] == "toy"
    assert table[2].split() == ["MSE", "MAE", "MSE", "MAE", "MASE", "WQL", "CRPS", "80"]
    assert table[3].split() == ["mine", "0.400", "0.600", "5", "6", "0.750", "0.1250", "2.5", "78.3", "*"]
    assert table[3].index("78.3") + 4 == table[2].index("80") + 2
    assert table[4].split() == ["persistence", "0.500", "0.600", "5", "6", "0.750"]
    assert [line.endswith("*") for line in table].count(True) == 1
    plain = score_table("toy", {"persistence": tables["persistence"]}).splitlines()
    assert "WQL" not in plain[2]


def test_what_mase_leaves_out_is_said_where_it_stands() -> None:
    mine = {**POINT, **QUANTILES, "mase_left_out": 14}
    tables: dict[str, Any] = {"mine": Table(**mine), "persistence": Table(**POINT, mase_left_out=14)}
    assert score_table("toy", tables).splitlines()[-1].startswith("MASE leaves out 14 targets of series without")
    assert "leaves out" not in score_table("toy", {"mine": Table(**POINT, **QUANTILES, mase_left_out=0)})
    assert "MASE" not in score_table("toy", {"persistence": tables["persistence"]})
    index = pd.MultiIndex.from_product([["mine", "naive"], [1, 2]], names=["forecaster", "step"])
    assert "leaves out 28 targets" in group_table("by step", pd.DataFrame([mine] * 4, index), "mine")


def test_what_is_not_finite_is_not_the_best() -> None:
    tables: dict[str, Any] = {"broken": Table(**{**POINT, "mse_scaled": math.nan}), "persistence": Table(**POINT)}
    broken, other = score_table("toy", tables).splitlines()[3:5]
    assert not broken.endswith("*")
    assert other.endswith("*")
