"""How long to train and how often to validate, where the user does not say: one rule for all who train.

What is rare is seen more often: a series of a hundred rows has three batches an epoch and would never leave the warm-up
in a few epochs, and a million windows need not all be seen. Nothing here looks at a clock, so that runs repeat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["TrainingLength", "choose_interval", "choose_length", "choose_warmup", "scored_windows"]

_EPOCHS = 20
_FEWEST_STEPS, _MOST_STEPS = 400, 1000
_WARMUP_SHARE, _MOST_WARMUP = 10, 100
_CHECKS = 20  # validations in a training, at most
_STEPS_BETWEEN = 10  # validations, at least: each costs more than its windows
_PATIENCE = 7  # validations
# A window takes a third of the time to forecast that it takes to train on, as there is no backward pass, and its errors
# of all quantiles take nearly as long: a third as many windows as were trained on stay below a quarter of the time.
_TRAINED_A_SCORED = 3
_ENOUGH = 512  # windows by which one model is told from another: rather fewer validations than fewer windows
_FEWEST_SCORED = 32


@dataclass(frozen=True)
class TrainingLength:
    """How long a training is.

    Attributes:
        steps: optimizer steps, at most.
        patience: validations without a lower error, after which it ends; None trains all steps.
    """

    steps: int
    patience: int | None = None


def choose_length(windows: int, windows_a_step: int) -> TrainingLength:
    """The length of a training that nobody chose: 20 epochs, but 400 steps at least and 1000 at most.

    It ends early after seven validations without a lower error.

    Args:
        windows: training windows.
        windows_a_step: those that a step of the optimizer sees, on all devices together.
    """
    epochs = _EPOCHS * math.ceil(windows / windows_a_step)
    return TrainingLength(min(_MOST_STEPS, max(_FEWEST_STEPS, epochs)), _PATIENCE)


def choose_warmup(steps: float) -> int:
    """The first tenth of all steps, and at most 100, over which the learning rate rises."""
    return int(min(_MOST_WARMUP, steps // _WARMUP_SHARE))


def choose_interval(steps: int, windows_a_step: int, available: int) -> int:
    """Steps from one validation to the next, of which there are twenty at most.

    The last is at the end, where fewer, but half of them at least, divide the steps.

    Args:
        steps: of the whole training.
        windows_a_step: training windows that a step sees.
        available: validation windows.
    """
    affordable = steps * windows_a_step // _TRAINED_A_SCORED // max(1, min(available, _ENOUGH))
    checks = max(1, min(_CHECKS, steps // _STEPS_BETWEEN, affordable))
    even = [count for count in range(checks, checks // 2, -1) if steps % count == 0]
    return steps // (even[0] if even else checks)


def scored_windows(trained: int, available: int) -> int:
    """How many of the validation windows to score after so many training windows: a third as many.

    That takes less than a quarter of the time of training (`benchmarks/validation.py`). It is 32 windows at least, if
    there are as many.
    """
    return min(available, max(_FEWEST_SCORED, trained // _TRAINED_A_SCORED))
