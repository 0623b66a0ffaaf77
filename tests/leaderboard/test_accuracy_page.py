"""The page on what helps: what stands beside what, and that its sentences follow from the records."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.docs.blocks import ROOT
from tests.leaderboard.invented import record, refused
from tsattn.cli.benchmark import find_suite
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.report.wording import MINUS
from tsattn.leaderboard.run_record import Record
from tsattn.leaderboard.standings import Standings
from tsattn.leaderboard.suite_file import read_suite

SUITE = read_suite(find_suite("accuracy"))
SMALL = SUITE.narrowed(predictors=["ridges", "base", "mse", "huber", "slow", "distilled", "wide", "context_2048"])
ETTM1 = SMALL.narrowed(data=["ETTm1"])
SEEDS = (1, 2, 3, 4)
RESAMPLES = 400


@pytest.fixture
def accuracy(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("accuracy")


def invented(
    shifts: dict[str, float],
    datasets: tuple[str, ...] = ("ETTm1",),
    **changed: Any,
) -> Standings:
    """Networks whose MSE is so many percent above that of `base`; the ridge 5 percent."""
    found: list[Record] = []
    for dataset in datasets:
        found.append(record(dataset, 96, "ridge", "", None, shift=5.0))
        found.append(record(dataset, 96, "ridges", "", None, shift=5.0))
        found.append(refused(dataset, 96, "wide", "standard", "failed", "the loss is not a number"))
        for name, shift in {"base": 0.0, **shifts}.items():
            attention = "" if name == "distilled" else "standard"
            for seed in SEEDS:
                own = changed if name == "mse" else {}
                found.append(record(dataset, 96, name, attention, seed, shift=shift, **own))
    return Standings(Records.of(found))


def test_each_stands_beside_what_it_changes(accuracy: Any) -> None:
    plan = accuracy.planned(SUITE)
    beside = {str(one.arm): str(one.beside) for one in plan if one.dataset == "ETTm1"}
    assert beside["base, standard"] == beside["ridges"] == beside["ridge_192"] == "ridge"
    assert beside["distilled"] == beside["frequency, standard"] == beside["small_patches, standard"] == "base, standard"
    assert beside["small_patches, calendar"] == "small_patches, standard"
    assert beside["batch_norm+ridge, standard"] == "batch_norm, standard"
    assert beside["base_of_four_seeds, standard"] == beside["base+ridges, standard"] == "base, standard"
    assert "ridge" not in beside
    assert "base, calendar" not in beside
    sets = {name: {one.dataset for one in plan if one.arm.predictor == name} for name in ("mse", "context_2048")}
    assert sets == {"mse": {"ETTm1", "ETTh1"}, "context_2048": {"ETTm1"}}


def test_a_row_is_what_the_records_say(accuracy: Any) -> None:
    board = invented({"mse": -9.0, "huber": 0.0, "distilled": 1.0})
    found = accuracy.rows(ETTM1, board, RESAMPLES)
    assert len(found) == len(accuracy.planned(ETTM1))
    of = {(row.dataset, row.arm.predictor): row for row in found.itertuples() if row.arm.attention != "calendar"}
    row, base = of["ETTm1", "mse"], of["ETTm1", "base"]
    done = board.done.set_index(["predictor", "seed"]).sort_index()
    own, other = (done.loc[name]["mse"].to_numpy() for name in ("mse", "base"))
    assert (row.mse, row.mse_spread) == (pytest.approx(own.mean()), pytest.approx(own.std(ddof=1)))
    assert row.mse_percent == pytest.approx(100 * (own.mean() / other.mean() - 1), rel=1e-4)
    assert row.mse_low < row.mse_percent < row.mse_high
    assert row.runs_below == f"{(own < other).sum()} of 4" == "4 of 4"
    assert (row.mse_verdict, of["ETTm1", "huber"].mse_verdict, row.reason, row.runs) == ("better", "tie", "", 4)
    assert (str(base.beside), base.runs_below, base.mse_verdict) == ("ridge", "4 of 4", "better")
    assert of["ETTm1", "distilled"].runs == 4
    assert 10 < of["ETTm1", "distilled"].mse_freedom <= 4 * 3, (
        "of four networks of four seeds, which do little to all alike"
    )
    assert of["ETTm1", "wide"].reason == "failed: the loss is not a number"
    for name in ("slow", "context_2048"):
        assert (of["ETTm1", name].reason, of["ETTm1", name].runs) == ("not run", 0)
        assert np.isnan(of["ETTm1", name].mse)
        assert of["ETTm1", name].mse_verdict == ""


def sentences(accuracy: Any, board: Standings) -> str:
    return "\n".join(accuracy.findings(accuracy.rows(ETTM1, board, RESAMPLES)))


def test_what_helped_is_what_the_verdicts_say(accuracy: Any) -> None:
    helped = sentences(accuracy, invented({"mse": -9.0, "huber": 9.0}))
    assert f"**MSE**: `base` ({MINUS}" in helped
    assert f"and `mse` ({MINUS}7." in helped
    assert "% beside `base`) helped; `huber` (+" in helped
    assert "% beside `base`) did harm" in helped
    turned = sentences(accuracy, invented({"mse": 9.0, "huber": -9.0}))
    assert f"and `huber` ({MINUS}" in turned
    assert "% beside `base`) helped; `mse` (+" in turned
    alike = sentences(accuracy, invented({"mse": 0.0, "huber": 0.0}))
    assert "nothing did harm; of 3 arms it could not be told: `ridges`, `mse` and `huber`; differences would" in alike
    assert "Planned, and without a score: `ridge_192`, " in alike
    assert "Leads, no" not in alike


def test_a_tie_whose_own_interval_is_without_0_is_a_lead(accuracy: Any) -> None:
    part = accuracy.rows(ETTM1, invented({"mse": 0.0, "huber": 0.0}), RESAMPLES)
    assert set(part.loc[[arm.predictor == "mse" for arm in part["arm"]], "mse_verdict"]) == {"tie"}
    part.loc[[arm.predictor == "mse" for arm in part["arm"]], ["mse_percent", "mse_low", "mse_high"]] = -6.0, -8.0, -4.0
    said = "\n".join(accuracy.findings(part))
    assert f"without 0 before the correction alone: `mse` ({MINUS}6.0 % beside `base`)." in said


def test_whether_validation_agrees(accuracy: Any) -> None:
    shifts = {"mse": -9.0, "huber": 9.0}
    assert "the same way in 4 of 4 comparisons, and their rank correlation over all arms is 1.00" in sentences(
        accuracy, invented(shifts)
    )
    misled = sentences(accuracy, invented(shifts, validation_mse=9.0))
    assert "the same way in 3 of 4 comparisons" in misled
    assert "is that of `base`, place 2 on test, where `mse` is first" in misled
    assert "Of the 3 differences in MSE that could be told, validation agrees with 2." in misled


def test_single_trainings_decide_nothing(accuracy: Any) -> None:
    found = [record("ETTm1", 96, name, "standard", 1, shift=shift) for name, shift in (("base", 0.0), ("mse", -30.0))]
    text = accuracy.page(ETTM1, Standings(Records.of(found)), RESAMPLES)
    assert "**better**" not in text
    assert "| one seed |" in text
    assert "nothing was judged." in text
    assert f"Single trainings, whose seed may be all there is to them: `mse` ({MINUS}" in text
    assert "luck of seeds is known" not in text


def test_the_page_is_written(accuracy: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = invented({"mse": -9.0}, ("ETTm1", "ETTh1"))
    Records.of([record("ETTm1", 96, "base", "standard", seed) for seed in SEEDS]).write(tmp_path / "accuracy")
    assert accuracy.main(["--records", str(tmp_path / "accuracy")]) == 0
    text = (tmp_path / "accuracy.md").read_text()
    assert "| `mse` | `base` | not run |" in text
    assert (
        "4 runs, 0.2 hours of training, on AMD EPYC, cpu, 1 thread; tsattn 0.1.0, torch 2.13.0; git 0123456789." in text
    )
    whole = accuracy.page(SMALL, board, RESAMPLES)
    assert "## ETTh1, horizon 96" in whole
    assert "Of 3 arms that were run on several data sets, in MSE: better on each of them `base` and `mse`" in whole
    with pytest.raises(SystemExit) as error:
        accuracy.main(["--records", str(tmp_path / "nothing")])
    assert error.value.code == 2
    assert "nothing" in capsys.readouterr().err
