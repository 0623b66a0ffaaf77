"""What `Forecaster` should be by default, as validation says it."""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks import defaults
from tsattn import Forecaster

BEST = "PatchTST from the ridge"


def made_up(**by_candidate: list[list[float]]) -> list[dict[str, Any]]:
    """Fits of candidates, given their MASE by data set and seed; those of one seed draw nothing."""
    return [
        {"data": data, "candidate": candidate, "seed": seed, "mase": mase, "seasonal naive": 2.0}
        for candidate, rows in {BEST: [[1.0, 1.1], [0.5, 0.5]], **by_candidate}.items()
        for data, row in zip("ab", rows, strict=True)
        for seed, mase in enumerate(row, 1)
    ]


def test_a_score_is_the_geometric_mean_over_data_and_seeds() -> None:
    _, found = defaults.scores(made_up(ridge=[[1.2], [0.6]]))
    first, second = math.sqrt(0.5 * 0.25), math.sqrt(0.55 * 0.25)
    assert found.loc[BEST].tolist() == pytest.approx([math.sqrt(first * second), second - first])
    assert found.loc["ridge"].tolist() == pytest.approx([math.sqrt(0.6 * 0.3), 0]), "the same for every seed"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ([[1.2, 1.2], [0.6, 0.6]], f"The present default, {BEST}, has the lowest score: it stays."),
        ([[1.0, 1.0], [0.5, 0.5]], "within the spread of seeds, 0.0173, so it stays."),
        ([[0.8, 0.8], [0.5, 0.5]], "more than the spread of seeds, 0.0173, so other should be the default."),
    ],
)
def test_the_default_changes_for_what_is_better_than_the_spread_of_seeds(other: list[list[float]], said: str) -> None:
    assert defaults.verdict(defaults.scores(made_up(other=other))[1]).endswith(said)


def test_the_committed_tables_are_those_of_their_records() -> None:
    for file in defaults.FOLDER.glob("*.json"):
        page = defaults.choice_page if file.stem == "choice" else defaults.page
        assert file.with_suffix(".md").read_text() == page(json.loads(file.read_text()))


def test_a_choice_that_is_killed_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def measured(name: str, frame: Any, backbone: Any, **arguments: Any) -> dict[str, Any]:
        if len(asked) == 5:
            raise KeyboardInterrupt
        asked.append((name, backbone if isinstance(backbone, str) else backbone["kind"], *arguments.items()))
        return {"mase": 1.0 + 0.01 * len(asked), "seasonal naive": 2.0, "context_length": 48, "cpu_seconds": 1.0}

    monkeypatch.setattr(defaults, "measured", measured)
    monkeypatch.setattr(defaults, "frame_of", lambda name: pd.DataFrame({"y": range(10)}))
    monkeypatch.setattr(defaults, "CANDIDATES", {BEST: defaults.CANDIDATES[BEST], "ridge": "ridge"})
    words = ["--choose", "--data", "CO2", "ETTh1", "--seeds", "2", "--output", str(tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        defaults.main(words)
    assert len(json.loads((tmp_path / "choice.json").read_text())["fits"]) == 5
    first = [*asked]
    asked.clear()
    assert defaults.main(words) == 0
    assert [one[1] for one in first] == ["patchtst", "patchtst", "ridge", "patchtst", "patchtst"]
    assert [one[:2] for one in asked] == [("ETTh1", "ridge")], "no finished fit is repeated"
    assert ("context_length", 48) not in first[0]
    assert all(("context_length", 48) in one for one in (*first[1:3], first[4], asked[0]))
    assert ("max_steps", 200) in first[0]
    record = json.loads((tmp_path / "choice.json").read_text())
    assert [one["mase"] for one in record["fits"]] == [1.01, 1.02, 1.03, 1.04, 1.05, 1.01]
    asked.clear()
    assert defaults.main([*words, "--dry-run"]) == 0
    assert len(asked) == 4, "another length is another fit; what is not trained is the same"


@pytest.mark.slow
def test_the_test_part_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = defaults.frame_of("CO2")
    ends: dict[str, set[Any]] = {"fit": set(), "evaluate": set()}

    def seen(name: str, method: Any) -> Any:
        def of(self: Forecaster, frame: Any, *others: Any, **options: Any) -> Any:
            ends[name].add(frame.index[-1])
            return method(self, frame, *others, **options)

        return of

    for name in ends:
        monkeypatch.setattr(Forecaster, name, seen(name, getattr(Forecaster, name)))
    names = (BEST, "iTransformer from the ridge")
    monkeypatch.setattr(defaults, "CANDIDATES", {name: defaults.CANDIDATES[name] for name in names})
    words = ["--choose", "--data", "CO2", "--seeds", "1", "--dry-run", "--output", str(tmp_path)]
    assert defaults.main(words) == 0
    count = len(whole)
    assert ends["evaluate"] == {whole.index[round(0.8 * count) - 1]}, "all before the test part"
    assert ends["fit"] == {whole.index[round(0.8 * round(0.8 * count)) - 1]}, "and some of that is for validation"
    page = (tmp_path / "choice.md").read_text()
    assert "| iTransformer from the ridge | does not apply | does not apply |" in page
    assert "- iTransformer from the ridge: " in page
