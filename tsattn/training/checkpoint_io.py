"""Checkpoints that are whole or not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from typing_extensions import override

from tsattn.errors import UserError
from tsattn.saved_folders import atomic_write

__all__ = ["AtomicCheckpointIO", "load_checkpoint"]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place and moves it there when it is whole.

    Lightning's own writes into the folder of temporary files, from which a move to another disk is a copy: a full disk
    would damage the checkpoint that it replaces.
    """

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write, all or nothing.

        Raises:
            UserError: if it cannot be written; what was there before is intact.
        """
        path = Path(path)
        try:
            with atomic_write(path) as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError) as error:  # torch's writer turns an OSError into a RuntimeError
            before = "; the checkpoint before it is intact" if path.exists() else ""
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise UserError(f"the checkpoint {path} cannot be written: {reason}{before}") from error


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU; nothing in it is run.

    Raises:
        UserError: if it is not there or cannot be read.
    """
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UserError(f"the checkpoint {path} is not there") from error
    except Exception as error:  # torch.load raises many kinds for a file that is no checkpoint
        raise UserError(f"{path} is not a readable checkpoint ({type(error).__name__})") from error
    return content
