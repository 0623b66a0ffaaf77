"""Comparisons of a board: their numbers, their correction, and what is confirmed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from statsmodels.stats.multitest import multipletests

from tests.leaderboard.invented import ABLATIONS, ATTENTIONS, record, records
from tsattn.errors import UserError
from tsattn.leaderboard import paired_errors
from tsattn.leaderboard.block_bootstrap import block_length
from tsattn.leaderboard.comparisons import (
    COMPARISON,
    Pair,
    adjusted,
    by_block_length,
    compare_all,
    compare_pairs,
    confirm,
)
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.run_record import Record
from tsattn.leaderboard.standings import RankedArm, Standings

RESAMPLES = 2000


@pytest.fixture(scope="module")
def board() -> Standings:
    return Standings(records(shifts={"mlr": -6.0, "uniform": 12.0}, windows=1000))


@pytest.fixture(scope="module")
def compared(board: Standings) -> pd.DataFrame:
    return compare_all(board, resamples=RESAMPLES * 4)


def test_point_estimates_are_those_of_the_errors(board: Standings, compared: pd.DataFrame) -> None:
    entries = records(shifts={"mlr": -6.0, "uniform": 12.0}, windows=1000)
    done = entries.frame
    for row in compared.sample(20, random_state=0).itertuples():
        attention, predictor = (row.against, row.predictor) if row.against == "standard" else ("", "ridge")
        means = []
        for name, kind in ((row.predictor, row.attention), (predictor, attention)):
            own = done[(done["dataset"] == row.dataset) & (done["horizon"] == row.horizon)]
            own = own[(own["predictor"] == name) & (own["attention"] == kind)]
            column = "squared" if row.metric == "mse" else "absolute"
            tables = [entries.windows(key) for key in own["key"]]
            means.append(np.mean([table[column].astype(float).sum() / table["count"].sum() for table in tables]))
            assert own[row.metric].mean() == pytest.approx(means[-1], rel=1e-6)
        assert row.difference == pytest.approx(means[0] - means[1], rel=1e-6)
        assert row.percent == pytest.approx(100 * (means[0] / means[1] - 1), rel=1e-6)
        assert row.low < row.difference < row.high


def test_every_attention_meets_standard_and_ridge(compared: pd.DataFrame) -> None:
    assert not compared.duplicated(COMPARISON).any()
    first = compared[(compared["dataset"] == "ETTh1") & (compared["horizon"] == 24) & (compared["metric"] == "mse")]
    by = first.groupby("against")[["predictor", "attention"]].apply(lambda part: set(map(tuple, part.to_numpy())))
    assert ("patchtst", "mlr") in by["standard"]
    assert ("patchtst", "uniform") in by["standard"]
    assert ("patchtst", "standard") not in by["standard"]
    assert ("itransformer", "standard") in by["ridge"]
    assert not any(predictor == "persistence" for predictor, _ in by["ridge"] | by["standard"])


def test_what_differs_is_found_and_what_does_not_is_a_tie(compared: pd.DataFrame) -> None:
    own = compared[(compared["against"] == "standard") & (compared["predictor"] == "patchtst")]
    own = own[own["metric"] == "mse"].groupby("attention")["verdict"].agg(set)
    assert own["mlr"] == {"better"}
    assert own["uniform"] == {"worse"}
    assert own["swa"] == own["btt"] == own["identity"] == {"tie"}
    ties = compared[compared["verdict"] == "tie"]
    assert ((ties["holm"] >= 0.05) | ((ties["low"] <= 0) & (ties["high"] >= 0))).all()
    assert (compared["detectable"] > 0).all()


def test_holm_counts_every_comparison(compared: pd.DataFrame) -> None:
    expected = multipletests(compared["p"], method="holm")[1]
    np.testing.assert_allclose(compared["holm"], expected)
    p = np.random.default_rng(0).random(40) ** 3
    np.testing.assert_allclose(adjusted(p), multipletests(p, method="holm")[1])
    assert not len(adjusted(np.empty(0)))


def test_the_same_comes_out_again_and_of_fewer_data(board: Standings, compared: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(compare_all(board, resamples=RESAMPLES * 4), compared)
    part = Standings(records(datasets=("ETTm1",), shifts={"mlr": -6.0, "uniform": 12.0}, windows=1000))
    alone = compare_all(part, resamples=RESAMPLES * 4).set_index(COMPARISON)["p"]
    pd.testing.assert_series_equal(alone, compared.set_index(COMPARISON).loc[alone.index, "p"])


def test_resamples_are_enough_for_the_number_of_comparisons() -> None:
    """A large difference is still found after the correction of very many."""
    board = Standings(records(datasets=("ETTh1",), horizons=(24,), seeds=(1, 2), shifts={"mlr": -50.0}, windows=900))
    found = compare_all(board)
    assert found["holm"].min() < 0.025


def test_verdicts_do_not_hang_on_what_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small p-values come out alike, whatever is drawn, also after the correction of very many."""
    board = Standings(records(datasets=("ETTh1",), horizons=(24,), seeds=(1, 2), shifts={"mlr": -50.0}, windows=900))
    found = []
    for seed in (1, 2, 3):
        monkeypatch.setattr(paired_errors, "_SEED", seed)
        table = compare_all(board, resamples=RESAMPLES * 4)
        found.append(table[table["attention"] == "mlr"])
    for other in found[1:]:
        assert found[0]["verdict"].tolist() == other["verdict"].tolist()
        matters = found[0]["p"] > 1e-4  # beyond, after a correction for hundreds, nothing changes
        assert np.log(found[0]["p"] / other["p"])[matters].abs().max() < 0.5
    assert found[0]["p"].min() < 1 / (RESAMPLES * 4)


def test_fresh_seeds_confirm(board: Standings) -> None:
    found, fresh = confirm(board, [4, 5], resamples=RESAMPLES * 2)
    assert set(found["seeds"]) <= {2, 3}
    assert (fresh["seeds"] == 2).all(), "ablations have no fresh seeds"
    assert set(fresh["against"]) == {"standard"}
    chosen = found[found["verdict"].isin(["better", "worse"])].set_index(COMPARISON).index
    assert set(fresh.set_index(COMPARISON).index) <= set(chosen)
    np.testing.assert_allclose(fresh["holm"], multipletests(fresh["p"], method="holm")[1])
    mlr = fresh[(fresh["attention"] == "mlr") & (fresh["against"] == "standard") & (fresh["metric"] == "mse")]
    assert len(mlr)
    assert (mlr["verdict"] == "better").all()


def test_what_is_found_is_looked_at_by_the_length_of_blocks(board: Standings) -> None:
    """As if the whole board were compared by other blocks, beside whose p-values those of all others stay."""
    found = compare_all(board, resamples=RESAMPLES)
    lengths = by_block_length(board, found, resamples=RESAMPLES)
    chosen = found[found["verdict"].isin(["better", "worse"]) & (found["against"] == "standard")]
    assert set(lengths[COMPARISON].itertuples(index=False, name=None)) == set(
        chosen[COMPARISON].itertuples(index=False, name=None)
    )
    for name, row in chosen.set_index(COMPARISON).iterrows():
        own = lengths.set_index(COMPARISON).loc[[name]]
        assert own["block_length"].tolist() == [block_length(1000, name[1], stretch) for stretch in (0.5, 1, 2, 4)]
        as_it_is = own[own["block_length"] == row["block_length"]].iloc[0]
        assert as_it_is[["low", "high", "p", "holm", "verdict"]].equals(row[["low", "high", "p", "holm", "verdict"]])
    twice = compare_all(board, resamples=RESAMPLES, stretch=2).set_index(COMPARISON)["p"]
    for row in lengths[lengths["block_length"] == 2 * block_length(1000, 24)].to_dict("records"):
        name = tuple(row[column] for column in COMPARISON)
        if name[1] != 24:
            continue
        assert row["p"] == twice[name]
        others = found.set_index(COMPARISON)["p"].drop(index=[name])
        assert row["holm"] == multipletests([*others, row["p"]], method="holm")[1][-1]
    alike = dict.fromkeys((*ATTENTIONS, *ABLATIONS), 0.0)
    nothing = Standings(records(datasets=("ETTh1",), horizons=(24,), seeds=(1, 2), windows=300, shifts=alike))
    assert not len(by_block_length(nothing, compare_all(nothing, resamples=200), resamples=200))


def test_what_confirms_are_the_means_of_fresh_seeds() -> None:
    """Were the fresh seeds to say nothing of it, nothing would be confirmed."""
    moved = [
        record("ETTh1", 24, "patchtst", kind, seed, shift=-9.0 if kind == "mlr" and seed < 6 else 0.0, windows=900)
        for kind in ("standard", "mlr")
        for seed in range(1, 8)
    ]
    found, fresh = confirm(Standings(Records.of(moved)), [6, 7], resamples=RESAMPLES)
    assert set(found["verdict"]) == {"better"}
    assert found["is_paired"].all()
    assert set(fresh["verdict"]) == {"tie"}
    assert (fresh["seeds"] == 2).all()
    frame = Records.of(moved).frame
    own = frame[frame["seed"].isin([6, 7])].groupby("attention")["mse"].mean()
    row = fresh[fresh["metric"] == "mse"].iloc[0]
    assert row["difference"] == pytest.approx(own["mlr"] - own["standard"], abs=1e-6), "errors by window are rounded"


def _compared(seeds: Sequence[int], horizons: Sequence[int]) -> pd.DataFrame:
    board = Standings(records(datasets=("ETTh1",), horizons=horizons, seeds=seeds, windows=900))
    found = compare_all(board, resamples=RESAMPLES)
    return found[found["against"] == "standard"].set_index(["horizon", *COMPARISON[2:4], "metric"])


def test_runs_of_one_seed_are_pairs() -> None:
    """The spread of three pairs at one horizon, or of two at each of two, is known too badly; not that of all arms."""
    for seeds, horizons, freedom in (
        ((1, 2, 3), [24], 3 * 2 + 3),
        ((1, 2, 3, 4), [24], 3),
        ((1, 2), [24, 48], 3 + 3 + 3),
        ((2, 3, 4), [24, 48], 2 + 2),
        ((1, 2, 3), [24, 48], 2 * 3 * 2 + 3),  # whose single runs lie further apart at one, so that pairs are too few
    ):
        found = _compared(seeds, horizons).loc[(horizons[0], "patchtst", "swa", "mse")]
        assert found["is_paired"]
        assert found["seed_freedom"] == freedom, "of pairs, or of four attentions and three ablations of two seeds"
    other = _compared((1, 2, 3, 4), [24]).loc[(24, "patchtst", "btt", "mse")]
    assert other["is_paired"]
    assert other["seed_freedom"] == 3 * 3 + 3, "of all arms, as it has more parameters, so that it begins with others"
    ablation = _compared((1, 2, 3), [24, 48]).loc[(24, "patchtst", "uniform", "mse")]
    assert not ablation["is_paired"], "of two seeds beside three"


def test_what_seeds_do_is_learnt_from_all_horizons_relative_to_the_error() -> None:
    """With one seed at 48 as much is known of luck as at 24, where there are five."""
    whole, far = records(datasets=("ETTh1",), horizons=(24, 48), seeds=(1, 2, 3, 4, 5), windows=900), []
    for one in whole.each():
        if one.row["status"] == "done" and (one.row["horizon"] == 24 or one.row["seed"] in (None, 1)):
            far.append(one)
    found = compare_all(Standings(Records.of(far)), resamples=RESAMPLES)
    found = found[(found["predictor"] == "patchtst") & (found["metric"] == "mse") & (found["attention"] == "swa")]
    own = found[found["against"] == "ridge"].set_index("horizon")
    assert own["seeds"].to_dict() == {24: 5, 48: 1}
    assert len(set(own["seed_freedom"])) == 1
    assert 4 <= own.loc[48, "seed_freedom"] < 5, "of five seeds that move all attentions alike, not of each once more"
    assert set(own["verdict"]) <= {"better", "worse", "tie"}
    doubled = [
        Record(
            {**one.row, "mse": 2 * one.row["mse"]},
            one.windows.set_column(
                one.windows.column_names.index("squared"),
                one.windows.schema.field("squared"),
                pc.multiply(one.windows["squared"], pa.scalar(2.0, one.windows.schema.field("squared").type)),
            ),
        )
        if one.row["horizon"] == 24
        else one
        for one in far
    ]
    again = compare_all(Standings(Records.of(doubled)), resamples=RESAMPLES).set_index(COMPARISON)
    for row in found[found["horizon"] == 48].to_dict("records"):
        other = again.loc[tuple(row[name] for name in COMPARISON)]
        assert other[["low", "high", "p"]].tolist() == pytest.approx([row[name] for name in ("low", "high", "p")])


def test_each_side_has_the_luck_of_its_own_predictor() -> None:
    """One whose seeds lie far apart beside one whose seeds do not, either way round."""
    runs = [record("ETTh1", 24, "patchtst", "mlr", seed, windows=900) for seed in range(1, 4)]
    runs += [record("ETTh1", 24, "itransformer", "mlr", seed, shift=8.0 * seed, windows=900) for seed in range(1, 4)]
    steady, wild = (RankedArm(name, "mlr") for name in ("patchtst", "itransformer"))
    pairs = [Pair("ETTh1", 24, steady, wild), Pair("ETTh1", 24, wild, steady)]
    found = compare_pairs(Standings(Records.of(runs)), pairs, ["mse"], resamples=4 * RESAMPLES)
    assert not found["is_paired"].any()
    widths = found["high"] - found["low"]
    assert widths[0] == pytest.approx(widths[1], rel=0.1)
    spread = np.std([8.0 * seed / 100 * 0.4 for seed in range(1, 4)], ddof=1) / np.sqrt(3)
    assert widths.min() > 2 * 2 * spread, "that of the wild one alone"


def test_pairs_are_compared_with_what_they_name(board: Standings, compared: pd.DataFrame) -> None:
    mlr, swa, standard = (RankedArm("patchtst", kind) for kind in ("mlr", "swa", "standard"))
    pairs = [Pair("ETTh1", 24, mlr, swa), Pair("ETTh1", 24, mlr, standard), Pair("ETTh1", 24, mlr, swa)]
    found = compare_pairs(board, pairs, ["mae"], resamples=RESAMPLES * 4)
    assert found["against"].tolist() == ["swa", "standard"], "each once"
    assert set(found["metric"]) == {"mae"}
    assert found["holm"].tolist() == adjusted(found["p"].to_numpy(float)).tolist(), "corrected for these two alone"
    names = ["ETTh1", 24, "patchtst", "mlr", "standard", "mae"]
    before, after = (one.set_index(COMPARISON).loc[tuple(names)] for one in (compared, found))
    assert after[["mean", "reference", "low", "high", "p"]].tolist() == pytest.approx(
        before[["mean", "reference", "low", "high", "p"]].tolist()
    )
    other = compared.set_index(COMPARISON).loc[("ETTh1", 24, "patchtst", "swa", "standard", "mae")]
    assert found["reference"][0] == pytest.approx(other["mean"])
    turned = compare_pairs(board, [Pair("ETTh1", 24, swa, mlr)], ["mae"], resamples=RESAMPLES)
    assert turned["difference"][0] == pytest.approx(-found["difference"][0])


def test_of_single_models_it_is_said() -> None:
    """Their interval holds for these models alone, so it says nothing of the arms, nor counts among the comparisons."""
    alone = records(datasets=("ETTh1",), horizons=(24,), seeds=(1,), shifts={"mlr": -50.0}, windows=900)
    found = compare_all(Standings(alone), resamples=RESAMPLES)
    assert (found["seed_freedom"] == 0).all()
    assert set(found["verdict"]) == {"one seed"}
    assert found[["low", "high"]].notna().all(axis=None)
    assert found[["p", "holm", "detectable"]].isna().all(axis=None)


def test_few_windows_have_no_interval() -> None:
    board = Standings(records(datasets=("ETTh1",), horizons=(24,), seeds=(1, 2), windows=40))
    found = compare_all(board, resamples=RESAMPLES)
    assert set(found["verdict"]) == {"no interval"}
    assert found[["low", "high", "p", "holm"]].isna().all(axis=None)
    assert found["difference"].notna().all()


def test_two_experiments_of_one_name_are_refused() -> None:
    one, other = (record("ETTh1", 24, "patchtst", "mlr", 1, key=key) for key in ("a", "b"))
    with pytest.raises(
        UserError, match=r"two different experiments are called ETTh1, horizon 24, patchtst, mlr, seed 1"
    ):
        Standings(Records.of([one, other]))


def test_data_of_one_name_that_are_of_different_files_are_refused() -> None:
    def of(suite: str, predictor: str, path: str, **changed: str) -> Record:
        text = f"data:\n  class_path: CSVDataModule\n  init_args: {{path: {path}, context_length: {len(predictor)}}}\n"
        return record("ETTh1", 24, predictor, "", None, windows=50, suite=suite, experiment=text, **changed)

    with pytest.raises(UserError) as caught:
        Standings(Records.of([of("first", "ridge", "a.csv"), of("second", "persistence", "b.csv")]))
    assert str(caught.value) == (
        "the suites first and second call different data ETTh1: data.path is a.csv in the one and b.csv in the other; "
        "report their records apart, or give one another name"
    )
    Standings(Records.of([of("first", "ridge", "a.csv"), of("second", "persistence", "a.csv")]))
    later = of(
        "second", "persistence", "a.csv, until: null, clean: false"
    )  # options that came later, as all was before
    Standings(Records.of([of("first", "ridge", "a.csv"), later]))
    shorter = of("second", "persistence", "a.csv, until: '2014-01-01'")
    with pytest.raises(UserError, match=r"data\.until is None in the one and 2014-01-01 in the other"):
        Standings(Records.of([of("first", "ridge", "a.csv"), shorter]))
    moved = [of("first", "ridge", "a.csv", key="r"), of("second", "ridge", "/mnt/a.csv", key="r")]
    Standings(Records.of([*moved, of("second", "persistence", "/mnt/a.csv")]))


def test_a_run_of_two_suites_counts_once() -> None:
    one = records(datasets=("ETTh1",), horizons=(24,), seeds=(1, 2), windows=900).each()
    other = [Record({**run.row, "suite": "another"}, run.windows) for run in one]
    alone, both = (Standings(Records.of(runs)) for runs in (one, [*one, *other]))
    assert len(both.done) == len(alone.done)
    pd.testing.assert_frame_equal(compare_all(both, resamples=RESAMPLES), compare_all(alone, resamples=RESAMPLES))


def test_other_windows_are_not_compared() -> None:
    runs = [record("ETTh1", 24, "patchtst", kind, 1, windows=900) for kind in ("standard", "mlr")]
    runs.append(record("ETTh1", 24, "ridge", "", None, windows=700))
    found = compare_all(Standings(Records.of(runs)), resamples=RESAMPLES)
    verdicts = found.groupby("against")["verdict"].agg(set)
    assert verdicts["ridge"] == {"no interval"}
    assert "no interval" not in verdicts["standard"]
