"""Forecasts of a folder of Parquet files, partition by partition: each whole or not there, and none made twice."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import re
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from filelock import FileLock, Timeout

from tsattn.data.files import first_line
from tsattn.data.quiet import quiet
from tsattn.errors import UserError, number_of
from tsattn.forecaster.forecaster import Forecaster
from tsattn.forecaster.partitions import (
    Partition,
    check_whole_series,
    find_partitions,
    id_column,
    partition_table,
    series_hashes,
)

__all__ = ["EachPartition", "FolderForecasts", "each_here", "forecast_folder", "without_its_series"]

_METADATA = b"tsattn.forecast"
_OF_THE_MACHINE = ("accelerator", "eval_batch_size", "progress", "trainer")  # of the arguments, what changes no number
_PATIENCE = 10.0  # seconds until a file of another machine is seen here


class EachPartition(Protocol):
    """Calls a function with each of some partitions, somewhere; what it gives comes back in any order."""

    def __call__(
        self, function: Callable[[Partition], Any], partitions: Sequence[Partition]
    ) -> Iterator[tuple[Partition, Any]]:
        """The partitions, each with what the function gave, as they are done."""


@dataclass(frozen=True)
class FolderForecasts:
    """What came of the partitions of a folder.

    Attributes:
        made: partitions that were forecast.
        kept: partitions whose forecasts were there already.
        changed: those of `made` whose forecasts were there, of rows that have changed since.
        empty: partitions without a row, which have no forecasts.
    """

    made: tuple[str, ...]
    kept: tuple[str, ...]
    changed: tuple[str, ...]
    empty: tuple[str, ...]


def forecast_folder(
    forecaster: Forecaster,
    source: Path,
    output: Path,
    *,
    horizon: int | None = None,
    level: Any = None,
    overwrite: bool = False,
    each: EachPartition | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> FolderForecasts:
    """Forecast what comes after the end of each series of a folder, into a folder of the same partitions.

    Partitions that are forecast already are left as they are, so that the same call goes on after an interruption;
    those whose files have changed since are forecast anew.

    Args:
        forecaster: fitted, or one that needs no fit.
        source: a folder of Parquet files. Each file is a partition; so are all files of a folder that is named after
            values of columns (``region=south``), together. All rows of a series must lie in one.
        output: the folder of the forecasts; it is made.
        horizon: steps to forecast; those that were fitted by default.
        level: percent that intervals are to hold, of a forecaster that is calibrated, see `Forecaster.predict`.
        overwrite: whether the forecasts of another model or horizon are replaced.
        each: where the partitions are forecast; one after another here by default.
        say: takes a line for each partition that is done.

    Raises:
        UserError: for a folder that is none, an output within it, a series in several partitions, forecasts of another
            model, of partitions that are no longer there, or a partition that cannot be forecast, once all others are.
    """
    each = each or each_here
    if source.resolve() in (output.resolve(), *output.resolve().parents):
        raise UserError(f"{output} is, or lies in, the input {source}; name another folder with `--output`")
    partitions = find_partitions(source)
    facts = {
        "format": 1,
        "model": _fingerprint(forecaster),
        "horizon": horizon or forecaster.arguments["prediction_length"],
        "level": _listed(level),
    }
    with _held(output):
        known = {one.name: _known_facts(output / one.output) for one in partitions}
        if not overwrite:
            _check_output(output, partitions, known, facts)
        column = id_column(source, partitions[0], forecaster.reader.columns)
        if column is None and len(partitions) > 1:
            raise UserError(
                f"{source} has no column of series ids: a wide table is one series, and must lie in one partition, not "
                f"in {len(partitions)}"
            )
        kept = [one for one in partitions if known[one.name] == {**facts, "input": one.state}]
        wanted = [one for one in partitions if one not in kept]
        if column is not None and wanted:
            # of all: a series may lie in one that is done, too
            check_whole_series(source, each(partial(series_hashes, source, column=column), partitions), column)
        made, empty, failed = _made(forecaster, source, output, wanted, facts, each, say)
    if failed:
        others = f" (and {number_of(len(failed) - 1, 'other partition')} failed)" if len(failed) > 1 else ""
        raise UserError(f"{next(iter(failed.values()))}{others}; what is done is kept")
    changed = [name for name in made if (known[name] or {}).get("input", "") and not overwrite]
    return FolderForecasts(*(tuple(sorted(names)) for names in (made, [one.name for one in kept], changed, empty)))


def each_here(function: Callable[[Partition], Any], partitions: Sequence[Partition]) -> Iterator[tuple[Partition, Any]]:
    """One after another, in this process."""
    for number, one in enumerate(partitions):
        with quiet(number > 0):  # what is done to the rows is said once
            result = function(one)
        yield one, result


def without_its_series(forecaster: Forecaster) -> Forecaster:
    """A forecaster of the same numbers that is small enough to be sent to many machines; it forecasts frames alone."""
    sent = copy.copy(forecaster)
    sent.result = sent.copula = None
    sent.__dict__.pop("_execution", None)  # of this machine
    if forecaster.series is not None:  # time stamps are converted to the zone of these
        one = forecaster.series.panel.take(np.array([0])).last_rows(1)
        errors = forecaster.series.seasonal_error[:1]
        sent.series = replace(forecaster.series, panel=one, trained_until={}, seasonal_error=errors)
    return sent


def _made(
    forecaster: Forecaster,
    source: Path,
    output: Path,
    wanted: Sequence[Partition],
    facts: Mapping[str, Any],
    each: EachPartition,
    say: Callable[[str], None],
) -> tuple[list[str], list[str], dict[str, str]]:
    """Forecast partitions; the names of those that were, of those without a row, and what is wrong with others."""
    made: list[str] = []
    empty: list[str] = []
    failed: dict[str, str] = {}
    work = partial(
        _forecast_partition, without_its_series(forecaster), source.absolute(), output.absolute(), dict(facts)
    )
    try:
        for done, (one, (rows, wrong)) in enumerate(each(work, wanted) if wanted else (), 1):
            if rows and not _is_here(output / one.output):
                wrong = f"{output / one.output} is not here: the machine that wrote it does not reach this folder"
            if wrong:
                failed[one.name] = wrong
            else:
                (made if rows else empty).append(one.name)
            said = wrong or number_of(rows, "row")
            say(f"{one.name}: {said} ({done} of {len(wanted)})")
    except KeyboardInterrupt as stop:
        left = len(wanted) - len(made) - len(empty)
        raise KeyboardInterrupt(f"the same command goes on with the {number_of(left, 'partition')} left") from stop
    return made, empty, failed


def _is_here(path: Path) -> bool:
    """Whether a file is there that another machine may have written just now."""
    until = time.monotonic() + _PATIENCE
    while not path.exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def _forecast_partition(
    forecaster: Forecaster, source: Path, output: Path, facts: dict[str, Any], partition: Partition
) -> tuple[int, str]:
    """Forecast one partition into its file: the rows that were written, and what is wrong, or nothing."""
    try:
        table = partition_table(source, partition)
        if not len(table):
            (output / partition.output).unlink(missing_ok=True)  # of rows that were there before
            return 0, ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a long horizon, which is said once
            frames = forecaster.predict_batches(table, horizon=facts["horizon"], level=facts["level"])
            metadata = {_METADATA: json.dumps({**facts, "input": partition.state})}
            tables = (one.drop_columns([name for name in partition.keys if name in one.column_names]) for one in frames)
            return _write(output / partition.output, tables, metadata), ""
    except UserError as error:
        return 0, str(error) if partition.name in str(error) else f"{source / partition.name}: {error}"


def _write(path: Path, tables: Iterator[pa.Table], metadata: Mapping[bytes, str]) -> int:
    """Write a Parquet file beside its place and move it there when it is whole; the number of its rows."""
    partial_file = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    rows, writer = 0, None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial_file.open("wb") as file:
            for table in tables:
                if writer is None:
                    schema = table.schema.with_metadata({**(table.schema.metadata or {}), **metadata})
                    writer = pq.ParquetWriter(file, schema)
                writer.write_table(table.cast(schema))
                rows += len(table)
            assert writer is not None
            writer.close()
            file.flush()
            os.fsync(file.fileno())
        partial_file.replace(path)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path} cannot be written: {getattr(error, 'strerror', None) or first_line(error)}") from error
    finally:
        partial_file.unlink(missing_ok=True)
    return rows


@contextlib.contextmanager
def _held(output: Path) -> Iterator[None]:
    """The folder of the forecasts, made, for this process alone, without what killed ones have begun."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock = FileLock(output / ".lock")
        lock.acquire(timeout=0)
    except Timeout as error:
        raise UserError(f"another process is forecasting into {output} now: wait until it ends, or stop it") from error
    except OSError as error:
        raise UserError(f"the folder {output} cannot be written to: {error.strerror or first_line(error)}") from error
    try:
        for left in output.rglob(".*.partial"):
            if re.fullmatch(r"\..+\.[0-9a-f]{32}\.partial", left.name):  # as `_write` names them
                left.unlink(missing_ok=True)
        yield
    finally:
        lock.release()


def _known_facts(file: Path) -> dict[str, Any] | None:
    """What a file of forecasts says that it was made from; None where there is none, nothing of another file."""
    if not file.exists():
        return None
    try:
        found = json.loads((pq.read_schema(file).metadata or {}).get(_METADATA, b"{}"))
    except (OSError, ValueError):  # those of pyarrow are such, too
        return {}
    return found if isinstance(found, dict) else {}


def _check_output(
    output: Path,
    partitions: Sequence[Partition],
    known: Mapping[str, dict[str, Any] | None],
    facts: Mapping[str, Any],
) -> None:
    """Refuse a folder that holds anything else than forecasts of these partitions by this model."""
    for one in partitions:
        found = known[one.name]
        if found is not None and {name: found.get(name) for name in facts} != dict(facts):
            what = "is of another model, horizon or level" if found else "is no forecast of this program"
            raise UserError(f"{output / one.output} {what}: name another folder with --output, or add --overwrite")
    there = {one.output for one in partitions}
    for file in sorted(output.rglob("*.parquet")):
        name = file.relative_to(output).as_posix()
        if name not in there and _known_facts(file):
            raise UserError(f"{file} is the forecast of a partition that is no longer there: remove it")


def _listed(level: Any) -> Any:
    """Percents as JSON has them."""
    return level if level is None or isinstance(level, int | float) else [float(one) for one in level]


def _fingerprint(forecaster: Forecaster) -> str:
    """A hash of all that decides the numbers of a forecast, but the rows."""
    arguments = {name: value for name, value in forecaster.arguments.items() if name not in _OF_THE_MACHINE}
    found = hashlib.sha256(json.dumps(arguments, sort_keys=True, default=str).encode())
    if forecaster.fitted is not None:
        for part in (forecaster.fitted.scaler, forecaster.fitted.conformal):
            found.update(json.dumps(None if part is None else part.to_dict(), default=str).encode())
        for name, tensor in sorted(forecaster.fitted.predictor.state_dict().items()):
            found.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
            found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
