"""Means, spreads, skills, choices and ranks."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.leaderboard.invented import record, records
from tsattn.errors import UserError
from tsattn.leaderboard.attention_share import attention_share
from tsattn.leaderboard.rank_tests import rankings
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.run_record import Record
from tsattn.leaderboard.standings import RankedArm, Standings
from tsattn.leaderboard.suite_facts import SuiteFacts
from tsattn.leaderboard.summaries import choices, comparable, horizon_means, scores


def test_scores_are_means_and_spreads_over_seeds() -> None:
    entries = records(windows=300)
    table = scores(Standings(entries)).set_index(["dataset", "horizon", "predictor", "attention"])
    done = entries.frame.query("status == 'done'")
    for name, own in done.groupby(["dataset", "horizon", "predictor", "attention"]):
        row = table.loc[name]
        assert row["mse"] == pytest.approx(own["mse"].mean())
        assert row["mae_spread"] == pytest.approx(own["mae"].astype(float).std(), nan_ok=True)
        assert row["seeds"] == len(own)
        ridge = table.loc[(*name[:2], "ridge", "")]["mse"]
        assert row["skill"] == pytest.approx(100 * (ridge - row["mse"]) / ridge)
    assert np.isnan(table.loc[("ETTh1", 24, "ridge", "")]["mse_spread"])


def test_means_over_horizons_are_of_whole_arms() -> None:
    board = Standings(records(windows=300))
    table = scores(board)
    means = horizon_means(board, table).set_index(["dataset", "predictor", "attention"])
    own = table[(table["dataset"] == "ETTh1") & (table["predictor"] == "patchtst") & (table["attention"] == "mlr")]
    assert means.loc[("ETTh1", "patchtst", "mlr"), "mse"] == pytest.approx(own["mse"].mean())
    assert means.loc[("ETTh1", "itransformer", "btt"), "missing"] == [48]
    assert np.isnan(means.loc[("ETTh1", "itransformer", "btt"), "mse"])
    assert means.loc[("ETTh1", "ridge", ""), "skill"] == 0


def test_mase_and_wql_are_means_where_all_horizons_have_them() -> None:
    runs = [
        record("ETTh1", horizon, "chronos", "", seed, windows=100, mase=seed + horizon / 24, wql=wql)
        for horizon, wql in ((24, 0.1), (48, None))
        for seed in (1, 2)
    ]
    board = Standings(Records.of(runs))
    table = scores(board).set_index("horizon")
    assert table["mase"].to_dict() == {24: 2.5, 48: 3.5}
    assert table["mase_spread"].tolist() == [pytest.approx(np.sqrt(0.5))] * 2
    assert table.loc[24, "wql"] == pytest.approx(0.1)
    assert np.isnan(table.loc[48, "wql"])
    (mean,) = horizon_means(board, scores(board)).to_dict("records")
    assert mean["mase"] == 3
    assert np.isnan(mean["wql"])


def test_a_scaled_error_that_one_of_several_seeds_lacks_has_no_mean() -> None:
    runs = [
        record("ETTh1", 24, "chronos", "", seed, windows=100, mase=mase, wql=0.1)
        for seed, mase in ((1, 2.0), (2, None))
    ]
    (row,) = scores(Standings(Records.of(runs))).to_dict("records")
    assert np.isnan(row["mase"])
    assert np.isnan(row["mase_spread"])
    assert row["wql"] == pytest.approx(0.1)


def test_validation_chooses() -> None:
    runs = [
        record("ETTh1", 24, "patchtst", "standard", 1, validation_mse=0.5, mse=0.40),
        record("ETTh1", 24, "patchtst", "mlr", 1, validation_mse=0.6, mse=0.30),
        record("ETTh1", 24, "patchtst+ridge", "mlr", 1, validation_mse=0.3, mse=0.35),
        record("ETTh1", 24, "slight+ridge", "mlr", 1, validation_mse=0.2, mse=0.20, weight=0.1),
        record("ETTh1", 24, "patchtst", "uniform", 1, validation_mse=0.1, mse=0.10),
        record("ETTh1", 24, "ridge", "", None, validation_mse=0.4, mse=0.36),
    ]
    board = Standings(Records.of(runs))
    found = choices(board, horizon_means(board, scores(board))).set_index(["among", "by"])
    chosen = found.loc[("attention", "validation")]
    assert (chosen["predictor"], chosen["attention"], chosen["mse"]) == ("patchtst+ridge", "mlr", 0.35)
    assert (chosen["without"], chosen["without_mse"], chosen["weight"]) == ("ridge", 0.36, 0.5)
    assert found.loc[("attention", "test")]["attention"] == "mlr"
    assert found.loc[("attention", "test")]["mse"] == 0.30
    assert found.loc[("all", "validation")]["attention"] == "uniform"


def test_what_is_left_without_the_member_that_holds_an_attention() -> None:
    runs = [record("ETTh1", 24, "ridge", "", None, windows=50)]
    facts = SuiteFacts(without={"blend": "ridge", "ridge+patchtst": "ridge", "x+y": ""})
    known, older = (Standings(Records.of(runs, suites)) for suites in ({"invented": facts}, {}))
    for board in (known, older):
        assert board.without_attention(RankedArm("patchtst+ridge", "mlr")) == "ridge", "by its name"
        assert board.without_attention(RankedArm("patchtst", "mlr")) == ""
        assert board.without_attention(RankedArm("blend")) == ""
    assert [known.without_attention(RankedArm(name, "mlr")) for name in ("blend", "ridge+patchtst", "x+y")] == [
        *("ridge", "ridge", "")
    ]


def test_an_attention_is_what_its_kind_says_and_not_its_name() -> None:
    runs = [
        record("ETTh1", 24, "patchtst", name, 1, windows=50, mse=error, validation_mse=error)
        for name, error in (("mean", 0.1), ("uniform", 0.2), ("mixed", 0.3))
    ]
    kinds = {"mean": ("uniform", "identity"), "uniform": ("mlr",), "mixed": ("uniform", "standard")}
    board = Standings(Records.of(runs, {"invented": SuiteFacts(kinds=kinds)}))
    assert [arm.attention for arm in board.arms] == ["mixed", "uniform", "mean"]
    assert [board.has_attention(arm) for arm in board.arms] == [True, True, False]
    found = choices(board, horizon_means(board, scores(board)))
    assert set(found.loc[found["among"] == "attention", "attention"]) == {"uniform"}
    assert set(found.loc[found["among"] == "all", "attention"]) == {"mean"}


@pytest.mark.parametrize(
    ("backbone", "trained", "share"),
    [
        ({"kind": "patchtst", "attention": {"kind": "mlr"}}, 1.0, 1.0),
        ({"kind": "patchtst", "attention": [{"kind": "uniform"}, "mlr"]}, 1.0, 1.0),
        ({"kind": "patchtst", "attention": {"kind": "uniform"}}, 1.0, 0.0),
        ({"kind": "dlinear"}, 1.0, 0.0),
        ("ridge", 0.0, 0.0),
        ({"kind": "ensemble", "members": ["patchtst", "dlinear", "ridge"], "weights": [0.05, 0.9, 0.05]}, 0.95, 0.05),
        ({"kind": "ensemble", "members": ["patchtst", "dlinear"], "weights": None}, 1.0, 0.5),
    ],
)
def test_the_weight_is_that_of_trained_members_with_an_attention(backbone: Any, trained: float, share: float) -> None:
    if isinstance(backbone, dict) and "members" in backbone:
        members = [
            {"kind": name, **({"attention": "mlr"} if name == "patchtst" else {})} for name in backbone["members"]
        ]
        backbone = {**backbone, "members": members}
    text = yaml.safe_dump({"model": {"backbone": backbone}})
    assert attention_share(text, trained) == pytest.approx(share)
    run = record("ETTh1", 24, "some", "mlr", 1, windows=50, weight=trained, experiment=text)
    board = Standings(Records.of([run]))
    found = choices(board, horizon_means(board, scores(board)))
    assert ("attention" in set(found["among"])) == (share >= 0.25)
    assert found["weight"].tolist() == pytest.approx([share] * len(found))
    assert attention_share("data: {}\n", trained) == trained, "as it is with no description"


def test_ranks_are_those_of_whole_tables() -> None:
    board = Standings(records(windows=300, shifts={"mlr": -30.0, "standard": 20.0}))
    found = {ranking.what: ranking for ranking in rankings(board, scores(board))}
    own = found["the attentions of patchtst"]
    assert own.ranks.index[0] == "patchtst, mlr"
    assert own.ranks.iloc[0] == 1
    assert own.ranks.iloc[-1] == 4
    # Demsar 2006, table 5: q of 4 at 0.05 is 2.569
    assert own.critical_difference == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 4)), rel=1e-3)
    assert {arm.attention for arm in own.left_out} == {"identity", "uniform", "fixed_mixing"}
    assert len(own.tables) == 4
    assert own.p < 0.05
    assert "ridge" in found["all arms"].ranks


def test_without_the_package_of_the_ranks_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **named: Any) -> Any:
        if name == "scikit_posthocs":
            raise ImportError(name)
        return real(name, *rest, **named)

    board = Standings(records(windows=300))
    table = scores(board)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UserError, match=r"pip install 'tsattn\[leaderboard\]'"):
        rankings(board, table)


def test_rolling_origins_choose_beside_validation() -> None:
    runs = [
        record("ETTh1", horizon, predictor, attention, 1, validation_mse=validation, mse=0.4)
        for horizon in (24, 48)
        for predictor, attention, validation in (
            ("patchtst", "standard", 0.5),
            ("patchtst", "mlr", 0.6),
            ("slight+ridge", "mlr", 0.7),
        )
    ]
    runs = [
        one if one.row["predictor"] != "slight+ridge" else Record.of({**one.row, "weight": 0.1}, one.windows)
        for one in runs
    ]
    board = Standings(Records.of(runs))
    names = ["dataset", "horizon", "predictor", "attention", "origins", "error"]
    scored = [
        ("ETTh1", 24, "patchtst", "standard", [0.4, 0.6], 0.5),
        ("ETTh1", 24, "patchtst", "mlr", [0.3, 0.4], 0.35),
        ("ETTh1", 24, "slight+ridge", "mlr", [0.1, 0.2], 0.15),
        ("weather", 24, "patchtst", "mlr", [0.1, 0.2], 0.15),
    ]
    means = horizon_means(board, scores(board))
    found = choices(board, means, pd.DataFrame(scored, columns=names)).set_index(["among", "by"])
    assert found.loc[("attention", "validation")]["attention"] == "standard"
    chosen = found.loc[("attention", "rolling origins")]
    assert (chosen["predictor"], chosen["attention"], chosen["rolling"]) == ("patchtst", "mlr", 0.35)
    assert found.loc[("all", "rolling origins")]["predictor"] == "slight+ridge"
    assert "rolling origins" not in set(choices(board, means)["by"])


def test_an_arm_that_lacks_a_validation_error_is_not_chosen_by_the_others() -> None:
    """The mean over the other horizons, or the other seeds, is another arm's rival no more."""
    for lacking in ({"horizon": 48, "seed": None}, {"horizon": 24, "seed": 2}):
        runs = [
            record("ETTh1", horizon, "patchtst", kind, seed, windows=100, mse=0.4, validation_mse=value)
            for horizon in (24, 48)
            for kind, value in (("standard", 0.6), ("swa", 0.1 if horizon == 24 else 0.9))
            for seed in (1, 2)
        ]
        for number, one in enumerate(runs):
            is_lacking = one.row["attention"] == "swa" and one.row["horizon"] == lacking["horizon"]
            if is_lacking and lacking["seed"] in (None, one.row["seed"]):
                runs[number] = Record.of({**one.row, "validation_mse": None}, one.windows)
        board = Standings(Records.of(runs))
        means = horizon_means(board, scores(board)).set_index("attention")
        assert np.isnan(means.loc["swa", "validation_mse"])
        found = choices(board, means.reset_index()).set_index(["among", "by"])
        assert found.loc[("attention", "validation"), "attention"] == "standard"


def test_a_mean_error_is_of_all_seeds_or_of_none() -> None:
    runs = [record("ETTh1", 24, "patchtst", "swa", seed, windows=100) for seed in (1, 2, 3)]
    runs[1] = Record.of({**runs[1].row, "mse": None}, runs[1].windows)
    (row,) = scores(Standings(Records.of(runs))).to_dict("records")
    assert np.isnan([row["mse"], row["mse_spread"]]).all()
    assert row["mae"] == pytest.approx(np.mean([one.row["mae"] for one in runs]))


def test_there_is_no_skill_beside_a_ridge_of_other_windows() -> None:
    runs = [record("ETTh1", horizon, "ridge", "", None, windows=300) for horizon in (24, 48)]
    runs += [
        record("ETTh1", horizon, "patchtst", kind, 1, windows=windows)
        for horizon, kind, windows in ((24, "swa", 300), (48, "swa", 200), (24, "mlr", 300), (48, "mlr", 300))
    ]
    board = Standings(Records.of(runs))
    table = scores(board)
    skills = table.set_index(["attention", "horizon"])["skill"]
    assert skills.isna().to_dict() == {index: index == ("swa", 48) for index in skills.index}
    means = horizon_means(board, table).set_index("attention")["skill"]
    assert means.isna().to_dict() == {"swa": True, "mlr": False, "": False}


def test_rolling_origins_are_compared_at_one_horizon_over_as_many_blocks() -> None:
    names = ["dataset", "horizon", "predictor", "attention", "origins", "error"]
    scored = [
        ("ETTh1", 24, "patchtst", "swa", [0.3, 0.3], 0.3),
        ("ETTh1", 720, "patchtst", "mlr", [0.6, 0.6], 0.6),
        ("ETTh1", 720, "patchtst", "standard", [0.5, 0.5], 0.5),
        ("ETTh1", 720, "patchtst", "btt", [0.1], 0.1),
        ("weather", 24, "patchtst", "swa", [0.1], 0.1),
        ("weather", 24, "patchtst", "mlr", [0.3, 0.3], 0.3),
    ]
    origins = pd.DataFrame(scored, columns=names)
    for order in (slice(None), slice(None, None, -1)):
        kept = comparable(origins.iloc[order])
        assert {(row.dataset, row.attention) for row in kept.itertuples()} == {
            ("ETTh1", "mlr"),
            ("ETTh1", "standard"),
            ("weather", "mlr"),
        }
    runs = [record("ETTh1", 24, "patchtst", kind, 1, windows=100) for kind in ("standard", "swa", "mlr", "btt")]
    board = Standings(Records.of(runs))
    found = choices(board, horizon_means(board, scores(board)), origins).set_index(["among", "by"])
    assert found.loc[("attention", "rolling origins"), "attention"] == "standard"
    assert not len(comparable(origins[:0]))
