"""The progress of a training: a bar of each epoch with its loss or of all its steps, or lines where there is no bar."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar, TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm
from typing_extensions import override

from tsattn.errors import duration

__all__ = ["LossBar", "StepLines", "StepsBar"]


class LossBar(TQDMProgressBar):
    """Lightning's bar with the training loss of the step at which it is drawn: there the host waits for the device.

    What a module logs for the bar Lightning reads in every step, drawn or not.

    Args:
        every: steps between drawings.
    """

    def __init__(self, every: int = 10) -> None:
        super().__init__(refresh_rate=every, leave=True)

    @override
    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Return the values after the bar."""
        shown: dict[str, Any] = super().get_metrics(trainer, pl_module)
        shown.pop("v_num", None)  # the end of a logger's version, which is no number here
        loss = trainer.callback_metrics.get("train_loss")
        return shown if loss is None else {**shown, "train_loss": loss.item()}


class StepsBar(ProgressBar):
    """One bar over all optimizer steps, beside it the validation error that chooses the weights, once it is known.

    Args:
        metric: the name of that error.
    """

    def __init__(self, metric: str) -> None:
        super().__init__()
        self.metric = metric
        self._bar: Tqdm | None = None
        self._is_enabled = True

    @override
    def enable(self) -> None:
        """Show the bar, as by default."""
        self._is_enabled = True

    @override
    def disable(self) -> None:
        """Show nothing."""
        self._is_enabled = False

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the bar."""
        self._bar = Tqdm(total=trainer.max_steps, desc="training", unit="step", disable=not self._is_enabled)

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the step."""
        assert self._bar is not None
        self._bar.update(trainer.global_step - self._bar.n)

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the error."""
        error = trainer.callback_metrics.get(self.metric)
        if error is not None and self._bar is not None:
            self._bar.set_postfix_str(f"{self.metric}={error.item():.4g}")

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the bar as it is."""
        assert self._bar is not None
        self._bar.close()

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()


class StepLines(ProgressBar):
    """A line every few seconds with the step, the errors and the time left, for output that is no terminal.

    Args:
        metric: the name of the validation error.
        say: takes each line.
        every: seconds between two lines.
    """

    def __init__(self, metric: str, say: Callable[[str], None], every: float = 10) -> None:
        super().__init__()
        self.metric = metric
        self.say = say
        self.every = every
        self._start = self._last = 0.0
        self._first = 0

    @override
    def disable(self) -> None:
        """Say nothing."""
        self.say = lambda line: None

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._start = self._last = time.monotonic()
        self._first = trainer.global_step

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Say a line, if the last is old enough."""
        now, step, steps = time.monotonic(), trainer.global_step, trainer.max_steps
        if now - self._last < self.every or step in (self._first, steps):
            return
        self._last = now
        line = f"step {step:,} of {steps:,}" if steps > 0 else f"step {step:,}"
        for name, what in (("train_loss", "loss"), (self.metric, "validation error")):
            value = trainer.callback_metrics.get(name)
            line += "" if value is None else f"; {what} {value.item():.4g}"
        left = (steps - step) * (now - self._start) / (step - self._first)
        self.say(f"{line}; {duration(left)} left" if steps > 0 else line)
