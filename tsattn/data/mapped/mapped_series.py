"""Windows cut out of files: read, scaled and imputed when they are asked for.

Shape letters: B windows, L context length, T prediction length, S series, C channels, P past-only covariates, F
known-future covariates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.data.file_views import FileView
from tsattn.data.frequency import seconds
from tsattn.data.panel import Panel
from tsattn.data.row_ranges import last_row_of_places
from tsattn.data.single_precision import EMPTY_IT, LARGEST, cell_words, warn_of_far
from tsattn.data.windows import Series
from tsattn.errors import UserError
from tsattn.scaler import SeriesTransform

__all__ = ["MappedSeries"]

_LOOK_BACK = 64  # rows before a window that are looked at first for the last known value
_BLOCK = 1 << 16  # rows that are scaled at once

Table: TypeAlias = NDArray[np.float64]


class MappedSeries(Series):
    """The series of a panel in files; its windows are those of the same panel in memory.

    Nothing of it is held in memory: `values`, `observed` and the like are made of all rows each time they are asked
    for. Pickled, it is the names of the files, which a loader process opens again.

    Args:
        panel: the series.
        mean: `(S, C)` of each series.
        scale: `(S, C)`.
        past_units: means and standard deviations of the past covariates, each `(P,)`.
        future_units: those of the future covariates, each `(F,)`.
        transform: of the targets, whose transformed values the panel has.
        weight: the mean by which the weights of the targets are divided; None where all count alike.
        original: `(rows, C)` the values before they were transformed, or where they are in a file.
    """

    def __init__(
        self,
        panel: Panel,
        mean: Table,
        scale: Table,
        past_units: tuple[Table, Table],
        future_units: tuple[Table, Table],
        transform: SeriesTransform | None,
        weight: float | None,
        original: Table | FileView,
    ) -> None:
        fields: dict[str, Any] = {
            "panel": panel,
            "starts": torch.from_numpy(panel.starts),
            "mean": torch.from_numpy(np.array(mean, dtype=np.float64)),
            "scale": torch.from_numpy(np.array(scale, dtype=np.float64)),
            "static": None if panel.static is None else torch.from_numpy(np.array(panel.static)),
            "transform": transform,
            "past_covariate_scale": None if panel.past_covariates is None else torch.from_numpy(past_units[1]),
            "future_covariate_scale": None if panel.future_covariates is None else torch.from_numpy(future_units[1]),
            "_units": {"past_covariates": past_units, "future_covariates": future_units},
            "_weight": weight,
            "_told": set(),
            "original": original.open() if isinstance(original, FileView) else original,
        }
        for name, field in fields.items():
            object.__setattr__(self, name, field)
        missing = {name for name in _PARTS if name not in panel.complete and _is_missing_in(getattr(panel, name))}
        object.__setattr__(self, "_missing", frozenset(missing))

    panel: Panel
    _units: dict[str, tuple[Table, Table]]
    _missing: frozenset[str]
    _weight: float | None
    _told: set[str]  # parts of which a value was logged
    original: Table

    @property
    @override
    def is_weighted(self) -> bool:
        return self._weight is not None

    @property
    @override
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    @override
    def nbytes(self) -> int:
        total = 8 * len(self.panel.time) + (4 * self.panel.values.size if self.is_weighted else 0)
        for name in _PARTS:
            part = getattr(self.panel, name)
            total += 0 if part is None else int(part.size) * (5 if name in self._missing else 4)
        return total

    @override
    def to(self, device: torch.device | str) -> Series:
        """All rows, scaled, in the memory of a device."""
        made: dict[str, Any] = {}
        for name, part in ((name, getattr(self.panel, name)) for name in _PARTS):
            mask = _MASKS[name]
            made[name] = None if part is None else torch.empty(part.shape, device=device)
            made[mask] = torch.empty(part.shape, dtype=torch.bool, device=device) if name in self._missing else None
        made["weights"] = torch.empty(self.panel.values.shape, device=device) if self.is_weighted else None
        made["time"] = torch.empty(len(self.panel.time), dtype=torch.int64, device=device)
        for number, rows in self._blocks():
            made["time"][rows] = torch.from_numpy(seconds(self.panel.time[rows])).to(device)
            count = rows.stop - rows.start
            if self.is_weighted:
                made["weights"][rows] = self._weights(np.array([rows.start]), count)[0].to(device)
            for name in _PARTS:
                if made[name] is not None:
                    x, known = self._part(name, np.array([number]), np.array([rows.start]), count)
                    made[name][rows] = torch.from_numpy(x[0]).to(device)
                    if made[_MASKS[name]] is not None:
                        made[_MASKS[name]][rows] = torch.from_numpy(known[0]).to(device)
        for name in ("starts", "mean", "scale", "static", "past_covariate_scale", "future_covariate_scale"):
            made[name] = None if (part := getattr(self, name)) is None else part.to(device)
        return Series(**made, transform=self.transform)

    @override
    def rows_of(self, number: int) -> tuple[Tensor, Tensor | None]:
        start, end = self.panel.starts[number : number + 2].tolist()
        x, known = self._part("values", np.array([number]), np.array([start]), end - start)
        return torch.from_numpy(x[0]), torch.from_numpy(known[0]) if "values" in self._missing else None

    @override
    def _cut(
        self, numbers: Tensor, first: Tensor, lacking: Tensor | None, L: int, T: int, seasons: Sequence[int] | None
    ) -> Batch:
        series, begins = numbers.numpy(), first.numpy()
        parts: dict[str, Tensor | None] = {}
        for name, mask in _MASKS.items():
            length = L if name == "past_covariates" else L + T
            if getattr(self.panel, name) is None:
                parts[name] = parts[mask] = None
                continue
            x, known = self._part(name, series, begins, length)
            parts[name] = torch.from_numpy(x)
            parts[mask] = torch.from_numpy(known) if name in self._missing or lacking is not None else None
        rows = np.maximum(begins[:, None] + np.arange(L + T), self.panel.starts[series][:, None])
        time = seconds(self.panel.time[rows.ravel()]).reshape(rows.shape)
        values, observed = parts.pop("values"), parts.pop("observed")
        assert values is not None
        return Batch(
            past=values[:, :L],
            target=values[:, L:] if T else None,
            target_weight=self._weights(begins + L, T) if self.is_weighted and T else None,
            past_observed=None if observed is None else observed[:, :L],
            target_observed=None if observed is None or not T else observed[:, L:],
            time=torch.from_numpy(time),
            **parts,
            static=None if self.static is None else self.static[numbers],
            series_id=numbers,
            units=self._window_units(
                numbers, first, values[:, :L], None if observed is None else observed[:, :L], T, seasons
            ),
        )

    @override
    def _sources(self, rows: Tensor, begin: Tensor, season: int) -> Tensor:
        values, found = self.panel.values, rows.numpy()[..., None].repeat(self.panel.values.shape[1], axis=2)
        lacks_some = np.isnan(values[rows.numpy()]).any(axis=(1, 2))
        for number in np.flatnonzero(lacks_some):
            start, end = int(begin[number]), int(rows[number, -1]) + 1
            of_place = last_row_of_places(values, start, end, season)
            first = max(start, end - season)
            before = last_row_of_places(values, start, first, 1)
            inside = np.where(np.isnan(values[first:end]), -1, np.arange(first, end)[:, None])
            of_any = np.maximum.accumulate(np.concatenate([before, inside]))[1:]
            of_any = np.concatenate([np.full((season - len(of_any), of_any.shape[1]), -1), of_any])
            known = np.where(of_place < 0, of_any, of_place)
            found[number] = np.where(known < 0, found[number], known)
        return torch.from_numpy(found)

    @override
    def _values_at(self, rows: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        channels = np.arange(rows.shape[-1])
        given, values = (
            np.asarray(part[rows.numpy(), channels], dtype=np.float64) for part in (self.original, self.panel.values)
        )
        mean, scale = self._units_of("values", numbers.numpy())
        scaled = ((values - mean) / scale).astype(np.float32)
        return torch.from_numpy(np.nan_to_num(scaled, copy=False)), torch.from_numpy(given)

    def _weights(self, first: NDArray[np.int64], length: int) -> Tensor:
        """`(B, length, C)` weights of targets, which begin at the rows `first (B,)`."""
        assert self.panel.weights is not None
        assert self._weight is not None
        each = np.stack([self.panel.weights[start : start + length] for start in first.tolist()])
        return torch.from_numpy((each / self._weight).astype(np.float32))

    def _part(
        self, name: str, series: NDArray[np.int64], first: NDArray[np.int64], length: int
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Scaled, imputed rows of one of `_PARTS` from `first (B,)` on, and which of them are observed.

        What is before the start of a series is 0, and not observed.
        """
        part = getattr(self.panel, name)
        begin = np.maximum(first, self.panel.starts[series])
        raw = np.full((len(first), length, part.shape[1]), np.nan)
        for window, pad, start in zip(raw, (begin - first).tolist(), begin.tolist(), strict=True):
            window[pad:] = part[start : start + length - pad]
        mean, scale = self._units_of(name, series)
        known = ~np.isnan(raw)
        with np.errstate(over="ignore", invalid="ignore"):
            x = raw - mean
            x /= scale
        self._check_magnitude(name, x, scale, known, first)
        if name in self._missing and not known.all():
            x = self._imputed(x, known, part, begin, series, (mean, scale))
        lacking = begin - first
        if lacking.any():
            x[np.arange(length) < lacking[:, None]] = 0
        return x.astype(np.float32), known

    def _imputed(
        self,
        x: Table,
        known: NDArray[np.bool_],
        part: Table,
        begin: NDArray[np.int64],
        series: NDArray[np.int64],
        units: tuple[Table, Table],
    ) -> Table:
        """Each missing number `(B, rows, n)` replaced by the last known one of its series, else by 0."""
        places = np.where(known, np.arange(x.shape[1])[:, None], -1)
        np.maximum.accumulate(places, axis=1, out=places)
        before = np.zeros((len(x), x.shape[2]))
        for number in np.flatnonzero((places < 0).any(axis=(1, 2)) & (begin > self.panel.starts[series])):
            before[number] = _last_known(part, int(self.panel.starts[series[number]]), int(begin[number]))
        mean, scale = units
        carried = (before[:, None] - mean) / scale
        carried[~np.isfinite(carried)] = 0
        carried[begin <= self.panel.starts[series]] = 0
        return np.where(places < 0, carried, np.take_along_axis(x, np.maximum(places, 0), axis=1))

    def _units_of(self, name: str, series: NDArray[np.int64]) -> tuple[Table, Table]:
        """Mean and scale of an array for windows of these series, as `(B, 1, n)` or `(n,)`."""
        if name == "values":
            return self.mean.numpy()[series][:, None], self.scale.numpy()[series][:, None]
        return self._units[name]

    def _check_magnitude(
        self,
        name: str,
        x: Table,
        scale: Table,
        known: NDArray[np.bool_],
        first: NDArray[np.int64],
    ) -> None:
        """Refuse targets whose squares single precision cannot add up, or whose variance double cannot hold.

        A value that is far from all training rows is logged, once of targets and once of covariates.
        """

        def words(place: tuple[int, ...]) -> str:
            window, row, column = place
            values = self.original if name == "values" else None
            return cell_words(self.panel, name, (int(first[window]) + row, column), values)

        with np.errstate(invalid="ignore"):
            is_bad = (~(np.abs(x) < LARGEST) | ~np.isfinite(scale)) & known
        if name == "values" and is_bad.any():
            place = tuple(np.argwhere(is_bad)[0].tolist())
            raise UserError(f"{words(place)}, too far from the rest to compute with; {EMPTY_IT}")
        if name not in self._told and warn_of_far(x, scale, words):
            self._told.add(name)

    def _blocks(self) -> Iterator[tuple[int, slice]]:
        """Each series, and rows of it."""
        for number in range(len(self)):
            start, end = self.panel.starts[number : number + 2].tolist()
            for at in range(start, end, _BLOCK):
                yield number, slice(at, min(at + _BLOCK, end))

    def __reduce__(self) -> tuple[Any, ...]:
        units = self._units["past_covariates"], self._units["future_covariates"]
        original = FileView.of(self.original) or self.original
        arguments = (self.mean.numpy(), self.scale.numpy(), *units, self.transform, self._weight, original)
        return MappedSeries, (self.panel, *arguments)


_MASKS = {
    "values": "observed",
    "past_covariates": "past_covariates_observed",
    "future_covariates": "future_covariates_observed",
}
_PARTS = tuple(_MASKS)


def _whole(name: str) -> property:
    return property(lambda series: getattr(series.to("cpu"), name), doc=f"`Series.{name}`, made of all rows.")


for _name in (*_MASKS, *_MASKS.values(), "time", "weights"):
    setattr(MappedSeries, _name, _whole(_name))


def _last_known(part: Table, start: int, end: int) -> Table:
    """The last known number of each column in the rows from `start` to before `end`, NaN where there is none."""
    found = np.full(part.shape[1], np.nan)
    length = _LOOK_BACK
    while end > start and np.isnan(found).any():
        rows = part[max(start, end - length) : end]
        known = ~np.isnan(rows)
        last = np.where(known.any(axis=0), len(rows) - 1 - known[::-1].argmax(axis=0), 0)
        found = np.where(np.isnan(found) & known.any(axis=0), rows[last, np.arange(part.shape[1])], found)
        end, length = end - length, 2 * length
    return found


def _is_missing_in(part: Table | None) -> bool:
    """Whether any number is missing; no more is read than it takes."""
    return part is not None and any(np.isnan(part[at : at + _BLOCK]).any() for at in range(0, len(part), _BLOCK))
