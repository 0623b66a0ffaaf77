"""No number of a result changes unless `RESULTS_VERSION` is raised with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.experiments.golden import PATHS, RECORD
from tsattn.experiments import RESULTS_VERSION

RECORDED = json.loads(RECORD.read_text())


def test_the_record_is_of_this_version() -> None:
    assert RECORDED["results_version"] == RESULTS_VERSION, "record anew: python -m tests.experiments.golden"
    assert list(RECORDED["numbers"]) == list(PATHS)


@pytest.mark.parametrize("name", PATHS)
def test_a_path_comes_to_the_numbers_that_were_recorded(name: str, tmp_path: Path) -> None:
    numbers = PATHS[name](tmp_path)
    changed = "numbers changed: raise RESULTS_VERSION and record anew, if they should"
    # other processors round otherwise
    assert numbers == pytest.approx(RECORDED["numbers"][name], rel=2e-4, abs=1e-9, nan_ok=True), changed
