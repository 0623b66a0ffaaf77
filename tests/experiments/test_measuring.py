"""Scores of several predictors as text, and the forecasts that any predictor must beat."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.baseline_scores import baseline_scores
from tsattn.data import CSVDataModule
from tsattn.experiments.measuring import group_table, score_table, verdict


class Table:
    def __init__(self, **scores: float) -> None:
        self._scores = scores

    def scores(self) -> dict[str, float]:
        return self._scores


POINT = {"mse_scaled": 0.5, "mae_scaled": 0.6, "mse_original": 5.0, "mae_original": 6.0, "mase": 0.75, "wape": 0.1}
QUANTILES = {
    "wql": 0.125,
    "crps_original": 2.5,
    "crps_scaled": 0.2,
    "coverage_80": 0.783,
    "coverage_80_by_channel": 0.9,
}


def test_the_quantiles_of_a_point_forecast_are_blank_and_the_best_is_marked() -> None:
    tables: dict[str, Any] = {"mine": Table(**{**POINT, "mse_scaled": 0.4}, **QUANTILES), "persistence": Table(**POINT)}
    table = score_table("toy", tables).splitlines()
    assert table[0] == "toy"
    assert table[1].split() == ["MSE", "MAE", "MASE", "CRPS", "cover", "80"]
    assert table[2].split() == ["mine", "0.400", "0.600", "0.750", "0.200", "0.783", "*"]
    assert table[2].index("0.783") + 5 == len(table[1])
    assert table[3].split() == ["persistence", "0.500", "0.600", "0.750"]
    assert [line.endswith("*") for line in table].count(True) == 1
    plain = score_table("toy", {"persistence": tables["persistence"]}).splitlines()
    assert "CRPS" not in plain[1]


def test_what_mase_leaves_out_is_said_where_it_stands() -> None:
    mine = {**POINT, **QUANTILES, "mase_left_out": 14}
    tables: dict[str, Any] = {"mine": Table(**mine), "persistence": Table(**POINT, mase_left_out=14)}
    assert score_table("toy", tables).splitlines()[-1].startswith("MASE leaves out 14 targets of series without")
    assert "leaves out" not in score_table("toy", {"mine": Table(**POINT, **QUANTILES, mase_left_out=0)})
    index = pd.MultiIndex.from_product([["mine", "naive"], [1, 2]], names=["forecaster", "step"])
    assert "leaves out 28 targets" in group_table("by step", pd.DataFrame([mine] * 4, index), "mine")


@pytest.mark.parametrize(
    ("mse", "rows"),
    [(0.4, ["your ridge (context 8) 0.400 *", "ridge (context 8) 0.500"]), (0.5, ["ridge (context 8) 0.500 *"])],
)
def test_a_predictor_with_the_label_of_a_baseline_keeps_its_scores(mse: float, rows: list[str]) -> None:
    tables: dict[str, Any] = {"ridge": Table(mse_scaled=mse), "ridge (context 8)": Table(mse_scaled=0.5)}
    table = score_table("toy", tables, "ridge (context 8)").splitlines()
    assert [" ".join(line.split()) for line in table[2 : 2 + len(rows)]] == rows
    assert table[2 + len(rows)] == ""


def test_what_is_not_finite_is_not_the_best() -> None:
    tables: dict[str, Any] = {"broken": Table(**{**POINT, "mse_scaled": math.nan}), "persistence": Table(**POINT)}
    broken, other = score_table("toy", tables).splitlines()[2:4]
    assert not broken.endswith("*")
    assert other.endswith("*")


@pytest.mark.parametrize(
    ("errors", "context_length", "said"),
    [
        (
            {"net": 0.34, "ridge (context 377)": 0.33, "seasonal naive (52 steps)": 0.5},
            48,
            [
                "net: MSE 32 % below seasonal naive, 3 % above the linear model.",
                "The linear model saw 377 steps, yours 48; try --data.context_length 377.",
            ],
        ),
        (
            {"net": 0.34, "ridge (context 48)": 0.33, "persistence": 0.34},
            48,
            ["within 0.5 % of persistence, 3 % above"],
        ),
        ({"net": 0.3, "ridge (context 377)": 0.33}, 48, ["net: MSE 9 % below the linear model."]),
        ({"net": 0.34, "ridge (context 377)": 0.33}, None, ["net: MSE 3 % above the linear model."]),
        ({"net": 0.1, "persistence": 0.0}, 48, []),
        ({"persistence": 0.1}, 1, []),
    ],
)
def test_the_verdict_compares_with_the_baselines(
    errors: dict[str, float], context_length: int | None, said: list[str]
) -> None:
    tables: dict[str, Any] = {name: Table(mse_scaled=error) for name, error in errors.items()}
    found = verdict(tables, context_length)
    assert len(found) == len(said)
    assert all(part in sentence for part, sentence in zip(said, found, strict=True)), found


def test_baselines_need_no_model_and_know_their_context(toy_csv: Path) -> None:
    data = CSVDataModule(str(toy_csv), context_length=24, prediction_length=12)
    data.setup("fit")
    scores = baseline_scores(data)
    assert list(scores) == ["ridge (context 96)", "seasonal naive (24 steps)", "persistence"]
    assert {one["windows"] for one in scores.values()} == {109}
    errors = [one["mse_scaled"] for one in scores.values()]
    assert errors == sorted(errors), "of a daily wave"
