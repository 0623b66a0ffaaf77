"""What records say: scores, what is compared, answers to questions."""

import math
from typing import Any

import numpy as np
import pytest
import yaml

from tests.leaderboard.invented import LEVEL, board, row, rows
from tsattn.errors import UserError
from tsattn.leaderboard.analysis import Analysis
from tsattn.leaderboard.page import page_of
from tsattn.leaderboard.published import Published
from tsattn.leaderboard.records import Records

SETS = ("ETTh1", "ETTm1", "weather", "ETTh2")
MLR, STANDARD = "patchtst, mlr", "patchtst, standard"


def suite(**changed: Any) -> dict[str, str]:
    content = {
        **{"data": [*SETS], "horizons": [24, 48]},
        "attentions": {"standard": "standard", "swa": "swa", "mlr": "mlr"},
        "predictors": {"ridge": "ridge", "patchtst": "patchtst", "itransformer": "itransformer"},
    }
    return {"invented": yaml.safe_dump({**content, **changed}, sort_keys=False)}


def test_scores_are_means_over_seeds_and_horizons_of_models_that_have_all() -> None:
    found = [*rows("ETTh1", 24), row("ETTh1", 24, "patchtst", "btt", 1)]
    found += [row("ETTh1", 48, "patchtst", "standard", seed, shift=10.0) for seed in (1, 2, 4)]
    analysis = Analysis(Records.of(found))
    both = [np.mean([0.998, 1.002]) * LEVEL, np.mean([0.998, 1.002, 1.002]) * 1.1 * LEVEL]
    assert analysis.score("ETTh1", STANDARD) == pytest.approx(np.mean(both))
    assert analysis.score("ETTh1", STANDARD, "mae") == pytest.approx(0.6 * np.mean(both))
    assert analysis.horizons["ETTh1"] == (24, 48)
    assert math.isnan(analysis.score("ETTh1", "patchtst, btt"))
    assert math.isnan(analysis.score("ETTh1", "ridge"))
    seeds = analysis.scores.loc[("ETTh1", STANDARD), ["seeds", "most_seeds"]]
    assert seeds.tolist() == [2, 3]


def test_models_are_told_by_what_they_are_made_of() -> None:
    ridges = {"kind": "ensemble", "members": [{"kind": "ridge"}, "dlinear"]}
    mix = {"kind": "ensemble", "members": [{"kind": "patchtst", "attention": [{"kind": "swa"}]}, "ridge"]}
    found = rows("ETTh1", 24, {"swa": -2.0, "standard": 0.0, "mlr": -1.0})
    found += [
        row("ETTh1", 24, "ridges of equal shares", backbone=ridges, shift=2.0),
        row("ETTh1", 24, "ridges", backbone={**ridges, "kind": "auto"}, shift=1.0),
        row("ETTh1", 24, "auto", backbone={"kind": "auto", "members": None}, shift=0.5),
        row("ETTh1", 24, "mix", "swa", 1, backbone=mix, shift=-4.0),
        row("ETTh1", 24, "patchtst", "uniform", 1, shift=-5.0),
        row("ETTh1", 24, "oracle", seed=1, shift=-9.0),
    ]
    analysis = Analysis(Records.of(found))
    assert analysis.shown["ETTh1"] == (STANDARD, MLR, "patchtst, swa")
    assert analysis.linear("ETTh1") == "ridge"
    assert Analysis(Records.of([one for one in found if one["predictor"] != "ridge"])).linear("ETTh1") == "ridges"
    lengths = [row("ETTh1", 24, f"ridge_{place}", shift=place, validation_mse=0.1 / place) for place in (1, 2)]
    lengths[0]["experiment"] = lengths[1]["experiment"] = row("ETTh1", 24, "ridge")["experiment"]
    of_ridges = Analysis(Records.of([*found, *lengths]))
    assert of_ridges.linear("ETTh1") == "ridge_2", "chosen on validation, though its test error is higher"
    assert set(analysis.naive("ETTh1")) == {"persistence", "seasonal_naive"}
    assert analysis.chosen("ETTh1") == "oracle"
    assert analysis.chosen("ETTh1", attention=True) == "mix, swa"


def test_a_pair_is_the_log_ratio_of_means_over_horizons() -> None:
    records = Records.of([*rows("ETTh1", 24), *rows("ETTh1", 48, {"standard": 50.0, "swa": 50.0, "mlr": 47.0})])
    analysis = Analysis(records)
    pairs = {(pair.model, pair.horizon): pair for pair in analysis.pairs}
    assert set(pairs) == {(model, horizon) for model in (MLR, "patchtst, swa") for horizon in (None, 24, 48)}
    whole = pairs[MLR, None]
    assert whole.mse.estimate == pytest.approx(np.log((0.97 + 1.47) / (1.0 + 1.5)), abs=1e-6)
    assert whole.mae.estimate == pytest.approx(whole.mse.estimate, abs=1e-6)
    assert pairs[MLR, 24].mse.percent == pytest.approx(-3.0, abs=1e-4)
    assert (whole.against, whole.verdict, whole.mse.seeds) == (STANDARD, "better", 2)
    assert pairs["patchtst, swa", None].verdict == "equal within 1 %"
    contrast = analysis.difference("ETTh1", [MLR, "patchtst, swa"], STANDARD, horizons=[24])
    assert contrast.estimate == pytest.approx(np.log(0.97) / 2, abs=1e-6)


def test_what_cannot_be_compared_has_a_reason() -> None:
    found = [*rows("ETTh1", 24, {"standard": 0.0, "mlr": 0.0}), row("ETTh1", 24, "patchtst", "swa", 1, windows=100)]
    analysis = Analysis(Records.of(found))
    assert "different test windows" in analysis.difference("ETTh1", ["patchtst, swa"], STANDARD).reason
    assert "oracle has no runs on ETTh1 at horizon 24" in analysis.difference("ETTh1", ["oracle"], STANDARD).reason
    few = Analysis(Records.of(rows("ETTh1", 24, windows=10))).pairs[0]
    assert few.mse.reason == "ETTh1 has too few test windows for two blocks at horizon 24"
    assert few.mse.percent == pytest.approx(-3.0, abs=1e-4)


def test_claims_are_of_attentions_on_three_data_sets_or_more() -> None:
    shifts = (-3.0, -2.0, -4.0, -3.0)
    found = [
        one
        for name, shift in zip(SETS, shifts, strict=True)
        for one in rows(name, 24, {"standard": 0.0, "mlr": shift, **({"swa": 1.0} if shift < -2 else {})})
    ]
    claims = Analysis(Records.of(found)).claims
    assert set(claims) == {"mlr", "swa"}
    claim, verdict = claims["mlr"]
    assert claim.estimate == pytest.approx(np.log(1 + np.array(shifts) / 100).mean(), abs=2e-4)
    assert (claim.better, verdict) == (4, "better")
    assert not Analysis(board(SETS[:2])).claims


def test_means_leave_out_data_without_the_usual_reference() -> None:
    found = [one for name in SETS for one in rows(name, 24, {"standard": 0.0, "mlr": -10.0, "swa": -3.0})]
    lost = [one for one in found if one["dataset"] != SETS[0]]
    others = dict.fromkeys(("mlr", "swa", "btt", "global_swa", "bilinear_mlr", "mlbtc", "uniform"), 0.0)
    lost += rows(SETS[0], 24, others)
    analysis = Analysis(Records.of(lost))
    assert {name: round(claim.percent) for name, (claim, _) in analysis.claims.items()} == {"mlr": -10, "swa": -3}
    assert {pair.dataset for pair in analysis.means} == {*SETS[1:]}
    said = " ".join(page_of(analysis).answer)
    assert "`mlr` and `swa` are better than `standard`" in said
    assert f"is better on {len(SETS) - 1} data sets" in said


def test_a_claim_is_the_answer_to_a_question_of_all_data_that_was_posed_before_the_runs() -> None:
    found = [one for name in SETS[:3] for one in rows(name, 24, {"standard": 0.0, "mlr": -3.0})]
    found += [
        row("ETTh2", 24, "itransformer", attention, seed, shift=shift)
        for attention, shift in (("standard", 0.0), ("mlr", 9.0))
        for seed in (1, 2)
    ]
    question = {"ask": "Does it help?", "models": [MLR], "against": STANDARD}
    for changed, better, worse in (({}, 3, 0), ({"posed": "after"}, 3, 1), ({"data": ["ETTh1", "ETTm1"]}, 3, 1)):
        claim, _ = Analysis(Records.of(found, suite(questions=[{**question, **changed}]))).claims["mlr"]
        assert (claim.better, claim.worse) == (better, worse)


def test_questions_posed_before_the_runs_are_corrected_for_each_other() -> None:
    def asked(ask: str, model: str, **more: Any) -> dict[str, Any]:
        return {"ask": ask, "models": [f"patchtst, {model}"], "against": STANDARD, **more}

    questions = [
        asked("after", "mlr", posed="after"),
        asked("mlr on two", "mlr", data=["ETTh1", "ETTm1"]),
        asked("swa on one", "swa", data=["ETTh1"], metric="mae"),
        asked("not run", "mlr", data=["ETTh2"]),
    ]
    answers = Analysis(Records.of(board(SETS[:3]).table.to_pylist(), suite(questions=questions))).answers
    assert [answer.question.ask for answer in answers] == ["mlr on two", "swa on one", "not run", "after"]
    two, one, nothing, after = answers
    assert two.estimate is not None
    assert one.estimate is not None
    assert two.data == ("ETTh1", "ETTm1")
    assert two.corrected == pytest.approx(min(1.0, 3 * two.estimate.p_value))
    assert one.corrected == pytest.approx(min(1.0, 2 * one.estimate.p_value))
    assert (one.verdict, one.estimate.percent) == ("equal within 1 %", pytest.approx(0.0, abs=1e-4))
    assert (nothing.estimate, nothing.verdict) == (None, "undecided")
    assert (after.corrected, after.data, after.verdict) == (None, SETS[:3], "better")


def test_the_correction_can_leave_open_what_an_interval_decides() -> None:
    ask = {"models": [MLR], "against": STANDARD}
    texts = suite(questions=[{"ask": f"{number}", **ask} for number in range(5)])
    records = Records.of(board(shifts={"standard": 0.0, "mlr": -0.8}).table.to_pylist(), texts)
    answer = Analysis(records).answers[0]
    assert answer.estimate is not None
    assert answer.estimate.verdict() == "better"
    assert answer.estimate.p_value > 0.05 / 5
    assert answer.verdict == "undecided"


def test_the_lowest_published_number_is_of_all_windows_and_horizons() -> None:
    def published(model: str, scores: dict[int | str, tuple[float, float]], *, whole: bool = True) -> Published:
        return Published(model, "ETTh1", "512", whole, "a paper", scores)

    numbers = [
        published("high", {24: (0.5, 0.5), 48: (0.5, math.nan)}),
        published("low", {24: (0.3, 0.5), 48: (0.5, 0.6), 96: (9.0, 9.0)}),
        published("one horizon", {24: (0.1, 0.1)}),
        published("not all windows", {24: (0.2, 0.2), 48: (0.2, 0.2)}, whole=False),
        published("mean of other horizons", {"mean": (0.1, 0.1)}),
    ]
    analysis = Analysis(board(), numbers)
    found = analysis.lowest_published("ETTh1")
    assert found is not None
    assert (found[0].model, found[1], found[2]) == ("low", 0.4, pytest.approx(0.55))
    assert [one[0].model for one in analysis.published("ETTh1")] == ["low", "high", "not all windows"]


def test_different_runs_of_one_name_are_refused_and_shared_ones_counted_once() -> None:
    found = rows("ETTh1", 24)
    shared = [{**one, "suite": "another"} for one in found]
    assert len(Analysis(Records.of([*found, *shared])).runs) == len(found)
    with pytest.raises(UserError, match="two runs are called patchtst, mlr on ETTh1"):
        Analysis(Records.of([*found, {**found[-1], "key": "another"}]))
    failed = [{**found[0], "status": "failed", "reason": "out of memory"}]
    with pytest.raises(UserError, match="no run of these records is done"):
        Analysis(Records.of(failed))
    assert Analysis(Records.of([*found[1:], *failed])).failed["reason"].tolist() == ["out of memory"]
