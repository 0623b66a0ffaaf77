"""What the pages say was measured is what the committed records say."""

import functools
import json
import math
import os
import re
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from scipy.stats import t

from tests.docs.blocks import ROOT
from tsattn.attention.cost import attention_cost
from tsattn.leaderboard.analysis import Analysis
from tsattn.leaderboard.page import MARKDOWN, readme_part, with_part, write_report
from tsattn.leaderboard.published import read_published, shipped_numbers
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.statistics import Claim

DOCS, RECORDS = ROOT / "docs", ROOT / "benchmarks" / "results"
_IMPORT = "python -c 'import tsattn; tsattn.Forecaster'"
PAYS_OFF = (DOCS / "concepts" / "when-it-pays-off.md").read_text("utf-8")


def test_the_results_are_those_that_were_committed() -> None:
    page = (DOCS / "results.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)\.yaml` \| (.*) \| (\d+) \|$", page, re.MULTILINE)
    assert {name for name, *_ in rows} == {path.stem for path in (RECORDS / "forecasting").glob("*.json")}
    for name, cells, windows in rows:
        record = json.loads((RECORDS / "forecasting" / f"{name}.json").read_text())
        assert cells == " | ".join(f"{score['mse']:.3f}" for score in record["metrics"]["test"].values())
        assert int(windows) == record["metrics"]["test_windows"]
        assert record["versions"]["command"][-1] == f"{name}.yaml"


@functools.cache
def analysis_of(name: str) -> Analysis:
    return Analysis(Records.read(RECORDS / name), read_published(shipped_numbers()))


ARENA = (RECORDS / "arena" / MARKDOWN).read_text("utf-8")
CLASSIC = RECORDS / "classic"
README = (ROOT / "README.md").read_text("utf-8")


def test_the_table_of_the_classic_data_sets_is_that_of_the_records(tmp_path: Path) -> None:
    page = write_report(analysis_of("classic"), tmp_path)
    assert (CLASSIC / MARKDOWN).read_text("utf-8") == (tmp_path / MARKDOWN).read_text("utf-8"), "tsattn report"
    for path in (ROOT / "README.md", DOCS / "results.md"):
        text = path.read_text("utf-8")
        part = readme_part(page, os.path.relpath(CLASSIC, path.parent))
        assert with_part(text, part) == text, f"tsattn report RECORDS --readme {path.relative_to(ROOT)}"


@pytest.mark.parametrize("name", ["arena", "equal_training", "earlier_windows", "peers"])
def test_other_reports_are_those_of_their_records(name: str, tmp_path: Path) -> None:
    write_report(analysis_of(name), tmp_path)
    assert (RECORDS / name / MARKDOWN).read_text("utf-8") == (tmp_path / MARKDOWN).read_text("utf-8")


def test_where_attention_looks_hardly_matters_at_the_first_horizon() -> None:
    analysis, page = analysis_of("classic"), " ".join(PAYS_OFF.split())
    rises = {}
    for dataset, name in product(analysis.datasets, ("uniform", "identity")):
        network = "transformer" if dataset == "vic_electricity" else "patchtst"
        first = analysis.horizons[dataset][:1]
        one = analysis.difference(dataset, [f"{network}, {name}"], f"{network}, standard", horizons=first)
        assert one.percent < 1 or name == "identity" or dataset == "ETTm1"
        rises |= {(dataset, name): one.percent} if one.verdict() == "worse" else {}
    assert set(rises) == {("ETTm1", "uniform"), ("weather", "identity")}
    assert f"MSE rises by {rises['ETTm1', 'uniform']:.1f} %, measurably, and elsewhere by less than 1 %." in page
    assert f"worse on weather alone, by {rises['weather', 'identity']:.1f} %." in page
    errors = (analysis.score("vic_electricity", f"transformer, {name}") for name in ("standard", "identity"))
    assert "whose tokens do not see each other: an MSE of {:.3f} and {:.3f}.".format(*errors) in page


@pytest.mark.parametrize(("name", "questions"), [("arena", 9), ("classic", 6)])
def test_answers_over_data_sets_are_those_of_the_records(name: str, questions: int) -> None:
    page = (DOCS / "results.md").read_text("utf-8")
    answers = [one for one in analysis_of(name).answers if isinstance(one.estimate, Claim)]
    assert len(answers) == questions
    for one in answers:
        claim = one.estimate
        assert isinstance(claim, Claim)
        middle, low, high = (
            f"{value:+.1f}".replace("-", "\N{MINUS SIGN}") for value in (claim.percent, *claim.percent_interval())
        )
        counts = f"{claim.better} of {claim.better + claim.worse}"
        assert f"| {one.question.ask} | {middle} % | {low} to {high} % | {counts} | {one.verdict} |" in page


def test_with_equal_weights_of_the_sources_the_answers_are_those_of_the_records() -> None:
    analysis, page = analysis_of("arena"), " ".join((DOCS / "results.md").read_text("utf-8").split())
    for against, said in {"ridge": "it is {1:.1f} to {2:.1f} % higher.", "small, identity": "too: +{0:.1f} %,"}.items():
        ratios = analysis.scores.mse.xs("small, standard", level="model") / analysis.scores.mse.xs(
            against, level="model"
        )
        means = ratios.map(math.log).groupby(analysis.sources).mean()
        half = t.ppf(0.975, len(means) - 1) * means.sem()
        assert said.format(*(100 * math.expm1(means.mean() + by) for by in (0.0, -half, half))) in page


def test_what_validation_chose_with_one_recipe_is_what_the_records_say() -> None:
    analysis, page = analysis_of("classic"), (DOCS / "results.md").read_text("utf-8")
    assert len(analysis.datasets) == 8
    for name in analysis.datasets:
        chosen, lowest = analysis.chosen(name), min(analysis.models[name], key=lambda one: analysis.score(name, one))
        mse, mae = (analysis.score(name, chosen, metric) for metric in ("mse", "mae"))
        known = analysis.lowest_published(name)
        published = f"{known[1]:.3f}, {known[0].model}" if known else "not known"
        (row,) = re.findall(rf"^\| {name} \| `.*` \| .* \|$", page, re.MULTILINE)
        assert row.startswith(f"| {name} | `{chosen}` | {mse:.3f} | {mae:.3f} | ")
        assert row.endswith(f" | `{lowest}` | {published} |")
    found = analysis.difference("ETTh1", ["patchtst, btt"], "patchtst, standard")
    assert found.verdict() == "worse"
    said = " ".join(page.split())
    assert f"`btt` is {found.percent:.1f} % worse than `standard`." in said
    swa, mlr = (
        analysis.difference("vic_electricity", [f"transformer, {name}"], "transformer, standard")
        for name in ("swa", "mlr")
    )
    assert {swa.verdict(), mlr.verdict()} == {"better"}
    assert f"`swa` is {-swa.percent:.1f} % better, and `mlr` with blocks of days {-mlr.percent:.1f} %." in said


def test_only_averaging_helped_patchtst() -> None:
    page, record = (path.read_text("utf-8") for path in (DOCS / "results.md", RECORDS / "accuracy.md"))
    better = [set(re.findall(r"`([^`]*)`", line)) for line in re.findall(r"^- Better in .*$", record, re.MULTILINE)]
    assert set().union(*better) <= {"base_of_two_seeds, standard", "base_of_four_seeds, standard"}
    rows = re.findall(r"^\| `base_of_four_seeds, standard` .*$", record, re.MULTILINE)
    (of_m, *_), (of_h, *_) = (re.findall(r"\N{MINUS SIGN}([\d.]+) % \([^)]*\) \| better", row) for row in rows)
    said = f"the mean of four trainings has a {float(of_h):.0f} % lower MSE on ETTh1, and a {of_m} % lower MAE on ETTm1"
    assert said in " ".join(page.split())


def test_the_arena_is_what_its_report_says() -> None:
    page = (DOCS / "results.md").read_text("utf-8")
    answers = [one for one in analysis_of("arena").answers if isinstance(one.estimate, Claim)]
    assert {one.verdict for one in answers} <= {"undecided", "equal within 1 %"}, "as README says"
    counts = re.search(r"is better on (\d+) data sets, worse on (\d+) .* undecided on (\d+)", ARENA)
    assert counts is not None
    better, worse, undecided = counts.groups()
    said = f"`standard` is better on {better} tasks and worse on {worse}. The other {undecided} are undecided"
    assert said in " ".join(page.split())
    assert len(analysis_of("arena").datasets) == 64
    pairs = [one.mse for one in analysis_of("arena").pairs if one.horizon is None]
    decided = sum(one.verdict() in ("better", "worse") for one in pairs)
    assert f"{decided} of {len(pairs)} intervals exclude zero. Chance alone would give {round(len(pairs) / 20)}." in (
        " ".join(page.split())
    )


def test_where_locality_helps_is_what_the_records_say() -> None:
    """One contrast of three local attentions, on the windows where it was seen and on others."""
    local = [f"transformer, {name}" for name in ("swa", "days", "change_points")]
    standard = "transformer, standard"
    readme, page = (" ".join(text.split()) for text in (README, PAYS_OFF))
    minus = "\N{MINUS SIGN}"
    for name, where in (("equal_training", "vic_electricity"), ("earlier_windows", "vic_electricity_earlier")):
        analysis = analysis_of(name)
        found = analysis.difference(where, local, standard)
        percent, low, high = (f"{-value:.1f}" for value in (found.percent, *found.percent_interval()))
        record = f"[{name.replace('_', ' ')}]"
        assert found.verdict() == "better"
        assert f"{percent} % lower" in readme
        assert f"| `standard` | MSE {minus}{percent} % | {minus}{low} to {minus}{high} % | better | {record}" in page
        assert analysis.linear(where) == "ridge"
        errors = [analysis.score(where, model) for model in (*local, standard)]
        assert analysis.score(where, "ridge") < min(errors)
        of_mlr = analysis.difference(where, local[1:], local[0])
        assert of_mlr.verdict() != "better", "than a plain window"
        if name == "equal_training":
            low, high = of_mlr.percent_interval()
            said = f"| `swa` | MSE +{of_mlr.percent:.1f} % | {minus}{-low:.1f} to +{high:.1f} % | undecided | {record}"
            assert said in page
        else:
            (asked,) = [one for one in analysis.answers if one.question.posed_before]
            percent, low, high = (
                f"{minus}{-one:.1f}" for one in (asked.estimate.percent, *asked.estimate.percent_interval())
            )
            assert f"| `standard` | MAE {percent} % | {low} to {high} % | {asked.verdict} | {record}" in page
            assert asked.verdict == "better"


def test_trainings_beside_those_of_neuralforecast_took_what_is_said() -> None:
    (file,) = (RECORDS / "peers").glob("*.json")
    record = json.loads(file.read_text())
    steps = [record["steps"][name] for name in ("patchtst", "itransformer", "dlinear")]
    faster, memory = ([one[what] for one in steps] for what in ("times_faster", "memory_over_theirs"))
    page = " ".join((DOCS / "results.md").read_text("utf-8").split())
    for name, times, digits, share in zip(
        ("PatchTST", "iTransformer", "DLinear"), faster, (1, 1, 0), memory, strict=True
    ):
        assert f"| {name} | {times:.{digits}f} | {share:.2f} |" in page
    times = sorted(one["times_faster"] for one in record["best"])
    assert f"of theirs {times[0]:.1f} to {times[-1]:.1f} times as fast, in CPU time" in page
    assert len(times) == 3


def test_the_first_minutes_take_what_was_measured() -> None:
    record = json.loads((RECORDS / "start.json").read_text())
    size, seconds = record["installed_mb"], {name: found["clock"] for name, found in record["seconds"].items()}
    page = " ".join((DOCS / "index.md").read_text("utf-8").split())
    embedded, trained = (seconds[f"a first forecast, {how}"] for how in ("with the embedded model", "trained"))
    for said in (
        f"It needs {size['all'] / 1000:.1f} GB of disk, half of it PyTorch. On two cores",
        f"after {embedded:.0f} s with the included model, and after {trained:.0f} s with training",
        f"the import, which takes {seconds[_IMPORT]:.0f} s.",
    ):
        assert said in page
    assert 0.45 < size["torch"] / size["all"] < 0.55
    assert record["machine"]["cores"] == 2
    assert seconds["python -c 'import tsattn'"] <= 1


def test_the_speed_is_what_was_measured() -> None:
    page = " ".join((DOCS / "how-to" / "native-kernel.md").read_text("utf-8").split())
    (slug,) = re.findall(r"results/attention/([\w-]+)\.png", page)
    rows, about = pd.read_csv(RECORDS / "attention" / f"{slug}.csv"), RECORDS / "attention" / f"{slug}.json"
    of_table = rows[(rows["part"] == "attention") & (rows["width"] == 64)]
    cells = of_table.set_index(["pass", "T", "batch", "contender", "causal"])["ratio"]
    columns = [("mlr native", False), ("mlr native", True)]
    columns += [(f"{kind} native", False) for kind in ("standard", "swa", "global_swa")]
    shapes = of_table[["T", "batch"]].drop_duplicates().itertuples(index=False, name=None)
    for (T, batch), which in product(shapes, ("forward", "forward+backward")):
        ratios = " | ".join(f"{cells[which, T, batch, *one]:.2f}" for one in columns)
        assert f"| {T} x {batch} | {ratios} |" in page
    of_64 = {"avx2": "mlr native", "threads": "mlr native, 2 threads", "bfloat16": "mlr native bfloat16"}
    others = ("attention", "mlr native", 8), ("patchtst", "mlr by native", 4)
    for part, contender, width in (*((*one, 64) for one in of_64.items()), *others):
        chosen = (rows["part"] == part) & (rows["contender"] == contender) & (rows["width"] == width)
        ends = dict.fromkeys(f"{end:.2f}" for end in (rows["ratio"][chosen].min(), rows["ratio"][chosen].max()))
        assert f" | {' to '.join(ends)} |" in page, part
    targets = json.loads(about.read_text())["targets"]
    (over,) = [one for one in targets if not one["met"]]
    assert f"checks {len(targets)} limits" in page
    assert f"`swa` takes {over['measured']:.1f} times as long with four times the tokens (16384)." in page
    assert f"The limit was {over['at_most']:g}." in page
    long = of_table[(of_table["T"] >= 512) & of_table["contender"].isin(["mlr native", "swa native"])]["ratio"]
    assert len(long) > 10
    assert long.max() < 0.5, "the README says that they take less than half of the time"


def test_times_on_a_gpu_are_those_that_were_measured() -> None:
    rows = pd.read_csv(RECORDS / "attention" / "nvidia-h200-bfloat16.csv")
    page = (DOCS / "how-to" / "gpu.md").read_text("utf-8")
    cells = r"(?: with a window of (\d+))?, ([\d,]+), (\d+) \| ([\d.]+) \| ([\d.]+) \|$"
    said = re.findall(rf"^\| `(?:mlr|swa)`{cells}", page, re.MULTILINE)
    assert len(said) == 7
    for window, tokens, width, *ratios in said:
        part = rows[(rows["T"] == int(tokens.replace(",", ""))) & (rows["width"] == int(width))]
        name = {"": "mlr triton", "64": "swa flex", "256": "swa flex, 256"}[window]
        found = part.loc[part["contender"] == name, "ratio"].tolist()
        if not found:  # the sum of the kernels, each with the tile size that is fastest, which tsattn uses
            tiles = part[part["part"] == "tiles"]
            times = tiles.groupby([tiles["contender"] == "sdpa", "pass"])["median_ms"].min()
            ours, whole = times[False], times[True]
            found = [ours["forward"] / whole["forward"], ours.sum() / whole["forward+backward"]]
        assert ratios == [f"{one:.2f}" for one in found], (window, tokens, width)


def test_dropout_takes_what_was_measured() -> None:
    (file,) = (file for file in (RECORDS / "attention").glob("*.csv") if "dropout native" in file.read_text())
    rows = pd.read_csv(file)
    rows = rows[(rows["part"] == "dropout")].set_index(["T", "width", "pass", "contender"])[["ratio", "peak_mib"]]
    native, torch = (rows.xs(f"dropout {by}", level="contender") for by in ("native", "by torch"))
    page = " ".join((DOCS / "how-to" / "native-kernel.md").read_text("utf-8").split())
    (step,) = native["ratio"].xs("training step", level="pass")
    (memory,) = (native / torch)["peak_mib"].xs("training step", level="pass")
    assert f"A training step of PatchTST takes {step:.1f} of the time and {memory:.1f} of the memory" in page
    alone = native["ratio"].drop("training step", level="pass")
    assert (round(1 / alone.min()), round(1 / alone.max())) == (6, 2)
    assert "it takes a sixth to a half of the time of PyTorch's dropout" in page


def test_what_pays_off_is_what_the_linked_records_say() -> None:
    """Every number of a row, as it is rounded, stands in the file that the row links."""
    rows = re.findall(r"^\| [^|]* \| (.*) \| \[report\]\((.*)\) \|$", PAYS_OFF, re.MULTILINE)
    assert len(rows) > 34
    for cells, link in rows:
        record = (DOCS / "concepts" / link).read_text("utf-8")
        numbers = [float(one) for one in re.findall(r"\d+(?:\.\d+)?", record)]
        for said in re.findall(r"\d+(?:\.\d+)?", cells):
            digits = len(said.partition(".")[2])
            assert any(f"{one:.{digits}f}" == said for one in numbers), (said, link)
    worse, analysis = {}, analysis_of("classic")
    for dataset in analysis.datasets:
        network = "transformer" if dataset == "vic_electricity" else "patchtst"
        found = analysis.difference(dataset, [f"{network}, standard"], "ridge")
        worse |= {dataset: f"{found.percent:.1f}"} if found.verdict() == "worse" else {}
    said = "{} % higher than the ridge. On **ETTm2** and **weather** it is {} % and {} % higher."
    names = ["vic_electricity", "ETTm2", "weather"]
    assert said.format(*(worse.pop(name) for name in names)) in " ".join(PAYS_OFF.split())
    assert worse == {}


@pytest.mark.parametrize("page", ["concepts/when-it-pays-off.md", "how-to/switch-attention.md"])
def test_times_of_attentions_are_those_that_were_measured(page: str) -> None:
    """Forward passes at 512 and 4096 tokens by the native kernel, over PyTorch's attention."""
    rows = re.findall(r"^\| `(\w+)`(.*)$", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    for kind in ("standard", "swa", "mlr", "global_swa"):
        short, long = (_over_pytorch(kind, tokens) for tokens in (512, 4096))
        assert [
            cells for name, cells in rows if name == kind and f"| {short:.2f} |" in cells and f"| {long:.2f} |" in cells
        ]


def _over_pytorch(kind: str, tokens: int) -> float:
    rows = pd.read_csv(RECORDS / "attention" / "amd-epyc-family-26-model-2.csv")
    rows = rows[(rows["part"] == "attention") & (rows["width"] == 64) & ~rows["causal"] & (rows["pass"] == "forward")]
    (ratio,) = rows.loc[(rows["contender"] == f"{kind} native") & (rows["T"] == tokens), "ratio"]
    return float(ratio)


def test_the_answer_for_each_attention_is_that_of_the_records() -> None:
    classic = analysis_of("classic")
    pays_off, results = (" ".join(text.split()) for text in (PAYS_OFF, (DOCS / "results.md").read_text("utf-8")))
    assert set(classic.claims) == {"mlr", "swa", "btt"}
    for name, (claim, verdict) in classic.claims.items():
        percent, low, high = (
            f"{one:+.1f}".replace("-", "\N{MINUS SIGN}") for one in (claim.percent, *claim.percent_interval())
        )
        assert f"| `{name}` | {percent} | {low} to {high} | {verdict} | [report]" in pays_off
        assert f"| `{name}` | {percent} % | {low} to {high} % | {verdict} |" in results
        if name != "btt":
            time = _over_pytorch(name, 4096) / _over_pytorch("standard", 4096)
            assert f"| {verdict} | {time:.2f} |" in results


def test_keys_in_a_cache_are_those_of_the_closed_form() -> None:
    page = (DOCS / "how-to" / "switch-attention.md").read_text("utf-8")
    page = page.split("## Which one to take")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` .* \| ([\d.]+) \|$", page, re.MULTILINE)
    sizes: Any = {"d_model": 512, "num_heads": 8, "tokens": 4096, "causal": True}
    whole = attention_cost("standard", **sizes).cached_keys
    assert len(rows) == 7
    for kind, said in rows:
        windows: dict[str, Any] = {"window_size": 64} if "swa" in kind else {}
        keys = attention_cost({"kind": kind, **windows}, **sizes).cached_keys
        assert f"{keys / whole:.2g}" in (said, f"{float(said):.2g}")


def test_the_defaults_are_those_that_were_measured() -> None:
    record = (RECORDS / "defaults" / "amd-epyc-family-26-model-2.md").read_text("utf-8")
    measured = {
        name: cells.split(" | ") for name, cells in re.findall(r"^\| (\w+) \| (\d.*) \|$", record, re.MULTILINE)
    }
    page = (
        (DOCS / "results.md").read_text("utf-8").split("## Compared with neuralforecast")[1].split("A training step")[0]
    )
    rows = re.findall(r"^\| (CO2|\w.*) \| (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == len(measured) > 0
    for data, horizon, cells in rows:
        name = re.sub(r".*\(`(.*)`\)", r"\1", data)
        assert [horizon, *cells.split(" | ")] == [measured[name][0], *measured[name][2:6]]


def test_data_larger_than_memory_took_what_is_said() -> None:
    record = json.loads((RECORDS / "larger_than_memory.json").read_text())
    said = f"| {record['values_gb']:g} GB of series, training | {record['max_rss_anon_gb']:.2f} GB of its own"
    text = " ".join((DOCS / "how-to" / "larger-than-memory.md").read_text("utf-8").split())
    assert said in text
    m5 = json.loads((RECORDS / "m5_shape.json").read_text())
    said = f"| {m5['series']:,} series of {m5['rows'] // m5['series']:,} days: reading, training and forecasting |"
    assert f"{said} {m5['max_rss_gb']:.2f} GB, pages of files included" in text
    assert f"The limits are {record['at_most_gb']:g} and {m5['at_most_gb']:g} GB." in text
    assert record["met"]
    assert m5["met"]
