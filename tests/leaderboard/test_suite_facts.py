"""What records say of their suite besides runs: it is kept, merged, and obeyed by reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.leaderboard.cases import SMOKE, bench
from tests.leaderboard.invented import record, records
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.leaderboard.planned_facts import planned_facts
from tsattn.leaderboard.planner import Planner
from tsattn.leaderboard.records import Records, read_facts
from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.report.readme_part import BEGIN, END
from tsattn.leaderboard.report.record_sections import summary_section
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


def test_what_a_suite_keeps_of_itself_beside_its_runs(tmp_path: Path) -> None:
    network = SMOKE["predictors"]["patchtst"]
    predictors = {
        **{"ridge": "ridge", "patchtst": network, "dlinear": "dlinear"},
        "blend": {"mix": {"of": ["ridge", "patchtst"], "weights": [0.1, 0.9]}},
        "third": {"mix": {"of": ["ridge", "dlinear"], "weights": [1, 3]}},
        "all+": {"mix": {"of": ["patchtst", "dlinear", "ridge"], "weights": [4, 3, 1]}, "attentions": ["mean"]},
        "even": {"mix": {"of": ["patchtst", "dlinear", "ridge"]}, "attentions": ["mean"]},
    }
    attentions = {
        "mean": "uniform",
        "mlr": {"attention": [{"kind": "mlr", "ranks": [2, 2]}, "standard"], "by_data": {"co2": "identity"}},
    }
    bench(tmp_path, predictors=predictors, attentions=attentions)
    suite = read_suite(tmp_path / "smoke.yaml")
    narrowed = suite.narrowed(horizons=[4])
    entries = Planner({}).plan(suite).entries
    before = SuiteFacts({"co2": (8, 2), "gone": (7,)}, planned={"gone": 9})
    here = [entry for entry in entries if entry.horizon == 4]
    facts = planned_facts(suite, narrowed, entries, here, before)
    assert facts.horizons == {"co2": (4,)}
    assert planned_facts(suite, narrowed, entries, [], before).horizons == {"co2": (8, 2)}
    assert planned_facts(suite, narrowed, entries, [], SuiteFacts()).horizons == {"co2": (4, 8)}
    assert facts.planned == {"co2": sum(not entry.reason for entry in entries)}
    assert facts.planned["co2"] > 20
    assert facts.seeds == {"co2": (1, 2)}
    assert facts.kinds == {"mean": ("uniform",), "mlr": ("mlr", "standard", "identity")}
    assert facts.without == {"patchtst": "", "blend": "ridge", "all+": "third", "even": "dlinear+ridge"}
    assert SuiteFacts.of(facts.to_dict()) == facts
    older = {"horizons": {"co2": [4]}, "fresh_seeds": [4], "caveats": ["One."]}
    assert SuiteFacts.of(older) == SuiteFacts({"co2": (4,)}, (4,), ("One.",))


def test_a_mean_over_fewer_horizons_than_were_planned_is_none() -> None:
    assert Standings(_with(FACTS, horizons=(24,))).horizons("ETTh1") == [24, 48]
    analysis = Analysis(Standings(_with(FACTS, horizons=(24,))), resamples=2000)
    assert analysis.means["mse"].isna().all()
    assert analysis.choices.empty
    whole = Analysis(Standings(_with(SuiteFacts({"ETTh1": (24,)}), horizons=(24,))), resamples=2000)
    assert whole.chosen("ETTh1") is not None


def test_reports_say_what_is_planned_and_not_run(tmp_path: Path) -> None:
    mixed = "model: {backbone: {kind: ensemble, members: [{kind: patchtst}]}}\n"
    runs = [
        *(record("ETTh1", 24, "patchtst", "mlr", seed, windows=300) for seed in (1, 2)),
        *(record("ETTh1", 24, "mix", "mlr", seed, windows=300, experiment=mixed) for seed in (1, 2)),
        record("ETTh1", 24, "ridge", "", None, windows=300),
    ]
    facts = SuiteFacts(
        {"ETTh1": (24,), "weather": (24, 48)},
        planned={"ETTh1": 7, "weather": 14},
        seeds={"ETTh1": (1, 2, 3), "weather": (1, 2, 3)},
    )
    table = Records.of(runs, {"invented": facts})
    board = Standings(table)
    assert board.datasets == ["ETTh1", "weather"]
    text = " ".join(summary_section(Analysis(board, resamples=2000)).text)
    assert "5 runs are done, on ETTh1. They are 2 trainings, 2 mixes of such and 1 without training." in text
    assert "Planned and not run yet: 2 of 7 on ETTh1 and 14 of 14 on weather." in text
    assert "No run has the planned seeds 3 on ETTh1." in text
    whole = Records.of(runs, {"invented": SuiteFacts(planned={"ETTh1": 5}, seeds={"ETTh1": (1, 2)})})
    said = " ".join(summary_section(Analysis(Standings(whole), resamples=2000)).text)
    assert "lanned" not in said
    table.write(tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text(f"{BEGIN}\n{END}\n")
    assert main(["report", str(tmp_path), "--output", str(tmp_path), "--readme", str(readme)]) == 0
    assert "Nothing is chosen on weather" in (tmp_path / "report.md").read_text()
    assert "ETTh1 24; weather 24 and 48" in (tmp_path / "report.md").read_text()


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
