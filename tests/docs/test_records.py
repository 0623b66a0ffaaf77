"""What the pages say was measured is what the committed records say."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

import pandas as pd
import pytest

from tests.docs.blocks import ROOT
from tsattn.checksums import sha256
from tsattn.leaderboard.comparisons import COMPARISON, adjusted, compare_all
from tsattn.leaderboard.origins import read_origins
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.report.readme_part import readme_part, with_part
from tsattn.leaderboard.standings import Standings
from tsattn.pretrained.bolt_file import find_weights, read_model

DOCS, RECORDS = ROOT / "docs", ROOT / "benchmarks" / "results"
CHRONOS = (DOCS / "how-to" / "chronos.md").read_text("utf-8")
_IMPORT = "python -c 'import tsattn; tsattn.Forecaster'"
PAYS_OFF = (DOCS / "concepts" / "when-it-pays-off.md").read_text("utf-8")


def test_the_results_are_those_that_were_committed() -> None:
    page = (DOCS / "results.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)\.yaml` \| (.*) \| (\d+) \|$", page, re.MULTILINE)
    assert {name for name, *_ in rows} == {path.stem for path in (RECORDS / "forecasting").glob("*.json")}
    for name, cells, windows in rows:
        record = json.loads((RECORDS / "forecasting" / f"{name}.json").read_text())
        scores = record["metrics"]["test"].values()
        assert cells == " | ".join(f"{score['mse']:.3f} / {score['mae']:.3f}" for score in scores)
        assert int(windows) == record["metrics"]["test_windows"]
        assert record["versions"]["command"][-1] == f"{name}.yaml"


@pytest.fixture(scope="module")
def leaderboard() -> Analysis:
    folders = sorted(path.parent for path in (RECORDS / "leaderboard").glob("*/records.parquet"))
    records, fresh = Records.read(*folders).and_fresh_seeds()
    return Analysis(Standings(records), fresh_seeds=fresh, origins=read_origins(folders))


def test_the_leaderboard_is_that_of_the_records_that_were_committed(leaderboard: Analysis) -> None:
    pages = {path: path.read_text("utf-8") for path in (ROOT / "README.md", DOCS / "results.md")}
    part = readme_part(leaderboard)
    for path, page in pages.items():
        assert with_part(page, part) == page, f"python -m tsattn report RECORDS --readme {path.relative_to(ROOT)}"
    readme = " ".join(pages[ROOT / "README.md"].split())
    said = "All comparisons of an attention with standard attention that have an interval are ties"
    found = {
        f"{said};": bool(re.search(r"All \d+ comparisons", readme)),
        f"{said}, but for the MAE of `btt` on weather at 96 and 192 steps;": "ties, 2 worse; all of these are"
        in readme,
    }
    assert [words in " ".join(PAYS_OFF.split()) for words in found] == [*found.values()], "say what was found there"
    assert sum(found.values()) == 1


def test_the_attention_that_differs_is_what_the_records_say(leaderboard: Analysis) -> None:
    """Its p-value is corrected for every comparison with standard attention in the reports, those of mixes included."""
    records, fresh = Records.read(RECORDS / "equal_training").and_fresh_seeds()
    alike = Analysis(Standings(records), fresh_seeds=fresh)
    made = pd.concat([leaderboard.comparisons, alike.comparisons], ignore_index=True)
    of_all = adjusted(made["p"].to_numpy())[(made["dataset"] == "vic_electricity").to_numpy()].min()
    made = made[made["against"] == "standard"]
    made["holm"] = adjusted(made["p"].to_numpy())
    differing = made[(made["dataset"] == "vic_electricity") & (made["holm"] < 0.05)]
    assert [*zip(differing["attention"], differing["metric"], strict=True)] == [("change_points", "mae")]
    (row,) = differing.to_dict("records")
    pages = [
        " ".join((ROOT / name).read_text("utf-8").split())
        for name in ("README.md", "docs/concepts/when-it-pays-off.md")
    ]
    assert f"for all {len(made)} comparisons of an attention with standard attention" in pages[0]
    assert f"for all {len(made)} comparisons of an attention with standard attention, mixes included" in pages[1]
    errors = alike.scores.set_index("predictor")["mse"]
    assert [f"{errors[f'ridge_{length}']:.3f}" for length in (512, 1024)] == ["0.218", "0.199"]
    assert "of the same context there (0.218)" in pages[1]
    assert "1024 half-hours has 0.199" in pages[1]
    assert f"the p-value is {row['holm']:.3f}" in pages[0]
    assert f"(p = {row['holm']:.3f})" in pages[1]
    assert f"with the comparisons with the ridge as well none is ({of_all:.3f})" in pages[1]
    assert f"an MAE {-row['percent']:.1f} % below" in pages[0]
    by_stretch = {}
    for stretch in (0.5, 1, 2, 4):
        frame = compare_all(alike.board, without=alike.fresh_seeds, stretch=stretch).set_index(COMPARISON)
        found = frame.loc[("vic_electricity", 96, "transformer_alike", "change_points", "standard", "mae")]
        beside = made["p"].where(made.index != differing.index[0], found["p"]).to_numpy()
        holm = adjusted(beside)[made.index.get_loc(differing.index[0])]
        by_stretch[stretch] = found["block_length"], f"{holm:.3f}"
    assert by_stretch[1] == (521, f"{row['holm']:.3f}")
    half, twice, four_times = (by_stretch[stretch][1] for stretch in (0.5, 2, 4))
    assert f"half or twice as long it is {half} and {twice}." in pages[0]
    assert "blocks of 521 of the 10,426 windows" in pages[1]
    assert f"half, twice and four times as many the p-value is {half}, {twice} and {four_times}," in pages[1]
    own = alike.comparisons
    own = own[(own["dataset"] == "vic_electricity") & (own["verdict"] != "tie")]
    assert (own["verdict"] == "better").all()
    confirmed = alike.confirmation
    assert confirmed is not None
    assert (confirmed["verdict"] == "better").all()
    found = {(one["attention"], one["metric"]): f"{-one['percent']:.1f}" for one in own.to_dict("records")}
    again = {(one["attention"], one["metric"]): f"{-one['percent']:.1f}" for one in confirmed.to_dict("records")}
    assert found.keys() == again.keys()
    for name, said in (("change_points", "(fresh seeds: {} and {} %)"), ("days", "({} and {} %)")):
        both = [found[name, "mse"], found[name, "mae"]]
        fresh_ones = said.format(again[name, "mse"], again[name, "mae"])
        assert f"has an MSE {both[0]} % and an MAE {both[1]} % lower {fresh_ones}" in pages[1]
    assert f"has an MSE {found['swa', 'mse']} % lower ({again['swa', 'mse']} %), and an MAE that ties" in pages[1]
    assert (
        f"six fresh seeds find the same on the same windows (\N{MINUS SIGN}{again['change_points', 'mae']} %)"
        in pages[0]
    )


def test_earlier_windows_are_what_the_records_say() -> None:
    """What was asked before the first run, and what stands beside it."""
    board = Standings(Records.read(RECORDS / "earlier_windows"))
    pages = [
        " ".join((ROOT / name).read_text("utf-8").split())
        for name in ("README.md", "docs/concepts/when-it-pays-off.md", "docs/results.md")
    ]
    p_values = {}
    for stretch in (0.5, 1, 2, 4):
        found = compare_all(board, stretch=stretch).set_index(["attention", "metric"])
        p_values[stretch] = f"{found.loc[('change_points', 'mae'), 'p']:.3f}"
    found = compare_all(board).set_index(["attention", "metric"])
    row = found.loc[("change_points", "mae")]
    least, most = f"{-row['percent_high']:.1f}", f"{-row['percent_low']:.1f}"
    assert f"{-row['percent']:.1f} % below ({most} to {least} %, p = {p_values[1]} of this one question)" in pages[0]
    assert f"has an MAE {-row['percent']:.1f} % lower than standard attention ({most} to {least} %)" in pages[1]
    others = f"{p_values[0.5]}, {p_values[2]} and {p_values[4]}"
    assert f"p = {p_values[1]} of this one question, and {others} with blocks of half, twice and four times" in pages[1]
    assert f"in other windows {-row['percent']:.1f} % ({most} to {least} %)" in pages[2]
    days, swa = (f"{-found.loc[(name, 'mae'), 'percent']:.1f} %" for name in ("days", "swa"))
    assert f"Days (MAE {days} lower) and `swa` ({swa})" in pages[1]
    assert set(found["verdict"]) == {"tie"}, "corrected for all six"
    errors = Analysis(board).scores.set_index(["predictor", "attention"])["mse"]
    networks = errors.loc["transformer_alike"]
    ridges = f"({errors['ridge_512', '']:.3f} and {errors['ridge_1024', '']:.3f}"
    assert f"{ridges}; the networks {networks.min():.3f} to {networks.max():.3f})" in pages[1]


def test_trainings_beside_those_of_neuralforecast_took_what_is_said() -> None:
    (file,) = (RECORDS / "peers").glob("*.json")
    record = json.loads(file.read_text())
    steps = [record["steps"][name] for name in ("patchtst", "itransformer", "dlinear")]
    faster, memory = ([one[what] for one in steps] for what in ("times_faster", "memory_over_theirs"))
    page = " ".join((DOCS / "results.md").read_text("utf-8").split())
    assert f"PatchTST {faster[0]:.1f}, iTransformer {faster[1]:.1f} and DLinear {faster[2]:.0f} times as fast" in page
    assert "with {:.2f}, {:.2f} and {:.2f} times the memory".format(*memory) in page
    theirs = sorted(one["theirs"]["mse"] for one in record["best"])
    times = sorted(one["times_faster"] for one in record["best"])
    assert (
        f"{theirs[0]:.3f} to {theirs[-1]:.3f} by seed, ours has after {times[0]:.1f} to {times[-1]:.1f} times less"
        in page
    )
    assert len(times) == 3


def test_a_swap_costs_what_was_measured() -> None:
    report = (RECORDS / "chronos" / "conversion.md").read_text("utf-8")
    means = {kind: float(mean) for kind, mean in re.findall(r"^\| MLR, (`.*?) \| ([\d.]+) \|", report, re.MULTILINE)}
    share = means["`rotate` by generated series"] / means["`copy`"]
    of_mlr, of_swa = re.findall(
        r"^- (?:MLR|SWA), `.*`, calibrated: ([\d.]+), mean of 3 data sets", report, re.MULTILINE
    )
    page = " ".join(CHRONOS.split())
    assert f"`rotate` makes {100 * share:.0f} % of the errors of `copy`" in page
    assert f"the MASE with `mlr` is {float(of_mlr):.3f} and with `swa` {float(of_swa):.3f} times that" in page


def test_the_first_minutes_take_what_was_measured() -> None:
    record = json.loads((RECORDS / "start.json").read_text())
    size, seconds = record["installed_mb"], {name: found["clock"] for name, found in record["seconds"].items()}
    page = " ".join((DOCS / "index.md").read_text("utf-8").split())
    embedded, trained = (seconds[f"a first forecast, {how}"] for how in ("with the embedded model", "trained"))
    for said in (
        f"That takes {size['all']} MB with torch's wheel for a CPU, {size['torch']} of them torch's. On two cores",
        f"after {embedded:.0f} s with the embedded model and after {trained:.0f} s with one that is trained",
        f"of which {seconds[_IMPORT]:.0f} s are imports; `fit --help` takes {seconds['tsattn fit --help']:.1f} s",
    ):
        assert said in page
    assert record["machine"]["cores"] == 2
    assert seconds["python -c 'import tsattn'"] <= 1


def test_the_speed_is_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    parts: Any = importlib.import_module("attention_speed.page")
    page = parts.PAGE.read_text("utf-8")
    results = importlib.import_module("attention_speed.results").Results(parts.FOLDER, parts.shown_machine(page))
    assert parts.with_section(page, results) == page, "python benchmarks/attention.py --page"
    rows = results.rows()
    of_table = (rows["part"] == "attention") & (rows["width"] == 64) & (rows["T"] >= 512)
    said = rows[of_table & rows["contender"].isin(["mlr native", "swa native"])]["ratio"]
    assert len(said) > 10
    assert said.max() < 0.5, "the README says that they take less than half of the time"


def test_what_pays_off_is_what_the_linked_records_say() -> None:
    """Every number of a row stands in the file that the row links."""
    rows = re.findall(r"^\| .* \| (.*) \| \[report\]\((.*)\) \|$", PAYS_OFF, re.MULTILINE)
    assert len(rows) > 10
    for found, link in rows:
        record = set(re.findall(r"\d+(?:\.\d+)?", (DOCS / "concepts" / link).read_text("utf-8")))
        assert set(re.findall(r"\d+(?:\.\d+)?", found)) <= record, (found, link)
    interval = (
        "+11.8 % | \N{MINUS SIGN}6.4 % to +28.2 %",
        "that is a tie (11.8 % above, \N{MINUS SIGN}6.4 to +28.2 %)",
    )
    assert interval[0] in (RECORDS / "leaderboard" / "exchange_rate" / "report.md").read_text("utf-8")
    assert interval[1] in " ".join(PAYS_OFF.split())
    percents = [("ett", f"{percent} below") for percent in ("0.2 %", "1.1 %", "3.5 %", "7.0 %")]
    percents += [("ett", "1.3 % above")]
    percents += [("exchange_rate", "10.2 % above"), ("national_illness", "15.9 % below")]
    for suite, percent in percents:
        assert percent in " ".join(PAYS_OFF.split())  # in the report, "that of the ridge" follows
        assert percent in (RECORDS / "leaderboard" / suite / "report.md").read_text("utf-8")


def test_the_defaults_are_those_that_were_measured() -> None:
    record = (RECORDS / "defaults" / "amd-epyc-family-26-model-2.md").read_text("utf-8")
    measured = {
        name: cells.split(" | ") for name, cells in re.findall(r"^\| (\w+) \| (\d.*) \|$", record, re.MULTILINE)
    }
    page = (DOCS / "results.md").read_text("utf-8").split("## Beside neuralforecast")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (CO2|\w.*) \| (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == len(measured) > 0
    for data, horizon, cells in rows:
        name = re.sub(r".*\(`(.*)`\)", r"\1", data)
        assert [horizon, *cells.split(" | ")] == [measured[name][0], *measured[name][2:6]]


def test_published_numbers_stand_as_in_the_report() -> None:
    report = (RECORDS / "leaderboard" / "ett" / "report.md").read_text("utf-8")
    rows = re.findall(r"^\| (\w+) \| ([\w/]+) \| published \|.*\| ([\d. /]+) \| [^|]+ \|$", report, re.MULTILINE)
    published = {(data, model): mean for data, model, mean in rows}
    page = " ".join((DOCS / "results.md").read_text("utf-8").split())
    lowest = [("ETTh1", "DUET"), ("ETTh2", "DUET"), *((data, "TimeBridge") for data in ("ETTm1", "ETTm2", "weather"))]
    for data, model in (*lowest, ("weather", "PatchTST/64")):
        assert f"{model} is published with {published[data, model]}" in page
    for data, model in lowest:
        others = re.findall(
            rf"^\| {data} \| .* \| published \| .* \| yes \|.*\| ([\d.]+) / [^|]+ \| [^|]+ \|$", report, re.MULTILINE
        )
        assert published[data, model].split(" / ")[0] == min(others)
    assert "moved one fixed model from 0.271 to 0.216 on ETTh2" in page
    assert "moved one fixed model from 0.271 to 0.216 on ETTh2" in report


def test_chronos_tiny_scores_as_it_is_said() -> None:
    record = json.loads((RECORDS / "chronos" / "chronos_tiny.json").read_text())
    ships = next(name for name, digest in record["weights"].items() if digest == record["shipped"])
    text = " ".join(CHRONOS.split())
    for kind, said in ((ships, "its MASE is {} on ETTh1 and {} on"), ("seasonal_naive", "seasonal naive {} and {}.")):
        mase = {row["data"]: row["mase"] for row in record["rows"] if row["model"] == kind}
        assert said.format(*(f"{mase[name]:.3f}" for name in ("ETTh1", "vic_electricity"))) in text
    of, naive = (
        next(row for row in record["rows"] if (row["model"], row["data"]) == (kind, "exchange_rate"))
        for kind in (ships, "seasonal_naive")
    )
    assert f"its MASE is {of['mase']:.3f}, above the {naive['mase']:.3f} of seasonal naive" in text
    assert f"(its WQL is lower: {of['wql']:.3f} beside {naive['wql']:.3f})" in text
    assert record["shipped"] == sha256(find_weights("chronos-tiny"))
    trained_on = read_model(find_weights("chronos-tiny")).trained_on
    assert trained_on == ("weather", "exchange_rate", "national_illness", "co2")


def test_data_larger_than_memory_took_what_is_said() -> None:
    record = json.loads((RECORDS / "larger_than_memory.json").read_text())
    said = f"on {record['values_gb']:g} GB of series within {record['at_most_gb']:g} GB of memory"
    text = " ".join((DOCS / "how-to" / "larger-than-memory.md").read_text("utf-8").split())
    assert said in text
    m5 = json.loads((RECORDS / "m5_shape.json").read_text())
    said = (
        f"{m5['series']:,} series of {m5['rows'] // m5['series']:,} days in {m5['max_rss_gb']:.2f} GB, pages of files"
    )
    assert f"{said} included, where the limit is {m5['at_most_gb']:g} GB" in text
    assert record["met"]
    assert m5["met"]
