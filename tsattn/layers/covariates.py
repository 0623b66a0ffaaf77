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

    A cycle is used only where it holds two steps or more, as it would not vary otherwise: all three for steps of hours
    and minutes, week and year for days and business days, the year for weeks, months and quarters.

    Args:
        frequency: pandas frequency of the time stamps.

    Attributes:
        names: of the features, such as ``sine of the year``.
        count: K, the number of features: two for each cycle.

    Raises:
        UserError: for a frequency of years, or of steps.
    """

    def __init__(self, frequency: str) -> None:
        if frequency.isdecimal():
            raise UserError("calendar features need time stamps, and the series count steps; leave calendar false")
        stamps = pd.date_range("2001-01-01", periods=3, freq=frequency)
        step = (stamps[1:] - stamps[:-1]).min()
        cycles = [cycle for cycle in _CYCLES if 2 * step <= pd.Timedelta(cycle[0], "D")]
        self.phases = [phase for _, _, phase in cycles]
        self.names = [f"{wave} of the {name}" for _, name, _ in cycles for wave in ("sine", "cosine")]
        self.count = len(self.names)
        if not self.phases:
            raise UserError(
                f"calendar features need two or more steps a year, and the frequency is {frequency!r}; leave calendar "
                "false"
            )

    def __call__(self, time: Tensor, dtype: torch.dtype) -> Tensor:
        """The features `(..., K)`, as `dtype`, of int64 time stamps `(...)` in seconds since 1970-01-01."""
        # half precision would not tell the hours of a year apart
        angles = [2 * math.pi * phase(time, torch.promote_types(dtype, torch.float32)) for phase in self.phases]
        return torch.stack([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], -1).to(dtype)


def _time_of_day(time: Tensor, dtype: torch.dtype) -> Tensor:
    return (time % DAY).to(dtype) / DAY


def _day_of_week(time: Tensor, dtype: torch.dtype) -> Tensor:
    """Sevenths, 0 all Monday: whole days, so that a linear map tells weekends from working days."""
    return ((CALENDAR_UNITS["day"](time) + MONDAY) % 7).to(dtype) / 7


def _time_of_year(time: Tensor, dtype: torch.dtype) -> Tensor:
    """The part of the calendar year that is over; leap years are longer."""
    year = CALENDAR_UNITS["year"](time)
    start = _new_year(year)
    return (time - start).to(dtype) / (_new_year(year + 1) - start).to(dtype)


def _new_year(year: Tensor) -> Tensor:
    """Seconds from 1970-01-01 to the first of January of a year."""
    before = year - 1
    leap_days, until_1970 = floor_divide(before, 4) - floor_divide(before, 100) + floor_divide(before, 400), 477
    return DAY * (365 * (year - 1970) + leap_days - until_1970)


_Phase = Callable[[Tensor, torch.dtype], Tensor]

# days in a cycle, its name, and how far a time stamp is in it, from 0 to 1
_CYCLES: tuple[tuple[int, str, _Phase], ...] = (
    (1, "day", _time_of_day),
    (7, "week", _day_of_week),
    (365, "year", _time_of_year),
)


class CategoryVectors(nn.Module):
    """Columns of a step, each category replaced by a learned vector; columns of numbers stay as they are.

    A vector has as many numbers as there are categories, and at most 8. A category that training has not seen has the
    mean of all vectors, which every other category trains; so have padded steps.

    Args:
        categories: of each column, none for one of numbers; empty where all are numbers.
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
        """Numbers that stand for so many columns."""
        return sum(min(cls.LONGEST, len(known)) or 1 for known in categories) if categories else columns

    def forward(self, columns: Tensor) -> Tensor:
        """`(B, N, numbers)` of `(B, N, columns)`, where a category is a number from 1 on, and 0 is one not seen."""
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

    It sees the features of the step and the mean of the encoder's tokens, and starts at zero. Source: the temporal
    decoder of Das et al., *Long-term Forecasting with TiDE* (TMLR 2023), section 4, whose decoded vector of the step
    and residual connection are replaced by the mean of the tokens and the sum with the head's output.

    Args:
        num_features: numbers that are known of a step.
        d_model: D, the width of the tokens, and of the hidden layer.
        num_outputs: numbers to forecast for each step.
        dropout: probability of dropping a hidden number in training.
    """

    mup_roles: ClassVar[dict[str, str]] = {"step": "input", "output": "output"}  # see tsattn.layers.optim

    def __init__(self, num_features: int, d_model: int, num_outputs: int, dropout: float) -> None:
        super().__init__()
        # one linear map of the features and the mean side by side, in two parts
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
            tokens: `(B G, N, D)`: G series of their own in each window, those of a window in a row.
        """
        context = rearrange(self.context(tokens.mean(1)), "(B G) D -> B G 1 D", B=features.shape[0])
        out: Tensor = self.output(self.hidden(self.step(features)[:, None] + context)).flatten(0, 1)
        return out


class Covariates(nn.Module):
    """The covariates, categories and calendar of a task, read by an encoder; without any it has no parameters.

    Context: a linear map of the covariates and calendar features of a step, or of all steps of a patch, and a learned
    vector for each category of the series are added to the tokens (`embed`). Past-only covariates act here alone.

    Horizon: known-future covariates and calendar features act on the forecast of their own step by a `HorizonEffect`
    on the output of the head (`add_effect`), and so on the scale of the window where windows are normalised.

    A covariate of categories enters both as a learned vector, see `CategoryVectors`.

    Args:
        task: names the P and F covariates, and the static columns with their categories.
        calendar: add the K `CalendarFeatures` of the task's frequency to the known-future covariates.
        d_model: D, the width of the tokens.
        num_outputs: numbers that the head gives for each step.
        dropout: see `HorizonEffect`.
        patches: how the context is cut where tokens are patches; None where they are steps.

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
            nn.init.normal_(table.weight, std=0.02)  # as learned positions
        self.static = nn.ModuleList(tables)
        self.effect = HorizonEffect(num_future, d_model, num_outputs, dropout) if num_future else None

    def embed(self, batch: Batch) -> Tensor | None:
        """The term added to the tokens of each window, `(B, N, D)`, or `(B, 1, D)` for all of them; None without any.

        Raises:
            UserError: for a batch without what the task names, or without time stamps for calendar features.
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
        """Covariates and calendar features of each step of the context, `(B, L, P + F + K)`, past-only ones first.

        A covariate of categories counts as the numbers of its vector.
        """
        task, L = self.task, self.task.context_length
        numbers = self._known(batch)[:, :L]
        if task.past_covariates:
            past = _given(batch.past_covariates, "past_covariates", task.past_covariates, L)
            numbers = torch.cat([self.past_categories(past), numbers], -1)
        return numbers

    def add_categories(self, batch: Batch, term: Tensor | None = None) -> Tensor | None:
        """Add the vectors of each window's categories, `(B, 1, D)`, to a term `(B, N, D)`; None if there is neither.

        The mean of the vectors stands for a category that training has not seen, as in `CategoryVectors`.
        """
        if self.task.static:
            static = _given(batch.static, "static", self.task.static)
            for table, numbers in zip(self.static, static.unbind(-1), strict=True):
                weight: Any = table.weight
                vector = torch.where((numbers < 0)[:, None], weight.mean(0), table(numbers.clamp(min=0)))[:, None]
                term = vector if term is None else term + vector
        return term

    def add_effect(self, batch: Batch, tokens: Tensor, raw: Tensor) -> Tensor:
        """Add the effect of what is known of the horizon to the output of the head.

        Args:
            batch: B windows.
            tokens: `(B G, N, D)`, the encoder's, see `HorizonEffect`.
            raw: `(B G, T, num_outputs)`, the head's output.

        Returns:
            Of the shape of `raw`; `raw` itself where nothing is known.

        Raises:
            UserError: see `embed`.
        """
        if self.effect is None:
            return raw
        out: Tensor = raw + self.effect(self._known(batch)[:, self.task.context_length :], tokens)
        return out

    def _embedding(self, num_context: int, d_model: int) -> nn.Linear:
        """The map of the numbers of the context; the bias is that of the token embedding."""
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
    """`Covariates` whose context is one token for each covariate and calendar feature, after those of the channels.

    The token is a linear map of its L steps, one for all covariates, plus a learned vector for each. Source: Liu et
    al., *iTransformer* (ICLR 2024), who embed the calendar by the map of the channels and without these vectors.
    Categories of the series and the horizon act as in `Covariates`.

    Args:
        task: names the P and F covariates, and the static columns with their categories.
        calendar: add the K `CalendarFeatures` of the task's frequency to the known-future covariates.
        d_model: D, the width of the tokens.
        num_outputs: numbers that the head gives for each step.
        dropout: probability of dropping a number of a token in training; see `HorizonEffect` too.

    Raises:
        UserError: for calendar features of a frequency that has none.
    """

    mup_roles: ClassVar[dict[str, str]] = {**Covariates.mup_roles, "which": "input"}

    def __init__(self, task: Task, calendar: bool, d_model: int, num_outputs: int, dropout: float) -> None:
        super().__init__(task, calendar, d_model, num_outputs, dropout)
        count = self.count(task, calendar)
        self.which = nn.Parameter(0.02 * torch.randn(count, d_model)) if count else None
        self.dropout = Dropout(dropout)

    @staticmethod
    def count(task: Task, calendar: bool) -> int:
        """Number of added tokens: P + F + K; a covariate of categories has one for each number of its vector."""
        features = CalendarFeatures(task.frequency).count if calendar else 0
        columns = len(task.past_covariates) + len(task.future_covariates)
        return CategoryVectors.count(task.covariate_categories, columns) + features

    @property
    def names(self) -> list[str]:
        """The names of these tokens, in their order."""
        features = [] if self.calendar is None else self.calendar.names
        return [*self.task.past_covariates, *self.task.future_covariates, *features]

    def append(self, tokens: Tensor, batch: Batch) -> Tensor:
        """Append the tokens of the covariates to the tokens `(B, N, D)`.

        Raises:
            UserError: for a batch without what the task names, or without time stamps for calendar features.
        """
        if self.value is None or self.which is None:
            return tokens
        further = self.dropout(self.value(self.context(batch).transpose(1, 2)) + self.which)
        return torch.cat([tokens, further], 1)

    @override
    def _embedding(self, num_context: int, d_model: int) -> nn.Linear:
        return nn.Linear(self.task.context_length, d_model, bias=False)


def _given(part: Tensor | None, field: str, names: Sequence[str], *length: int) -> Tensor:
    """A field of a batch, which must have one column for each of the names, over so many steps where it has any."""
    shape = (*length, len(names))
    if part is None or part.shape[1:] != shape:
        given = "none" if part is None else f"({', '.join(map(str, ('B', *part.shape[1:])))})"
        raise UserError(
            f"the model needs {field} {one_of(names)} of shape ({', '.join(map(str, ('B', *shape)))}) in a batch, "
            f"which has {given}"
        )
    return part
