"""What the tests of the commands share: a run on a toy file, and pictures that are empty unless a test looks at one."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.toy_run import fit
from tests.pictures import drawn, empty_pictures

__all__ = ["drawn", "empty_pictures"]  # fixtures


@pytest.fixture(scope="package")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A toy file and the folder of a run on it, which no test may change."""
    folder = tmp_path_factory.mktemp("trained")
    hours = np.arange(600)
    noise = np.random.default_rng(0).standard_normal((2, 600))
    columns = {"wave": 10 + 3 * np.sin(2 * np.pi * hours / 24) + 0.1 * noise[0], "drift": 0.01 * hours + 0.1 * noise[1]}
    csv = folder / "toy.csv"
    pd.DataFrame(columns, index=pd.date_range("2020-01-01", periods=600, freq="h", name="date")).to_csv(csv)
    assert fit(csv, folder / "run", "--attention", "{kind: mlr, ranks: [4, 2, 2]}") == 0
    return csv, folder / "run"
