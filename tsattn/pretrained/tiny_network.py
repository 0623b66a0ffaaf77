"""The network of `tiny`: an encoder of patches, and for each step of the horizon a mixture of guesses with quantiles.

Untrained, it is a weighted mean of the guesses of `tsattn.pretrained.guesses`: weights are their errors on the last
steps of the series, to the power of -2.5. It learns whom to trust, what to correct, and how sure to be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tsattn.attention import Attention, attention_per_layer, build_attention
from tsattn.batch import EXACT
from tsattn.descriptions import Description
from tsattn.pretrained.guesses import GUESSES, ORIGINS, Guesses

LEVELS = (0.01, 0.025, *(number / 20 for number in range(1, 20)), 0.975, 0.99)
LONGEST = 2048  # steps of a context that are read
PATCH = 16  # steps of a token of the context
STEPS = 8  # of a token of the horizon
_K = len(GUESSES)
_SURE = 1e-4  # least error that a guess is credited with, as a share of the spread of a row
_FACTS = 3 * _K + 9
# between quantiles of a normal distribution whose mean error is 1, before the softplus that keeps them in order
_GAPS = [math.log(math.expm1(1.25 * (b - a))) for a, b in pairwise(map(NormalDist().inv_cdf, LEVELS))]
OUTPUTS = (_K, 1, 1, len(LEVELS) - 1)  # of a step: trust in each guess, a shift, a width, gaps between quantiles


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


class TinyNetwork(nn.Module):
    """Quantiles of rows `(R, L)` at `LEVELS`, for any horizon."""

    def __init__(
        self,
        d_model: int = 96,
        num_layers: int = 3,
        num_decoder_layers: int = 2,
        num_heads: int = 4,
        attention: Description | Sequence[Description] = "standard",
    ) -> None:
        super().__init__()
        self.sizes: dict[str, Any] = {"d_model": d_model, "num_layers": num_layers, "num_heads": num_heads}
        self.sizes |= {"num_decoder_layers": num_decoder_layers, "attention": attention}
        d, tokens = d_model, 1 + LONGEST // PATCH  # the facts too
        build = partial(build_attention, d_model=d, num_heads=num_heads)
        self.patches, self.facts, self.ahead = (
            nn.Sequential(nn.Linear(inputs, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
            for inputs in (3 * PATCH, _FACTS, STEPS * (_K + 4) + _K)
        )
        layers = attention_per_layer(attention, num_layers)
        self.encoder = nn.ModuleList(
            _TinyBlock(build(one, max_length=tokens, rope=True), None, 3 * d) for one in layers
        )
        self.encoder_norm = nn.RMSNorm(d)
        self.decoder = nn.ModuleList(
            _TinyBlock(build("standard", rope=True), build("standard"), 3 * d) for _ in range(num_decoder_layers)
        )
        self.decoder_norm = nn.RMSNorm(d)
        self.head = nn.Linear(d, STEPS * sum(OUTPUTS))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, values: Tensor, known: Tensor, made: Guesses) -> Tensor:
        """Forecast `(R, T, Q)` from `standardised` values; all except the layers computes in the values' precision."""
        ahead, dtype = made.ahead, self.head.weight.dtype
        weights, sure, facts = _trust(made, values, known)
        facts = self.facts(facts.to(dtype))[:, None]
        tokens, mask = self._context(values, known, made.periods[:, :1])
        # at the end, where no padding lies between
        tokens, mask = torch.cat([tokens, facts], 1), F.pad(mask, (0, 1), value=True)
        for block in self.encoder:
            tokens = block(tokens, mask)
        tokens = self.encoder_norm(tokens)
        steps = self._horizon(made, (ahead * weights[:, None]).sum(-1, keepdim=True), sure) + facts
        for block in self.decoder:
            steps = block(steps, None, tokens, mask)
        out = self.head(self.decoder_norm(steps)).unflatten(-1, (STEPS, -1)).flatten(1, 2)
        shares, shift, width, gaps = out[:, : ahead.shape[1]].to(ahead.dtype).split(OUTPUTS, -1)
        trusted, size = torch.softmax(weights.clamp(min=1e-9).log()[:, None] + shares, -1), sure[:, None, None]
        middle = (ahead * trusted).sum(-1, keepdim=True) + size * shift
        gaps = F.softplus(gaps + gaps.new_tensor(_GAPS)) * (size * width.clamp(-5, 5).exp())
        half = len(LEVELS) // 2
        below = middle - gaps[..., :half].flip(-1).cumsum(-1).flip(-1)
        return torch.cat([below, middle, middle + gaps[..., half:].cumsum(-1)], -1)

    def _context(self, values: Tensor, known: Tensor, period: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens `(R, N, D)` of patches of values and of their changes over a season; which patches have a value."""
        before = torch.arange(values.shape[1], device=values.device) - period
        earlier, had = (part.gather(1, before.clamp(min=0)) for part in (values, known))
        changed = known & had & (before >= 0)
        parts = [values.masked_fill(~known, 0), known.to(values.dtype), (values - earlier).masked_fill(~changed, 0)]
        lacking = -values.shape[1] % PATCH
        x = torch.stack([F.pad(torch.asinh(part), (lacking, 0)).unfold(1, PATCH, PATCH) for part in parts], -1)
        seen = F.pad(known, (lacking, 0)).unfold(1, PATCH, PATCH).any(-1)
        return self.patches(x.flatten(2).to(self.head.weight.dtype)), seen

    def _horizon(self, made: Guesses, prior: Tensor, sure: Tensor) -> Tensor:
        """Tokens of the horizon: from the guesses, their place in time, and their errors at earlier origins."""
        ahead, counts = made.ahead, made.counts[..., None].to(made.ahead.dtype)
        step, size, p = torch.arange(ahead.shape[1], device=ahead.device), sure[:, None, None], made.periods[:, :1]
        phase = torch.where(p > 1, (2 * math.pi * step / p).sin(), 0.0)
        time = [torch.log1p(step.to(ahead.dtype)).expand_as(phase), torch.log1p(step / p), phase]
        inputs = torch.cat([torch.asinh((ahead - prior) / size), torch.asinh(prior), torch.stack(time, -1)], -1)
        inputs, missed, number = (
            F.pad(part, (0, 0, 0, -len(step) % STEPS)).unflatten(1, (-1, STEPS))  # type: ignore[no-untyped-call]
            for part in (inputs, made.errors.abs().sum(1), counts.sum(1))
        )
        missed, number = missed.sum(2), number.sum(2)
        missed = torch.where(number > 0, (missed / number.clamp(min=1) / size + 1e-3).log(), 0.0)
        out: Tensor = self.ahead(torch.cat([inputs.flatten(2), missed], -1).to(self.head.weight.dtype))
        return out


def standardised(values: Tensor, known: Tensor, season: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Bring rows `(R, L)` to a level of 0 and changes of about 1; return the level and size `(R,)` too.

    The level is the mean of the last steps. The size is the mean change from a season to the next, or between steps.
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

    size = torch.minimum(changes(season), changes(torch.ones_like(season)) * 4).maximum(0.02 * spread)
    of_level = torch.where(level != 0, level.abs() * 1e-3, 1.0)
    size = torch.where(size > 1e-12 * level.abs(), size, of_level).clamp(min=1e-30)
    return (centred / size[:, None]).float(), level, size


def _trust(made: Guesses, values: Tensor, known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights `(R, K)` of guesses, the error of their mixture `(R,)`, and facts about rows `(R, _FACTS)`."""
    number, errors = made.counts.sum(2).to(values.dtype), made.errors
    whole, tried = number.sum(1), (number > 0).to(values.dtype)
    each = errors.abs().sum(2) / number[..., None].clamp(min=1)
    spread = (values * known).abs().sum(1, keepdim=True) / known.sum(1, keepdim=True).clamp(min=1)
    least = _SURE * spread + 1e-6
    recency = (number.new_tensor([1.0, 0.8, 0.6])[:ORIGINS] * tried)[..., None]  # later origins say more
    mean = (each * recency).sum(1) / recency.sum(1).clamp(min=1e-6)
    mean = torch.where(whole[:, None] > 0, mean, spread.clamp(min=1.0)).clamp(min=least)
    weights = mean**-2.5
    weights = weights / weights.sum(1, keepdim=True)
    mixed = ((made.tried * weights[:, None, None]).sum(-1) - made.truth).abs() * made.counts
    # few tries say little: the least mean error counts as two more
    more = torch.where(whole < 12, 2.0, 0.0)
    sure = (mixed.sum((1, 2)) / whole.clamp(min=1) * whole + more * mean.amin(1)) / (whole + more)
    sure = torch.maximum(sure, least[:, 0])

    n, p = known.sum(1).clamp(min=1).to(values.dtype), made.periods.to(values.dtype)
    relative = torch.log((each + 1e-6) / sure[:, None, None]).clamp(-6, 6) * tried[..., None]
    by_guess = relative.sum(1) / tried.sum(1, keepdim=True).clamp(min=1)
    signed = torch.asinh(errors[:, 0].sum(1) / number[:, :1].clamp(min=1) / sure[:, None])
    of_row = [n.log(), tried.sum(1) / ORIGINS, sure.log(), *p.log().unbind(1), *made.strength.unbind(1)]
    of_row += [(n / p[:, 0]).log(), torch.full_like(n, math.log(made.ahead.shape[1]))]
    return weights, sure, torch.cat([by_guess, relative[:, 0], signed, torch.stack(of_row, 1)], 1)
