"""How a network is optimized: AdamW, the rates of its parts, and their schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from tsattn.errors import UserError, one_of
from tsattn.optim import BETAS, SCHEDULES, adamw, mup_groups, rate_schedule
from tsattn.training.length import choose_warmup

__all__ = ["Optimization"]


@dataclass(frozen=True)
class Optimization:
    """The choices of a training by AdamW; the arguments are those of `ForecastingModule`.

    Raises:
        UserError: for one out of its range.
    """

    learning_rate: float
    weight_decay: float
    warmup_steps: int | None
    schedule: str = SCHEDULES[0]
    betas: Sequence[float] = BETAS
    mup: bool = False

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise UserError(f"learning_rate must be above 0, not {self.learning_rate}")
        for name, value in (("weight_decay", self.weight_decay), ("warmup_steps", self.warmup_steps)):
            if value is not None and not value >= 0:
                raise UserError(f"{name} must be at least 0, not {value}")
        if self.schedule not in SCHEDULES:
            raise UserError(f"schedule must be one of {one_of(SCHEDULES)}, not {self.schedule!r}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"betas must be two numbers of at least 0 and below 1, not {list(self.betas)}")

    def begin(
        self, network: nn.Module, steps: float, *, fused: bool
    ) -> tuple[torch.optim.AdamW, torch.optim.lr_scheduler.LRScheduler]:
        """The optimizer of a network, and the schedule of its rates.

        Args:
            network: whose parameters are trained.
            steps: of the training; infinite where its end is not known.
            fused: whether all parameters are updated by one kernel.
        """
        first, second = self.betas
        if self.mup:
            groups = mup_groups(network, self.learning_rate, self.weight_decay)
            optimizer = torch.optim.AdamW(groups, lr=self.learning_rate, betas=(first, second), fused=fused)
        else:
            optimizer = adamw([network], self.learning_rate, self.weight_decay, betas=(first, second), fused=fused)
        warmup = choose_warmup(steps) if self.warmup_steps is None else self.warmup_steps
        return optimizer, rate_schedule(optimizer, warmup, steps, self.schedule)
