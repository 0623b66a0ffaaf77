"""Residuals of a forecast, what came less what was forecast, from the batches that are scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tsattn.data import Panel, season_length
from tsattn.data.frequency import is_steps
from tsattn.errors import UserError, one_of, shown
from tsattn.evaluation.measure import ScoredBatch

__all__ = ["ResidualRecorder", "Residuals"]

_LINES = 6  # series that are followed in time
_POOLED = 200_000  # residuals that are kept of all series together

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Residuals:
    """Residuals at one step of the horizon.

    Attributes:
        ahead: the step, from 1.
        lines: by the name of a series (or channel), the time stamps or steps of its residuals, rising, and these, both
            `(n,)`, NaN where nothing was observed.
        pooled: `(M,)` observed residuals of all series that were asked for, evenly thinned where they are many.
        is_scaled: whether they are on the scale that is trained on, as those of several series are; else in original
            units.
        season_length: steps in a season.
    """

    ahead: int
    lines: Mapping[str, tuple[NDArray[Any], Array]]
    pooled: Array
    is_scaled: bool
    season_length: int


class ResidualRecorder:
    """Takes the batches of `measure` as its ``watch``.

    Args:
        panel: what is forecast.
        ids: the series (of a wide panel, the channels) that are looked at; None for all, of which the first are
            followed in time.
        ahead: the step of the horizon, from 1.

    Raises:
        UserError: for an id that is not in the panel.
    """

    def __init__(self, panel: Panel, ids: Sequence[Any] | None = None, ahead: int = 1) -> None:
        known = panel.channels if panel.is_wide else panel.ids
        chosen = list(known if ids is None else ids)
        if unknown := [name for name in chosen if name not in known]:
            raise UserError(f"there is no series {shown(unknown[0])}; valid are {one_of(map(shown, known[:12]))}")
        numbers = [known.index(name) for name in chosen] if ids is not None else [*range(len(known))]
        self.series = [0] if panel.is_wide else numbers
        self.channels = numbers if panel.is_wide else [*range(len(panel.channels))]
        self._ahead = ahead
        self._panel = panel
        self._is_scaled = len(self.series) * len(self.channels) > 1
        pairs = [(s, c) for s in self.series[:_LINES] for c in self.channels[:_LINES]][:_LINES]
        self._followed: dict[tuple[int, int], list[tuple[NDArray[np.int64], Array]]] = {pair: [] for pair in pairs}
        self._pool: list[Array] = []
        self._stride, self._seen = 1, 0

    def __call__(self, batch: ScoredBatch) -> None:
        """Take the residuals of a batch."""
        step, T = self._ahead - 1, batch.point.shape[1]
        if not 0 <= step < T:
            raise UserError(f"ahead must be from 1 to {T}, a step of the horizon, not {self._ahead}")
        residuals = (batch.target[:, step] - batch.point[:, step]).double()  # (B, C)
        if not self._is_scaled:
            residuals = residuals * batch.units[1][:, 0]
        if batch.observed is not None:
            residuals = residuals.masked_fill(~batch.observed[:, step], torch.nan)
        values, series = residuals.cpu().numpy(), batch.series.cpu().numpy()
        time = batch.time[:, batch.time.shape[1] - T + step].cpu().numpy()
        for (number, channel), parts in self._followed.items():
            if (rows := series == number).any():
                parts.append((time[rows], values[rows, channel]))
        self._add(values[np.isin(series, self.series)][:, self.channels].ravel())

    def finish(self) -> Residuals:
        """What was taken."""
        panel, lines = self._panel, {}
        for (number, channel), parts in self._followed.items():
            name = shown(panel.ids[number]) if len(panel.channels) == 1 else panel.channels[channel]
            if len(self.series) > 1 and len(panel.channels) > 1:
                name = f"{shown(panel.ids[number])}, {name}"
            time = np.concatenate([np.empty(0, np.int64), *(part for part, _ in parts)])
            values = np.concatenate([np.empty(0), *(part for _, part in parts)])
            order = np.argsort(time, kind="stable")
            stamps = time if is_steps(panel.frequency) else time.astype("M8[s]")
            lines[name] = stamps[order], values[order]
        pooled = np.concatenate([np.empty(0), *self._pool])
        return Residuals(self._ahead, lines, pooled, self._is_scaled, season_length(panel.frequency))

    def _add(self, values: Array) -> None:
        """Keep what is observed, of many each so many-th."""
        kept = values[(-self._seen) % self._stride :: self._stride]
        self._seen += len(values)
        self._pool.append(kept[~np.isnan(kept)])
        if sum(map(len, self._pool)) > _POOLED:
            self._pool = [np.concatenate(self._pool)[::2]]
            self._stride *= 2
