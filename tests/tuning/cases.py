"""A toy file, a small configuration of it, a search space, and `tune` on them; and a callback that waits."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import yaml
from lightning.pytorch import Callback, LightningModule, Trainer
from optuna.trial import FrozenTrial, TrialState

from tests.processes import Worker, wait_for
from tests.toy_windows import toy_table
from tsattn.cli import main
from tsattn.cli.words import session
from tsattn.experiments import Experiment
from tsattn.tuning import HeldData, Search, check_search, comparable, open_storage, read_search, study

SEARCH: dict[str, Any] = {
    "parameters": {
        "model.learning_rate": {"type": "float", "low": 1e-4, "high": 1e-1, "log": True},
        "attention.kind": ["mlr", "swa"],
        "attention.ranks": {
            "type": "categorical",
            "choices": {"two": [2, 2], "one": [4]},
            "when": {"attention.kind": "mlr"},
        },
    }
}


# for tests to which any space will do: soon checked
RATES: dict[str, Any] = {"parameters": {"model.learning_rate": SEARCH["parameters"]["model.learning_rate"]}}


OLD_SIGNS = "UPDATE trial_heartbeats SET heartbeat = '2000-01-01 00:00:00'"
NEW_SIGNS = "FROM trial_heartbeats WHERE heartbeat > '2001-01-01 00:00:00'"


class Gate(Callback):
    """Training begins when a file is gone; who waits for that leaves another file beside it, named after itself."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.path.exists():
            self.path.with_name(f"waits.{os.getpid()}").touch()
        while self.path.exists():
            time.sleep(0.02)


def impatient() -> None:
    """From now on this process takes others for dead after seconds."""
    study.BEAT, study.GRACE = 1, 12


@dataclass(frozen=True)
class Toy:
    """A folder with `config.yaml`, `search.yaml` and `toy.csv`; the study is in `study`."""

    folder: Path

    @property
    def study(self) -> Path:
        return self.folder / "study"

    def words(self, *more: str) -> list[str]:
        files = ["--config", str(self.folder / "config.yaml"), "--search", str(self.folder / "search.yaml")]
        return ["tune", *files, "--study", str(self.study), *more]

    def tune(self, *more: str) -> int:
        return main(self.words(*more))

    def start(self, *more: str) -> Worker:
        return Worker(self.words(*more), self.folder, impatient)

    def waiting(self, number: int, among: Sequence[Worker]) -> list[int]:

        def there() -> list[int]:
            return [int(path.suffix[1:]) for path in self.folder.glob("waits.*")]

        wait_for(lambda: len(there()) >= number or not all(worker.process.is_alive() for worker in among))
        for worker in among:
            assert worker.process.is_alive(), worker.said()
        return there()

    def signs_of_life_are_old(self, living: int = 0, storage: str | None = None) -> None:
        """Make all signs of life old, so that nobody waits until they are; return once the living gave another one."""
        engine = open_storage(storage, self.study).engine
        with engine.begin() as connection:
            connection.exec_driver_sql(OLD_SIGNS)

        def given() -> bool:
            time.sleep(0.1)
            with engine.begin() as connection:
                return connection.exec_driver_sql(f"SELECT count(*) {NEW_SIGNS}").scalar_one() >= living

        wait_for(given)

    def search(self, content: Mapping[str, Any]) -> Search:
        path = self.folder / "search.yaml"
        path.write_text(yaml.safe_dump(dict(content), sort_keys=False))
        return read_search(path)

    def base(self) -> Experiment:
        return comparable(Experiment.read(self.folder / "config.yaml"))

    def check(self, content: Mapping[str, Any]) -> None:
        with session():
            check_search(self.search(content), self.base().to_dict(), HeldData().check)

    def trials(self, storage: str | None = None) -> list[FrozenTrial]:
        return optuna.load_study(study_name="study", storage=open_storage(storage, self.study)).trials

    def summary(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.study / "study.json").read_text())
        return content


def toy(folder: Path, search: Mapping[str, Any] = SEARCH, *, gate: bool = False, **model: Any) -> Toy:
    toy_table().to_csv(folder / "toy.csv")
    trainer: dict[str, Any] = {"max_steps": 2, "val_check_interval": 1, "accelerator": "cpu"}
    if gate:
        (folder / "gate").touch()
        trainer["callbacks"] = [{"class_path": "tests.tuning.cases.Gate", "init_args": {"path": str(folder / "gate")}}]
    sizes = {"context_length": 24, "prediction_length": 6, "batch_size": 64}
    backbone = {"kind": "transformer", "d_model": 8, "num_heads": 2, "num_layers": 1}
    backbone["attention"] = {"kind": "mlr", "ranks": [2, 2]}
    config = {
        "seed_everything": 1,
        "data": {"class_path": "CSVDataModule", "init_args": {"path": str(folder / "toy.csv"), **sizes}},
        "model": {"backbone": backbone, "learning_rate": 0.01, **model},
        "trainer": trainer,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    made = Toy(folder)
    made.search(search)
    return made


def states(trials: Sequence[FrozenTrial]) -> dict[str, int]:
    names = [trial.state.name for trial in trials]
    return {state.name: names.count(state.name) for state in TrialState if state.name in names}
