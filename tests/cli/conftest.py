"""What the tests of the commands share: a run on a toy file, and pictures that are empty unless a test looks at one."""

from pathlib import Path

import pytest

from tests.cli.toy_run import fit
from tests.pictures import drawn, empty_pictures
from tests.toy_windows import toy_table

__all__ = ["drawn", "empty_pictures"]  # fixtures


@pytest.fixture(scope="package")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A toy file and the folder of a run on it, which no test may change."""
    folder = tmp_path_factory.mktemp("trained")
    csv = folder / "toy.csv"
    toy_table().to_csv(csv)
    assert fit(csv, folder / "run", "--attention", "{kind: mlr, ranks: [4, 2, 2]}") == 0
    return csv, folder / "run"
