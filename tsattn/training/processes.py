"""Which of several processes that train together this is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from lightning.pytorch.utilities import rank_zero_only

__all__ = ["first_process_only", "is_first_process", "leave_others"]

F = TypeVar("F", bound=Callable[..., object])


def is_first_process() -> bool:
    """Whether this is the one process that writes and prints."""
    return bool(rank_zero_only.rank == 0)  # type: ignore[attr-defined]


def first_process_only(function: F) -> F:
    """A function that does nothing in the others."""
    return rank_zero_only(function)  # type: ignore[return-value]


def leave_others() -> None:
    """Leave the group of processes: what follows in one of them would wait for the others."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
