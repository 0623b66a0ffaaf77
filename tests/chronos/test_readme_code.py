"""The README's code about Chronos runs, on a small model in the place of the pretrained one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.chronos.tiny_models import series, tiny_pipeline
from tests.test_readme import blocks
from tsattn import Forecaster, load


def test_the_adapter_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_pipeline("bolt").inner_model.save_pretrained(tmp_path / "tiny")
    (block,) = blocks("Adapt a pretrained Chronos")
    short = block.replace("amazon/chronos-bolt-small", "./tiny").replace("[32, 16, 16]", "[4, 2, 2]")
    short = short.replace("calibrate(series)", "calibrate(series, steps=2)").replace("=24", "=8")
    assert short.count("./tiny") == short.count("[4, 2, 2]") == short.count("steps=2") == short.count("=8") == 1
    names: dict[str, Any] = {"series": series(60, 80, 33)}
    exec(short, names)
    assert names["quantiles"].shape == (3, 8, 9)
    assert [*names["again"].swaps] == ["encoder.0", "encoder.1", "encoder.2"]


def test_the_predictor_runs(toy_frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_pipeline("bolt").inner_model.save_pretrained(tmp_path / "tiny")
    (block,) = blocks("Forecast with a pretrained Chronos, and train it on")
    short = block.replace("amazon/chronos-bolt-small", "./tiny").replace("=512", "=48, max_steps=2")
    short = short.replace('"calibrate": 100', '"calibrate": 2')
    assert short.count("./tiny") == short.count("max_steps") == short.count('"calibrate": 2') == 1
    names: dict[str, Any] = {"frame": toy_frame, "Forecaster": Forecaster}
    exec(short, names)
    assert len(names["forecast"]) == 48
    assert load("tuned").predict().equals(names["tuned"].predict())
