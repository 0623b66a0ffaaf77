"""No number of a result changes unless `RESULTS_VERSION` is raised with it."""

import json
from pathlib import Path

import pytest

from tests.experiments.golden import PATHS, RECORD
from tsattn.experiments import RESULTS_VERSION
from tsattn.ops.native.library import kernels_taken, why_no_kernels

RECORDED = json.loads(RECORD.read_text())


def test_the_record_is_of_this_version() -> None:
    assert RECORDED["results_version"] == RESULTS_VERSION, "record anew: python -m tests.experiments.golden"
    assert list(RECORDED["numbers"]) == list(RECORDED["without_kernels"]) == list(PATHS)


@pytest.mark.parametrize("name", PATHS)
def test_a_path_comes_to_the_numbers_that_were_recorded(name: str, tmp_path: Path) -> None:
    hold(name, "numbers" if why_no_kernels() is None else "without_kernels", tmp_path)


@pytest.mark.parametrize("name", ["network_with_covariates", "embedded_data"])
def test_without_kernels_it_comes_to_numbers_of_its_own(name: str, tmp_path: Path) -> None:
    with kernels_taken("off"):
        hold(name, "without_kernels", tmp_path)


def hold(name: str, record: str, folder: Path) -> None:
    numbers = PATHS[name](folder)
    changed = "numbers changed: raise RESULTS_VERSION and record anew, if they should"
    # other processors round otherwise
    assert numbers == pytest.approx(RECORDED[record][name], rel=2e-4, abs=1e-9, nan_ok=True), changed
