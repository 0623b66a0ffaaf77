"""Arms are scored on rolling origins: each once, members of a mix not a second time, and the test part never."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml

from tests.leaderboard.cases import bench, few
from tests.leaderboard.runs_to_report import PATCHTST, content
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.experiments import Experiment, run
from tsattn.leaderboard.origin_work import OriginScores
from tsattn.leaderboard.origins import read_origins
from tsattn.leaderboard.plan import Entry
from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.report.chosen_sections import chosen_section
from tsattn.leaderboard.report.readme_part import readme_part
from tsattn.leaderboard.standings import Standings
from tsattn.leaderboard.working_folder import WorkingFolder
from tsattn.tuning import HeldData
from tsattn.tuning.rolling import Fold


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = bench(tmp_path_factory.mktemp("origins"), **few())
    assert made.run("--origins", "2") == 0
    return made


def test_each_arm_has_the_errors_of_its_folds(scored: Any) -> None:
    found = read_origins([scored.out]).set_index(["predictor", "attention"])
    assert set(found.index) == {("ridge", ""), ("patchtst", "standard"), ("patchtst+ridge", "standard")}
    entries = scored.records().frame.set_index(["predictor", "attention"])
    for arm, row in found.iterrows():
        assert (row["dataset"], row["horizon"]) == ("co2", 8)
        experiment = Experiment.of(yaml.safe_load(entries.loc[arm, "experiment"]))
        held = HeldData()
        expected = [
            run(experiment, data=held.of(experiment, Fold(number, 2)), test=False).fit["validation_error"]
            for number in range(2)
        ]
        assert row["origins"] == pytest.approx(expected, rel=1e-6), "a training sums in float32"
        assert row["error"] == pytest.approx(sum(expected) / 2)
        assert expected[0] != expected[1]


def test_all_arms_are_scored_on_all_windows_of_a_block(tmp_path: Path) -> None:
    """Also one whose training looks at some of them; and by their MSE, also one that is trained by another error."""
    network = {**few()["predictors"]["patchtst"], "values": {"data.val_windows": 3, "model.loss": "mae"}}
    made = bench(tmp_path, **{**few(), "predictors": {"patchtst": network}})
    assert made.run("--origins", "1") == 0
    (found,) = read_origins([made.out])["error"]
    (text,) = made.records().frame["experiment"]
    experiment = Experiment.of(yaml.safe_load(text))
    result = run(experiment, data=HeldData().of(experiment, Fold(0, 1)), test=False)
    assert result.fit["validation_windows"] == 3
    context = result.fitted.predictor.context_length
    with torch.no_grad():
        errors = [
            result.fitted.predictor(batch) - batch.target for batch in result.data.eval_dataloader("val", context)
        ]
    assert found == pytest.approx(float(torch.cat(errors).square().mean()), rel=1e-5)
    assert found != pytest.approx(result.fit["validation_error"], rel=1e-3)


def test_a_mix_takes_its_members_as_they_were_fitted_in_the_same_fold(scored: Any) -> None:
    key = scored.records().frame.query("predictor == 'patchtst+ridge'")["key"].iloc[0]
    for number in (1, 2):
        place = scored.runs / "origins" / key[:24] / f"{number}_of_2" / "run"
        facts = json.loads((place / "metrics.json").read_text())
        fits = [fit for member in facts["members"] for fit in member]
        assert any(fit.get("earlier_fit_seconds") is not None for fit in fits)
        assert "test" not in facts or not facts["test"]


def test_what_is_scored_is_not_scored_again(
    scored: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {file: file.stat().st_mtime_ns for file in scored.runs.glob("origins/*/*/error.json")}
    assert len(times) == 6
    lost = min(times)
    lost.unlink()
    capsys.readouterr()
    before = json.loads((scored.out / "origins.json").read_text())
    assert scored.run("--origins", "2") == 0
    said = capsys.readouterr().out
    assert said.count(" of 3  co2 8: ") == 1
    after = {file: file.stat().st_mtime_ns for file in scored.runs.glob("origins/*/*/error.json")}
    assert [file for file in times if times[file] != after[file]] == [lost]
    assert json.loads((scored.out / "origins.json").read_text()) == before


def test_means_over_other_blocks_are_no_rivals(scored: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = scored.out / "origins.json"
    before = file.read_text()
    rows = json.loads(before)
    assert all(len(row.pop("key")) == 64 for row in rows)
    gone = {**rows[0], "predictor": "gone", "key": "0" * 64}
    elsewhere = {**rows[0], "predictor": "elsewhere"}
    others = [
        gone,
        elsewhere,
        {**rows[0], "predictor": "far", "horizon": 4},
        {**rows[0], "predictor": "other", "origins": [0.0], "error": 0.0},
    ]
    file.write_text(json.dumps([*rows, *others]))
    assert scored.run("--origins", "2") == 0
    names = [row["predictor"] for row in json.loads(file.read_text())]
    assert sorted(names) == ["patchtst", "patchtst+ridge", "ridge"], "nor of what nobody knows which experiment it is"
    assert "4 earlier scores of other blocks, horizons or experiments left out" in capsys.readouterr().out
    file.write_text(before)


def test_the_report_shows_both_selectors(scored: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(scored.out)]) == 0
    text = (scored.out / "report.md").read_text()
    assert "Rolling origins are the second selector" in text
    chosen = text.partition("## What validation chose")[2].partition("\n## ")[0]
    assert "rolling origins" in chosen.partition("| --- |")[2]


def test_the_table_of_a_readme_has_what_each_selector_chose(scored: Any, tmp_path: Path) -> None:
    """One row where both choose one arm, and two where they do not."""
    records, origins = scored.records(), read_origins([scored.out])
    is_mix = origins["predictor"] == "patchtst+ridge"
    of_mix, of_network = (origins.assign(error=(is_mix == mixed).astype(float)) for mixed in (False, True))

    def rows(found: pd.DataFrame | None) -> list[list[str]]:
        part = readme_part(Analysis(Standings(records), origins=found))
        assert ("To take whichever of the two selectors does better" in " ".join(part.split())) == (found is not None)
        return [
            [cell.strip() for cell in line.split("|")[2:4]] for line in part.splitlines() if line.startswith("| co2")
        ]

    ((arm, _),) = chosen = rows(None)
    assert chosen == [[arm, "validation"]]
    other = {"`patchtst`, `standard`": of_mix, "`patchtst+ridge`, `standard`": of_network}
    same = {"`patchtst`, `standard`": of_network, "`patchtst+ridge`, `standard`": of_mix}
    assert rows(same[arm]) == [[arm, "validation and rolling origins"]]
    both = rows(other[arm])
    assert both[0] == [arm, "validation"]
    assert both[1][0] in {*other} - {arm}
    assert both[1][1] == "rolling origins"


def test_scores_of_other_experiments_choose_nothing(scored: Any, tmp_path: Path) -> None:
    """Those of an arm as it was before its suite changed, and those that do not say of which experiment they are."""
    rows = json.loads((scored.out / "origins.json").read_text())
    board = Standings(scored.records())
    for lacking, left in (({}, 3), ({"key": "0" * 64}, 2), ({"key": None}, 2), ({"horizon": 4}, 2)):
        stale = {name: value for name, value in {**rows[0], **lacking}.items() if value is not None}
        (tmp_path / "origins.json").write_text(json.dumps([stale, *rows[1:]]))
        analysis = Analysis(board, origins=read_origins([tmp_path]))
        assert analysis.compared_origins is not None
        assert len(analysis.compared_origins) == left
        said = "1 score on rolling origins is left out" in " ".join(chosen_section(analysis).text)
        assert said == (left < 3)
    assert analysis.chosen("co2", by="rolling origins") is not None


def test_an_arm_that_fails_leaves_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused, broken = ({"backbone": f"tests.leaderboard.cases.{name}"} for name in ("Refused", "Broken"))
    made = bench(tmp_path, **few(refused=refused, broken=broken))
    assert made.run("--origins", "1") == 0
    said = capsys.readouterr().out
    assert "refused: failed: it will not be fitted to this" in said
    assert "broken: failed: RuntimeError: something broke" in said
    assert len(read_origins([made.out])) == 3


def test_several_at_once_score_as_one_does(scored: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Members before their mixes, which take them as they were fitted; one that fails leaves the others."""
    broken = {"backbone": "tests.leaderboard.cases.Broken"}
    made = bench(tmp_path, **few(broken=broken))
    assert made.run("--origins", "2", "--jobs", "2") == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("origins ")]
    assert len(said) == 4
    names = [line.partition("co2 8: ")[2] for line in said]
    (mixed,) = [place for place, name in enumerate(names) if name.startswith("patchtst+ridge")]
    assert mixed > max(place for place, name in enumerate(names) if name.startswith(("patchtst standard", "ridge")))
    assert [line for line in said if "broken: failed: RuntimeError: something broke" in line]
    of_one, of_two = (
        read_origins([each.out]).set_index(["predictor", "attention"])["origins"].to_dict() for each in (scored, made)
    )
    assert of_two == {arm: pytest.approx(errors, rel=1e-6) for arm, errors in of_one.items()}
    (key,) = made.records().frame.query("predictor == 'patchtst+ridge'")["key"]
    mix = made.runs / "origins" / key[:24] / "1_of_2" / "run" / "metrics.json"
    fits = [fit for member in json.loads(mix.read_text())["members"] for fit in member]
    assert any(fit.get("earlier_fit_seconds") is not None for fit in fits)


def test_a_mix_of_what_failed_is_not_fitted_and_the_reason_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker that is killed over a member, as where memory runs out, is not sent to the same death by its mixes."""
    made = bench(tmp_path, **few())
    assert made.run() == 0
    frame = made.records().frame.set_index("predictor")
    member, mix = (frame.loc[name, "key"] for name in ("patchtst", "patchtst+ridge"))
    place = made.runs / "origins" / member[:24] / "1_of_1"
    place.mkdir(parents=True)
    (place / "run").write_text("no folder of a run, so that nothing can be written there")
    capsys.readouterr()
    assert made.run("--origins", "1") == 0
    said = capsys.readouterr().out
    assert "patchtst standard, seed 1: failed: NotADirectoryError" in said
    assert "patchtst+ridge standard, seed 1: left out, as of its member patchtst: failed: NotADirectoryError" in said
    assert "1 arm scored on 1 rolling origin:" in said
    assert "2 not scored" in said
    assert not (made.runs / "origins" / mix[:24]).exists()
    (place / "run").unlink()
    assert made.run("--origins", "1") == 0
    assert "3 arms scored" in capsys.readouterr().out
    assert not [*made.runs.glob("origins/*/failed*")]


def test_errors_of_before_count_where_they_are_of_the_same_kind(tmp_path: Path) -> None:
    """Files of before do not say of which kind they are: of that by which the training is validated."""
    scores = OriginScores(WorkingFolder(tmp_path), 1)
    place = tmp_path / "origins" / "key" / "1_of_1"
    place.mkdir(parents=True)
    by_mse, by_mae = (
        Entry("toy", 12, "patchtst", "mlr", 1, Experiment.of(content(Path("toy.csv"), PATCHTST, loss=loss)), "key")
        for loss in ("mse", "mae")
    )
    (place / "error.json").write_text('{"error": 0.5}')
    assert (scores.known(by_mse), scores.known(by_mae)) == ([0.5], [])
    (place / "error.json").write_text('{"error": 0.5, "metric": "mse_scaled"}')
    assert (scores.known(by_mse), scores.known(by_mae)) == ([0.5], [0.5])


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "origins.json").write_text("[{}]")
    with pytest.raises(UserError, match=r"origins.json is damaged: delete it, and score the arms anew"):
        read_origins([tmp_path])
    assert len(read_origins([tmp_path / "else" / "where"])) == 0
