"""From a table larger than memory to maps of scaled series: once over its keys, twice over its values.

The first pass finds the series and checks their time stamps (`series_keys.py`), the second one takes means and standard
deviations of the training rows (`moments.py`), the third one writes scaled values. Each holds a batch of rows at a
time.

Shape letters: S series, C channels.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsattn.data.grid import normalise_frequency
from tsattn.data.mapped.moments import read_moments
from tsattn.data.mapped.series_keys import SeriesKeys, read_keys
from tsattn.data.mapped.source import TableSource, target_values
from tsattn.data.mapped.store import MapIndex, MapWriter, check_space
from tsattn.data.scaling import known_units, target_scaler
from tsattn.data.split_rule import ByCount, ByDate, ByShare
from tsattn.data.splits import Split
from tsattn.errors import UserError
from tsattn.scaler import Scaler

__all__ = ["Wanted", "build_map", "scale_digest"]

logger = logging.getLogger("tsattn")


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

    rule: ByShare | ByCount | ByDate
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


def build_map(source: TableSource, folder: Path, wanted: Wanted) -> MapIndex:
    """Write the maps of a table into a folder whose lock is held, and give the index that names them.

    Raises:
        UserError: for a table that cannot be mapped, or that changes while it is read; a disk that is too small.
    """
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
    moments, missing = read_moments(source, keys, last_fitted if needs_fit else None)
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
    return MapIndex(
        source=tuple(states),
        checksums=tuple(checksums),
        options={**wanted.options(source), "frequency_was_found": wanted.known_frequency is None},
        scaler={
            "mean": list(scaler.mean),
            "scale": list(scaler.scale),
            "scaling": scaler.scaling,
            "digest": scale_digest(scaler),
            "is_fitted": wanted.scaler is None,
        },
        frequency=keys.frequency,
        tz=source.tz,
        ids=keys.ids,
        maps=writer.maps,
    )


def scale_digest(scaler: Scaler) -> str:
    """A checksum of how targets are scaled."""
    fields = scaler.mean, scaler.scale, scaler.ids, scaler.series_mean, scaler.series_scale
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()


def _write_values(
    source: TableSource,
    keys: SeriesKeys,
    writer: MapWriter,
    mean: NDArray[np.float64],
    scale: NDArray[np.float64],
    *,
    with_mask: bool,
) -> None:
    """Third pass: scaled values, missing ones imputed, and the mask of observed ones."""
    channels = source.roles.target
    shape = source.num_rows, len(channels)
    with ExitStack() as stack:
        values = stack.enter_context(writer.map("values", "float32", shape))
        observed = stack.enter_context(writer.map("observed", "bool", shape)) if with_mask else None
        carried = np.zeros(len(channels))
        for rows in source.targets():
            x = target_values(rows, channels)
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
