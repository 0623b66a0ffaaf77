"""What is exported of a model of transformed targets takes and gives values in original units, as it does itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.forecaster.toys import SMALL, frame_of
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster
from tsattn.predictors.exporting import RawForecast


@pytest.mark.parametrize("transform", ["log1p", "box_cox"])
def test_a_transform_is_part_of_what_is_exported(transform: str) -> None:
    frame = frame_of({"a": 150, "b": 150})
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}, transform=transform).fit(frame)
    raw = RawForecast(forecaster.fitted)
    values = frame["y"].to_numpy(copy=True).reshape(2, 150, 1)[:, -raw.length :]
    arguments: dict[str, Any] = {"context": torch.from_numpy(values), "series": torch.arange(2)}
    wanted = forecaster.predict()[["0.1", "0.5", "0.9"]].to_numpy()
    with torch.no_grad():
        np.testing.assert_allclose(raw(**arguments).reshape(-1, 3), wanted, rtol=1e-4)
        exported = torch.export.export(raw, (), arguments).module()
        np.testing.assert_allclose(exported(**arguments).reshape(-1, 3), wanted, rtol=1e-4)


def test_a_distribution_is_not_exported() -> None:
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}, distribution="student_t").fit(frame_of({"a": 150}))
    with pytest.raises(UserError, match="the quantiles of its distribution student_t are found outside of PyTorch"):
        RawForecast(forecaster.fitted)
