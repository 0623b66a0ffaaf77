"""What the studies of a suite have chosen: found in its working folder, or in what is written beside its records."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tsattn.leaderboard.working_folder import WorkingFolder
from tsattn.saved_folders import write_whole

__all__ = ["SELECTED", "ChosenValues"]

SELECTED = "selected.json"


class ChosenValues:
    """What studies have chosen.

    Args:
        folder: where they are made.
        output: the folder of the table of records, with ``selected.json`` beside it.

    Attributes:
        chosen: by the name of a study, the values that are taken.
        failed: by the name of a study, why there are none.
    """

    def __init__(self, folder: WorkingFolder, output: Path) -> None:
        self._folder = folder
        self._file = output / SELECTED
        self._before: dict[str, dict[str, Any]] = {}
        self.chosen: dict[str, Mapping[str, Any]] = {}
        self.failed: dict[str, str] = {}

    def read(self) -> None:
        """Read what is written beside the records; studies that failed there are made again."""
        before = json.loads(self._file.read_text()) if self._file.exists() else {}
        self._before = {name: one for name, one in before.items() if one["status"] == "done"}

    def known(self, name: str) -> dict[str, Any] | None:
        """What came of a study, here or where the table of records comes from; None if it has not ended."""
        known = self._folder.selected(name) or self._before.get(name)
        return None if known is None else dict(known)

    def ended(self, name: str) -> bool:
        """Whether a study has been taken, with values or as failed."""
        return name in self.chosen or name in self.failed

    def take(self, names: Iterable[str]) -> bool:
        """Take what has ended since, here or in another process, and return whether anything was taken.

        Args:
            names: of studies.
        """
        is_new = False
        for name in names:
            known = None if self.ended(name) else self.known(name)
            if known is None:
                continue
            is_new = True
            if known["status"] == "done":
                self.chosen[name] = known["values"]
            else:
                self.failed[name] = f"no values were chosen: {known['reason']}"
        return is_new

    def write(self, names: Iterable[str]) -> None:
        """Write what is known of studies beside the records, all or nothing."""
        known = {name: self.known(name) for name in sorted(set(names))}
        content = {name: one for name, one in known.items() if one is not None}
        if content:
            text = json.dumps(content, indent=2) + "\n"
            write_whole(self._file, lambda file: file.write(text.encode()))

    def retry(self) -> None:
        """Forget the studies that failed, but for those that another process holds."""
        for name in list(self.failed):
            with self._folder.held(name) as free:
                if free:
                    shutil.rmtree(self._folder.study(name), ignore_errors=True)
                    del self.failed[name]
