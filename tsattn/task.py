"""Task and form of a forecast: plain data, saved with the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tsattn.descriptions import PlainData
from tsattn.errors import UserError, is_number, one_of, shown, whole_number

MEDIAN = 0.5
MOST_STEPS = 10**6  # of a season
UNKNOWN_ZONE = "unknown"
DISTRIBUTIONS = ("normal", "student_t", "negative_binomial")
"""Distributions that a network may forecast."""


@dataclass(frozen=True)
class Task(PlainData):
    """Forecasting task: sizes, columns and frequency that a network is built for.

    Raises:
        UserError: for sizes below 1, or categories of other columns.
    """

    data: str  # name of the data set, e.g. ``ETTh1``
    context_length: int  # L, the past steps that the model sees
    prediction_length: int  # T, the steps that it forecasts
    channels: tuple[str, ...]  # names of the C series
    frequency: str  # pandas frequency of the time stamps, e.g. ``h``; a whole number where time counts steps
    season_length: int  # steps in a season, e.g. 24 for hourly data
    past_covariates: tuple[str, ...] = ()  # names of the P covariates known for the past only
    future_covariates: tuple[str, ...] = ()  # names of the F covariates known for the future too
    static: tuple[str, ...] = ()  # names of the K static columns of categories
    categories: tuple[tuple[str, ...], ...] = ()  # of each static column; `Batch.static` numbers them by their place
    # of each covariate, past ones first, which a batch numbers from 1; none for numbers, empty if all are numbers
    covariate_categories: tuple[tuple[str, ...], ...] = ()
    time_zone: str | None = UNKNOWN_ZONE  # its name; None without one, and for steps; ``unknown`` if it has no name

    def __post_init__(self) -> None:
        for name in ("context_length", "prediction_length", "season_length"):
            whole_number(name, getattr(self, name))
        covariates = len(self.past_covariates) + len(self.future_covariates)
        if len(self.categories) != len(self.static) or len(self.covariate_categories) not in (0, covariates):
            raise UserError("the categories of a task must be those of its columns")

    def agrees_with(self, other: Task) -> bool:
        """Return whether two tasks are equal, as far as both time zones are known."""
        zones = self.time_zone, other.time_zone
        return self == (replace(other, time_zone=self.time_zone) if UNKNOWN_ZONE in zones else other)

    @property
    def categories_by_covariate(self) -> dict[str, tuple[str, ...]]:
        """Categories by the names of covariates that have some."""
        names = (*self.past_covariates, *self.future_covariates)  # more than categories if all are numbers
        return {name: some for name, some in zip(names, self.covariate_categories, strict=False) if some}

    @property
    def counts_steps(self) -> bool:
        """Whether time counts steps: the frequency is then a whole number."""
        return self.frequency.isdecimal()

    @property
    def num_channels(self) -> int:
        """C, the number of channels."""
        return len(self.channels)


@dataclass(frozen=True)
class Output(PlainData):
    """Form of a forecast: points or quantiles, directly or from a distribution.

    Raises:
        UserError: for other quantiles, or an unknown distribution.
    """

    quantiles: tuple[float, ...] = ()  # Q rising levels with the median; none for a point forecast
    distribution: str | None = None  # one of `DISTRIBUTIONS`, which gives quantiles or the mean; None: directly

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantiles", check_quantiles(self.quantiles))
        if self.distribution is not None and self.distribution not in DISTRIBUTIONS:
            raise UserError(f"unknown distribution {shown(self.distribution)}; valid: {one_of(DISTRIBUTIONS)}")

    @property
    def median(self) -> int | None:
        """Place of the median among the quantiles; None without quantiles."""
        return self.quantiles.index(MEDIAN) if self.quantiles else None


def rounded_level(level: float) -> float:
    """Round away errors of arithmetic: `3 * 0.1` is 0.3."""
    return round(float(level), 9)  # more digits than anybody asks for, fewer than a float64 holds


def check_quantiles(levels: Any) -> tuple[float, ...]:
    """Return quantile levels, rounded, that rise and include the median; none for None."""
    given = () if levels is None else levels.tolist() if hasattr(levels, "tolist") else levels
    some: list[Any] = [*given] if isinstance(given, Iterable) and not isinstance(given, str | bytes) else [None]
    if not all(map(is_number, some)):
        raise UserError(f"quantiles must be a list of numbers, such as [0.1, 0.5, 0.9], not {shown(repr(levels))}")
    checked = tuple(map(rounded_level, some))
    written = ", ".join(map(str, map(float, some)))
    if not all(0 < level < 1 for level in checked):
        raise UserError(f"quantiles must lie between 0 and 1, ends excluded, not {written}")
    if not all(low < high for low, high in pairwise(checked)):
        raise UserError(f"quantiles must increase, without repeats, not {written}")
    if checked and MEDIAN not in checked:
        raise UserError(f"quantiles must include {MEDIAN}, the point forecast, not only {written}")
    return checked


def calibration_share(value: Any) -> float | None:
    """Return the share of validation rows that only calibrate; None for none, 1 if all rows also choose weights."""
    if isinstance(value, bool):
        return 1.0 if value else None
    if not is_number(value) or not 0 < value < 1:
        what = "true, false, or the share of validation rows used only to calibrate, between 0 and 1"
        raise UserError(f"calibrate must be {what}, not {shown(repr(value))}")
    return float(value)
