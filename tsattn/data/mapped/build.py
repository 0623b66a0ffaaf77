"""From a table larger than memory to maps of scaled series: once over its keys, twice over its values.

The first pass finds the series and checks their time stamps, the second one takes means and standard deviations of the
training rows, the third one writes scaled values. Each holds a batch of rows at a time.

Shape letters: S series, C channels.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.columns import number_columns
from tsattn.data.grid import normalise_frequency
from tsattn.data.mapped.keys import Keys, read_keys
from tsattn.data.mapped.source import Rows, TableSource
from tsattn.data.mapped.store import (
    Index,
    MappedSeries,
    MapWriter,
    build_lock,
    check_space,
    open_series,
    read_index,
)
from tsattn.data.scaling import known_units, target_scaler
from tsattn.data.split_rule import SplitRule
from tsattn.data.splits import Split
from tsattn.errors import UserError, shown
from tsattn.scaler import Scaler

__all__ = ["Map", "open_or_build"]

logger = logging.getLogger("tsattn")


@dataclass(frozen=True)
class Map:
    """An open map.

    Attributes:
        index: what it holds.
        series: its series; their rows lie in files.
        splits: where the parts of each series end.
        last: the last time stamp of each series.
        scaler: how the targets are scaled, for a task that is new.
    """

    index: Index
    series: MappedSeries
    splits: list[Split]
    last: pd.DatetimeIndex
    scaler: Scaler


@dataclass(frozen=True)
class Wanted:
    """What shapes a map beside its source.

    Attributes:
        rule: where the parts of each series end.
        scaling: ``global`` or ``series``; a scaler knows better.
        frequency: the one that all series must have; None infers it.
        scaler: of a trained model, which is obeyed, or None: it is fitted on the training rows.
        check: called with the splits, before any value is read, unless there is a scaler.
    """

    rule: SplitRule
    scaling: str
    frequency: str | None
    scaler: Scaler | None
    check: Callable[[list[Split]], None]

    def options(self, source: TableSource) -> dict[str, Any]:
        """What an index must say to hold what is wanted, but for the scale."""
        roles = source.roles
        return {"id": roles.id, "time": roles.time, "target": list(roles.target), "split": self.rule.to_dict()}

    @property
    def known_frequency(self) -> str | None:
        """The frequency that was asked for, under its one name."""
        return None if self.frequency is None else normalise_frequency(self.frequency)


def open_or_build(source: TableSource, folder: Path, wanted: Wanted, *, verify: bool = False) -> Map:
    """The map in a folder, built if there is none that is whole, of this source and as wanted; the reason is logged.

    Args:
        source: the table.
        folder: where maps lie, one build of them.
        wanted: what they must hold.
        verify: compare the checksums of the maps, which reads all of them; their sizes are always compared.

    Raises:
        UserError: for a table that cannot be mapped, naming the series and the row; a folder that cannot be written to.
    """
    found, reason = _find(source, folder, wanted, verify=verify)
    if found is not None:
        if reason:
            _note(found.index, folder, reason)
        if wanted.scaler is None:
            wanted.check(found.splits)
        return found
    with build_lock(folder):
        # another process may have built it while this one waited
        found, reason = _find(source, folder, wanted, verify=verify)
        if found is None:
            logger.info("building the map of %s in %s: %s", source.path, folder, reason)
            index = _build(source, folder, wanted)
            index.write(folder)
            found = _opened(folder, index)
    return found


def _find(source: TableSource, folder: Path, wanted: Wanted, *, verify: bool) -> tuple[Map | None, str]:
    """The map in a folder, or None, and why it cannot be used or its index should be written again."""
    index = read_index(folder)
    if isinstance(index, str):
        return None, index
    reason = _difference(index, source, wanted) or index.damage(folder, verify=verify)
    news = ""
    if reason is None and list(index.source) != (states := source.states()):
        sizes = [(state.name, state.size) for state in states]
        if sizes != [(state.name, state.size) for state in index.source]:
            reason = "the source changed"
        elif source.checksums() != list(index.checksums):
            reason = "the source changed, though not its size"
        else:
            index, news = replace(index, source=tuple(states)), "the source was written again with the same content"
    if reason is not None:
        return None, reason
    try:
        return _opened(folder, index), news
    except OSError as error:  # another process has built anew since the index was read
        return None, str(error)


def _note(index: Index, folder: Path, news: str) -> None:
    """Write an index anew, so that the source need not be read again to be known; the map can be used without."""
    try:
        with build_lock(folder):
            there = read_index(folder)
            if isinstance(there, Index) and there.maps == index.maps:
                index.write(folder)
    except UserError as error:
        logger.info("%s, which cannot be noted: %s", news, error)


def _difference(index: Index, source: TableSource, wanted: Wanted) -> str | None:
    """In what an index is not as wanted, None if in nothing."""
    for name, value in wanted.options(source).items():
        if index.options.get(name) != value:
            return f"{name} is {index.options.get(name)} there, not {value}"
    scaling = index.scaler["scaling"]
    if wanted.scaler is not None and index.scaler["digest"] != _digest(wanted.scaler):
        return "it has the scale of another model"
    if wanted.scaler is None and not index.scaler["is_fitted"]:
        return "it has the scale of a trained model"
    if wanted.scaler is None and scaling != wanted.scaling:
        return f"scaling is {scaling} there, not {wanted.scaling}"
    frequency = wanted.known_frequency
    if frequency is None and not index.options["frequency_was_found"]:
        return f"frequency {index.frequency} was given there"
    if frequency is not None and frequency != index.frequency:
        return f"frequency is {index.frequency} there, not {frequency}"
    return None


def _digest(scaler: Scaler) -> str:
    """A checksum of how targets are scaled."""
    fields = scaler.mean, scaler.scale, scaler.ids, scaler.series_mean, scaler.series_scale
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()


def _opened(folder: Path, index: Index) -> Map:
    series = open_series(folder, index)
    last = pd.DatetimeIndex(index.array(folder, "last").view("M8[ns]"))
    own = (series.mean.numpy(), series.scale.numpy()) if index.scaler["scaling"] == "series" else None
    return Map(
        index=index,
        series=series,
        splits=[Split(*ends) for ends in index.array(folder, "splits").tolist()],
        last=last if index.tz is None else last.tz_localize("UTC").tz_convert(index.tz),
        scaler=target_scaler(index.ids, tuple(index.scaler["mean"]), tuple(index.scaler["scale"]), own),
    )


def _build(source: TableSource, folder: Path, wanted: Wanted) -> Index:
    states, scaler, channels = source.states(), wanted.scaler, source.roles.target
    check_space(folder, source.num_rows * (8 + 4 * len(channels)))
    writer = MapWriter(folder)
    with writer.map("time", "int64", (source.num_rows,)) as stream:
        keys = read_keys(source, wanted.rule, wanted.known_frequency, stream.write)
    splits = keys.splits(wanted.rule)
    if scaler is None:
        wanted.check(splits)
    last_fitted = np.array([split.train_end for split in splits])
    needs_fit = scaler is None or (scaler.scaling == "series" and not set(keys.ids) <= set(scaler.ids))
    moments, missing = _read_moments(source, keys, last_fitted if needs_fit else None)
    if scaler is None:
        own = moments.each() if wanted.scaling == "series" else None
        scaler = target_scaler(keys.ids, *moments.all(channels, int(last_fitted.sum())), own)
    mean, scale = known_units(keys.ids, scaler, moments.each)
    if missing:
        check_space(folder, source.num_rows * 5 * len(channels))
        logger.warning(
            "%s: %d of %d values are missing; they are masked, never scored",
            source.path,
            missing,
            source.num_rows * len(channels),
        )
    _write_values(source, keys, writer, mean, scale, with_mask=missing > 0)
    small = {
        "starts": keys.starts,
        "mean": np.array(mean, dtype=np.float64),
        "scale": np.array(scale, dtype=np.float64),
        "splits": np.array([[s.train_end, s.val_end, s.test_end] for s in splits], dtype=np.int64),
        "last": keys.last,
    }
    for name, array in small.items():
        writer.put(name, array)
    checksums = source.checksums()
    if source.states() != states:
        raise UserError(f"{source.path} was changed while it was read; start again when it is complete")
    return Index(
        source=tuple(states),
        checksums=tuple(checksums),
        options={**wanted.options(source), "frequency_was_found": wanted.known_frequency is None},
        scaler={
            "mean": list(scaler.mean),
            "scale": list(scaler.scale),
            "scaling": scaler.scaling,
            "digest": _digest(scaler),
            "is_fitted": wanted.scaler is None,
        },
        frequency=keys.frequency,
        tz=source.tz,
        ids=keys.ids,
        maps=writer.maps,
    )


def _values(rows: Rows, channels: tuple[str, ...]) -> NDArray[np.float64]:
    return number_columns(rows.table.to_pandas(), channels, rows.where, "target")


class _Moments:
    """Mean and sum of squared deviations of each channel of each series, batch by batch.

    Batches are merged by the formula of Chan, Golub and LeVeque (Updating formulae and a pairwise algorithm for
    computing sample variances, 1979). Each series is counted from its first value, so that a constant one has a
    deviation of exactly 0.
    """

    def __init__(self, num_series: int, num_channels: int) -> None:
        shape = num_series, num_channels
        self.count, self.mean, self.square = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape)
        self.base = np.full(shape, np.nan)

    def add(self, series: slice, begins: NDArray[np.int64], lengths: NDArray[np.int64], x: NDArray[np.float64]) -> None:
        """Some rows, `(rows, C)`, NaN where they do not count."""
        known = ~np.isnan(x)
        count = np.add.reduceat(known, begins, dtype=np.int64)
        if np.isnan(self.base[series]).any():
            places = np.where(known, np.arange(len(x))[:, None], len(x) - 1)
            first = np.take_along_axis(x, np.minimum.reduceat(places, begins), axis=0)
            self.base[series] = np.where(np.isnan(self.base[series]), first, self.base[series])
        from_base = np.where(known, x - self.base[series].repeat(lengths, axis=0), 0.0)
        with np.errstate(invalid="ignore"):
            mean = np.where(count > 0, np.add.reduceat(from_base, begins) / count, 0.0)
        square = np.add.reduceat(np.where(known, from_base - mean.repeat(lengths, axis=0), 0.0) ** 2, begins)
        before, total = self.count[series], np.maximum(self.count[series] + count, 1)
        step = mean - self.mean[series]
        self.square[series] += square + step**2 * (before * count / total)
        self.mean[series] += step * (count / total)
        self.count[series] += count

    def each(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What `series_moments` gives: two `(S, C)`, means, NaN without a value, and standard deviations."""
        mean = np.where(self.count > 0, self.base + self.mean, np.nan)
        return mean, _scale(self.square, self.count, mean)

    def all(self, channels: tuple[str, ...], num_rows: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """What the function `moments` gives, for the rows of all series."""
        count = self.count.sum(axis=0)
        empty = np.flatnonzero(count == 0)
        if empty.size:
            raise UserError(f"channel {channels[empty[0]]} has no value in the {num_rows} training rows")
        base = np.nanmin(self.base, axis=0)
        own = np.where(self.count > 0, self.base - base + self.mean, 0.0)
        mean = (self.count * own).sum(axis=0) / count
        square = (self.square + self.count * (own - mean) ** 2).sum(axis=0)
        scale = _scale(square, count, base + mean)
        return tuple((base + mean).tolist()), tuple(scale.tolist())


def _scale(square: NDArray[np.float64], count: NDArray[np.int64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation; 1 for a constant, where rounding leaves no scale."""
    scale = np.sqrt(square / np.maximum(count, 1))
    return np.where(scale > 10 * np.finfo(np.float64).eps * np.abs(mean), scale, 1.0)


def _read_moments(source: TableSource, keys: Keys, last_fitted: NDArray[np.int64] | None) -> tuple[_Moments, int]:
    """Second pass: statistics of the first rows of each series, and how many values of all rows are missing.

    Args:
        source: the table.
        keys: its series.
        last_fitted: `(S,)` how many rows of each count; None for none.
    """
    channels = source.roles.target
    moments = _Moments(len(keys.ids), len(channels))
    missing = np.zeros((len(keys.ids), len(channels)), np.int64)
    for rows in source.targets():
        x = _values(rows, channels)
        series, begins, lengths = keys.pieces(rows)
        is_missing = np.isnan(x)
        if is_missing.any():
            missing[series] += np.add.reduceat(is_missing, begins, dtype=np.int64)
        if last_fitted is not None:
            numbers = np.arange(rows.start, rows.start + len(x)) - keys.starts[:-1][series].repeat(lengths)
            counts = numbers < last_fitted[series].repeat(lengths)
            if counts.any():
                x[~counts] = np.nan
                moments.add(series, begins, lengths, x)
    empty = np.argwhere(missing == keys.lengths[:, None])
    if empty.size:
        number, channel = empty[0].tolist()
        of = "" if source.roles.id is None else f" of series {shown(keys.ids[number])}"
        raise UserError(
            f"{source.path}: every value of {shown(channels[channel])}{of} is missing; at least one is needed"
        )
    return moments, int(missing.sum())


def _write_values(
    source: TableSource,
    keys: Keys,
    writer: MapWriter,
    mean: NDArray[np.float64],
    scale: NDArray[np.float64],
    *,
    with_mask: bool,
) -> None:
    """Third pass: scaled values, gaps imputed, and the mask of observed ones."""
    channels = source.roles.target
    shape = source.num_rows, len(channels)
    with ExitStack() as stack:
        values = stack.enter_context(writer.map("values", "float32", shape))
        observed = stack.enter_context(writer.map("observed", "bool", shape)) if with_mask else None
        carried = np.zeros(len(channels))
        for rows in source.targets():
            x = _values(rows, channels)
            series, begins, lengths = keys.pieces(rows)
            x -= mean[series].repeat(lengths, axis=0)
            x /= scale[series].repeat(lengths, axis=0)
            if observed is not None:
                is_missing = np.isnan(x)
                observed.write(~is_missing)
                if rows.start == keys.starts[series.start]:
                    carried = np.zeros(len(channels))
                if is_missing.any():
                    x = _filled(x, is_missing, begins, lengths, carried)
                carried = x[-1]
            values.write(x)


def _filled(
    x: NDArray[np.float64],
    is_missing: NDArray[np.bool_],
    begins: NDArray[np.int64],
    lengths: NDArray[np.int64],
    carried: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Missing values replaced by the last one of their series, else by 0; `carried` is the last of the rows before."""
    places = np.where(is_missing, -1, np.arange(len(x))[:, None])
    np.maximum.accumulate(places, axis=0, out=places)
    own = places >= begins.repeat(lengths)[:, None]
    start = np.zeros_like(x)
    start[: lengths[0]] = carried
    return np.where(own, np.take_along_axis(x, np.maximum(places, 0), axis=0), start)
