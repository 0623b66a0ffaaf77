"""The predictors on the command line, as their page shows them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from tsattn.cli import main
from tsattn.predictors import predictor_kinds
from tsattn.predictors.ensemble import TRAINING_OPTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "predictors.md").read_text("utf-8")


def test_the_commands_run(tmp_path: Path) -> None:
    assert set(re.findall(r"`(\w+)`", PAGE)) >= {*predictor_kinds(), *TRAINING_OPTIONS}
    commands = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)[0].replace("\\\n", "")
    names = []
    # in a file, what says how to train may stand beside what is not trained
    (tmp_path / "toy.yaml").write_text("trainer: {max_steps: 1, accelerator: cpu}\n")
    for number, command in enumerate(commands.splitlines()):
        run = tmp_path / str(number)
        toy = ["--config", str(tmp_path / "toy.yaml"), "--run", str(run)]
        assert main([*shlex.split(command)[1:], *toy]) == 0
        metrics = json.loads((run / "metrics.json").read_text())
        assert metrics["test_windows"] == 407
        names.append(next(iter(metrics["test"])))
    assert names == ["ridge", "seasonal_naive", "ensemble"]
