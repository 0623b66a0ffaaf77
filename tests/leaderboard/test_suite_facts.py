"""What records say of their suite besides runs: it is kept, merged, and obeyed by reports."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.leaderboard.cases import bench
from tests.leaderboard.invented import record, records
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.leaderboard.own_seconds import own_seconds
from tsattn.leaderboard.records import Records, read_facts
from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.standings import Standings
from tsattn.leaderboard.suite_facts import SuiteFacts
from tsattn.leaderboard.suite_file import read_suite

FACTS = SuiteFacts({"ETTh1": (24, 48)}, (4, 5), ("The data were chosen by hand.",))


def _with(facts: SuiteFacts, **changed: object) -> Records:
    return Records.of(records(datasets=("ETTh1",), windows=300, **changed).each(), {"invented": facts})  # type: ignore[arg-type]


def test_facts_are_written_and_read(tmp_path: Path) -> None:
    _with(FACTS).write(tmp_path)
    assert read_facts(tmp_path) == {"invented": FACTS}
    assert Records.read(tmp_path).suites == {"invented": FACTS}
    records(datasets=("ETTh1",), windows=300).write(tmp_path / "older")
    assert Records.read(tmp_path / "older").suites == {}


def test_of_two_tables_of_a_suite_the_data_sets_of_both_are_planned(tmp_path: Path) -> None:
    for name, facts in (("one", FACTS), ("other", SuiteFacts({"weather": (96,)}))):
        _with(facts).write(tmp_path / name)
    both = Records.read(tmp_path / "one", tmp_path / "other").suites["invented"]
    assert both.horizons == {"ETTh1": (24, 48), "weather": (96,)}


def test_a_mean_over_fewer_horizons_than_were_planned_is_none() -> None:
    assert Standings(_with(FACTS, horizons=(24,))).horizons("ETTh1") == [24, 48]
    analysis = Analysis(Standings(_with(FACTS, horizons=(24,))), resamples=2000)
    assert analysis.means["mse"].isna().all()
    assert analysis.choices.empty
    whole = Analysis(Standings(_with(SuiteFacts({"ETTh1": (24,)}), horizons=(24,))), resamples=2000)
    assert whole.chosen("ETTh1") is not None


def test_reports_keep_the_fresh_seeds_of_a_suite_apart(tmp_path: Path) -> None:
    _with(FACTS).write(tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text()
    assert "Seeds 4 and 5 chose nothing, and confirm." in text
    assert "Caveat: The data were chosen by hand." in text
    closed_form = [record("weather", 24, "ridge", "", None, windows=300, suite="more")]
    Records.of(closed_form).write(tmp_path / "more")
    assert main(["report", str(tmp_path), str(tmp_path / "more"), "--output", str(tmp_path / "both")]) == 0
    assert "Seeds 4 and 5 chose nothing, and confirm." in (tmp_path / "both" / "report.md").read_text()


def test_seeds_that_another_suite_chooses_by_confirm_nothing_in_a_common_report(tmp_path: Path) -> None:
    _with(FACTS).write(tmp_path)
    trained = [record("weather", 24, "patchtst", "standard", 4, windows=300, suite="more")]
    Records.of(trained).write(tmp_path / "more")
    assert main(["report", str(tmp_path), str(tmp_path / "more"), "--output", str(tmp_path / "both")]) == 0
    assert "chose nothing, and confirm" not in (tmp_path / "both" / "report.md").read_text()
    left = Records.read(tmp_path, tmp_path / "more").without_fresh_seeds().frame
    assert set(left.loc[left["dataset"] != "weather", "seed"].dropna()) == {1, 2, 3}
    assert set(left.loc[left["dataset"] == "weather", "seed"]) == {4}


def test_seeds_that_are_all_there_is_are_not_kept_apart(tmp_path: Path) -> None:
    _with(FACTS, seeds=(4, 5)).write(tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text()
    assert "chose nothing" not in text
    assert "On ETTh1 validation chose patchtst" in text, "their runs are there"


@pytest.mark.parametrize("seeds", [1, 2])
def test_seconds_of_a_mix_leave_those_of_its_members_out(seeds: int) -> None:
    alone = "model: {backbone: {kind: patchtst, d_model: 16}}\n"
    mix = (
        "model: {backbone: {kind: ensemble, members: [{kind: patchtst, d_model: 16, max_steps: 9}, {kind: ridge}], "
        f"seeds: {seeds}}}}}\n"
    )
    rows = [("patchtst", 1, 60.0, alone), ("patchtst", 2, 50.0, alone), ("mix", 1, 113.0, mix)]
    done = pd.DataFrame(
        [
            {"dataset": "ETTh1", "horizon": 96, "predictor": name, "seed": seed, "seconds": one, "experiment": text}
            for name, seed, one, text in rows
        ]
    )
    assert own_seconds(done).tolist() == [60.0, 50.0, 53.0 if seeds == 1 else 3.0]


@pytest.mark.parametrize(
    ("key", "given", "message"),
    [
        ("fresh_seeds", 4, "fresh_seeds must be a list, not 4"),
        ("fresh_seeds", 0, "fresh_seeds must be a list, not 0"),
        ("fresh_seeds", ["four"], "each of fresh_seeds must be"),
        ("caveats", "one", "caveats must be a list, not"),
        ("caveats", [3], "caveats must be a list of sentences"),
    ],
)
def test_what_a_suite_says_of_itself_is_checked(key: str, given: object, message: str, tmp_path: Path) -> None:
    bench(tmp_path, **{key: given})
    with pytest.raises(UserError, match=message):
        read_suite(tmp_path / "smoke.yaml")


def test_a_suite_says_which_seeds_confirm(tmp_path: Path) -> None:
    bench(tmp_path, fresh_seeds=[5, 4, 5], caveats=["One\n  sentence."])
    suite = read_suite(tmp_path / "smoke.yaml")
    assert (suite.fresh_seeds, suite.caveats) == ((4, 5), ("One sentence.",))
