"""No forecast is a number that is none, and no model is read that is not the one that was written."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import tsattn
from tests.forecaster.toys import SMALL, frame_of
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster


@pytest.fixture
def run(toy_run: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_run[1], tmp_path / "run"))


def test_a_run_knows_its_checkpoints_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--run", str(run)]) == 0
    checkpoint = run / "checkpoints" / "best.ckpt"
    content = bytearray(checkpoint.read_bytes())
    content[len(content) // 2] ^= 1  # torch.load does not see that
    checkpoint.write_bytes(content)
    for command in ("predict", "test", "validate"):
        capsys.readouterr()
        assert main([command, "--run", str(run)]) == 2
        message = f"{run} is damaged: checkpoints/best.ckpt is not the file that was written"
        assert message in capsys.readouterr().err
    with pytest.raises(UserError, match=r"is damaged: checkpoints/best\.ckpt"):
        tsattn.load(run)


def test_weights_that_are_not_finite_are_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a folder without checksums, which is read otherwise."""
    (run / "SHA256SUMS").unlink()
    assert main(["test", "--run", str(run)]) == 0
    checkpoint = run / "checkpoints" / "best.ckpt"
    content = torch.load(checkpoint, weights_only=True)
    name = next(name for name, one in content["state_dict"].items() if name.startswith("network.") and one.ndim == 2)
    content["state_dict"][name][0, 0] = float("nan")
    torch.save(content, checkpoint)
    says = f"its weight {name} holds numbers that are not finite"
    assert main(["predict", "--run", str(run)]) == 2
    assert says in capsys.readouterr().err
    with pytest.raises(UserError, match=says):
        tsattn.load(run)


def test_values_far_from_those_trained_on_and_damaged_weights_give_no_forecast() -> None:
    wide = frame_of({"slow": 300, "wave": 300}).pivot_table(index="ds", columns="unique_id", values="y")
    forecaster = Forecaster(**{**SMALL, "max_steps": 2, "quantiles": None}).fit(wide)
    later = wide.copy()
    later.loc[later.index[290], "slow"] = 1e160
    with pytest.raises(UserError, match=r"series slow has the value 1e\+160"):
        forecaster.predict(later)
    assert np.isfinite(forecaster.predict(wide.assign(slow=1e9 * wide["slow"]))["predictions"]).all()
    with torch.no_grad():
        next(forecaster.fitted.predictor.parameters()).fill_(float("inf"))
    with pytest.raises(UserError, match="the forecast of series slow is not finite"):
        forecaster.predict()
