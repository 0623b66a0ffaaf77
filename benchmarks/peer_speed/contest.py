"""Two trainings, of ours and of neuralforecast's, in two processes that take turns step by step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peer_speed.recipes import Recipe
from tsattn.data import PublicDataModule
from tsattn.peers import peer_worker
from tsattn.peers.peer_process import peers_python
from tsattn.peers.predictors import write_series

__all__ = ["OURS", "THEIRS", "Course", "contest"]

OURS, THEIRS = "tsattn", "neuralforecast"
_FOLDER = Path(__file__).parent


@dataclass
class Course:
    """What a training was.

    Attributes:
        seconds: CPU seconds of each step, in which batches are cut and everything logged.
        validations: of each: ``at`` which step, its ``mse``, and the CPU seconds of ``training`` and ``validating``
            until then.
        end: ``memory`` (bytes that it held at most beside what its imports did), ``parameters``, ``tokens``,
            ``versions``.
    """

    seconds: list[float] = field(default_factory=list)
    validations: list[dict[str, float]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)


def contest(
    recipe: Recipe,
    *,
    steps: int,
    interval: int = 0,
    learning_rate: float = 1e-3,
    our_learning_rate: float = 1e-3,
    seed: int = 1,
) -> dict[str, Course]:
    """The course of each training, by name.

    Args:
        recipe: what is trained, on ETTh1.
        steps: of each.
        interval: from one validation to the next; 0 validates neither.
        learning_rate: of theirs, which is constant.
        our_learning_rate: of ours at its peak, before which it rises and after which it falls.
        seed: of both.
    """
    data = {
        "name": "ETTh1",
        "context_length": recipe.context_length,
        "prediction_length": recipe.prediction_length,
        "batch_size": recipe.batch_size,
        "val_windows": "all",
    }
    module = PublicDataModule(**data)
    module.prepare_data()
    module.setup("fit")
    asked = {"steps": steps, "interval": interval, "learning_rate": our_learning_rate, "seed": seed}
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "series.parquet"
        if not interval:
            module.parts = ("train",)
        rows = write_series(table, module)
        options = {
            **{"max_steps": steps, "val_check_steps": interval or steps + 1, "learning_rate": learning_rate},
            **{"loss": "MSE", "valid_loss": "MSE", "windows_batch_size": recipe.batch_size, "accelerator": "cpu"},
        }
        request = {
            **{"library": "neuralforecast", "model": recipe.model},
            **{"arguments": recipe.theirs, "options": options, "seed": seed, "quantiles": []},
            **{"h": recipe.prediction_length, "input_size": recipe.context_length},
            "channels": len(module.task.channels) if module.task is not None else 0,
        }
        theirs = {**asked, "request": request, "table": str(table), "val_rows": rows, "worker": peer_worker.__file__}
        runners = {
            OURS: _lines(Path(sys.executable), "ours", {**asked, "data": data, "ours": recipe.ours}),
            THEIRS: _lines(peers_python("the benchmark"), "theirs", theirs),
        }
        courses = {name: Course() for name in runners}
        while runners:
            for name, lines in [*runners.items()]:
                for line in lines:
                    if "step" in line:
                        courses[name].seconds.append(line["seconds"])
                        break
                    if "at" in line:
                        courses[name].validations.append(line)
                    else:
                        courses[name].end = line
                        del runners[name]
    return courses


def _lines(python: Path, script: str, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a training says; each step begins when the line after that of the step before is asked for."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if script == "theirs":
        environ.pop("PYTHONPATH", None)
    command = [str(python), "-W", "ignore", str(_FOLDER / f"{script}.py"), json.dumps(asked)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environ
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write("begin\n")
            process.stdin.flush()
            for line in process.stdout:
                said = json.loads(line)
                yield said
                if "step" in said:
                    process.stdin.write("go on\n")
                    process.stdin.flush()
            if process.wait():
                errors.seek(0)
                raise RuntimeError(f"{script}.py failed:\n{errors.read()[-3000:]}")
        finally:
            process.kill()
            process.wait()
