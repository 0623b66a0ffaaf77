"""Cut windows from tensors in memory, a whole batch at a time, also beyond the end of the data; order batches.

Shape letters: B windows, L context length, T prediction length, S series, C channels, P past-only covariates, F
known-future covariates, K static columns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from tsattn.batch import Batch, LastSeason, WindowUnits
from tsattn.data.frequency import seconds
from tsattn.data.panel import Panel
from tsattn.data.row_ranges import FileView, LastKnown, is_mapped, made_rows
from tsattn.errors import UserError, number_of, one_of, shown
from tsattn.scaler import Scaler, SeriesTransform, Units
from tsattn.task import Task

logger = logging.getLogger("tsattn")

EMPTY_IT = "empty that cell if it means missing"
_FARTHEST = 1e5  # standard deviations; real measurements do not change so much
_FARTHEST_OF_CONSTANT = 1e15  # larger, as training rows may be constant only because, say, sales start later


@dataclass(frozen=True)
class Series:
    """Series as scaled tensors, concatenated; for a large panel in files, the tensors are views of files.

    Missing values are imputed; a mask of observed values is None if nothing is missing. ``original = scaled * scale +
    mean``; with a `transform`, ``original`` is the transformed target.
    """

    values: Tensor  # (rows, C) float32
    observed: Tensor | None  # (rows, C) bool
    time: Tensor  # (rows,) int64, seconds since 1970-01-01
    starts: Tensor  # (S + 1,) int64, the first row of each series, and `rows`
    mean: Tensor  # (S, C) float64
    scale: Tensor  # (S, C) float64
    past_covariates: Tensor | None = None  # (rows, P) float32; None if the data have none, as below
    future_covariates: Tensor | None = None  # (rows, F) float32
    past_covariates_observed: Tensor | None = None  # (rows, P) bool
    future_covariates_observed: Tensor | None = None  # (rows, F) bool
    static: Tensor | None = None  # (S, K) int64, numbers of categories
    transform: SeriesTransform | None = None
    weights: Tensor | None = None  # (rows, C) float32, how much each target counts in a training
    past_covariate_scale: Tensor | None = None  # (P,) float64, original units of a scaled unit
    future_covariate_scale: Tensor | None = None  # (F,) float64
    original: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))  # (rows, C) on the host, unscaled
    _last_known: dict[int, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _files: dict[str, NDArray[Any]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of_arrays(
        cls, arrays: Mapping[str, NDArray[Any] | None], transform: SeriesTransform | None, original: NDArray[np.float64]
    ) -> Series:
        """Make series from arrays by name of attribute; the tensors share the memory or files of the arrays."""
        there = {name: array for name, array in arrays.items() if array is not None}
        tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in there.items()}
        series = cls(**{"observed": None, **tensors}, transform=transform, original=original)
        series._files.update({name: array for name, array in there.items() if is_mapped(array)})
        return series

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(part.nbytes for part in self._tensors().values())

    def to(self, device: torch.device | str) -> Series:
        """Copy the series to a device, which can then cut windows without delaying the host."""
        there: Any = {name: part.to(device) for name, part in self._tensors().items()}
        return replace(self, **there)

    @property
    def units(self) -> Units:
        """The conversion of values and forecasts of these series to original units."""
        return Units(self.mean, self.scale, self.transform)

    def rows_of(self, number: int) -> tuple[Tensor, Tensor | None]:
        """The values of a series, `(rows, C)`, and their mask of observed values; None if nothing is missing."""
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
        """Cut the windows of series `numbers (B,)` whose horizons start at their rows `origins (B,)`, on one device.

        Missing rows at the front of a context are not observed: value 0 (the mean), time of the first row. `padded`
        False promises that no row is missing, as checking it would make the host wait for the device. A
        `prediction_length` of 0 gives no targets. For series on the host, the units hold the unscaled targets and the
        last known values of `seasons`, of at most L steps.
        """
        L, T = context_length, prediction_length
        # even small operations take a noticeable part of the time of a batch
        first = (origins if len(self) == 1 else self.starts[numbers] + origins) - L
        lacking, length = L - origins if padded else None, L + T
        # rows before the start of a series belong to another series; they are overwritten below
        outside = lacking is not None and (first.device.type != "cpu" or bool(first.min() < 0))
        rows = (first[:, None] + torch.arange(length, device=first.device)).clamp_(min=0) if outside else None

        def cut(part: Tensor, length: int = length) -> Tensor:
            if rows is not None:
                return part[rows[:, :length]]
            # copy long runs from a view of all windows: on a CPU much faster than indexing row by row
            runs = part.unfold(0, length, 1)
            return (runs if part.dim() == 1 else runs.transpose(1, 2)).index_select(0, first)

        time, padding = cut(self.time), None
        if lacking is not None:
            padding = torch.arange(length, device=first.device) < lacking[:, None]
            time = torch.where(padding, self.time[self.starts[numbers]][:, None], time)

        def cut_both(part: Any, mask: Tensor | None, length: int = length) -> tuple[Any, Tensor | None]:
            if part is None:
                return None, None
            values, observed = cut(part, length), None if mask is None else cut(mask, length)
            if padding is not None:
                observed = torch.ones_like(values, dtype=torch.bool) if observed is None else observed
                for one in (values, observed):
                    one.masked_fill_(padding[:, :length, None], 0)
            return values, observed

        values, observed = cut_both(self.values, self.observed)
        past, past_mask = cut_both(self.past_covariates, self.past_covariates_observed, L)
        known, known_mask = cut_both(self.future_covariates, self.future_covariates_observed)
        past_observed = None if observed is None else observed[:, :L]
        return Batch(
            past=values[:, :L],
            target=values[:, L:] if T else None,
            past_observed=past_observed,
            target_observed=None if observed is None or not T else observed[:, L:],
            target_weight=None if self.weights is None or not T else cut(self.weights)[:, L:],
            time=time,
            past_covariates=past,
            future_covariates=known,
            past_covariates_observed=past_mask,
            future_covariates_observed=known_mask,
            static=None if self.static is None else self.static[numbers],
            series_id=numbers,
            units=self._window_units(numbers, first, values[:, :L], past_observed, T, seasons),
        )

    def _window_units(
        self, numbers: Tensor, first: Tensor, past: Tensor, seen: Tensor | None, T: int, seasons: Sequence[int] | None
    ) -> WindowUnits:
        target: Tensor | None = None
        known: dict[int, LastSeason] = {}
        if seasons is not None and (seasons or T):
            longest, end = max(seasons, default=0), first + past.shape[1]
            if seen is None or bool(seen[:, past.shape[1] - longest :].all()):
                given = self._given(end - longest, longest + T)
                target = given[:, longest:] if T else None
                for length in seasons:
                    known[length] = LastSeason(past[:, -length:], given[:, longest - length : longest])
            else:
                target = self._given(end, T) if T else None
                known = {length: self._last_season(end, numbers, length) for length in seasons}
        B, covariates = len(numbers), (self.past_covariate_scale, self.future_covariate_scale)
        # for a single series a view suffices, without a copy
        mean, scale = (part.expand(B, -1) if len(part) == 1 else part[numbers] for part in (self.mean, self.scale))
        of_past, of_future = (None if part is None else part.expand(B, -1) for part in covariates)
        return WindowUnits(mean, scale, of_past, of_future, target, known)

    def _given(self, first: Tensor, length: int) -> Tensor:
        (rows, C), (step, across) = self.original.shape, self.original.strides
        shape, strides = (rows - length + 1, length, C), (step, step, across)
        runs = np.lib.stride_tricks.as_strided(self.original, shape, strides, writeable=False)
        return torch.from_numpy(np.asarray(runs[first.numpy()], dtype=np.float64))

    def _last_season(self, end: Tensor, numbers: Tensor, season: int) -> LastSeason:
        begin = self.starts[numbers][:, None]
        rows = end[:, None] - season + torch.arange(season)
        sources, channels = torch.maximum(rows, begin).numpy()[..., None], np.arange(self.values.shape[1])
        known = (rows >= begin).numpy()[..., None]
        if self.observed is not None:
            observed = self.observed.numpy()
            if season not in self._last_known:
                find = LastKnown(self.starts.numpy(), season)
                self._last_known[season] = made_rows(self.original, lambda at: find(observed[at], at), dtype=np.int64)
            sources = self._last_known[season][sources[..., 0]]
            known = known & observed[sources, channels]
        last = np.where(known, sources, -1).max(axis=1, keepdims=True)  # the last known row, as each place has its last
        sources, unknown = np.where(known, sources, last), torch.from_numpy(last < 0)
        scaled = torch.from_numpy(self.values.numpy()[sources, channels]).masked_fill(unknown, 0.0)
        given = torch.from_numpy(np.asarray(self.original[sources, channels], dtype=np.float64))
        if unknown.any():  # use the mean, which is 0 in scaled units
            given = torch.where(unknown, self.units.restore(scaled, numbers), given)
        return LastSeason(scaled, given)

    def _tensors(self) -> dict[str, Tensor]:
        return {name: part for name, part in vars(self).items() if isinstance(part, Tensor)}

    def __getstate__(self) -> dict[str, Any]:
        views = {name: FileView.of(array) for name, array in self._files.items()}
        original = FileView.of(self.original) or self.original
        return {**vars(self), **views, "original": original, "_files": {}, "_last_known": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = {name: part.open("c") for name, part in state.items() if isinstance(part, FileView)}
        original = arrays.pop("original", state["original"])
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        vars(self).update(state, **tensors, original=original, _files=arrays)


class WindowDataset(Dataset[Batch]):
    """The windows of a part of the data; a list of indices gives a single batch.

    `origins` gives, for each series, the rows from its start at which horizons start. For `seasons` see
    `Series.windows`. Batches are on the device of the series.
    """

    def __init__(
        self,
        series: Series,
        origins: range | Sequence[range],
        context_length: int,
        prediction_length: int,
        seasons: Sequence[int] | None = None,
    ) -> None:
        self.origins = ranges = [origins] if isinstance(origins, range) else origins
        if len(ranges) != len(series):
            raise UserError(f"{len(ranges)} ranges of origins were given for {len(series)} series; give one for each")
        self.series, self._seasons = series, seasons
        self.context_length, self.prediction_length = context_length, prediction_length
        # keep ranges, as row numbers of a billion windows would not fit into memory
        self._device = series.values.device
        self._first = torch.tensor([rows.start for rows in ranges], device=self._device)
        self._step = torch.tensor([rows.step for rows in ranges], device=self._device)
        self._end = torch.tensor([len(rows) for rows in ranges]).cumsum(0).to(self._device)
        self._length = sum(map(len, ranges))
        self._padded = any(rows.start < context_length for rows in ranges if rows)
        self._start = ranges[0].start if len(ranges) == 1 and ranges[0].step == 1 else None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int] | NDArray[np.int64] | Tensor) -> Batch:
        """Cut the windows with these numbers as a single batch (the DataLoader's hook for whole batches).

        IndexError for a wrong number in a list; arrays and tensors, which our samplers give, are not checked.
        """
        if not isinstance(indices, np.ndarray | Tensor) and (min(indices) < 0 or max(indices) >= len(self)):
            raise IndexError(f"windows are numbered from 0 to {len(self) - 1}")
        windows = indices if isinstance(indices, Tensor) else torch.as_tensor(indices, device=self._device)
        if self._start is not None:
            numbers, origins = torch.zeros_like(windows), windows + self._start
        else:
            numbers = torch.searchsorted(self._end, windows, right=True)
            place = windows - torch.where(numbers > 0, self._end[numbers - 1], 0)
            origins = self._first[numbers] + place * self._step[numbers]
        sizes = self.context_length, self.prediction_length
        return self.series.windows(numbers, origins, *sizes, padded=self._padded, seasons=self._seasons)


class FutureWindows(WindowDataset):
    """The windows beyond the end of the data: for each series its last rows, and known covariates of the horizon.

    Batches are made on demand, so memory does not grow with the number of series. `series` is the scaled panel,
    `scaler` has the scale of the covariates, and `seasons` is as in `Series.windows`. Covariates must exist for the
    steps of `horizon`, T by default. Time stamps and covariates are extended to a whole multiple of T; extra covariates
    repeat the last step.
    """

    def __init__(
        self,
        panel: Panel,
        series: Series,
        task: Task,
        scaler: Scaler,
        horizon: int | None = None,
        *,
        warns_of_short: bool = True,
        seasons: Sequence[int] | None = None,
    ) -> None:
        lengths = panel.lengths.tolist()
        super().__init__(series, [range(rows, rows + 1) for rows in lengths], task.context_length, 0, seasons)
        T = task.prediction_length
        horizon = T if horizon is None else horizon
        self.panel, self.steps = panel, -(-horizon // T) * T
        ahead = future_for(panel, horizon)
        steps = np.arange(self.steps).clip(max=horizon - 1)
        self._ahead = None if ahead is None else self._scaled(ahead[:, steps], scaler)
        self._lacks_some = self._ahead is not None and bool(self._ahead.isnan().any())
        short = sum(rows < task.context_length for rows in lengths)
        if short and warns_of_short:
            what = short, len(panel), task.context_length
            logger.warning("%d of %d series have fewer rows than context_length %d; their contexts are padded", *what)

    def __getitems__(self, indices: Sequence[int] | NDArray[np.int64] | Tensor) -> Batch:
        """Cut the windows of the series with these numbers, without targets; see `WindowDataset`."""
        numbers = torch.as_tensor(indices)
        lengths = self._first[numbers]
        padded = bool((lengths < self.context_length).any())
        batch = self.series.windows(numbers, lengths, self.context_length, 0, padded=padded, seasons=self._seasons)
        stamps = seconds(self.panel.future_times(numbers.numpy(), self.steps)).reshape(len(numbers), self.steps)
        known, mask = batch.future_covariates, batch.future_covariates_observed
        if known is not None and self._ahead is not None:
            ahead = self._ahead[numbers]
            if mask is None and self._lacks_some:
                mask = torch.ones_like(known, dtype=torch.bool)
            mask = None if mask is None else torch.cat([mask, ~ahead.isnan()], 1)
            if self._lacks_some:  # a missing number repeats the last known number
                steps = torch.arange(1, ahead.shape[1] + 1)[:, None]
                last = torch.where(ahead.isnan(), 0, steps).cummax(1).values
                ahead = torch.cat([known[:, -1:], ahead], 1).gather(1, last)
            known = torch.cat([known, ahead], 1)
        past: Any = batch.time
        time = torch.cat([past, torch.from_numpy(stamps)], 1)
        return replace(batch, time=time, future_covariates=known, future_covariates_observed=mask)

    def _scaled(self, ahead: NDArray[np.float64], scaler: Scaler) -> Tensor:
        """Scale covariates after the ends, `(S, T, F)`, to float32; NaN stays NaN."""
        panel, F = self.panel, ahead.shape[-1]
        mean, scale = np.asarray(scaler.covariate_mean[-F:]), np.asarray(scaler.covariate_scale[-F:])
        scaled = (ahead - mean) / scale

        def words(place: tuple[int, ...]) -> str:
            series, step, column = place
            of = "the series" if panel.is_wide else f"series {shown(panel.ids[series])}"
            return f"covariate {shown(panel.future_names[column])} is {ahead[place]:g} in step {step + 1} after {of}"

        warn_of_far(scaled, scale, words)
        with np.errstate(over="ignore"):
            return torch.from_numpy(scaled.astype(np.float32))


def future_for(panel: Panel, horizon: int) -> NDArray[np.float64] | None:
    """Future covariates `(S, horizon, F)`, or None; UserError for missing values, unless the panel `fills_ahead`."""
    ahead = panel.ahead
    if ahead is None:
        return None
    rows = panel.ahead_starts[:-1, None] + np.arange(horizon)
    given = rows < panel.ahead_starts[1:, None]
    values = np.full((len(panel), horizon, len(panel.future_names)), np.nan)
    values[given] = ahead[rows[given]]
    missing = np.argwhere(np.isnan(values))
    if panel.fills_ahead or not missing.size:
        return values
    pass_them = "pass {} with `--future FILE` (Python: `future=frame`)"
    lacking = np.flatnonzero(np.isnan(ahead).all(axis=0))  # all columns if there are no rows ahead
    if lacking.size:
        names = one_of(f"`{shown(panel.future_names[column])}`" for column in lacking)
        says = f"{'has' if lacking.size == 1 else 'have'} no values for the next {number_of(horizon, 'step')}"
        raise UserError(f"{names} {says}; {pass_them.format('them')}")
    number, step, column = missing[0].tolist()
    series = "" if panel.is_wide else f"series {shown(panel.ids[number])} has "
    at = f"{panel.future_time(number, step + 1)[-1]}, step {step + 1} of the {horizon} to forecast"
    early = f"future covariate {shown(panel.future_names[column])} stops early: {series}no value at {at}"
    raise UserError(f"{early}; {pass_them.format('one for each')}")


def warn_of_far(
    scaled: NDArray[np.float64], scale: NDArray[np.float64], words: Callable[[tuple[int, ...]], str]
) -> bool:
    """Log the value farthest from the training mean if it cannot be a real measurement; constants have `scale` 1."""
    size = np.abs(scaled)
    is_far = size > np.where(scale == 1, _FARTHEST_OF_CONSTANT, _FARTHEST)
    if not is_far.any():
        return False
    place = tuple(map(int, np.unravel_index(np.where(is_far, size, 0).argmax(), size.shape)))
    says = "%s, %.0e standard deviations from the mean of the training rows; %s"
    logger.warning(says, words(place), size[place], EMPTY_IT)
    return True


HOST = torch.device("cpu")
RESIDENT_ON = ("cuda",)  # types of devices that may hold series in memory
_PERMUTED = 10_000_000  # a shuffled list of more windows could take more memory than the data
_DRAWN = 1000  # batches to draw at a time if there are more windows

Numbers: TypeAlias = NDArray[np.int64] | Tensor


@dataclass(eq=False)
class ShuffledBatches(Sampler[Numbers]):
    """Shuffled window numbers of `total` training batches, by seed and epoch; processes share each batch."""

    num_windows: int
    batch_size: int
    seed: int
    rank: int = 0
    world_size: int = 1
    total: int | None = None
    device: torch.device | None = None
    epoch: int = field(default=0, init=False)
    position: int = field(default=0, init=False)

    @property
    def epoch_length(self) -> int:
        """Number of batches in an epoch; a smaller last batch counts if it has a window for each process."""
        whole, rest = divmod(self.num_windows, self.batch_size * self.world_size)
        return whole + (rest >= self.world_size)

    @property
    def sampler(self) -> ShuffledBatches:
        """The object itself, because Lightning looks for `set_epoch` here."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Shuffle for this epoch (called by Lightning at its start)."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.epoch_length if self.total is None else self.total

    def __iter__(self) -> Iterator[Numbers]:
        position, self.position = self.position, 0
        if self.total is None:
            yield from self._epoch(self.epoch, position, self.epoch_length)
        while self.total is not None and position < self.total:
            epoch, first = divmod(position, self.epoch_length)
            last = min(self.epoch_length, self.total - epoch * self.epoch_length)
            yield from self._epoch(epoch, first, last)
            position += last - first

    def _epoch(self, epoch: int, first: int, last: int) -> Iterator[Numbers]:
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) % 2**63)
        size = self.batch_size * self.world_size
        is_permuted = self.num_windows <= _PERMUTED
        # send many numbers to a device at a time, as each transfer waits
        together = max(1, self.epoch_length) if is_permuted else _DRAWN
        for start in range(0, last, together):
            if is_permuted:
                numbers = torch.randperm(self.num_windows, generator=generator)
            else:
                count = min(together * size, self.num_windows - start * size)
                numbers = torch.randint(self.num_windows, (count,), generator=generator)
            if start + together <= first:
                continue
            some = numbers.numpy() if self.device is None else numbers.to(self.device)
            for number in range(max(first, start), min(last, start + together)):
                batch = some[(number - start) * size : (number - start + 1) * size]
                if self.world_size > 1:  # contiguous: each search would copy it otherwise
                    mine = batch[: len(batch) // self.world_size * self.world_size][self.rank :: self.world_size]
                    batch = mine.contiguous() if isinstance(mine, Tensor) else np.ascontiguousarray(mine)
                yield batch


def spread(num_windows: int, most: int) -> range | NDArray[np.int64]:
    """Sorted numbers of at most `most` windows, one drawn from each interval, so that hours of the day vary."""
    if most >= num_windows:
        return range(num_windows)
    ends = np.arange(most + 1) * num_windows // most
    return np.random.default_rng(0).integers(ends[:-1], ends[1:])


@dataclass(eq=False)
class OrderedBatches(Sampler[Numbers]):
    """The window numbers `(n,)` of each batch, in order, as tensors on a device or as arrays."""

    windows: range | NDArray[np.int64]
    batch_size: int
    device: torch.device | None = None

    def __len__(self) -> int:
        return -(-len(self.windows) // self.batch_size)

    def __iter__(self) -> Iterator[Numbers]:
        for start in range(0, len(self.windows), self.batch_size):
            some = np.asarray(self.windows[start : start + self.batch_size])
            yield some if self.device is None else torch.as_tensor(some, device=self.device)


class TrainingLoader(DataLoader[Batch]):
    """Shuffled training windows; a checkpoint stores the number of batches seen."""

    def __init__(self, windows: WindowDataset, batches: ShuffledBatches, **options: Any) -> None:
        super().__init__(windows, batch_sampler=batches, **options)  # type: ignore[arg-type]  # arrays, not lists
        self.batches = batches
        self._seen = self._resumed = 0

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        # a generator starts with the first batch; by then a checkpoint has set the number of batches seen
        self._seen, self._resumed = self._resumed, 0
        self.batches.position = self._seen
        for batch in super().__iter__():
            self._seen += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """The number of batches seen, for a checkpoint."""
        return {"seen": self._seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resume after these batches."""
        self._resumed = state["seen"]


def whole_batch(batch: Any) -> Any:
    """Return the batch unchanged, as the collate function of a loader of whole batches."""
    return batch
