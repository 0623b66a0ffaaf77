"""`test --by`: the scores of each series, step or origin, on the screen and in a file, and the residuals drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.toy_run import refusal
from tests.forecaster.toys import frame_of
from tsattn.cli import main
from tsattn.errors import rounded


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of persistence on three series, without a training."""
    folder = tmp_path_factory.mktemp("by")
    frame_of({"large": 200, "late": 150, "small": 260}).to_csv(folder / "toy.csv", index=False)
    words = ["fit", "--data", "CSVDataModule", "--data.path", str(folder / "toy.csv"), "--run", str(folder / "run")]
    sizes = ["--data.context_length", "48", "--data.prediction_length", "12", "--model.backbone", "ridge"]
    assert main([*words, *sizes]) == 0
    return folder / "run"


def test_the_table_by_group_is_that_of_the_screen_and_adds_up(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for by in ("series", "step", "origin"):
        output = tmp_path / f"{by}.csv"
        assert main(["test", "--run", str(run), "--by", by, "--output", str(output)]) == 0
        lines = capsys.readouterr().out.splitlines()
        frame = pd.read_csv(output)
        label = {"series": "unique_id"}.get(by, by)
        assert [*frame.columns[:2]] == ["forecaster", label]
        own = frame[frame["forecaster"] == "ridge"]
        start = lines.index(f"ridge by {by}")
        assert lines[start + 1].split()[0] == label
        rows = lines[start + 2 : start + 2 + len(own)]
        assert [row.removesuffix(" *").split()[-3] for row in rows] == own["mse_scaled"].map(rounded).tolist()
        others = frame[frame["forecaster"] != "ridge"].groupby(label, sort=False)["mse_scaled"].min()
        is_best = own["mse_scaled"].to_numpy() < others.to_numpy()
        assert [row.endswith(" *") for row in rows] == is_best.tolist()
        whole = next(line for line in lines if line.startswith("ridge (context ")).split()[2:]
        weights = np.ones(len(own)) if by == "step" else own["windows"]
        assert np.average(own["mse_scaled"], weights=weights) == pytest.approx(float(whole[1]), rel=6e-3)


def test_residuals_are_drawn_and_nothing_is_replaced_unasked(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = tmp_path / "residuals.png"
    words = ["validate", "--run", str(run), "--figure", str(figure)]
    assert main(words) == 0
    assert f"{figure}: residuals, drawn" in capsys.readouterr().out
    assert figure.stat().st_size > 0
    assert "exists already" in refusal(words, capsys)
    assert main([*words, "--overwrite"]) == 0
