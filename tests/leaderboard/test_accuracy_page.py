"""The page on what helps: each change is compared with what it changes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT
from tests.leaderboard.invented import row
from tsattn.leaderboard.analysis import Analysis
from tsattn.leaderboard.records import Records

PATCHTST, RIDGE = {"kind": "patchtst", "attention": {"kind": "standard"}}, {"kind": "ridge"}
MIX = {"kind": "ensemble", "members": [PATCHTST, RIDGE]}
MODELS: dict[str, tuple[str, Any, float]] = {  # attention, description, percent above
    "ridge": ("", RIDGE, 5.0),
    "ridges": ("", {"kind": "ensemble", "members": [RIDGE, RIDGE]}, 5.0),
    "base": ("standard", PATCHTST, 0.0),
    "mse": ("standard", PATCHTST, 4.0),
    "distilled": ("", {"kind": "distilled"}, 0.0),
    "small_patches": ("standard", PATCHTST, 0.0),
    "batch_norm": ("standard", PATCHTST, -4.0),
    "batch_norm+ridge": ("standard", MIX, -4.0),
    "base_of_four_seeds": ("standard", MIX, 0.0),
}


@pytest.fixture
def accuracy(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("accuracy")


@pytest.fixture
def records() -> Records:
    calendar = ("small_patches", "calendar", PATCHTST, 0.0)
    models = [*((name, *rest) for name, rest in MODELS.items()), calendar]
    found = [
        row("ETTm1", 96, name, attention, seed, backbone=backbone, shift=shift)
        for name, attention, backbone, shift in models
        for seed in ((1, 2) if "ridge" not in name or attention else (None,))
    ]
    return Records.of(found, {"invented": (ROOT / "configs" / "suites" / "accuracy.yaml").read_text()})


def test_each_is_compared_with_what_it_changes(accuracy: Any, records: Records) -> None:
    analysis = Analysis(records)
    bases = {model: accuracy.base_of(analysis, "ETTm1", model) for model in analysis.models["ETTm1"]}
    assert bases["base, standard"] == bases["ridges"] == "ridge"
    assert bases["distilled"] == bases["mse, standard"] == bases["base_of_four_seeds, standard"] == "base, standard"
    assert bases["small_patches, calendar"] == "small_patches, standard"


def test_the_page_says_what_is_better_and_worse(accuracy: Any, records: Records, tmp_path: Path) -> None:
    records.write(tmp_path / "accuracy")
    assert accuracy.main(["--records", str(tmp_path / "accuracy")]) == 0
    text = (tmp_path / "accuracy.md").read_text()
    assert "- Better in MSE: `base, standard`, `batch_norm, standard`.\n" in text
    assert "- Worse in MSE: `mse, standard`.\n" in text
    assert "| `mse, standard` | `base, standard` | 0.416 | +4.0 % (" in text
    assert "of 18 comparisons, chance alone decides about 1." in text
    with pytest.raises(SystemExit) as error:
        accuracy.main(["--records", str(tmp_path / "nothing")])
    assert error.value.code == 2
