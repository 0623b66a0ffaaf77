"""Tables that go to the peers' worker and come back, as Parquet.

To it: ``window`` (the number of a window; 0 of a training), ``unique_id`` (the number of a series or channel), ``ds``
(steps from 0), ``y`` (scaled values, what is missing imputed) and ``observed`` (whether it was not). Back: ``window``,
``unique_id``, ``ds``, and ``predictions``, or a column for each quantile, named after its level.

Shape letters: B windows, L context length, T prediction length, C channels, Q quantiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from tsattn.batch import Batch
from tsattn.data import ForecastDataModule
from tsattn.errors import UserError

__all__ = ["read_forecasts", "write_series", "write_windows"]


def write_series(path: Path, data: ForecastDataModule) -> int:
    """Write the training and validation rows of all series, each channel a series of its own.

    The worker holds out as many rows at the end of each series. These are the fewest validation rows that a series with
    a validation window has; of a series with more, the later ones are left out, and of one without any, the last
    training rows are held out instead: no validation row is ever trained on.

    Args:
        path: of the table.
        data: set up.

    Returns:
        how many rows at the end of each series are for validation; 0 where the data have no validation part.
    """
    series, T = data.series, data.prediction_length
    lengths = [split.val_end - split.train_end for split in data.splits]
    held = min((rows for rows in lengths if rows >= T), default=0) if "val" in data.parts else 0
    C = series.mean.shape[1]
    ids, steps, values, observed = [], [], [], []
    for number, split in enumerate(data.splits):
        rows = split.train_end + min(held, lengths[number])
        if not rows:
            continue
        scaled, known = series.rows_of(number)
        values.append(scaled[:rows].T.reshape(-1).numpy())
        observed.append(np.ones(C * rows, bool) if known is None else known[:rows].T.reshape(-1).numpy())
        ids.append(np.repeat(np.arange(number * C, (number + 1) * C, dtype=np.int32), rows))
        steps.append(np.tile(np.arange(rows, dtype=np.int32), C))
    columns = {"unique_id": ids, "ds": steps, "y": values, "observed": observed}
    pq.write_table(pa.table({name: np.concatenate(parts) for name, parts in columns.items()}), path)
    return held


def write_windows(path: Path, windows: Batch, *, cut_fronts: bool = False) -> None:
    """Write the contexts of windows, by window, channel and step.

    Args:
        path: of the table.
        windows: `past` `(B, L, C)`.
        cut_fronts: whether to leave out what is before the first observed value, for models that are fitted to each
            window: as many steps as were padded there would be taken for values. A context without an observed value
            is left whole.
    """
    past = windows.past.detach().cpu().float()
    B, L, C = past.shape
    seen = torch.ones(B, L, C, dtype=torch.bool) if windows.past_observed is None else windows.past_observed.cpu()
    number, channel, step = torch.from_numpy(np.indices((B, C, L), dtype=np.int32))
    columns = {
        "window": number,
        "unique_id": channel,
        "ds": step,
        "y": past.transpose(1, 2),
        "observed": seen.transpose(1, 2),
    }
    arrays = {name: part.reshape(-1).numpy() for name, part in columns.items()}
    if cut_fronts:
        known = seen.transpose(1, 2)
        kept = ((known.cumsum(-1) > 0) | ~known.any(-1, keepdim=True)).reshape(-1).numpy()
        arrays = {name: part[kept] for name, part in arrays.items()}
    pq.write_table(pa.table(arrays), path, compression="none")


def read_forecasts(path: Path, windows: int, channels: int, steps: int, quantiles: Sequence[float]) -> Tensor:
    """The forecasts that the worker has written: `(B, T, C)`, with quantiles `(B, T, C, Q)`, rising.

    Raises:
        UserError: if a forecast is lacking, or is not finite.
    """
    table = pq.read_table(path)
    shape = windows, channels, steps
    names = [f"{level:g}" for level in quantiles] or ["predictions"]
    expected = np.indices(shape).reshape(3, -1)
    for name, wanted in zip(("window", "unique_id", "ds"), expected, strict=True):
        if not np.array_equal(table[name].to_numpy(), wanted):
            raise UserError(f"the peer has not forecast each of {windows} windows of {channels} channels")
    columns = [torch.from_numpy(np.array(table[name].to_numpy(), np.float64)).reshape(shape) for name in names]
    forecast = torch.stack(columns, -1).transpose(1, 2)
    if not bool(forecast.isfinite().all()):
        raise UserError("the peer has forecast what is no number")
    # a peer may forecast each level by itself
    return forecast.sort(-1).values if quantiles else forecast[..., 0]
