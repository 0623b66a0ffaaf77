"""Training a run longer than it was meant to be."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tsattn.cli.run_words import LIMITS, read_config
from tsattn.errors import UserError
from tsattn.experiments.run_folder import RunFolder

__all__ = ["check_longer", "has_another_end", "is_longer"]


def is_longer(trainer: Any, run: RunFolder) -> bool:
    """Whether a run that goes on has another end than before, or had come to it.

    Args:
        trainer: the configuration of the Trainer.
        run: its folder.
    """
    return run.metrics.exists() or has_another_end(trainer, run)


def has_another_end(trainer: Any, run: RunFolder) -> bool:
    """Whether a run that goes on has another end than before; the arguments are those of `is_longer`."""
    before = read_config(run.config).get("trainer") or {}
    return any(_plain(getattr(trainer, name)) != before.get(name) for name in LIMITS)


def check_longer(steps: int, step: int, run: RunFolder) -> None:
    """Refuse an end that a run is beyond already.

    Args:
        steps: of the whole training.
        step: the one that it would go on behind.
        run: its folder.
    """
    if steps <= step:
        raise UserError(
            f"the run {run.path} is trained for {step:,} steps already, and {steps:,} are asked for in all: "
            "--trainer.max_steps must be above that"
        )


def _plain(limit: Any) -> Any:
    """As it stands in the file."""
    return str(limit) if isinstance(limit, timedelta) else limit
