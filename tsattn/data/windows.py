"""Windows cut from resident tensors, a whole batch at a time.

Shape letters: B windows, L context length, T prediction length, S series, C channels, P past-only covariates, F
known-future covariates, K static columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from tsattn.batch import Batch, LastSeason, WindowUnits
from tsattn.data.row_ranges import last_known_rows
from tsattn.errors import UserError
from tsattn.scaler import SeriesTransform, Units

__all__ = ["Series", "WindowDataset"]

_ON_HOST = ("transform", "original", "_last_known")  # fields that are no tensors


@dataclass(frozen=True)
class Series:
    """Series as tensors, laid end to end.

    Attributes:
        values: `(rows, C)` float32, scaled, missing values imputed.
        observed: `(rows, C)` bool, or None if nothing is missing.
        time: `(rows,)` int64, seconds since 1970-01-01.
        starts: `(S + 1,)` int64 first row of each series, and `rows`.
        mean: `(S, C)` float64 of each series; ``original = scaled * scale + mean``.
        scale: `(S, C)` float64.
        past_covariates: `(rows, P)` float32, scaled, missing values imputed; None without.
        future_covariates: `(rows, F)` float32, scaled, missing values imputed; None without.
        past_covariates_observed: `(rows, P)` bool, or None if nothing is missing.
        future_covariates_observed: `(rows, F)` bool, or None if nothing is missing.
        static: `(S, K)` int64 numbers of categories; None without.
        transform: of the targets, whose transformed values `values`, `mean` and `scale` are then of; None without.
        weights: `(rows, C)` float32 how much each target counts in a training; None: all alike.
        past_covariate_scale: `(P,)` float64, the original units of one on the scale of `past_covariates`; None without.
        future_covariate_scale: `(F,)` float64, of `future_covariates`.
        original: `(rows, C)` the values as they were given, NaN where missing; on the host.
    """

    values: Tensor
    observed: Tensor | None
    time: Tensor
    starts: Tensor
    mean: Tensor
    scale: Tensor
    past_covariates: Tensor | None = None
    future_covariates: Tensor | None = None
    past_covariates_observed: Tensor | None = None
    future_covariates_observed: Tensor | None = None
    static: Tensor | None = None
    transform: SeriesTransform | None = None
    weights: Tensor | None = None
    past_covariate_scale: Tensor | None = None
    future_covariate_scale: Tensor | None = None
    original: NDArray[np.float64] | None = None
    _last_known: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        """S, the number of series."""
        return len(self.starts) - 1

    @property
    def device(self) -> torch.device:
        """Where windows are cut."""
        return self.values.device

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(part.nbytes for part in self._tensors().values() if part is not None)

    @property
    def is_weighted(self) -> bool:
        """Whether targets count differently in a training."""
        return self.weights is not None

    def to(self, device: torch.device | str) -> Series:
        """The same series in the memory of a device; windows are cut there, and the host waits for none of them."""
        there: dict[str, Any] = {
            name: None if part is None else part.to(device) for name, part in self._tensors().items()
        }
        return replace(self, **there)

    @property
    def units(self) -> Units:
        """What takes values and forecasts of these series back to original units."""
        return Units(self.mean, self.scale, self.transform)

    def rows_of(self, number: int) -> tuple[Tensor, Tensor | None]:
        """The values of a series, `(rows, C)`, and which of them are observed; None if nothing is missing."""
        rows = slice(int(self.starts[number]), int(self.starts[number + 1]))
        return self.values[rows], None if self.observed is None else self.observed[rows]

    def windows(
        self,
        numbers: Tensor,
        origins: Tensor,
        context_length: int,
        prediction_length: int,
        *,
        padded: bool = True,
        seasons: Sequence[int] | None = None,
    ) -> Batch:
        """The windows whose horizons start at given rows; without targets if `prediction_length` is 0.

        Where a series begins later than the context of a window, what is lacking at the front is not observed: its
        values and covariates are 0, the mean, and their masks say so; its time stamps are those of the first row.

        Args:
            numbers: `(B,)` the series of each window, on the device of the series.
            origins: `(B,)` rows from the start of that series.
            context_length: L.
            prediction_length: T.
            padded: False where it is known that no context lacks rows. It is not found out from the windows, for which
                the host would have to wait for the device; and so a data set gives a mask in each batch or in none.
            seasons: lengths, at most L, of seasons whose last known values, however old, the units of the windows are
                to hold, beside the targets as they were given; of series on the host. None: neither.
        """
        first = self.starts[numbers] + origins - context_length
        lacking = context_length - origins if padded else None
        return self._cut(numbers, first, lacking, context_length, prediction_length, seasons)

    def whole_windows(
        self, first: Tensor, context_length: int, prediction_length: int, seasons: Sequence[int] | None = None
    ) -> Batch:
        """The same for a single series whose windows have whole contexts, which begin at the rows `first (B,)`.

        Each small operation takes its share of a batch; these are as few as can be.
        """
        return self._cut(torch.zeros_like(first), first, None, context_length, prediction_length, seasons)

    def _cut(
        self, numbers: Tensor, first: Tensor, lacking: Tensor | None, L: int, T: int, seasons: Sequence[int] | None
    ) -> Batch:
        """Windows from the rows `first`; `lacking` rows `(B,)` at their fronts, where above 0, are no series'."""
        length = L + T
        # rows before those of a series are another's; they are overwritten below
        outside = lacking is not None and (first.device.type != "cpu" or bool(first.min() < 0))
        rows = (first[:, None] + torch.arange(length, device=first.device)).clamp_(min=0) if outside else None

        def cut(part: Tensor, length: int = length) -> Tensor:
            if rows is not None:
                return part[rows[:, :length]]
            # one copy of long runs out of a view of all windows: on a CPU many times faster than indexing row by row
            runs = part.unfold(0, length, 1)
            return (runs if part.dim() == 1 else runs.transpose(1, 2)).index_select(0, first)

        values, time = cut(self.values), cut(self.time)
        past = None if self.past_covariates is None else cut(self.past_covariates, L)
        known = None if self.future_covariates is None else cut(self.future_covariates)

        def mask(of: Tensor | None, part: Tensor | None, length: int = length) -> Tensor | None:
            if of is not None:
                return cut(of, length)
            return None if part is None or lacking is None else torch.ones_like(part, dtype=torch.bool)

        observed = mask(self.observed, values)
        past_mask = mask(self.past_covariates_observed, past, L)
        known_mask = mask(self.future_covariates_observed, known)
        if lacking is not None:
            padding = torch.arange(length, device=first.device) < lacking[:, None]
            time = torch.where(padding, self.time[self.starts[numbers]][:, None], time)
            for part in (values, observed, past, past_mask, known, known_mask):
                if part is not None:
                    part.masked_fill_(padding[:, : part.shape[1], None], 0)
        return Batch(
            past=values[:, :L],
            target=values[:, L:] if T else None,
            past_observed=None if observed is None else observed[:, :L],
            target_observed=None if observed is None or not T else observed[:, L:],
            target_weight=None if self.weights is None or not T else cut(self.weights)[:, L:],
            time=time,
            past_covariates=past,
            future_covariates=known,
            past_covariates_observed=past_mask,
            future_covariates_observed=known_mask,
            static=None if self.static is None else self.static[numbers],
            series_id=numbers,
            units=self._window_units(
                numbers, first, values[:, :L], None if observed is None else observed[:, :L], T, seasons
            ),
        )

    def _last_season(self, end: Tensor, numbers: Tensor, length: int) -> LastSeason:
        """The last known values of each place in a season before the rows `end (B,)`."""
        begin = self.starts[numbers]
        rows = end[:, None] - length + torch.arange(length)
        lacking = (rows < begin[:, None])[..., None]
        scaled, given = self._values_at(self._sources(torch.maximum(rows, begin[:, None]), begin, length), numbers)
        scaled, given = scaled.masked_fill(lacking, 0.0), given.masked_fill(lacking, torch.nan)
        if (unknown := given.isnan()).any():  # the mean, which is 0 on the scale
            given = torch.where(unknown, self.units.restore(scaled, numbers), given)
        return LastSeason(scaled, given)

    def _given(self, first: Tensor, length: int) -> Tensor:
        """The values as they were given of the rows from `first (B,)` on, `(B, length, C)`."""
        assert self.original is not None
        (rows, C), (step, across) = self.original.shape, self.original.strides
        whole = self.original if self.original.flags.c_contiguous else self.original.T
        shape, strides = (rows - length + 1, length, C), (step, step, across)
        if whole.flags.c_contiguous:  # a view of a buffer costs a tenth of the other
            runs = np.ndarray(shape, self.original.dtype, whole, strides=strides)
        else:
            runs = np.lib.stride_tricks.as_strided(self.original, shape, strides, writeable=False)
        return torch.from_numpy(np.asarray(runs[first.numpy()], dtype=np.float64))

    def _sources(self, rows: Tensor, begin: Tensor, season: int) -> Tensor:
        """`(B, s, C)` the rows that hold the last known values of the places of rows `(B, s)`."""
        if self.observed is None:
            return rows[..., None].expand(-1, -1, self.values.shape[1])
        if season not in self._last_known:
            known = last_known_rows(self.observed.numpy(), self.starts.numpy(), season)
            self._last_known[season] = torch.from_numpy(known)
        return self._last_known[season][rows]

    def _values_at(self, rows: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """The values of rows `(B, s, C)` of the series `numbers (B,)`, scaled and as they were given."""
        assert self.original is not None
        channels = torch.arange(rows.shape[-1])
        given = np.asarray(self.original[rows.numpy(), channels.numpy()], dtype=np.float64)
        return self.values[rows, channels], torch.from_numpy(given)

    def _window_units(
        self,
        numbers: Tensor,
        first: Tensor,
        past: Tensor,
        observed: Tensor | None,
        T: int,
        seasons: Sequence[int] | None,
    ) -> WindowUnits:
        """The units of windows of these series `(B,)`, which begin at the rows `first`, with what is asked for."""
        target: Tensor | None = None
        known: dict[int, LastSeason] = {}
        if seasons is not None and (seasons or T):
            L, longest = past.shape[1], max(seasons, default=0)
            end = first + L
            if observed is None or bool(observed[:, L - longest :].all()):
                given = self._given(end - longest, longest + T)
                target = given[:, longest:] if T else None
                for length in seasons:
                    known[length] = LastSeason(past[:, -length:], given[:, longest - length : longest])
            else:
                target = self._given(end, T) if T else None
                known = {length: self._last_season(end, numbers, length) for length in seasons}
        covariates = (self.past_covariate_scale, self.future_covariate_scale)
        past_scale, future_scale = (None if part is None else part.expand(len(numbers), -1) for part in covariates)
        mean, scale = (self._of_series(part, numbers) for part in (self.mean, self.scale))
        return WindowUnits(mean, scale, past_scale, future_scale, target, known)

    def _of_series(self, units: Tensor, numbers: Tensor) -> Tensor:
        """Rows of `units (S, C)`; those of a single series are a view, which costs nothing."""
        return units.expand(len(numbers), -1) if len(units) == 1 else units[numbers]

    def _tensors(self) -> dict[str, Tensor | None]:
        return {field.name: getattr(self, field.name) for field in fields(Series) if field.name not in _ON_HOST}


class WindowDataset(Dataset[Batch]):
    """The windows of one part of the data; asked for many indices at once, it answers with one batch.

    Args:
        series: what to cut from.
        origins: for each series the rows, from its start, at which horizons start; one range for one series.
        context_length: L.
        prediction_length: T.
        seasons: see `Series.windows`; None in a training.

    Attributes:
        series: what windows are cut from; batches lie on its device.

    Raises:
        UserError: for another number of ranges than series.
    """

    def __init__(
        self,
        series: Series,
        origins: range | Sequence[range],
        context_length: int,
        prediction_length: int,
        seasons: Sequence[int] | None = None,
    ) -> None:
        ranges = [origins] if isinstance(origins, range) else origins
        if len(ranges) != len(series):
            raise UserError(f"{len(ranges)} ranges of origins were given for {len(series)} series; give one for each")
        self.series = series
        self.context_length = context_length
        self.prediction_length = prediction_length
        self._seasons = seasons
        # kept as ranges: a row number for each of a billion windows would not fit into memory
        self._device = series.device
        self._first = torch.tensor([rows.start for rows in ranges], device=self._device)
        self._step = torch.tensor([rows.step for rows in ranges], device=self._device)
        self._end = torch.tensor([len(rows) for rows in ranges]).cumsum(0).to(self._device)
        self._length = sum(map(len, ranges))
        self._padded = any(rows.start < context_length for rows in ranges if rows)
        rows = ranges[0]
        self._is_plain = len(ranges) == 1 and rows.step == 1 and not self._padded
        self._offset = rows.start - context_length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int] | NDArray[np.int64] | Tensor) -> Batch:
        """The batch of the windows with these numbers (the DataLoader's own hook for whole batches).

        Args:
            indices: the numbers; as a tensor, on the device of the series.

        Raises:
            IndexError: for a number in a list that is not in `[0, len(self))`; an array or tensor, as our own samplers
                give, is trusted.
        """
        if not isinstance(indices, np.ndarray | Tensor) and (min(indices) < 0 or max(indices) >= len(self)):
            raise IndexError(f"windows are numbered from 0 to {len(self) - 1}")
        windows = indices if isinstance(indices, Tensor) else torch.as_tensor(indices, device=self._device)
        if self._is_plain:
            first, sizes = windows + self._offset, (self.context_length, self.prediction_length)
            return self.series.whole_windows(first, *sizes, self._seasons)
        if len(self.series) == 1:
            numbers, origins = torch.zeros_like(windows), self._first + windows * self._step
        else:
            numbers = torch.searchsorted(self._end, windows, right=True)
            place = windows - torch.where(numbers > 0, self._end[numbers - 1], 0)
            origins = self._first[numbers] + place * self._step[numbers]
        sizes = self.context_length, self.prediction_length
        return self.series.windows(numbers, origins, *sizes, padded=self._padded, seasons=self._seasons)
