"""The benchmark that needs a GPU does its work on a CPU too, where its figures mean nothing."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.processes import Worker

ROOT = Path(__file__).parents[1]
WORDS = ["--accelerator", "cpu", "--max-steps", "2", "--attention", "mlr", "--setting", "bf16"]


def forked(words: list[str], **options: Any) -> Any:
    """`subprocess.run` of a command, without the time of its imports."""
    assert words[:3] == [sys.executable, "-m", "tsattn"]
    worker = Worker(words[3:], Path(words[-1]).parent)
    return SimpleNamespace(returncode=worker.end(), stderr=worker.said())


def run(words: list[str], config: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    names = runpy.run_path(str(ROOT / "benchmarks" / "gpu_training.py"))
    main: Any = names["main"]
    monkeypatch.setitem(main.__globals__, "CONFIG", config)
    monkeypatch.setitem(main.__globals__, "subprocess", SimpleNamespace(run=forked))
    monkeypatch.setattr(sys, "argv", ["gpu_training.py", *words])
    code: int = main()
    return code


@pytest.mark.slow
@pytest.mark.real_data
def test_training_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = yaml.safe_load((ROOT / "configs" / "etth1_mlr_paper.yaml").read_text())
    content["model"]["backbone"] |= {"d_model": 16, "num_heads": 2, "num_layers": 1, "d_ff": 16}
    content["data"]["init_args"]["val_windows"] = 100
    content["model"]["backbone"]["attention"] = {"kind": "mlr", "ranks": [4, 4]}
    config = tmp_path / "small.yaml"
    config.write_text(yaml.safe_dump(content))
    words = [*WORDS, "--out", str(tmp_path / "out")]
    assert run(words, config, monkeypatch) == 0
    table = pd.read_csv(tmp_path / "out" / "gpu_training.csv")
    assert list(table.setting) == ["float32", "bf16"]
    assert (table[["windows_per_second", "utilisation", "model_gflops_a_window", "seconds_in_all"]] > 0).all(axis=None)
    assert (table.seconds_in_all > table.seconds).all()
    assert (tmp_path / "out" / "gpu_training.png").stat().st_size > 5000
    about = json.loads((tmp_path / "out" / "gpu_training.json").read_text())
    assert [
        f"--trainer.precision={name}" in command
        for name, command in zip(("32-true", "bf16-mixed"), about["commands"], strict=True)
    ] == [True, True]
    # a record is not made again; an error that grew with the speed is seen
    record = tmp_path / "out" / "gpu_training_runs" / "mlr_bf16.json"
    row = json.loads(record.read_text())
    record.write_text(json.dumps({**row, "validation_error": 2 * row["validation_error"]}))
    capsys.readouterr()
    assert run(words, config, monkeypatch) == 1
    assert "NOT within 5 % of float32" in capsys.readouterr().out
    assert json.loads(record.read_text())["seconds_in_all"] == row["seconds_in_all"]


def test_a_gpu_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit) as stop:
        run(["--out", str(tmp_path)], ROOT / "configs" / "etth1_mlr_paper.yaml", monkeypatch)
    assert stop.value.code == 2
    assert "there is no CUDA device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
