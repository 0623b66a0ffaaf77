"""The folder of a run from its beginning to its end: made late, and removed where nothing came of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tsattn.backbones.task_network import load_checkpoint
from tsattn.errors import UserError
from tsattn.experiments.experiment import Experiment
from tsattn.experiments.run_folder import RunFolder, versions
from tsattn.ops.native.record import kernels_in_use
from tsattn.saved_folders import write_text
from tsattn.training.execution import is_first_process

__all__ = ["Recording"]


class Recording:
    """What a run writes into its folder while it goes on.

    Args:
        folder: of the run.
        experiment: what is run.
        command: that asked for it.
        goes_on: whether the folder is that of a run that goes on.
        refits: whether the run ends with a fit to all rows, which is noted for those who go on with it.
        tests: whether it ends with a test, which is noted, too, where it does not.
        starts: whether it starts from the weights of another, which is noted.

    Attributes:
        folder: as `open` has made it.
    """

    def __init__(
        self,
        folder: RunFolder,
        experiment: Experiment,
        command: list[str],
        *,
        goes_on: bool = False,
        refits: bool = False,
        tests: bool = True,
        starts: bool = False,
    ) -> None:
        self.folder = folder
        self.experiment = experiment
        self.command = command
        self.goes_on = goes_on
        self.refits = refits
        self.tests = tests
        self.starts = starts
        self._is_open = False
        self._fingerprint: str | None = None

    def check_data(self, fingerprint: str) -> None:
        """Refuse to go on with other data than the run was begun with; note those of a new one.

        Args:
            fingerprint: of the data, see `tsattn.experiments.fingerprint`.

        Raises:
            UserError: if they have changed since.
        """
        before = self.folder.noted("fingerprint") if self.goes_on else None
        if before is not None and before != fingerprint:
            raise UserError(
                f"the data are not those that the run {self.folder.path} was begun with: give it the same ones again, "
                "or start a new run"
            )
        self._fingerprint = fingerprint

    def open(self, device: str, steps: int | None = None, member: str = "") -> bool:
        """Make the folder, if it is not there yet, or go on in it; whether this call did.

        Args:
            device: what is computed on.
            steps: of the whole training; None where they are not known, or there are none.
            member: the name of the part of an ensemble that these are of; empty for the whole.

        Raises:
            UserError: if it cannot be made or written, or the run that goes on is beyond its end already.
        """
        if self._is_open:
            return False
        if not is_first_process():
            self._is_open = True
            return False
        if self.goes_on:
            self._go_on(steps, member)
            self._is_open = True
            return True
        self.folder = self.folder.create()
        self._is_open = True  # from here on the folder is that of this process
        notes = {
            "fingerprint": self._fingerprint,
            **({"kernels": kernels_in_use()} if steps is not None and device == "cpu" else {}),
            **({} if self.tests else {"test": False}),
            **({"refit": True} if self.refits else {}),
            **({"started": True} if self.starts else {}),
        }
        self.folder.write_json(self.folder.versions, {**versions(self.command, device), **notes})
        write_text(self.folder.config, self.experiment.to_yaml())  # last: with it the run can be resumed
        return True

    def step(self, member: str = "") -> int:
        """The optimizer step that the training of a member, or of the whole, goes on after; 0 for a new one."""
        last = self.part(member).last
        return int(load_checkpoint(last)["global_step"]) if self.goes_on and last.exists() else 0

    def _go_on(self, steps: int | None, member: str) -> None:
        """Make a run that has come to its end, or has another end now, one whose results are to come."""
        run, before = self.folder, Experiment.read(self.folder.config).to_dict()
        is_longer = before["trainer"] != self.experiment.to_dict()["trainer"]
        if is_longer or run.metrics.exists():
            step = self.step(member)
            if is_longer and steps is not None and steps <= step:
                raise UserError(
                    f"the run {run.path} is trained for {step:,} steps already, and {steps:,} are asked for in "
                    "all: --trainer.max_steps must be above that"
                )
            run.extend(self.experiment.to_yaml(), step, self.command)
        run.begin()
        if self.refits:
            run.note("refit", True)

    @contextlib.contextmanager
    def held(self, can_resume: bool) -> Iterator[None]:
        """Remove a new folder again where an error leaves neither a checkpoint nor a curve that explains it.

        Args:
            can_resume: whether the data are in files, so that the command line finds them again.

        Raises:
            UserError: if the folder was removed meanwhile.
            KeyboardInterrupt: if it is interrupted once there is a folder, saying how to resume.
        """
        try:
            yield
        except KeyboardInterrupt as stop:
            if not self._is_open:
                raise
            if not self.folder.config.exists():
                self.folder.remove()
                raise
            raise KeyboardInterrupt(self._how_to_resume(can_resume)) from stop
        except Exception as error:
            if self._is_open and is_first_process() and not self.folder.is_held:
                raise self._removed() from error
            if self._is_open and not self.goes_on and is_first_process():
                explains = isinstance(error, UserError) and self.folder.has_curve
                if not (self.folder.has_checkpoint or explains):
                    self.folder.remove()
            raise
        finally:
            self.folder.release()

    def _how_to_resume(self, can_resume: bool) -> str:
        folder = self.folder
        if folder.is_finished:
            return f"the run is finished: its results are in {folder.metrics}"
        if not can_resume:
            return f"its series were given in Python: fit them again; the best weights so far are in {folder.best}"
        if folder.noted("started"):
            return f"a run with --start cannot be resumed: run it again with another --run, or remove {folder.path}"
        return f"go on with `tsattn fit --resume {folder.path}`"

    def write(self, metrics: dict[str, Any]) -> None:
        """Write the results, last of all: a folder with them is finished.

        Raises:
            UserError: if the folder was removed meanwhile.
        """
        if not self.folder.is_held:
            raise self._removed()
        self.folder.seal()
        self.folder.write_json(self.folder.metrics, metrics)

    def _removed(self) -> UserError:
        return UserError(f"the run folder {self.folder.path} was removed while the run went on; start the run again")

    def part(self, name: str) -> RunFolder:
        """The folder for a part of an ensemble; the whole folder for no name."""
        return self.folder.of_member(name) if name else self.folder
