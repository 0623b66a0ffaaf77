"""No forecast is a number that is none, and no model is read that is not the one that was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tsattn
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster

BACKBONE = {"kind": "patchtst", "d_model": 8, "num_layers": 1, "num_heads": 2}
SIZES: dict[str, Any] = {"context_length": 24, "prediction_length": 6}


def waves(rows: int = 300) -> pd.DataFrame:
    stamps = pd.date_range("2024-01-01", periods=rows, freq="h")
    return pd.DataFrame({"date": stamps, "wave": np.sin(np.arange(rows) / 4), "slow": np.cos(np.arange(rows) / 9)})


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    waves().to_csv(folder / "waves.csv", index=False)
    words = ["--data=CSVDataModule", f"--data.path={folder / 'waves.csv'}", "--trainer.max_steps=2"]
    words += [f"--data.{name}={size}" for name, size in SIZES.items()]
    words += ["--model.backbone={kind: patchtst, d_model: 8, num_layers: 1, num_heads: 2}"]
    assert main(["fit", *words, "--trainer.accelerator=cpu", f"--run={folder / 'run'}"]) == 0
    return folder / "run"


@pytest.fixture
def run(whole_run: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(whole_run, tmp_path / "run"))


def test_a_run_knows_its_checkpoints_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--run", str(run)]) == 0
    checkpoint = run / "checkpoints" / "best.ckpt"
    content = bytearray(checkpoint.read_bytes())
    content[len(content) // 2] ^= 1  # torch.load does not see that
    checkpoint.write_bytes(content)
    message = f"{run} is damaged: checkpoints/best.ckpt is not the file that was written"
    for command in ("predict", "test", "validate"):
        capsys.readouterr()
        assert main([command, "--run", str(run)]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(UserError, match=r"is damaged: checkpoints/best\.ckpt"):
        tsattn.load(run)


def spoil(run: Path) -> None:
    """Weights that are not finite, in a folder from before there were checksums."""
    checkpoint = run / "checkpoints" / "best.ckpt"
    content = torch.load(checkpoint, weights_only=True)
    content["state_dict"]["network.backbone.head.flat.weight"][0, 0] = float("nan")
    torch.save(content, checkpoint)
    (run / "SHA256SUMS").unlink()


def test_weights_that_are_not_finite_are_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(run)
    assert main(["predict", "--run", str(run)]) == 2
    assert "its weight network.backbone.head.flat.weight holds numbers that are not finite" in capsys.readouterr().err
    with pytest.raises(
        UserError, match=r"its weight network\.backbone\.head\.flat\.weight holds numbers that are not finite"
    ):
        tsattn.load(run)


def test_a_value_far_from_those_trained_on_gives_a_sentence_and_no_forecast() -> None:
    forecaster = Forecaster(BACKBONE, **SIZES, max_steps=2, accelerator="cpu").fit(waves())
    later = waves()
    later.loc[290, "slow"] = 1e160
    with pytest.raises(UserError, match=r"series slow has the value 1e\+160"):
        forecaster.predict(later)
    large = waves().assign(slow=lambda frame: 1e9 * frame["slow"])
    assert np.isfinite(forecaster.predict(large)["predictions"]).all()


def test_a_forecast_that_is_not_finite_is_no_forecast() -> None:
    forecaster = Forecaster(BACKBONE, **SIZES, max_steps=2, accelerator="cpu").fit(waves())
    with torch.no_grad():
        next(forecaster.fitted.predictor.parameters()).fill_(float("inf"))
    with pytest.raises(UserError, match="the forecast of series wave is not finite"):
        forecaster.predict()
