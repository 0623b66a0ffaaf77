"""Quantiles of any horizon and level from a network with a fixed horizon and levels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tsattn.chronos.bolt.bolt_network import ChronosBolt

__all__ = ["at_levels", "continued_quantiles", "quantiles_of_paths"]


def continued_quantiles(
    network: ChronosBolt, levels: Sequence[float], context: Tensor, observed: Tensor | None, most: int, horizon: int
) -> Tensor:
    """Quantiles of `horizon` steps, beyond those of the network continued as Chronos-Bolt's pipeline does.

    Each quantile forecast becomes a context for the next steps, whose quantiles are those of all these forecasts
    together, so that intervals widen. Source: `ChronosBoltPipeline.predict` of
    chronos-forecasting.

    Args:
        network: of Q quantiles and T steps at once.
        levels: the Q levels.
        context: `(R, L)` one series a row.
        observed: `(R, L)` bool; None if all is observed.
        most: steps of the longest context that the network sees.
        horizon: steps to forecast.

    Returns:
        `(R, Q, horizon)` on the scale of the context; those of a step may cross.
    """
    R, Q = len(context), len(levels)
    pieces = [network.quantiles_of(context[:, -most:], None if observed is None else observed[:, -most:])]
    if horizon > network.num_steps:
        context = context[:, None].expand(-1, Q, -1)
        observed = None if observed is None else observed[:, None].expand(-1, Q, -1)
    while sum(piece.shape[-1] for piece in pieces) < horizon:
        last = pieces[-1].to(context.dtype)
        context = torch.cat([context, last], -1)[..., -most:]
        if observed is not None:
            observed = torch.cat([observed, torch.ones_like(last, dtype=torch.bool)], -1)[..., -most:]
        seen = None if observed is None else observed.flatten(0, 1)
        paths = network.quantiles_of(context.flatten(0, 1), seen).reshape(R, Q * Q, -1)
        pieces.append(quantiles_of_paths(paths, levels))
    return torch.cat(pieces, -1)[..., :horizon]


def quantiles_of_paths(paths: Tensor, levels: Sequence[float]) -> Tensor:
    """Quantiles of the paths of each step, linear between two of them; `torch.quantile`, which takes no more than 2^24
    numbers.

    Args:
        paths: `(R, N, T)`.
        levels: Q of them.

    Returns:
        `(R, Q, T)`.
    """
    places = torch.tensor(levels, dtype=torch.float64) * (paths.shape[1] - 1)
    below, ordered = places.floor(), paths.sort(1).values
    share = (places - below).to(paths)[:, None]
    lower, upper = (ordered[:, at.long().to(paths.device)] for at in (below, places.ceil()))
    return torch.lerp(lower, upper, share)


def at_levels(quantiles: Tensor, own: Sequence[float], asked: Sequence[float]) -> Tensor:
    """Quantiles of the asked levels, those between two of its own by linear interpolation.

    Args:
        quantiles: `(..., Q)` of the own levels.
        own: Q rising levels.
        asked: levels from the first of its own to the last.

    Returns:
        `(..., len(asked))`.
    """
    parts = []
    for level in asked:
        after = next(number for number, one in enumerate(own) if one >= level)
        if own[after] == level:
            parts.append(quantiles[..., after])
        else:
            share = (level - own[after - 1]) / (own[after] - own[after - 1])
            parts.append(torch.lerp(quantiles[..., after - 1], quantiles[..., after], share))
    return torch.stack(parts, -1)
