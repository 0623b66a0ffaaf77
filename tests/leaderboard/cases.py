"""A suite of seconds on embedded data, and predictors that fail."""

import copy
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from tests.processes import Worker, serve
from tsattn.batch import Batch
from tsattn.cli import main
from tsattn.leaderboard.records import Records
from tsattn.predictors import Predictor

SMOKE: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "smoke.yaml").read_text())


class Broken(Predictor):
    def fit(self, data: Any, training: Any) -> dict[str, Any]:
        raise RuntimeError("something broke")

    def forward(self, batch: Batch) -> torch.Tensor:
        raise AssertionError("never fitted")


class Killed(Broken):
    """Ends its process, as the system does with one that takes too much memory."""

    def fit(self, data: Any, training: Any) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}


class Slow(Broken):
    def __init__(self, *, gate: str) -> None:
        super().__init__(gate=gate)
        self.gate = Path(gate)

    def fit(self, data: Any, training: Any) -> dict[str, Any]:
        self.gate.with_name(f"waits.{time.time_ns()}").touch()
        while not self.gate.exists():
            time.sleep(0.02)
        return {}

    def forward(self, batch: Batch) -> torch.Tensor:
        assert self.task is not None
        return batch.past[:, -1:].expand(-1, self.task.prediction_length, -1)


@dataclass(frozen=True)
class Bench:
    """A suite in a folder, which is worked on in `runs`; its records are in `out`."""

    folder: Path

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def words(self, *more: str) -> list[str]:
        where = ["--folder", str(self.runs), "--output", str(self.out), "--no-report"]
        return ["benchmark", "--suite", str(self.folder / "smoke.yaml"), *where, *more]

    def run(self, *more: str) -> int:
        serve()
        return main(self.words(*more))

    def start(self, *more: str) -> Worker:
        return Worker(self.words(*more), self.folder)

    def write(self, **changed: Any) -> dict[str, Any]:
        content = {**copy.deepcopy(SMOKE), **changed}
        (self.folder / "smoke.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return content

    def records(self) -> Records:
        return Records.read(self.out)

    def begun(self) -> list[str]:
        """A line for each process that began a run, with its name."""
        logs = sorted((self.runs / "logs").glob("*.txt"))
        return [line for log in logs for line in log.read_text().splitlines() if line.startswith("begin ")]

    def recorded(self) -> list[str]:
        return sorted(path.name for path in (self.runs / "records").glob("*.parquet"))


def bench(folder: Path, **changed: Any) -> Bench:
    folder.mkdir(parents=True, exist_ok=True)
    made = Bench(folder)
    made.write(**changed)
    return made


def few(**more: Any) -> dict[str, Any]:
    """What makes the suite of SMOKE one of three runs: a ridge, a network and their mean."""
    predictors = copy.deepcopy({name: SMOKE["predictors"][name] for name in ("ridge", "patchtst", "patchtst+ridge")})
    del predictors["patchtst+ridge"]["attentions"]
    small = {"horizons": [8], "seeds": 1, "attentions": {"standard": "standard"}}
    return {**small, "predictors": {**predictors, **more}}
