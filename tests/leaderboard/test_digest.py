"""The digest of 20 steps tells code that trains differently."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tsattn.experiments import Experiment
from tsattn.leaderboard.digest import Digests, conflicts, kind_of


def row(kind: str, cpu: str, digest: float | None, git: str = "a" * 40) -> dict[str, object]:
    text = yaml.safe_dump({"model": {"backbone": {"kind": kind, "d_model": 8, "attention": {"kind": "mlr"}}}})
    return {"experiment": text, "cpu": cpu, "digest": digest, "git": git}


def test_records_of_code_that_differs_are_named() -> None:
    rows = [row("patchtst", "one", 0.5), row("patchtst", "one", 0.5 + 1e-9), row("patchtst", "two", 0.7)]
    assert conflicts(pd.DataFrame([*rows, row("transformer", "one", 0.9), row("ridge", "one", None)])) == []
    (said,) = conflicts(pd.DataFrame([*rows, row("patchtst", "one", 0.50001, "b" * 40)]))
    assert "patchtst" in said
    assert "on one were trained by code that differs" in said
    assert "commits aaaaaaa, bbbbbbb" in said
    assert conflicts(pd.DataFrame([row("ridge", "one", None)])) == []


def test_a_kind_is_that_of_predictor_and_attention_without_arguments() -> None:
    one = kind_of({"kind": "patchtst", "d_model": 8, "attention": {"kind": "mlr", "ranks": [2, 2]}})
    assert json.loads(one) == {"kind": "patchtst", "attention": "mlr"}
    assert json.loads(kind_of({"kind": "transformer", "attention": ["swa", "swa", "mlr"]}))["attention"] == [
        "swa",
        "mlr",
    ]
    assert json.loads(kind_of({"kind": "ridge", "alpha": 1.0})) == {"kind": "ridge"}


@pytest.mark.slow
def test_a_digest_is_computed_once_and_is_that_of_the_kind(tmp_path: Path) -> None:
    content = {"data": {"class_path": "CO2DataModule"}, "model": {"backbone": {"kind": "patchtst", "d_model": 8}}}
    experiment = Experiment.of(content)
    found = Digests(tmp_path / "digests.json").of(experiment, "cpu")
    assert found is not None
    assert Digests(tmp_path / "other.json").of(experiment.with_values({"model.learning_rate": 0.1}), "cpu") == found
    (tmp_path / "digests.json").write_text((tmp_path / "digests.json").read_text().replace(str(found), "7.5"))
    assert Digests(tmp_path / "digests.json").of(experiment, "cpu") == 7.5
    assert Digests(tmp_path / "digests.json").of(experiment, "another") == found
    assert Digests(tmp_path / "digests.json").of(experiment.with_values({"model.backbone": "ridge"}), "cpu") is None
