"""Forecasts of series by simple statistics, with the errors that each made on the last steps of its series.

Rows end at their last column and may begin later than the first one. A guess for a step looks at steps before its
origin alone, so that its past errors are those of a forecaster who did not know the future. He knew the periods, which
are found in the whole row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.batch import EXACT
from tsattn.layers import running_maximum

GUESSES = (
    *("last", "season", "second_season", "cycles", "second_cycles", "drift", "long_drift", "growth", "moved_season"),
    *("smoothed", "slowly_smoothed", "theta", "ratios", "quick_ratios", "usual", "mean"),
    *("autoregression", "long_autoregression", "seasonal_changes"),
)
"""Names of the guesses, in the order of their axis."""
ORIGINS = 3  # in the past of a row, at which guesses are tried
LONGEST_PERIOD = 730
_LAGS = 6  # the latest values that the autoregression reads, beside those a season ago
_FITTED = 800  # steps that it is fitted to, at most
_RIDGE = 1e-2
_CYCLES = 5  # of a season that make its profile
_SMOOTHED = 64  # steps
_SEASONS_AHEAD = 8  # of a horizon, over which changes are added up
_SOME = 1e-6


@dataclass
class Guesses:
    """Guesses of R rows, K each."""

    ahead: Tensor  # (R, T, K) forecasts
    tried: Tensor  # (R, O, T, K) forecasts from earlier origins, the latest first
    truth: Tensor  # (R, O, T) what came
    counts: Tensor  # (R, O, T) whether that is known, and enough before the origin
    periods: Tensor  # (R, 2) lengths of the seasons that they repeat; 1 for none
    strength: Tensor  # (R, 2) autocorrelations at these

    @property
    def errors(self) -> Tensor:
        """Of the tries `(R, O, T, K)`, 0 where they do not count."""
        return (self.tried - self.truth[..., None]) * self.counts[..., None]


def filled(values: Tensor, known: Tensor, season: Tensor) -> tuple[Tensor, Tensor]:
    """Fill `(R, L)` by the last value of the season, else of all; return the first known place `(R,)` too.

    No value fills a place before it. A row in which nothing is known is 0, from its last place on.
    """
    L = values.shape[1]
    at = torch.arange(L, device=values.device).expand_as(values)
    first = torch.where(known.any(1), known.to(torch.int8).argmax(1), L - 1)
    lag = torch.where(season > 1, season, L)[:, None]
    for _ in range(L.bit_length()):  # a season, two, four: so that each gap is reached, however long
        earlier = at - lag
        had = (earlier >= 0) & known.gather(1, earlier.clamp(min=0))
        values = torch.where(known, values, values.gather(1, earlier.clamp(min=0)))
        known, lag = known | had, (2 * lag).clamp(max=L)
    last = running_maximum(torch.where(known, at, -1))
    return torch.where(last < 0, 0.0, values.gather(1, last.clamp(min=0))), first


def _ridge(gram: Tensor, right: Tensor) -> Tensor:
    """Weights `(R, F)` of least squares with a small ridge, by elimination, as ONNX has no `torch.linalg.solve`."""
    size = gram.shape[1]
    eye = torch.eye(size, dtype=torch.bool, device=gram.device)
    scale = gram.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] + 1e-12
    both = torch.cat([gram + (_RIDGE * scale + 1e-9) * eye, right], -1)
    for number in range(size):
        row = both[:, number : number + 1] / both[:, number : number + 1, number : number + 1]
        both = torch.where(eye[number][:, None], row, both - both[:, :, number : number + 1] * row)
    return both[:, :, size]


def autocorrelations(values: Tensor, first: Tensor, most: int) -> Tensor:
    """Estimate those at lags 0 to `most - 1` of `(R, L)` values from `first` on, without their line: `(R, most)`."""
    L, at = values.shape[1], torch.arange(values.shape[1], device=values.device)
    inside = (at >= first[:, None]).to(values.dtype)
    n = inside.sum(1, keepdim=True)
    time = (at - (first[:, None] + L - 1) / 2) * inside
    centred = (values - (values * inside).sum(1, keepdim=True) / n) * inside
    slope = (centred * time).sum(1, keepdim=True) / time.square().sum(1, keepdim=True).clamp(min=1)
    rest = (centred - slope * time) * inside
    rest = rest / rest.square().mean(1, keepdim=True).sqrt().clamp(min=1e-12)
    size = max(4, 1 << (2 * L - 1).bit_length())
    power = torch.fft.rfft(rest.float(), size)
    found: Tensor = torch.fft.irfft(power.real.square() + power.imag.square(), size)[:, :most]
    left = (n - torch.arange(most, device=values.device)).clamp(min=1)
    # of long lags there are few products: they count for less
    return found / found[:, :1].clamp(min=1e-12) * n / left * (left / n + 0.5).clamp(max=1)


def find_periods(values: Tensor, first: Tensor, season: Tensor) -> tuple[Tensor, Tensor]:
    """Return two periods `(R, 2)` and the autocorrelations at them: that of the frequency, and the clearest other.

    A season `(R,)` of 1, or one longer than half the row, gives place to the clearest period.
    """
    n, most = values.shape[1] - first, max(4, values.shape[1] // 2 + 2)
    found, lag = autocorrelations(values, first, most), torch.arange(most, device=values.device)
    is_peak = torch.zeros_like(found, dtype=torch.bool)
    is_peak[:, 2:-1] = (found[:, 2:-1] > found[:, 1:-2]) & (found[:, 2:-1] >= found[:, 3:])
    is_peak &= lag <= (n[:, None] // 2).clamp(max=LONGEST_PERIOD)
    clear = (3 / n.sqrt()).clamp(min=0.2)  # what chance comes to is no season

    def clearest(others: Tensor) -> tuple[Tensor, Tensor]:
        # the shortest of those that are about as clear as the best one
        score = torch.where(is_peak & others, found, -1.0)
        best = score.max(1, keepdim=True).values
        place = (score >= best - 0.05 * best.abs()).to(torch.int8).argmax(1)
        strength = score.gather(1, place[:, None])[:, 0]
        return torch.where(strength > clear, place, 1), strength

    own, own_strength = clearest(is_peak)
    is_named = (season > 1) & (2 * season <= n)
    main = torch.where(is_named, season, own)
    strength = torch.where(is_named, found.gather(1, season.clamp(max=most - 1)[:, None])[:, 0], own_strength)
    # near a multiple of the first it is no other season, unless there the row is clearly more alike, as after a week
    width = (main[:, None] // 8).clamp(min=1)
    near = (lag + width) % main[:, None].clamp(min=2) <= 2 * width
    near &= (main[:, None] > 1) | (lag <= 1)
    near &= ~((lag % main[:, None] == 0) & (lag > main[:, None]) & (found > strength[:, None] + 0.05))
    other, other_strength = clearest(~near)
    periods = torch.stack([main, torch.where(other > 1, other, main)], 1)
    return periods, torch.stack([strength, torch.where(other > 1, other_strength, strength)], 1)


def guess(values: Tensor, known: Tensor, season: Tensor, horizon: int, origin: Tensor) -> Guesses:
    """Make guesses for `horizon` steps T after rows `(R, L)`, of which `season (R,)` is the season by their frequency.

    Values should vary by about 1; `origin (R,)` is what 0 became on their scale, from which ratios are taken where no
    value lies below it.
    """
    (R, L), every = values.shape, ORIGINS + 1
    rows, first = filled(values, known, season)
    periods, strength = find_periods(rows, first, season)
    back = ((L - first) // every).clamp(1, horizon)
    ends = L - back[:, None] * torch.arange(every, device=values.device)
    given = (part.repeat_interleave(every, 0) for part in (rows, first, periods, strength, origin))
    made = _Row(horizon, ends.flatten(), *given).guesses().view(R, every, horizon, -1)
    steps, ends = torch.arange(horizon, device=values.device), ends[:, 1:, None]
    place = (ends + steps).clamp(0, L - 1).flatten(1)
    truth, is_known = (part.gather(1, place).view(R, ORIGINS, horizon) for part in (rows, known))
    counts = is_known & (steps < back[:, None, None]) & (ends - first[:, None, None] >= 4)
    return Guesses(made[:, 0], made[:, 1:], truth, counts, periods, strength)


class _Row:
    """Rows `(R, L)` that are known from `first (R,)` until before `end (R,)`."""

    def __init__(
        self, T: int, end: Tensor, values: Tensor, first: Tensor, periods: Tensor, strength: Tensor, origin: Tensor
    ) -> None:
        self.values, self.first, self.end = values, first[:, None], end[:, None]
        self.n = (self.end - self.first).clamp(min=1)
        self.ahead = torch.arange(T, device=values.device)
        self.total = F.pad(values.to(EXACT).cumsum(1), (1, 0))
        self.period = torch.where(periods[:, :1] < self.n, periods[:, :1], 1)
        self.second = torch.where(periods[:, 1:] < self.n, periods[:, 1:], self.period)
        self.trusted = (2 * strength[:, :1]).clamp(0, 1)  # share of the season that is believed
        low, high = self.range(values)
        span, origin = high - low, origin[:, None]
        # the zero of counts is their least value, but for the rounding of both
        is_below = origin <= low + 1e-5 * span + 1e-6 * origin.abs()
        self.lowest = torch.where(is_below, torch.minimum(origin, low), low - 2 * span)  # ratios are taken from it

    def above(self, values: Tensor) -> Tensor:
        """How far values lie above what ratios are taken from. That may be far: they are never computed as sums."""
        return (values - self.lowest).clamp(min=_SOME)

    def range(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Least and greatest value `(R, 1)` of what is known."""
        at = torch.arange(values.shape[1], device=values.device)
        inside = (at >= self.first) & (at < self.end)
        low, high = (torch.where(inside, values, far) for far in (torch.inf, -torch.inf))
        return low.amin(1, keepdim=True), high.amax(1, keepdim=True)

    def at(self, place: Tensor) -> Tensor:
        """Values `(R, N)` at places; of one before the first, or not yet known, that of the nearest."""
        return self.values.gather(1, torch.minimum(torch.maximum(place, self.first), self.end - 1).clamp(min=0))

    def mean(self, start: Tensor, stop: Tensor) -> Tensor:
        """Means `(R, N)` from `start` until before `stop`, as far as they are known."""
        start, stop = (torch.minimum(torch.maximum(one, self.first), self.end) for one in (start, stop))
        stop = torch.maximum(stop, self.first + 1)
        start = torch.minimum(start, stop - 1)
        sums = self.total.gather(1, stop) - self.total.gather(1, start.clamp(min=0))
        return (sums / (stop - start)).to(self.values.dtype)

    def guesses(self) -> Tensor:
        """All `(R, T, K)`."""
        p, end, h = self.period, self.end, self.ahead
        step, whole = h + 1.0, (h // p + 1).to(self.values.dtype)
        last, cycle = self.at(end - 1), self.mean(end - p, end)
        season, second = (self.at(end - length + h % length) for length in (p, self.second))
        profile, shares = self._season(h % p)
        cycles = (self.n // p).clamp(1, _CYCLES)
        growth = (cycle - self.mean(end - cycles * p, end - (cycles - 1) * p)) / (cycles - 1).clamp(min=1)
        base = last + profile - self._season(p - 1)[0]  # the season goes on from the last value
        near, far = self._slope(p.clamp(min=6)), self._slope((6 * p).clamp(min=30))

        k = torch.where(p > 1, p, 3)
        before, wide = self.mean(end - 2 * k, end - k), self.mean(end - 3 * p, end - p)
        grows = 0.5 * ((self.mean(end - k, end) - before) / self.above(before) + (cycle - wide) / self.above(wide))
        pace = torch.where(p > 1, whole, step / 3)
        grown = torch.where(p > 1, season, last)
        grown = grown + self.above(grown) * grows.clamp(-0.4, 0.6).log1p().mul(pace).clamp(-1.5, 1.5).expm1()

        around, _, seen = self._cycles(self.second, h % self.second, _CYCLES - 1, 1.0, False)
        second_cycles = self.mean(end - self.second.clamp(min=4), end) + around / seen
        quarter, some = (p // 4).clamp(1, 12), torch.where(p > 1, p, 8)
        (fast, _), (quick, quick_slope), (slow, slow_slope) = self._smoothed(0.8, 0.5, 0.2)
        damped = 0.85 * (1 - 0.85**step) / (1 - 0.85)
        made = [
            *(last, season, second, cycle + profile + 0.5 * growth * whole, second_cycles),
            *(base + near * step, base + far * step, grown),
            season + self.mean(end - quarter, end) - self.mean(end - p - quarter, end - p),
            quick + quick_slope * damped + profile,
            torch.where(self.n > 4, slow + 0.5 * far * (step + 4) + profile, last),
            quick + 0.5 * far * step + profile,
            *(self._by_ratio(quick, slow_slope * damped, shares), self._by_ratio(fast, quick_slope * damped, shares)),
            *(self.mean(end - 10 * some, end) + profile, self.mean(end - some, end)),
            *self._autoregressions(self.mean(end - p.clamp(min=2), end), season),
        ]
        out = torch.stack(torch.broadcast_tensors(*made), -1)  # type: ignore[no-untyped-call]
        return torch.where(out.isfinite(), out, last[..., None])

    def _by_ratio(self, level: Tensor, rise: Tensor, shares: Tensor) -> Tensor:
        """A level, which rises, and of it a season's shares; no level lies below what ratios are taken from."""
        level = torch.maximum(level, self.lowest)
        above = self.above(level)
        rise = (rise / above).clamp(-0.5, 0.5)
        return level + above * (shares + rise + shares * rise)

    def _season(self, phase: Tensor) -> tuple[Tensor, Tensor]:
        """How far the last cycles lie above their mean at a phase `(R, N)`, and by which share of it."""
        around, share, seen = self._cycles(self.period, phase, _CYCLES, 0.8, True)
        return self.trusted * around / seen, self.trusted * share / seen

    def _cycles(self, length: Tensor, phase: Tensor, most: int, fade: float, centred: bool) -> tuple[Tensor, ...]:
        """Sums of the values of cycles above their means, and of their shares of these, and how many have been seen."""
        around, share, number = torch.zeros_like(phase, dtype=self.values.dtype), torch.zeros(()), torch.zeros(())
        for one in range(1, most + 1):
            start = self.end - one * length
            place = start + phase
            if centred:  # around the step, so that a trend within the cycle is none of the season
                start = torch.minimum(place - length // 2, self.end - length)
            middle, value = self.mean(start, start + length), self.at(place)
            weight = ((self.n // length >= one) & (length > 1)).to(around.dtype) * fade ** (one - 1)
            around = around + weight * (value - middle)
            share = share + weight * ((value - middle) / self.above(middle))
            number = number + weight
        return around, share, number.clamp(min=_SOME)

    def _slope(self, steps: Tensor) -> Tensor:
        """Mean change of a step over so many `(R, 1)`, of means over a season where there is one."""
        end, width = self.end, torch.minimum(self.period, self.n // 2).clamp(min=1)
        span = torch.minimum(torch.maximum(steps, width), (self.n - width).clamp(min=1))
        return (self.mean(end - width, end) - self.mean(end - width - span, end - span)) / span

    def _smoothed(self, *alphas: float) -> Iterator[tuple[Tensor, Tensor]]:
        """Levels and slopes `(R, 1)` of the row without its season, by weights that fall by `1 - alpha` a step."""
        back = torch.arange(_SMOOTHED, device=self.values.device)
        place = self.end - 1 - back
        rest = self.at(place) - self._season((place - (self.end - self.period)) % self.period)[0]
        for alpha in alphas:
            weight, slow = ((1 - one) ** back * (place >= self.first) for one in (alpha, alpha / 2))
            weight, slow = (one / one.sum(1, keepdim=True) for one in (weight, slow))  # a line falls more slowly
            mean_at, mean_rest = ((slow * one).sum(1, keepdim=True) for one in (back, rest))
            spread = (slow * (back - mean_at).square()).sum(1, keepdim=True)
            slope = -(slow * (back - mean_at) * (rest - mean_rest)).sum(1, keepdim=True) / (spread + 1.0)
            yield (weight * rest).sum(1, keepdim=True), slope

    def _autoregressions(self, level: Tensor, season: Tensor) -> list[Tensor]:
        """By the last values and those a season ago; by many of both seasons; and by changes over a season."""
        p, q, n, h, dtype = self.period, self.second, self.n, self.ahead, season.dtype
        rows = (self.values - level).to(EXACT)
        has = (p > _LAGS) & (n > 2 * p + 2 * _LAGS)
        few = self._autoregression(rows, self.first, _LAGS, 3, [(p, has), (p + 1, has), (2 * p, has)], True)
        has = (p > 2 * _LAGS) & (n > 2 * p + 4 * _LAGS)
        has_second = (q != p) & (q > 2 * _LAGS) & (n > 2 * q + 4 * _LAGS)
        lags = [(p, has), ((p - 1).clamp(min=1), has), (p + 1, has), (2 * p, has), (7 * p, has & (n > 8 * p))]
        lags += [(q, has_second), (q + 1, has_second)]
        many = self._autoregression(rows, self.first, 2 * _LAGS, 6, lags, True)
        before = torch.arange(rows.shape[1], device=p.device) - p
        changes = torch.where(before >= self.first, self.values - self.at(before), 0.0).to(EXACT)
        lags, first = [(p, (p > 4) & (n > 3 * p + 8))], torch.minimum(self.first + p, self.end - 1)
        change = self._autoregression(changes, first, 4, 4, lags, False).to(dtype)
        # changes of the first season are added to it, those of the next one to what comes of that
        total = torch.zeros_like(change)
        for cycle in range(min(h.shape[0], _SEASONS_AHEAD)):
            total = total + torch.where(cycle <= h // p, change.gather(1, (h - cycle * p).clamp(min=0)), 0.0)
        total = season + torch.where(p > 1, total, change.cumsum(1))
        return [(few + level).to(dtype), (many + level).to(dtype), total]

    def _autoregression(
        self, rows: Tensor, first: Tensor, latest: int, share: int, more: list[tuple[Tensor, Tensor]], to_season: bool
    ) -> Tensor:
        """Forecast `(R, L)`, known from `first` on, step by step, by least squares with a small ridge.

        A row reads its `latest` values, fewer than this share of it, those at `more` lags `(R, 1)` which it has, and a
        constant. Weights are drawn towards the last value, or `to_season` also towards the first of these lags.
        """
        end, T, (R, L) = self.end, self.ahead.shape[0], rows.shape
        recent = torch.arange(1, latest + 1, device=rows.device).expand(R, -1)
        lags = torch.cat([recent, *(lag for lag, _ in more)], 1)  # (R, F)
        used = torch.cat([recent < self.n // share, *(has for _, has in more)], 1)
        steps = torch.arange(1, min(_FITTED, L) + 1, device=rows.device)
        target_at = end - steps  # (R, N)
        fitted = (target_at - (lags * used).amax(1, keepdim=True) >= first).to(EXACT)
        fitted = fitted * 0.5 ** (steps / (self.n / 2).clamp(min=100))  # late steps count for more
        used = F.pad(used.to(EXACT), (0, 1), value=1.0)
        aim, to_both = torch.zeros_like(used), more[0][1][:, 0] & to_season
        aim[:, 0], aim[:, latest] = torch.where(to_both, 0.4, 0.9) * used[:, 0], torch.where(to_both, 0.6, 0.0)

        first = torch.minimum(first, end - 1).clamp(min=0)
        target, *earlier = (
            rows.gather(1, torch.maximum(target_at - lag[:, None], first)) for lag in F.pad(lags, (1, 0)).unbind(1)
        )
        columns = torch.stack([*earlier, torch.ones_like(target)], -1)  # (R, N, F + 1)
        residual = target[..., None] - columns @ aim[..., None]
        weighted = (columns * fitted[..., None]).transpose(1, 2)
        gram = weighted @ columns * used[:, None] * used[..., None]
        weights = aim + _ridge(gram, weighted @ residual * used[..., None])

        low, high = (bound[:, 0] for bound in self.range(rows))
        least, most = low - (high - low), high + (high - low)
        ahead = self.ahead[:, None] - lags[:, None]  # (R, T, F)
        places = torch.where(ahead < 0, torch.maximum(end[..., None] + ahead, first[..., None]), L + ahead)
        made, factors = F.pad(rows, (0, T)), (weights * used)[:, :-1]
        for step in range(T):
            new = (made.gather(1, places[:, step]) * factors).sum(1) + weights[:, -1]
            made[:, L + step] = new.clamp(least, most)
        return made[:, L:]
