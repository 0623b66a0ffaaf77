"""Trainings that go on from Chronos models that were fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.chronos.saved_weights import weights_of
from tests.chronos.test_fine_tuning import MLR, forecaster, same
from tsattn.errors import UserError


def test_nothing_goes_on_from_what_was_not_trained(toy_frame: pd.DataFrame, tmp_path: Path) -> None:
    """Calibration fits anew from the original, so that a further training would drop the weights that are there."""
    described: dict[str, Any] = {"kind": "chronos", "weights": weights_of("bolt"), "attention": MLR, "calibrate": 2}
    made = forecaster(described).fit(toy_frame, folder=tmp_path / "run")
    forecast = made.predict()
    with pytest.raises(UserError, match="nothing of tiny-bolt_mlr is trained, so that no training goes on from it"):
        made.fine_tune(toy_frame)
    same(made.predict(), forecast)
    checkpoint = tmp_path / "run" / "checkpoints" / "best.ckpt"
    with pytest.raises(UserError, match="that of one trained network, and tiny-bolt_mlr is none"):
        forecaster(described).fit(toy_frame, checkpoint=checkpoint)
