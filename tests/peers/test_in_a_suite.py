"""Networks and models of other libraries in the table of a leaderboard, as any predictor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.leaderboard.cases import bench
from tsattn.peers.predictors import VARIABLE

PREDICTORS = {
    "ridge": "ridge",
    "neuralforecast Level": {"backbone": {"kind": "neuralforecast", "model": "Level"}},
    "statsforecast Mean": {"backbone": {"kind": "statsforecast", "model": "Mean", "context_length": 24}},
}


@pytest.mark.slow
def test_they_stand_beside_the_ridge_on_the_same_windows(tmp_path: Path, fake_python: Path) -> None:
    made = bench(tmp_path, horizons=[8], seeds=2, attentions={"standard": "standard"}, predictors=PREDICTORS)
    for python, status in ((str(tmp_path / "none" / "python"), "failed"), (str(fake_python), "done")):
        words = [sys.executable, "-m", "tsattn", *made.words("--retry-failed")]
        ended = subprocess.run(words, env={**os.environ, VARIABLE: python}, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        frame = made.records().frame.set_index("predictor")
        assert frame["status"].to_dict() == {
            "ridge": "done",
            "neuralforecast Level": status,
            "statsforecast Mean": status,
        }
        if status == "failed":
            reasons = frame.loc[["neuralforecast Level", "statsforecast Mean"], "reason"]
            assert reasons.str.contains("make peers|TSATTN_PEERS", regex=True).all(), [*reasons]
    assert frame.loc["neuralforecast Level", "seed"].tolist() == [1, 2]
    assert frame["windows"].nunique() == 1
    assert frame["mse"].gt(0).all()
