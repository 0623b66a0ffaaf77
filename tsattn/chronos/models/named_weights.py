"""Pretrained weights by what somebody calls them: a shipped name, a file, a folder, or a name on the hub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tsattn.checks import folder_path
from tsattn.chronos.bolt.bolt_file import named_file, shipped_names
from tsattn.errors import UserError

__all__ = ["RECORD", "NamedWeights", "bolt_file"]

RECORD = "adapted.json"  # what a folder of an adapted model holds, see `tsattn.chronos.saving`

_ON_HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*")


@dataclass(frozen=True)
class NamedWeights:
    """Where weights lie. A shipped name comes first, then what is on the disk, then the hub.

    Attributes:
        name: what they were called.
        file: that of a `ChronosBolt` of this package, see `tsattn.chronos.bolt.bolt_file`.
        folder: that of a Chronos model, or of an adapted one.
        revision: the commit, tag or branch of a model on the hub, which has neither file nor folder here.
    """

    name: str
    file: Path | None = None
    folder: Path | None = None
    revision: str | None = None

    @classmethod
    def of(cls, weights: Any, revision: str | None = None) -> NamedWeights:
        """What a name or path means; that of a path object is never a shipped or a hub's one.

        Raises:
            UserError: for what means nothing, or a revision of what has none.
        """
        if not isinstance(weights, str | PathLike):
            raise UserError(f"a Chronos model is opened by a name or folder, not by {weights!r}")
        name, file, folder = str(weights), named_file(weights), None
        if file is None:
            path = folder_path(weights)
            folder = path if name and path.is_dir() else None
        if file is None and folder is None:
            if not isinstance(weights, str) or not _ON_HUB.fullmatch(name) or name.endswith(".safetensors"):
                shipped = "".join(f"{one}, " for one in shipped_names())
                raise UserError(
                    f"weights must be {shipped}the path of a .safetensors file of a pretrained model, the folder of a "
                    "Chronos model or of an adapted one, or the name of one on the hub such as "
                    f"amazon/chronos-bolt-small, not {name!r}"
                )
        elif revision is not None:
            raise UserError(f"{name} is no model on the hub, which alone has revisions: leave revision out")
        return cls(name, file, folder, revision)

    @property
    def is_adapted(self) -> bool:
        """Whether `AdaptedChronos.save` wrote the folder."""
        return self.folder is not None and (self.folder / RECORD).exists()


def bolt_file(weights: str, revision: str | None = None) -> Path | None:
    """The file of a `ChronosBolt` of this package that is meant; None where a model of chronos-forecasting is.

    Raises:
        UserError: see `NamedWeights.of`.
    """
    return NamedWeights.of(weights, revision).file
