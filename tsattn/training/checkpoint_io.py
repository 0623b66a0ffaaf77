"""Checkpoints that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO

from tsattn.errors import UserError

__all__ = ["AtomicCheckpointIO"]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place and moves it there when it is whole.

    Lightning's own writes into the folder of temporary files, from which a move to another disk is a copy: a full disk
    would damage the checkpoint that it replaces.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write, all or nothing.

        Raises:
            UserError: if it cannot be written; what was there before is intact.
        """
        path = Path(path)
        partial = path.with_name(f"{path.name}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except (OSError, RuntimeError) as error:  # torch's writer turns an OSError into a RuntimeError
            partial.unlink(missing_ok=True)
            before = "; the checkpoint before it is intact" if path.exists() else ""
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise UserError(f"the checkpoint {path} cannot be written: {reason}{before}") from error
