"""Forecasts of a pretrained `ChronosBolt` of this package's own layers, which needs no extra."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from einops import rearrange
from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.chronos.bolt.bolt_file import BoltModel, load_bolt
from tsattn.chronos.bolt.bolt_network import ChronosBolt
from tsattn.chronos.bolt.continued_quantiles import at_levels, continued_quantiles
from tsattn.chronos.forecasting.channel_rows import first_seen
from tsattn.chronos.forecasting.chronos_forecasts import ROWS_AT_ONCE, ChronosForecasts

__all__ = ["NativeBolt"]


class NativeBolt(ChronosForecasts):
    """Every channel is forecast by itself; the weights are read when they are first asked for.

    Args:
        path: of a file of `tsattn.chronos.bolt.bolt_file`.
        model: what it says of the network.
    """

    def __init__(self, path: Path, model: BoltModel) -> None:
        super().__init__(model.context_length, model.prediction_length, model.quantiles, takes_covariates=False)
        self.path = path
        self._loaded: tuple[ChronosBolt, ...] = ()

    @property
    @override
    def network(self) -> ChronosBolt:
        if not self._loaded:
            self._loaded = (load_bolt(self.path),)
        return self._loaded[0]

    @property
    @override
    def token(self) -> str:
        return self.network.token

    @override
    def token_ends(self, count: int) -> list[int | str] | None:
        return self.network.token_ends(count)

    @override
    @torch.no_grad()
    def quantiles(self, batch: Batch, horizon: int, levels: Sequence[float]) -> Tensor:
        assert self.levels is not None
        network = self.network.to(batch.past.device)
        context = rearrange(batch.past.float(), "B L C -> (B C) L")
        observed = None if batch.past_observed is None else rearrange(batch.past_observed, "B L C -> (B C) L")
        parts = []
        for start in range(0, len(context), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            known = None if observed is None else observed[rows]
            first = 0 if known is None else first_seen(known)  # what nothing was observed in decides nothing
            known = None if known is None else known[:, first:]
            raw = continued_quantiles(network, self.levels, context[rows, first:], known, self.context_length, horizon)
            parts.append(at_levels(raw.sort(1).values.transpose(1, 2), self.levels, levels))
        return rearrange(torch.cat(parts), "(B C) T Q -> B T C Q", C=batch.past.shape[-1]).to(batch.past.dtype)
