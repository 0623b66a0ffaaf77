"""Means over horizons of a few arms: what is found, how it is corrected, and when nothing can be told."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.multitest import multipletests

from tests.leaderboard.invented import record, records
from tsattn.leaderboard.comparisons import compare_all
from tsattn.leaderboard.deviations import Deviations
from tsattn.leaderboard.mean_comparisons import MeanPair, _together, compare_means
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.standings import RankedArm, Standings

RIDGE, STANDARD = RankedArm("ridge"), RankedArm("patchtst", "standard")
RESAMPLES = 4000


def _row(frame: pd.DataFrame, attention: str, against: str) -> pd.Series:
    (row,) = [one for _, one in frame.iterrows() if (one["attention"], one["against"]) == (attention, against)]
    return row


@pytest.fixture(scope="module")
def board() -> Standings:
    return Standings(records(datasets=("ETTh1",), shifts={"mlr": -6.0}, windows=1000))


@pytest.fixture(scope="module")
def compared(board: Standings) -> pd.DataFrame:
    pairs = [
        MeanPair("ETTh1", RankedArm("patchtst", attention), reference)
        for attention in ("mlr", "swa")
        for reference in (STANDARD, RIDGE)
    ]
    return compare_means(board, [*pairs, pairs[0]], RESAMPLES)


def test_means_are_those_of_the_horizons(board: Standings, compared: pd.DataFrame) -> None:
    single = compare_all(board, resamples=RESAMPLES)
    single = single[(single["metric"] == "mse") & (single["predictor"] == "patchtst")]
    assert len(compared) == 4, "one that is there twice is compared once"
    for _, row in compared.iterrows():
        own = single[(single["attention"] == row["attention"]) & (single["against"] == row["against"])]
        assert row["horizons"] == (24, 48)
        for name in ("mean", "reference", "difference"):
            assert row[name] == pytest.approx(own[name].mean())
        assert row["percent"] == pytest.approx(100 * row["difference"] / row["reference"])
        # an interval no narrower than the mean of theirs, but for the draw
        width, theirs = row["high"] - row["low"], (own["high"] - own["low"]).mean()
        assert width == pytest.approx(theirs, rel=0.1)


def test_what_differs_is_found_and_corrected_for_its_own_family(compared: pd.DataFrame) -> None:
    assert _row(compared, "mlr", "standard")["verdict"] == "better"
    assert _row(compared, "swa", "standard")["verdict"] == "tie"
    np.testing.assert_allclose(compared["holm"], multipletests(compared["p"], method="holm")[1])
    assert (compared["detectable"] > 0).all()


def test_horizons_that_are_as_lucky_as_each_other_vary_most() -> None:
    rng = np.random.default_rng(0)
    one, other = (Deviations(scale * rng.standard_normal(20_000), [(scale, 30.0)]) for scale in (1.0, 3.0))
    together = _together([one, other])
    assert together.values.std() == pytest.approx(2.0, rel=0.02)
    assert together.spread == pytest.approx(2.0)
    assert np.mean([one.values, other.values], axis=0).std() < together.values.std()


def test_a_horizon_that_tells_nothing_is_in_no_mean() -> None:
    own = {"windows": 1000}
    runs = [record("ETTh1", 24, "patchtst", kind, seed, **own) for kind in ("standard", "mlr") for seed in (1, 2, 3)]
    runs += [record("ETTh1", 24, "ridge", "", None, **own), record("ETTh1", 600, "ridge", "", None, windows=700)]
    runs += [
        record("ETTh1", 600, "patchtst", kind, seed, windows=700) for kind in ("standard", "mlr") for seed in (1, 2, 3)
    ]
    arm = RankedArm("patchtst", "mlr")
    found = compare_means(Standings(Records.of(runs)), [MeanPair("ETTh1", arm, RIDGE)], RESAMPLES)
    assert found["undecided"].tolist() == [{"no interval": [600]}]
    assert found["horizons"].tolist() == [(24,)]
    single = compare_all(Standings(Records.of(runs)), resamples=RESAMPLES)
    single = single[(single["horizon"] == 24) & (single["metric"] == "mse") & (single["attention"] == "mlr")]
    assert found["difference"].tolist() == pytest.approx(
        single.loc[single["against"] == "ridge", "difference"].tolist()
    )
    assert found["p"].notna().all()
    without = [one for one in runs if (one.row["horizon"], one.row["predictor"]) != (600, "ridge")]
    found = compare_means(Standings(Records.of(without)), [MeanPair("ETTh1", arm, RIDGE)], RESAMPLES)
    assert found["undecided"].tolist() == [{"not run": [600]}]
    assert found["verdict"].tolist() == ["no interval"]
    assert found["mean"].isna().all()
