"""Tasks of any size and random windows for them, for the contracts of backbones and predictors."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tsattn.batch import Batch
from tsattn.task import Task

LEVELS = (0.1, 0.5, 0.9)

# context, horizon, channels, windows
ODD_SIZES = [(24, 8, 3, 5), (17, 5, 1, 1), (33, 13, 2, 3), (7, 1, 1, 2)]

COVARIATES = ("past_covariates", "future_covariates", "static", "time")


def toy_table() -> pd.DataFrame:
    """600 hours of two channels: a daily wave with noise, and a slow drift."""
    hours, noise = np.arange(600), 0.1 * np.random.default_rng(0).standard_normal((2, 600))
    columns = {"wave": 10 + 3 * np.sin(2 * np.pi * hours / 24) + noise[0], "drift": 0.01 * hours + noise[1]}
    return pd.DataFrame(columns, index=pd.date_range("2020-01-01", periods=600, freq="h", name="date"))


def toy_task(L: int = 24, T: int = 8, C: int = 3, *, covariates: bool = False) -> Task:
    """A task of hourly series with seasons of 6 steps; with two covariates of each sort and two static columns."""
    task = Task("toy", L, T, tuple("abcdefgh"[:C]), "h", 6)
    if not covariates:
        return task
    return replace(
        task,
        past_covariates=("rain", "wind"),
        future_covariates=("price", "holiday"),
        static=("shop", "town"),
        categories=(("x", "y", "z"), ("u", "v")),
    )


def toy_windows(
    task: Task, count: int = 4, *, extra: int = 0, gaps: bool = False, dtype: torch.dtype = torch.float64, seed: int = 0
) -> Batch:
    """Random windows of a task, with all that it names, time stamps, and targets.

    Args:
        task: the sizes.
        count: windows.
        extra: steps of context beyond those of the task.
        gaps: whether a fifth of the values is missing, as are the first steps of the first window, and all of the last.
        dtype: of the numbers.
        seed: decides them.
    """
    generator = torch.Generator().manual_seed(seed)
    L, T, C = task.context_length + extra, task.prediction_length, task.num_channels

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    past, target = 2 + numbers(count, L, C), 2 + numbers(count, T, C)
    start = 3600 * torch.randint(400_000, (count, 1), generator=generator)
    windows = Batch(past, target, time=start + 3600 * torch.arange(L + T))
    if gaps:
        seen = torch.rand(count, L, C, generator=generator) > 0.2
        seen[0, : L // 2] = False
        seen[-1] = False
        windows = replace(
            windows, past_observed=seen, target_observed=torch.rand(count, T, C, generator=generator) > 0.1
        )
    if task.past_covariates:
        windows = replace(windows, past_covariates=numbers(count, L, len(task.past_covariates)))
    if task.future_covariates:
        windows = replace(windows, future_covariates=numbers(count, L + T, len(task.future_covariates)))
    if task.static:
        parts = [torch.randint(len(names), (count,), generator=generator) for names in task.categories]
        windows = replace(windows, static=torch.stack(parts, -1))
    return windows


def one_window(windows: Batch, number: int) -> Batch:
    return rows(windows, number, number + 1)


def rows(windows: Batch, first: int, end: int) -> Batch:
    return windows._map(lambda tensor: tensor[first:end])


def tensors_of(batch: Batch) -> dict[str, Tensor]:
    """What a batch has, by name, its units as ``mean`` and ``scale``."""
    parts = {**({} if batch.units is None else vars(batch.units)), **vars(batch)}
    return {name: part for name, part in parts.items() if isinstance(part, Tensor)}


def changed_covariates(windows: Batch) -> Iterator[tuple[str, Batch]]:
    """The windows with each field in turn changed that is no value of a series; its name with them."""
    for name in COVARIATES:
        part = getattr(windows, name)
        if part is not None:
            other = 1 - part.clamp(max=1) if name == "static" else part + (7 * 3600 if name == "time" else 1)
            yield name, replace(windows, **{name: other})
