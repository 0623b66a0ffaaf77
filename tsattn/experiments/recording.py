"""The folder of a run from its beginning to its end: made late, held by one process, removed where nothing came of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_only

from tsattn.errors import UserError
from tsattn.experiments.experiment import Experiment
from tsattn.experiments.run_folder import RunFolder, versions

__all__ = ["Recording", "is_first_process"]


def is_first_process() -> bool:
    """Whether this is the one process, of several that train together, that writes and prints."""
    return bool(rank_zero_only.rank == 0)  # type: ignore[attr-defined]


class Recording:
    """What a run writes into its folder while it goes on.

    Args:
        folder: of the run.
        experiment: what is run.
        command: that asked for it.
        goes_on: whether the folder is that of a run that goes on.

    Attributes:
        folder: as `open` has made it.
    """

    def __init__(self, folder: RunFolder, experiment: Experiment, command: list[str], *, goes_on: bool = False) -> None:
        self.folder = folder
        self.experiment = experiment
        self.command = command
        self.goes_on = goes_on
        self._is_open = False

    def open(self, device: str) -> bool:
        """Make the folder, if it is not there yet; whether this call did.

        Args:
            device: what is computed on.

        Raises:
            UserError: if it cannot be made or written.
        """
        if self._is_open:
            return False
        self._is_open = True
        if not is_first_process():
            return True
        if self.goes_on:
            self.folder.begin()
            return True
        self.folder = self.folder.create()
        with self.folder.removed_if_it_fails():
            self.folder.config.write_text(self.experiment.to_yaml())
            self.folder.write_json(self.folder.versions, versions(self.command, device))
        return True

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Remove a new folder again where an error leaves neither a checkpoint nor a curve that explains it."""
        try:
            yield
        except Exception as error:
            if self._is_open and not self.goes_on and is_first_process():
                explains = isinstance(error, UserError) and self.folder.curve.exists()
                if not (self.folder.has_checkpoint or explains):
                    self.folder.remove()
            raise
        finally:
            self.folder.release()

    def write(self, metrics: dict[str, Any]) -> None:
        """Write the results, last of all but the checksums: a folder with them is finished."""
        self.folder.write_json(self.folder.metrics, metrics)
        self.folder.seal()

    def part(self, name: str) -> RunFolder:
        """The folder for a part of an ensemble; the whole folder for no name."""
        return RunFolder(self.folder.path / "members" / name) if name else self.folder


