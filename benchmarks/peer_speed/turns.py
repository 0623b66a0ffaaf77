"""A training that takes turns with another: a callback that waits before each step until it is told to go on.

It runs in either environment, so it imports nothing of either. A line on the standard input lets one step go on; lines
of JSON on what was the standard output say what a step took, in CPU seconds of this process, and what a validation
found.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

__all__ = ["answers", "held_bytes", "most_bytes", "reset_most", "say", "turns"]


def answers() -> TextIO:
    """Where lines go to whoever measures; what libraries print goes to the standard error from here on."""
    made = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return made


def say(lines: TextIO, **facts: Any) -> None:
    lines.write(json.dumps(facts) + "\n")
    lines.flush()


def turns(base: type[Any], lines: TextIO, metric: str) -> Any:
    """The callback.

    Args:
        base: Lightning's class of callbacks, by either of its names.
        lines: where it says what it has found.
        metric: the validation MSE among the metrics of the Trainer.
    """

    class Turns(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self.training = self.validating = self.since = self.begun = 0.0

        def on_train_start(self, *others: Any) -> None:
            self.wait()

        def on_train_batch_end(self, trainer: Any, *others: Any) -> None:
            step = time.process_time() - self.since
            self.training += step
            say(lines, step=trainer.global_step, seconds=step)
            self.wait()

        def on_validation_start(self, *others: Any) -> None:
            self.begun = time.process_time()

        def on_validation_end(self, trainer: Any, *others: Any) -> None:
            spent = time.process_time() - self.begun
            self.validating += spent
            self.since += spent  # no part of the step that follows
            found = trainer.callback_metrics.get(metric)
            if found is not None:  # neuralforecast validates without validation rows, too, and finds nothing
                spent = {"training": self.training, "validating": self.validating}
                say(lines, at=trainer.global_step, mse=float(found), **spent)

        def wait(self) -> None:
            sys.stdin.readline()
            self.since = time.process_time()

    return Turns()


def held_bytes() -> int:
    """The memory of this process that lies in RAM."""
    return _status("VmRSS")


def most_bytes() -> int:
    """The most that it was since `reset_most`."""
    return _status("VmHWM")


def reset_most() -> None:
    """Begin anew to look for the most."""
    Path("/proc/self/clear_refs").write_text("5")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {name}")
