"""The network of `tiny`: an encoder of patches, and for each step of the horizon a mixture of guesses with quantiles.

It begins as the mean of the guesses of `tsattn.pretrained.guesses`, weighted by the inverse squares of the errors that
they made on the last steps of the series, and learns whom to trust, what to correct, and how sure to be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tsattn.attention import Attention, attention_per_layer, build_attention
from tsattn.batch import EXACT, ModuleWithConstants
from tsattn.descriptions import Description
from tsattn.pretrained.guesses import GUESSES, ORIGINS, Guesses

LEVELS = (0.01, 0.025, *(number / 20 for number in range(1, 20)), 0.975, 0.99)
LONGEST = 2048  # steps of a context that are read
PATCH = 16  # steps of a token of the context
STEPS = 8  # of a token of the horizon
_K = len(GUESSES)
_SURE = 1e-4  # the least error that a guess is believed to make, as a share of the spread of a row
_FACTS = 3 * _K + 9


class _TinyBlock(nn.Module):
    """Pre-norm block: attention, across attention to other tokens if asked for, and a network on each token."""

    def __init__(self, attention: Attention, across: Attention | None, d_ff: int) -> None:
        super().__init__()
        d = attention.d_model
        self.attention, self.attention_norm = attention, nn.RMSNorm(d)
        self.across, self.across_norm = across, None if across is None else nn.RMSNorm(d)
        self.feedforward_norm = nn.RMSNorm(d)
        self.feedforward = nn.Sequential(nn.Linear(d, d_ff), nn.GELU(), nn.Linear(d_ff, d))

    def forward(self, x: Tensor, mask: Tensor | None, past: Tensor | None = None, seen: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), attention_mask=mask)
        if self.across is not None and self.across_norm is not None:
            x = x + self.across(self.across_norm(x), context=past, attention_mask=seen)
        out: Tensor = x + self.feedforward(self.feedforward_norm(x))
        return out


class TinyNetwork(ModuleWithConstants):
    """Quantiles of rows `(R, L)` at `LEVELS`, for any horizon."""

    gaps: Tensor

    def __init__(
        self,
        d_model: int = 96,
        num_layers: int = 3,
        num_decoder_layers: int = 2,
        num_heads: int = 4,
        attention: Description | Sequence[Description] = "standard",
    ) -> None:
        super().__init__()
        d, tokens = d_model, 1 + LONGEST // PATCH

        def build(described: Description, **more: Any) -> Attention:
            return build_attention(described, d_model=d, num_heads=num_heads, **more)

        self.patches, self.facts, self.ahead = (_mlp(n, d) for n in (3 * PATCH, _FACTS, STEPS * (_K + 4) + _K))
        layers = attention_per_layer(attention, num_layers)
        self.encoder = nn.ModuleList(
            _TinyBlock(build(one, max_length=tokens, rope=True), None, 3 * d) for one in layers
        )
        self.encoder_norm = nn.RMSNorm(d)
        self.decoder = nn.ModuleList(
            _TinyBlock(build("standard", rope=True), build("standard"), 3 * d) for _ in range(num_decoder_layers)
        )
        self.decoder_norm = nn.RMSNorm(d)
        self.num_outputs = _K + 2 + len(LEVELS) - 1
        self.head = nn.Linear(d, STEPS * self.num_outputs)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        # a normal distribution whose mean error is 1, by the softplus that keeps quantiles in their order
        gaps = np.diff([1.25 * NormalDist().inv_cdf(level) for level in LEVELS])
        self.register_constant("gaps", np.log(np.expm1(gaps)), torch.float32, cast=True)

    def forward(self, values: Tensor, known: Tensor, made: Guesses) -> Tensor:
        """Forecast `(R, T, Q)` on the scale of the values, as they are scaled by `standardised`, from guesses for them.

        All but the layers computes in the precision of the values.
        """
        self.fill_constants(values.device)
        horizon = made.ahead.shape[1]
        errors, weights, sure = trust(made, values, known)
        ahead = made.ahead
        prior = (ahead * weights[:, None]).sum(-1)
        dtype = self.head.weight.dtype
        facts = self.facts(_facts(made, errors, weights, sure, known, horizon).to(dtype))
        tokens, mask = self._context(values, known, made.periods[:, :1])
        tokens = torch.cat([tokens, facts[:, None]], 1)  # at the end, where no padding lies between
        mask = F.pad(mask, (0, 1), value=True)
        for block in self.encoder:
            tokens = block(tokens, mask)
        tokens = self.encoder_norm(tokens)
        steps = self._horizon(made, prior, sure, horizon) + facts[:, None]
        for block in self.decoder:
            steps = block(steps, None, tokens, mask)
        out = self.head(self.decoder_norm(steps)).unflatten(-1, (STEPS, self.num_outputs)).flatten(1, 2)
        out = out[:, :horizon].to(ahead.dtype)
        trusted = torch.softmax(weights.clamp(min=1e-9).log()[:, None] + out[..., :_K], -1)
        size = sure[:, None]
        middle = (ahead * trusted).sum(-1) + size * out[..., _K]
        width = size * out[..., _K + 1].clamp(-5, 5).exp()
        gaps = F.softplus(out[..., _K + 2 :] + self.gaps.to(out.dtype)) * width[..., None]
        half = len(LEVELS) // 2
        below = middle[..., None] - gaps[..., :half].flip(-1).cumsum(-1).flip(-1)
        above = middle[..., None] + gaps[..., half:].cumsum(-1)
        return torch.cat([below, middle[..., None], above], -1)

    def _context(self, values: Tensor, known: Tensor, period: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens `(R, N, D)` of patches of values and of their changes over a season, and which have a value."""
        before = torch.arange(values.shape[1], device=values.device) - period
        earlier, had = (part.gather(1, before.clamp(min=0)) for part in (values, known))
        changed = known & had & (before >= 0)
        parts = [values.masked_fill(~known, 0), known.to(values.dtype), (values - earlier).masked_fill(~changed, 0)]
        lacking = -values.shape[1] % PATCH
        x = torch.stack([F.pad(torch.asinh(part), (lacking, 0)).unfold(1, PATCH, PATCH) for part in parts], -1)
        seen = F.pad(known, (lacking, 0)).unfold(1, PATCH, PATCH).any(-1)
        return self.patches(x.flatten(2).to(self.head.weight.dtype)), seen

    def _horizon(self, made: Guesses, prior: Tensor, sure: Tensor, horizon: int) -> Tensor:
        """Inputs of the tokens of the horizon: the guesses, where they lie in time, and how far such guesses erred."""
        ahead, R = made.ahead, prior.shape[0]
        step = torch.arange(horizon, device=ahead.device)
        size = sure[:, None, None]
        p = made.periods[:, :1].to(ahead.dtype)
        phase = 2 * math.pi * step / p
        more = [torch.asinh(prior), torch.log1p(step.to(ahead.dtype)).expand(R, -1), torch.log1p(step / p)]
        more += [torch.where(p > 1, phase.sin(), 0.0)]
        lacking = (0, 0, 0, -horizon % STEPS)
        whole = torch.cat([torch.asinh((ahead - prior[..., None]) / size), torch.stack(more, -1)], -1)
        whole = F.pad(whole, lacking).unflatten(1, (-1, STEPS)).flatten(2)  # type: ignore[no-untyped-call]
        counts = made.counts[..., None].to(ahead.dtype)
        missed = ((made.tried - made.truth[..., None]).abs() * counts).sum(1)
        both = (F.pad(part, lacking) for part in (missed, counts.sum(1)))
        missed, number = (part.unflatten(1, (-1, STEPS)).sum(2) for part in both)  # type: ignore[no-untyped-call]
        missed = torch.where(number > 0, (missed / number.clamp(min=1) / size + 1e-3).log(), 0.0)
        out: Tensor = self.ahead(torch.cat([whole, missed], -1).to(self.head.weight.dtype))
        return out


def standardised(values: Tensor, known: Tensor, season: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Bring rows `(R, L)` to a level of 0 and changes of about 1; return the level and size `(R,)` too.

    The level is the mean of the last steps, the size that of changes from a season to the next, or between steps.
    """
    values = values.to(EXACT).masked_fill(~known, 0)
    at = torch.arange(values.shape[1], device=values.device)
    last = torch.where(known, at, -1).amax(1, keepdim=True)
    recent = known & (at > last - season[:, None].clamp(min=4))
    level = (values * recent).sum(1) / recent.sum(1).clamp(min=1)
    centred = (values - level[:, None]).masked_fill(~known, 0)
    spread = centred.abs().sum(1) / known.sum(1).clamp(min=1)

    def changes(lag: Tensor) -> Tensor:
        before = at - lag[:, None]
        both = known & known.gather(1, before.clamp(min=0)) & (before >= 0)
        change = (values - values.gather(1, before.clamp(min=0))).abs()
        number = both.sum(1)
        return torch.where(number > 2, (change * both).sum(1) / number.clamp(min=1), spread)

    size = torch.minimum(changes(season), changes(torch.ones_like(season)) * 4)
    size = torch.maximum(size, 0.02 * spread)
    size = torch.where(size > 1e-12 * level.abs(), size, torch.where(level != 0, level.abs() * 1e-3, 1.0))
    size = size.clamp(min=1e-30)
    return (centred / size[:, None]).float(), level, size


def trust(made: Guesses, values: Tensor, known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return errors `(R, O, K)` of guesses from earlier origins, weights `(R, K)`, and errors of a mixture `(R,)`."""
    counts = made.counts[..., None].to(made.tried.dtype)
    number = counts.sum(2)
    each = ((made.tried - made.truth[..., None]).abs() * counts).sum(2) / number.clamp(min=1)
    whole = counts.sum((1, 2))
    spread = (values * known).abs().sum(1, keepdim=True) / known.sum(1, keepdim=True).clamp(min=1)
    least = _SURE * spread + 1e-6
    # later origins say more
    recency = counts.new_tensor([1.0, 0.8, 0.6])[:ORIGINS, None] * (number > 0)
    mean = (each * recency).sum(1) / recency.sum(1).clamp(min=1e-6)
    mean = torch.where(whole > 0, mean, spread.clamp(min=1.0)).clamp(min=least)
    weights = mean**-2.5
    weights = weights / weights.sum(1, keepdim=True)
    mixed = ((made.tried * weights[:, None, None]).sum(-1) - made.truth).abs() * made.counts
    sure = torch.where(whole[:, 0] > 0, mixed.sum((1, 2)) / whole[:, 0].clamp(min=1), 1.0)
    # few tries say little: the changes of the row, about 1, count as two more
    more = torch.where(whole[:, 0] < 12, 2.0, 0.0)
    sure = (sure * whole[:, 0] + more * mean.amin(1)) / (whole[:, 0] + more)
    return each, weights, torch.maximum(sure, least[:, 0])


def _facts(made: Guesses, errors: Tensor, weights: Tensor, sure: Tensor, known: Tensor, horizon: int) -> Tensor:
    """What is known of a row as a whole, `(R, _FACTS)`."""
    n = known.sum(1).clamp(min=1).to(errors.dtype)
    tried = made.counts.any(2).to(errors.dtype)
    relative = torch.log((errors + 1e-6) / sure[:, None, None]).clamp(-6, 6) * tried[..., None]
    by_guess = relative.sum(1) / tried.sum(1, keepdim=True).clamp(min=1)
    latest = relative[:, 0]
    counts = made.counts[:, 0, :, None].to(errors.dtype)
    signed = ((made.tried[:, 0] - made.truth[:, 0, :, None]) * counts).sum(1) / counts.sum(1).clamp(min=1)
    signed = torch.asinh(signed / sure[:, None])
    p = made.periods.to(errors.dtype)
    of_row = [n.log(), tried.sum(1) / ORIGINS, sure.log(), (p[:, 0]).log(), p[:, 1].log(), *made.strength.unbind(1)]
    of_row += [(n / p[:, 0]).log(), torch.full_like(n, math.log(horizon))]
    return torch.cat([by_guess, latest, signed, torch.stack(of_row, 1)], 1)


def _mlp(inputs: int, d_model: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 2 * d_model), nn.GELU(), nn.Linear(2 * d_model, d_model))
