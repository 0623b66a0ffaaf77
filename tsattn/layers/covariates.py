"""How covariates, categories and the calendar enter a forecast.

Shape letters: B windows, L context length, T prediction length, N tokens, D their width, P past-only and F known-future
covariates, K calendar features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pandas as pd
import torch
from einops import rearrange
from torch import Tensor, nn
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.errors import UserError, one_of
from tsattn.layers.tokens import Dropout, Patches
from tsattn.ops.data_blocks import CALENDAR_UNITS, DAY, MONDAY
from tsattn.ops.masks import floor_divide
from tsattn.task import Task


class CalendarFeatures:
    """The sine and cosine of the time of day, the day of the week and the time of year.

    A cycle is used only if it has two steps or more; otherwise it would not vary. Hours and minutes use all three
    cycles, days and business days use week and year, and weeks, months and quarters use the year.

    Args:
        frequency: pandas frequency of the time stamps.

    Attributes:
        names: names of the features, such as ``sine of the year``.
        count: K, the number of features: two for each cycle.

    Raises:
        UserError: for years, or for data that count steps.
    """

    def __init__(self, frequency: str) -> None:
        if frequency.isdecimal():
            raise UserError("calendar features need time stamps, but the series count steps: set calendar false")
        stamps = pd.date_range("2001-01-01", periods=3, freq=frequency)
        step = (stamps[1:] - stamps[:-1]).min()
        cycles = [cycle for cycle in _CYCLES if 2 * step <= pd.Timedelta(cycle[0], "D")]
        self.phases = [phase for _, _, phase in cycles]
        self.names = [f"{wave} of the {name}" for _, name, _ in cycles for wave in ("sine", "cosine")]
        self.count = len(self.names)
        if not self.phases:
            raise UserError(
                f"calendar features need two or more steps a year, but the frequency is {frequency!r}: set calendar "
                "false"
            )

    def __call__(self, time: Tensor, dtype: torch.dtype) -> Tensor:
        """The features `(..., K)`, as `dtype`, of int64 time stamps `(...)` in seconds since 1970-01-01."""
        # half precision is too coarse for the hours of a year
        angles = [2 * math.pi * phase(time, torch.promote_types(dtype, torch.float32)) for phase in self.phases]
        return torch.stack([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], -1).to(dtype)


def _time_of_day(time: Tensor, dtype: torch.dtype) -> Tensor:
    return (time % DAY).to(dtype) / DAY


def _day_of_week(time: Tensor, dtype: torch.dtype) -> Tensor:
    """Day of the week in sevenths, 0 on Monday: whole days, so that a linear map can separate weekends."""
    return ((CALENDAR_UNITS["day"](time) + MONDAY) % 7).to(dtype) / 7


def _time_of_year(time: Tensor, dtype: torch.dtype) -> Tensor:
    """Elapsed share of the calendar year; leap years are longer."""
    year = CALENDAR_UNITS["year"](time)
    start = _new_year(year)
    return (time - start).to(dtype) / (_new_year(year + 1) - start).to(dtype)


def _new_year(year: Tensor) -> Tensor:
    """Seconds from 1970-01-01 to the first of January of a year."""
    before = year - 1
    leap_days, until_1970 = floor_divide(before, 4) - floor_divide(before, 100) + floor_divide(before, 400), 477
    return DAY * (365 * (year - 1970) + leap_days - until_1970)


_Phase = Callable[[Tensor, torch.dtype], Tensor]

# days in a cycle, its name, and the phase of a time stamp from 0 to 1
_CYCLES: tuple[tuple[int, str, _Phase], ...] = (
    (1, "day", _time_of_day),
    (7, "week", _day_of_week),
    (365, "year", _time_of_year),
)


class CategoryVectors(nn.Module):
    """Replace each category in the columns of a step by a learned vector; numeric columns are not changed.

    A vector has as many numbers as there are categories, at most 8. Categories that were not seen in training, and
    padded steps, get the mean of all vectors.

    Args:
        categories: the categories of each column, none for a numeric column; empty if all columns are numeric.
    """

    mup_roles: ClassVar[dict[str, str]] = {"vectors": "input"}  # see tsattn.layers.optim
    LONGEST: ClassVar[int] = 8

    def __init__(self, categories: Sequence[Sequence[str]]) -> None:
        super().__init__()
        self.is_category = [bool(known) for known in categories]
        lengths = [min(self.LONGEST, len(known)) for known in categories]
        vectors = zip(categories, lengths, strict=True)
        self.vectors = nn.ModuleList(nn.Embedding(len(known), length) for known, length in vectors if known)

    @classmethod
    def count(cls, categories: Sequence[Sequence[str]], columns: int) -> int:
        """Number of outputs for `columns` columns."""
        return sum(min(cls.LONGEST, len(known)) or 1 for known in categories) if categories else columns

    def forward(self, columns: Tensor) -> Tensor:
        """Map `(B, N, columns)` to `(B, N, outputs)`; categories are numbered from 1, and 0 is an unseen category."""
        if not any(self.is_category):
            return columns
        parts: list[Tensor] = []
        tables = (table for table in self.vectors if isinstance(table, nn.Embedding))
        for column, is_category in zip(columns.unbind(-1), self.is_category, strict=True):
            if is_category:
                weight: Tensor = next(tables).weight
                vectors = torch.cat([weight.mean(0, keepdim=True), weight])
                parts.append(vectors[column.round().long()].to(columns.dtype))
            else:
                parts.append(column[..., None])
        return torch.cat(parts, -1)


class HorizonEffect(nn.Module):
    """The effect of known features of a future step on its forecast: a network with one hidden layer.

    Its inputs are the features of the step and the mean of the encoder's tokens; its output starts at zero. Source: the
    temporal decoder of Das et al., *Long-term Forecasting with TiDE* (TMLR 2023), section 4. The mean of the tokens
    replaces its decoded vector, and adding the effect to the head's output replaces its residual connection.

    Args:
        num_features: number of known features of a step.
        d_model: D, the width of the tokens and of the hidden layer.
        num_outputs: numbers to forecast for each step.
        dropout: probability of dropping a hidden number in training.
    """

    mup_roles: ClassVar[dict[str, str]] = {"step": "input", "output": "output"}  # see tsattn.layers.optim

    def __init__(self, num_features: int, d_model: int, num_outputs: int, dropout: float) -> None:
        super().__init__()
        # a linear map of features and mean together, in two parts
        self.step = nn.Linear(num_features, d_model)
        self.context = nn.Linear(d_model, d_model, bias=False)
        self.hidden = nn.Sequential(nn.GELU(), Dropout(dropout))
        self.output = nn.Linear(d_model, num_outputs)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, features: Tensor, tokens: Tensor) -> Tensor:
        """The effect `(B G, T, num_outputs)`, in the order of the tokens.

        Args:
            features: `(B, T, num_features)`.
            tokens: `(B G, N, D)`: G separate series in each window; series of a window are adjacent.
        """
        context = rearrange(self.context(tokens.mean(1)), "(B G) D -> B G 1 D", B=features.shape[0])
        out: Tensor = self.output(self.hidden(self.step(features)[:, None] + context)).flatten(0, 1)
        return out


class Covariates(nn.Module):
    """Add the covariates, categories and calendar of a task to an encoder; without any it has no parameters.

    Context: `embed` adds to the tokens a linear map of the covariates and calendar features of a step or patch, and a
    learned vector for each category of the series. Past-only covariates act only here.

    Horizon: known-future covariates and calendar features of a step change the forecast of this step. `add_effect` adds
    a `HorizonEffect` to the output of the head, which is on the scale of the window if windows are normalised.

    A covariate with categories enters both as a learned vector, see `CategoryVectors`.

    Args:
        task: names the P and F covariates, and the static columns with their categories.
        calendar: add the K `CalendarFeatures` of the task's frequency to the known-future covariates.
        d_model: D, the width of the tokens.
        num_outputs: numbers that the head gives for each step.
        dropout: see `HorizonEffect`.
        patches: how the context is cut into patches; None if tokens are steps.

    Raises:
        UserError: for calendar features of a frequency that has none.
    """

    mup_roles: ClassVar[dict[str, str]] = {"value": "input", "static": "input"}  # see tsattn.layers.optim

    def __init__(
        self,
        task: Task,
        calendar: bool,
        d_model: int,
        num_outputs: int,
        dropout: float,
        patches: Patches | None = None,
    ) -> None:
        super().__init__()
        self.task = task
        self.patches = patches
        self.calendar = CalendarFeatures(task.frequency) if calendar else None
        P, F = len(task.past_covariates), len(task.future_covariates)
        past, future = task.covariate_categories[:P], task.covariate_categories[P:]
        num_future = CategoryVectors.count(future, F) + (0 if self.calendar is None else self.calendar.count)
        num_context = CategoryVectors.count(past, P) + num_future
        self.past_categories, self.future_categories = CategoryVectors(past), CategoryVectors(future)
        self.value = self._embedding(num_context, d_model) if num_context else None
        tables = [nn.Embedding(len(categories), d_model) for categories in task.categories]
        for table in tables:
            nn.init.normal_(table.weight, std=0.02)  # like learned positions
        self.static = nn.ModuleList(tables)
        self.effect = HorizonEffect(num_future, d_model, num_outputs, dropout) if num_future else None

    def embed(self, batch: Batch) -> Tensor | None:
        """The term to add to the tokens of each window, `(B, N, D)`, or `(B, 1, D)` if equal for all; None if empty.

        Raises:
            UserError: if the batch lacks columns of the task, or time stamps for calendar features.
        """
        term: Tensor | None = None
        if self.value is not None:
            numbers = self.context(batch)
            if self.patches is not None:
                cut = self.patches(rearrange(numbers, "B L n -> (B n) L"))
                numbers = rearrange(cut, "(B n) N p -> B N (n p)", B=batch.past.shape[0])
            term = self.value(numbers)
        return self.add_categories(batch, term)

    def context(self, batch: Batch) -> Tensor:
        """Past-only covariates, known-future covariates and calendar features of each past step, `(B, L, P + F + K)`.

        A covariate with categories counts as the numbers of its vector.
        """
        task, L = self.task, self.task.context_length
        numbers = self._known(batch)[:, :L]
        if task.past_covariates:
            past = _given(batch.past_covariates, "past_covariates", task.past_covariates, L)
            numbers = torch.cat([self.past_categories(past), numbers], -1)
        return numbers

    def add_categories(self, batch: Batch, term: Tensor | None = None) -> Tensor | None:
        """Add the vectors of each window's categories, `(B, 1, D)`, to a term `(B, N, D)`; None if both are missing.

        A category that was not seen in training gets the mean of the vectors, as in `CategoryVectors`.
        """
        if self.task.static:
            static = _given(batch.static, "static", self.task.static)
            for table, numbers in zip(self.static, static.unbind(-1), strict=True):
                weight: Any = table.weight
                vector = torch.where((numbers < 0)[:, None], weight.mean(0), table(numbers.clamp(min=0)))[:, None]
                term = vector if term is None else term + vector
        return term

    def add_effect(self, batch: Batch, tokens: Tensor, raw: Tensor) -> Tensor:
        """Add the effect of known features of the horizon to the output of the head.

        Args:
            batch: B windows.
            tokens: `(B G, N, D)`, the encoder's output, see `HorizonEffect`.
            raw: `(B G, T, num_outputs)`, the head's output.

        Returns:
            A tensor shaped like `raw`; `raw` itself without known features.

        Raises:
            UserError: see `embed`.
        """
        if self.effect is None:
            return raw
        out: Tensor = raw + self.effect(self._known(batch)[:, self.task.context_length :], tokens)
        return out

    def _embedding(self, num_context: int, d_model: int) -> nn.Linear:
        """The linear map of the context's numbers; it has no bias, as the token embedding has one."""
        width = num_context if self.patches is None else num_context * self.patches.patch_len
        return nn.Linear(width, d_model, bias=False)

    def _known(self, batch: Batch) -> Tensor:
        """Known-future covariates and calendar features of each step of context and horizon, `(B, L + T, F + K)`."""
        names, length = self.task.future_covariates, self.task.context_length + self.task.prediction_length
        parts = [batch.past.new_empty(batch.past.shape[0], length, 0)]
        if names:
            given = _given(batch.future_covariates, "future_covariates", names, length)
            parts.append(self.future_categories(given))
        if self.calendar is not None:
            if batch.time is None or batch.time.shape[1] != length:
                raise UserError(
                    f"calendar features need time stamps in a batch, for all {length} steps of context and horizon"
                )
            parts.append(self.calendar(batch.time, batch.past.dtype))
        return torch.cat(parts, -1)


class CovariateTokens(Covariates):
    """`Covariates` that appends a token for each covariate and calendar feature to the tokens of the channels.

    A token is a linear map of the L steps, shared by all covariates, plus a learned vector for each covariate. Source:
    Liu et al., *iTransformer* (ICLR 2024), who embed the calendar by the map of the channels and without vectors.
    Categories of the series and the horizon act as in `Covariates`.

    Args:
        task: names the P and F covariates, and the static columns with their categories.
        calendar: add the K `CalendarFeatures` of the task's frequency to the known-future covariates.
        d_model: D, the width of the tokens.
        num_outputs: numbers that the head gives for each step.
        dropout: probability of dropping a number of a token in training; also used in `HorizonEffect`.

    Raises:
        UserError: for calendar features of a frequency that has none.
    """

    mup_roles: ClassVar[dict[str, str]] = {**Covariates.mup_roles, "which": "input"}

    def __init__(self, task: Task, calendar: bool, d_model: int, num_outputs: int, dropout: float) -> None:
        super().__init__(task, calendar, d_model, num_outputs, dropout)
        count = self.count(task, calendar)
        self.which = nn.Parameter(torch.randn(count, d_model).mul_(0.02)) if count else None
        self.dropout = Dropout(dropout)

    @staticmethod
    def count(task: Task, calendar: bool) -> int:
        """Number of appended tokens: P + F + K; a covariate with categories has a token for each vector component."""
        features = CalendarFeatures(task.frequency).count if calendar else 0
        columns = len(task.past_covariates) + len(task.future_covariates)
        return CategoryVectors.count(task.covariate_categories, columns) + features

    @property
    def names(self) -> list[str]:
        """Names of the appended tokens, in order; all tokens of a covariate with categories have its name."""
        covariates = self.task.past_covariates + self.task.future_covariates
        categories = self.task.covariate_categories or [()] * len(covariates)
        counts = [CategoryVectors.count([known], 1) for known in categories]
        names = [name for name, count in zip(covariates, counts, strict=True) for _ in range(count)]
        return names + ([] if self.calendar is None else self.calendar.names)

    def append(self, tokens: Tensor, batch: Batch) -> Tensor:
        """Append the tokens of the covariates to the tokens `(B, N, D)`.

        Raises:
            UserError: if the batch lacks columns of the task, or time stamps for calendar features.
        """
        if self.value is None or self.which is None:
            return tokens
        further = self.dropout(self.value(self.context(batch).transpose(1, 2)) + self.which)
        return torch.cat([tokens, further], 1)

    @override
    def _embedding(self, num_context: int, d_model: int) -> nn.Linear:
        return nn.Linear(self.task.context_length, d_model, bias=False)


def _given(part: Tensor | None, field: str, names: Sequence[str], *length: int) -> Tensor:
    """A field of a batch; it must have a column for each name and, if `length` is given, that many steps."""
    shape = (*length, len(names))
    if part is None or part.shape[1:] != shape:
        given = "none" if part is None else f"({', '.join(map(str, ('B', *part.shape[1:])))})"
        raise UserError(
            f"the model needs {field} {one_of(names)} of shape ({', '.join(map(str, ('B', *shape)))}) in a batch, "
            f"which has {given}"
        )
    return part
