"""Values that studies choose by validation, before the runs that take them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml

from tests.leaderboard.cases import bench, few

pytestmark = pytest.mark.slow

SEARCH: dict[str, Any] = {
    "sampler": "random",
    "parameters": {
        "model.learning_rate": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True},
        "model.backbone.dropout": [0.0, 0.3],
    },
}


def test_a_study_chooses_for_all_runs_of_a_predictor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(SEARCH))
    selection = {"search": str(tmp_path / "space.yaml"), "trials": 3, "folds": 2, "horizon": 8}
    made = bench(tmp_path / "made", **{**few(), "horizons": [8, 4], "selection": selection})
    assert made.run("--dry-run") == 0
    said = capsys.readouterr().out
    assert "study           co2: patchtst standard: 3 trials on 2 rolling origins" in said
    assert "waits           co2 8: patchtst standard, seed 1" in said
    assert made.run("--jobs", "2") == 0
    (study,) = json.loads((made.out / "selected.json").read_text()).values()
    assert [trial["state"] for trial in study["trials"]] == ["complete"] * 3
    best = min(study["trials"], key=lambda trial: trial["error"])
    assert study["error"] == best["error"] == pytest.approx(sum(best["errors"]) / 2)
    assert study["values"] == best["params"]
    assert study["validation"] == "mean of 2 rolling origins"
    frame = made.records().frame
    assert frame["status"].tolist() == ["done"] * 6
    for _, row in frame.iterrows():
        experiment = yaml.safe_load(row["experiment"])
        if row["predictor"] != "ridge":
            assert experiment["model"]["learning_rate"] == study["values"]["model.learning_rate"]
        if row["predictor"] == "patchtst":
            assert experiment["model"]["backbone"]["dropout"] == study["values"]["model.backbone.dropout"]
    (place,) = (made.runs / "studies").iterdir()
    storage = f"sqlite:///{place / 'study.db'}"
    assert len(optuna.load_study(study_name=place.name, storage=storage).trials) == 3
    # from the records alone nothing is searched for or run again
    before = (made.out / "selected.json").read_bytes()
    shutil.rmtree(made.runs)
    assert made.run() == 0
    assert not made.journal()
    assert (made.out / "selected.json").read_bytes() == before


def test_a_study_that_finds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "space.yaml").write_text(yaml.safe_dump({"parameters": {"model.learning_rate": [1e30]}}))
    selection = {"search": str(tmp_path / "space.yaml"), "trials": 1, "folds": 0, "horizon": 8}
    content = few()
    content["values"] = {**yaml.safe_load((Path(__file__).parent / "smoke.yaml").read_text())["values"]}
    content["values"] |= {"trainer.gradient_clip_val": None, "model.warmup_steps": 0}
    made = bench(tmp_path / "made", **content, selection=selection)
    assert made.run() == 0
    frame = made.records().frame.set_index("predictor")
    assert frame["status"].to_dict() == {"ridge": "done", "patchtst": "failed", "patchtst+ridge": "failed"}
    assert frame.loc["patchtst", "reason"].startswith("no values were chosen: no trial of the study co2: patchtst")
    assert made.run("--retry-failed") == 0
    assert sum(note["event"] == "begin study" for note in made.journal()) == 2
