"""The predictors on the command line, as the README shows them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from tsattn.cli import main
from tsattn.predictors import predictor_kinds
from tsattn.predictors.ensemble import TRAINING_OPTIONS

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_commands_run(tmp_path: Path) -> None:
    section = README.split("\n## Switch predictor\n")[1].split("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", section)) >= {*predictor_kinds(), *TRAINING_OPTIONS}
    (commands,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    names = []
    # in a file, what says how to train may stand beside what is not trained
    (tmp_path / "toy.yaml").write_text("trainer: {max_steps: 1, accelerator: cpu}\n")
    for number, command in enumerate(commands.splitlines()):
        run = tmp_path / str(number)
        toy = ["--config", str(tmp_path / "toy.yaml"), "--run", str(run)]
        assert main([*shlex.split(command)[3:], *toy]) == 0
        metrics = json.loads((run / "metrics.json").read_text())
        assert metrics["test_windows"] == 407
        names.append(next(iter(metrics["test"])))
    assert names == ["ridge", "seasonal_naive", "ensemble"]
