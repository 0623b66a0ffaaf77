"""A run goes on with the dropout that it was begun with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.experiments.golden import NETWORK, described
from tests.ops.native.kernels_there import needs_kernels
from tsattn.experiments import resume, run
from tsattn.ops.dropout import native_dropout_left

pytestmark = needs_kernels


def gone_on_with(folder: Path, copy: Path, *, noted: bool | None) -> float:
    """The validation error of a copy of a run that is trained longer, with another note of its dropout."""
    shutil.copytree(folder, copy)
    versions = json.loads((copy / "versions.json").read_text())
    versions["kernels"].pop("dropout")
    if noted is not None:
        versions["kernels"]["dropout"] = noted
    (copy / "versions.json").write_text(json.dumps(versions))
    error: float = resume(copy, {"max_steps": 12}).fit["validation_error"]
    return error


def test_a_run_goes_on_with_the_dropout_that_it_was_begun_with(tmp_path: Path) -> None:
    experiment = described(tmp_path, {**NETWORK, "dropout": 0.5}, trainer={"max_steps": 4})
    folder = tmp_path / "run"
    with native_dropout_left():
        run(experiment, folder, test=False)
        assert json.loads((folder / "versions.json").read_text())["kernels"]["dropout"] is False
        expected = gone_on_with(folder, tmp_path / "left", noted=True)
    # a note of False, and none, which is of a run from before it was among the kernels
    assert gone_on_with(folder, tmp_path / "off", noted=False) == expected
    assert gone_on_with(folder, tmp_path / "before", noted=None) == expected
    assert gone_on_with(folder, tmp_path / "on", noted=True) != expected
