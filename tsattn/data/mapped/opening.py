"""The map of a table: opened if there is one that is whole and as wanted, else built first."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from tsattn.data.mapped.build import Wanted, build_map, scale_digest
from tsattn.data.mapped.source import TableSource
from tsattn.data.mapped.store import MapIndex, MappedSeries, build_lock, open_series, read_index
from tsattn.data.scaling import target_scaler
from tsattn.data.splits import Split
from tsattn.errors import UserError
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

    index: MapIndex
    series: MappedSeries
    splits: list[Split]
    last: pd.DatetimeIndex
    scaler: Scaler


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
            index = build_map(source, folder, wanted)
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


def _note(index: MapIndex, folder: Path, news: str) -> None:
    """Write an index anew, so that the source need not be read again to be known; the map can be used without."""
    try:
        with build_lock(folder):
            there = read_index(folder)
            if isinstance(there, MapIndex) and there.maps == index.maps:
                index.write(folder)
    except UserError as error:
        logger.info("%s, which cannot be noted: %s", news, error)


def _difference(index: MapIndex, source: TableSource, wanted: Wanted) -> str | None:
    """In what an index is not as wanted, None if in nothing."""
    for name, value in wanted.options(source).items():
        if index.options.get(name) != value:
            return f"{name} is {index.options.get(name)} there, not {value}"
    scaling = index.scaler["scaling"]
    if wanted.scaler is not None and index.scaler["digest"] != scale_digest(wanted.scaler):
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


def _opened(folder: Path, index: MapIndex) -> Map:
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
