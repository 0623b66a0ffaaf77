"""What `Forecaster` should be by default, as validation says it, and whether others were given as much time."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.docs.blocks import ROOT
from tsattn import Forecaster

BEST = "PatchTST from the ridge"


@pytest.fixture(autouse=True)
def parts_of_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


@pytest.fixture
def choice() -> Any:
    return importlib.import_module("default_choice")


@pytest.fixture
def defaults() -> Any:
    return importlib.import_module("defaults")


def fit(data: str, candidate: str, seed: int, mase: float) -> dict[str, Any]:
    common = {"data": data, "candidate": candidate, "seed": seed, "reason": ""}
    return {**common, "mase": mase, "seasonal naive": 2.0, "cpu_seconds": 1.0, "context_length": 24}


def made_up(**by_candidate: list[list[float]]) -> list[dict[str, Any]]:
    """Fits of candidates, given their MASE by data set and seed; those of one seed draw nothing."""
    return [
        fit(data, candidate.replace("_", " "), seed, mase)
        for candidate, rows in {BEST: by_candidate.pop("present"), **by_candidate}.items()
        for data, row in zip("ab", rows, strict=True)
        for seed, mase in enumerate(row, 1)
    ]


PRESENT = [[1.0, 1.1], [0.5, 0.5]]


def test_a_score_is_the_geometric_mean_over_data_and_seeds(choice: Any) -> None:
    _, found = choice.scores(made_up(present=PRESENT, ridge=[[1.2], [0.6]]))
    first, second = math.sqrt(0.5 * 0.25), math.sqrt(0.55 * 0.25)
    assert found.loc[BEST].tolist() == pytest.approx([math.sqrt(first * second), second - first])
    assert found.loc["ridge"].tolist() == pytest.approx([math.sqrt(0.6 * 0.3), 0]), "the same for every seed"


@pytest.mark.parametrize(
    ("other", "best", "changes", "said"),
    [
        ([[1.2, 1.2], [0.6, 0.6]], BEST, False, "has the lowest score: it stays"),
        ([[1.0, 1.0], [0.5, 0.5]], "other", False, "within the spread of seeds, 0.0173, so it stays"),
        ([[0.8, 0.8], [0.5, 0.5]], "other", True, "more than the spread of seeds, 0.0173, so other should be the"),
    ],
)
def test_the_default_changes_for_what_is_better_than_the_spread_of_seeds(
    choice: Any, other: list[list[float]], best: str, changes: bool, said: str
) -> None:
    name, should_change, sentence = choice.verdict(choice.scores(made_up(present=PRESENT, other=other))[1])
    assert (name, should_change) == (best, changes)
    assert said in sentence


def test_the_committed_tables_are_those_of_their_records(choice: Any, defaults: Any) -> None:
    for file in defaults.FOLDER.glob("*.json"):
        page = choice.page if file.stem == "choice" else defaults.page
        assert file.with_suffix(".md").read_text() == page(json.loads(file.read_text()))


def test_a_run_that_is_killed_goes_on_where_it_was(
    choice: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def measured(name: str, frame: Any, backbone: Any, **arguments: Any) -> dict[str, Any]:
        if len(asked) == 5:
            raise KeyboardInterrupt
        asked.append((name, backbone if isinstance(backbone, str) else backbone["kind"], *arguments.items()))
        fitted = {"mase": 1.0 + 0.01 * len(asked), "seasonal naive": 2.0, "context_length": 48}
        return {**fitted, "cpu_seconds": 1.0, "parameters": 1, "steps": 1}

    monkeypatch.setattr(choice, "measured", measured)
    monkeypatch.setattr(choice, "frame_of", lambda name: pd.DataFrame({"y": range(10)}))
    monkeypatch.setattr(choice, "CANDIDATES", {BEST: choice.CANDIDATES[BEST], "ridge": "ridge"})
    words = ["--data", "CO2", "ETTh1", "--seeds", "2", "--output", str(tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        choice.main(words)
    assert len(json.loads((tmp_path / "choice.json").read_text())["fits"]) == 5
    first = [*asked]
    asked.clear()
    assert choice.main(words) == 0
    assert [one[1] for one in first] == ["patchtst", "patchtst", "ridge", "patchtst", "patchtst"]
    assert [one[:2] for one in asked] == [("ETTh1", "ridge")], "no finished fit is repeated"
    assert ("context_length", 48) not in first[0]
    assert all(("context_length", 48) in one for one in (*first[1:3], first[4], asked[0]))
    assert ("max_steps", 200) in first[0]
    record = json.loads((tmp_path / "choice.json").read_text())
    assert [one["mase"] for one in record["fits"]] == [1.01, 1.02, 1.03, 1.04, 1.05, 1.01]
    asked.clear()
    assert choice.main([*words, "--max-steps", "9"]) == 0
    assert len(asked) == 4, "another length is another fit; what is not trained is the same"


def test_the_test_part_is_not_read(choice: Any, defaults: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = defaults.frame_of("CO2")
    ends: dict[str, list[Any]] = {"fit": [], "evaluate": []}
    fits, evaluates = Forecaster.fit, Forecaster.evaluate

    def fitted(self: Forecaster, frame: Any, *others: Any, **options: Any) -> Any:
        ends["fit"].append(frame.index[-1])
        return fits(self, frame, *others, **options)

    def evaluated(self: Forecaster, frame: Any, *others: Any, **options: Any) -> Any:
        ends["evaluate"].append(frame.index[-1])
        return evaluates(self, frame, *others, **options)

    monkeypatch.setattr(Forecaster, "fit", fitted)
    monkeypatch.setattr(Forecaster, "evaluate", evaluated)
    names = (BEST, "ridge", "mean of ridge and PatchTST", "iTransformer from the ridge")
    monkeypatch.setattr(choice, "CANDIDATES", {name: choice.CANDIDATES[name] for name in names})
    words = ["--data", "CO2", "--seeds", "1", "--max-steps", "2", "--output", str(tmp_path)]
    assert choice.main(words) == 0
    count = len(whole)
    assert set(ends["evaluate"]) == {whole.index[round(0.8 * count) - 1]}, "all before the test part"
    assert set(ends["fit"]) == {whole.index[round(0.8 * round(0.8 * count)) - 1]}, "and some of that is for validation"
    page = (tmp_path / "choice.md").read_text()
    assert "- iTransformer from the ridge: " in page
    assert "channel" in page
    assert "| iTransformer from the ridge | does not apply | does not apply |" in page
