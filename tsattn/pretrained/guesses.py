"""Forecasts of series by simple statistics, with their errors on the last steps of the series.

Rows end at their last column and may begin later than the first column. A guess for a step reads only steps before its
origin, so its past errors are errors without knowledge of the future. Only the periods are found in the whole row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.batch import EXACT
from tsattn.layers import repeated, running_maximum, solved

GUESSES = (
    *("last", "season", "second_season", "cycles", "second_cycles", "drift", "long_drift", "growth", "moved_season"),
    *("smoothed", "slowly_smoothed", "theta", "ratios", "quick_ratios", "usual", "mean"),
    *("autoregression", "long_autoregression", "seasonal_changes"),
)
"""Names of the guesses, in the order of their axis."""
ORIGINS = 3  # in the past of a row, at which guesses are tried
LONGEST_PERIOD = 730
_LAGS = 6  # latest values that the autoregression reads, besides values a season ago
_MOST_LAGS = 2 * _LAGS + 7
_FITTED = 800  # most steps that it is fitted to
_RIDGE = 1e-2
_CYCLES = 5  # cycles of a season that make its profile
_SMOOTHED = 64  # steps
_SEASONS_AHEAD = 8  # seasons of a horizon over which changes are added up
_SOME = 1e-6

Tensors = tuple[Tensor, ...]


@dataclass
class Guesses:
    """Guesses of R rows, K each."""

    ahead: Tensor  # (R, T, K) forecasts
    tried: Tensor  # (R, O, T, K) forecasts from earlier origins, the latest first
    truth: Tensor  # (R, O, T) observed values at these steps
    counts: Tensor  # (R, O, T) whether the truth is known, with enough steps before the origin
    periods: Tensor  # (R, 2) lengths of the seasons that the guesses repeat; 1 for none
    strength: Tensor  # (R, 2) autocorrelations at these lengths

    @property
    def errors(self) -> Tensor:
        """Errors of the earlier forecasts `(R, O, T, K)`, 0 where they do not count."""
        return (self.tried - self.truth[..., None]) * self.counts[..., None]


def filled(values: Tensor, known: Tensor, season: Tensor) -> tuple[Tensor, Tensor]:
    """Fill `(R, L)` by the last value of the season, else by any last value; return the first known place `(R,)` too.

    No value fills an earlier place. A row without known values is 0, and begins at its last place.
    """
    L = values.shape[1]
    at = torch.arange(L, device=values.device)
    first = torch.where(known.any(1), known.to(torch.int8).argmax(1), L - 1)
    lag = torch.where(season > 1, season, L)[:, None]
    for _ in range(L.bit_length()):  # a season, two, four: so that each gap is reached, however long
        had, earlier = at >= lag, (at - lag).clamp(min=0)
        values = torch.where(known, values, values.gather(1, earlier))
        known, lag = known | (had & known.gather(1, earlier)), (2 * lag).clamp(max=L)
    last = running_maximum(torch.where(known, at, -1))
    return torch.where(last < 0, 0.0, values.gather(1, last.clamp(min=0))), first


def autocorrelations(values: Tensor, first: Tensor, most: int) -> Tensor:
    """Estimate autocorrelations `(R, most)` of `(R, L)` values from `first` on, without their line, at lags from 0."""
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
    # long lags have few products: they count for less
    return found / found[:, :1].clamp(min=1e-12) * n / left * (left / n + 0.5).clamp(max=1)


def find_periods(values: Tensor, first: Tensor, season: Tensor) -> tuple[Tensor, Tensor]:
    """Return two periods `(R, 2)` and their autocorrelations: the season of the frequency, and the clearest other.

    The clearest period replaces a season `(R,)` of 1, or a season longer than half the row.
    """
    n, most = values.shape[1] - first, max(4, values.shape[1] // 2 + 2)
    found, lag = autocorrelations(values, first, most), torch.arange(most, device=values.device)
    is_peak = torch.zeros_like(found, dtype=torch.bool)
    is_peak[:, 2:-1] = (found[:, 2:-1] > found[:, 1:-2]) & (found[:, 2:-1] >= found[:, 3:])
    is_peak &= lag <= (n[:, None] // 2).clamp(max=LONGEST_PERIOD)
    clear = (3 / n.sqrt()).clamp(min=0.2)  # weaker peaks may be chance

    def clearest(others: Tensor) -> tuple[Tensor, Tensor]:
        # the shortest period that is about as clear as the best one
        score = torch.where(is_peak & others, found, -1.0)
        best = score.max(1, keepdim=True).values
        place = (score >= best - 0.05 * best.abs()).to(torch.int8).argmax(1)
        strength = score.gather(1, place[:, None])[:, 0]
        return torch.where(strength > clear, place, 1), strength

    own, own_strength = clearest(is_peak)
    is_named = (season > 1) & (2 * season <= n)
    main = torch.where(is_named, season, own)
    strength = torch.where(is_named, found.gather(1, season.clamp(max=most - 1)[:, None])[:, 0], own_strength)
    # near a multiple of the first is no other season, unless the row repeats clearly better there, as after a week
    width = (main[:, None] // 8).clamp(min=1)
    near = (lag + width) % main[:, None].clamp(min=2) <= 2 * width
    near &= (main[:, None] > 1) | (lag <= 1)
    near &= ~((lag % main[:, None] == 0) & (lag > main[:, None]) & (found > strength[:, None] + 0.05))
    other, other_strength = clearest(~near)
    periods = torch.stack([main, torch.where(other > 1, other, main)], 1)
    return periods, torch.stack([strength, torch.where(other > 1, other_strength, strength)], 1)


def guess(values: Tensor, known: Tensor, season: Tensor, horizon: int, origin: Tensor) -> Guesses:
    """Make guesses for `horizon` steps T after rows `(R, L)`, of which `season (R,)` is the season by their frequency.

    Values should vary by about 1; `origin (R,)` is the place of 0 on their scale. Ratios are taken from there, unless a
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
        """How far values lie above `lowest`, the zero of ratios. It may be far: ratios are never computed as sums."""
        return (values - self.lowest).clamp(min=_SOME)

    def range(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Least and greatest known value, each `(R, 1)`."""
        at = torch.arange(values.shape[1], device=values.device)
        inside = (at >= self.first) & (at < self.end)
        low, high = (torch.where(inside, values, far) for far in (torch.inf, -torch.inf))
        return low.amin(1, keepdim=True), high.amax(1, keepdim=True)

    def at(self, place: Tensor) -> Tensor:
        """Values `(R, N)` at places; a place before the first value, or not yet known, takes the nearest value."""
        return self.values.gather(1, torch.minimum(torch.maximum(place, self.first), self.end - 1).clamp(min=0))

    def mean(self, start: Tensor, stop: Tensor) -> Tensor:
        """Means `(R, N)` from `start` until before `stop`, as far as they are known."""
        start, stop = (torch.minimum(torch.maximum(one, self.first), self.end) for one in (start, stop))
        stop = torch.maximum(stop, self.first + 1)
        start = torch.minimum(start, stop - 1)
        sums = self.total.gather(1, stop) - self.total.gather(1, start.clamp(min=0))
        return (sums / (stop - start)).to(self.values.dtype)

    def guesses(self) -> Tensor:
        """All guesses, `(R, T, K)`."""
        n, p, q, h, now = self.n, self.period, self.second, self.ahead, torch.zeros_like(self.period)
        step, whole = h + 1.0, (h // p + 1).to(self.values.dtype)
        cycles, quarter = (n // p).clamp(1, _CYCLES), (p // 4).clamp(1, 12)
        k, some = (torch.where(p > 1, p, other) for other in (3, 8))
        width = torch.minimum(p, n // 2).clamp(min=1)  # changes of means over a season, if there is one
        steps = [torch.maximum(most, width) for most in (p.clamp(min=6), (6 * p).clamp(min=30))]
        near, far = (torch.minimum(most, (n - width).clamp(min=1)) for most in steps)
        spans = {
            **{"cycle": (p, now), "first cycle": (cycles * p, (cycles - 1) * p), "wide": (3 * p, p), "k": (k, now)},
            **{"before": (2 * k, k), "second": (q.clamp(min=4), now), "level": (p.clamp(min=2), now)},
            **{"width": (width, now), "near": (width + near, near), "far": (width + far, far), "mean": (some, now)},
            **{"quarter": (quarter, now), "season ago": (p + quarter, p), "usual": (10 * some, now)},
        }  # from the first number of steps before the end until the second
        start, stop = (self.end - torch.cat(ago, 1) for ago in zip(*spans.values(), strict=True))
        mean = dict(zip(spans, torch.split(self.mean(start, stop), 1, 1), strict=True))
        near, far = ((mean["width"] - mean[name]) / span for name, span in (("near", near), ("far", far)))

        places = [self.end - 1, self.end - p + h % p, self.end - q + h % q]
        last, season, second = torch.split(self.at(torch.cat(places, 1)), [1, len(h), len(h)], 1)
        latest = self.end - 1 - torch.arange(_SMOOTHED, device=h.device)
        phases = [h % p, p - 1, (latest - (self.end - p)) % p]
        around, share, seen = self._cycles(p, torch.cat(phases, 1), _CYCLES, 0.8, True)
        profile, profile_now, seasonal = torch.split(self.trusted * around / seen, [len(h), 1, _SMOOTHED], 1)
        shares = (self.trusted * share / seen)[:, : len(h)]
        around, _, seen = self._cycles(q, h % q, _CYCLES - 1, 1.0, False)
        growth = (mean["cycle"] - mean["first cycle"]) / (cycles - 1).clamp(min=1)
        base = last + profile - profile_now  # the season continues from the last value

        k_grows = (mean["k"] - mean["before"]) / self.above(mean["before"])
        grows = 0.5 * (k_grows + (mean["cycle"] - mean["wide"]) / self.above(mean["wide"]))
        pace = torch.where(p > 1, whole, step / 3)
        grown = torch.where(p > 1, season, last)
        grown = grown + self.above(grown) * grows.clamp(-0.4, 0.6).log1p().mul(pace).clamp(-1.5, 1.5).expm1()

        levels, slopes = self._smoothed(latest, self.at(latest) - seasonal)
        (fast, quick, slow), (_, quick_slope, slow_slope) = (torch.split(part, 1, 1) for part in (levels, slopes))
        damped = 0.85 * (1 - 0.85**step) / (1 - 0.85)
        made = [
            *(last, season, second, mean["cycle"] + profile + 0.5 * growth * whole, mean["second"] + around / seen),
            *(base + near * step, base + far * step, grown, season + mean["quarter"] - mean["season ago"]),
            quick + quick_slope * damped + profile,
            torch.where(n > 4, slow + 0.5 * far * (step + 4) + profile, last),
            quick + 0.5 * far * step + profile,
            *(self._by_ratio(quick, slow_slope * damped, shares), self._by_ratio(fast, quick_slope * damped, shares)),
            *(mean["usual"] + profile, mean["mean"]),
            *self._autoregressions(mean["level"], season),
        ]
        out = torch.stack(torch.broadcast_tensors(*made), -1)  # type: ignore[no-untyped-call]
        return torch.where(out.isfinite(), out, last[..., None])

    def _by_ratio(self, level: Tensor, rise: Tensor, shares: Tensor) -> Tensor:
        """A rising level, with a season's shares of it; no level lies below the zero of ratios."""
        level = torch.maximum(level, self.lowest)
        above = self.above(level)
        rise = (rise / above).clamp(-0.5, 0.5)
        return level + above * (shares + rise + shares * rise)

    def _cycles(self, length: Tensor, phase: Tensor, most: int, fade: float, centred: bool) -> Tensors:
        """Weighted sums over cycles `(R, N)`: values at phases above the cycle's mean, and their ratios; weights."""
        number = torch.arange(1, most + 1, device=phase.device)[:, None]
        start = self.end[..., None] - number * length[..., None]  # (R, cycles, 1)
        place = start + phase[:, None]
        if centred:  # around the step, so that a trend within the cycle does not count as season
            start = torch.minimum(place - (length // 2)[..., None], (self.end - length)[..., None])
        start = start.flatten(1)
        middle = torch.unflatten(self.mean(start, start + length), 1, (most, -1))
        value = torch.unflatten(self.at(place.flatten(1)), 1, (most, -1))
        weight = ((self.n // length)[..., None] >= number) & (length > 1)[..., None]
        weight = weight.to(value.dtype) * fade ** (number - 1).to(value.dtype)
        share = (value - middle) / self.above(middle.flatten(1)).view_as(middle)
        return *((weight * part).sum(1) for part in (value - middle, share)), weight.sum(1).clamp(min=_SOME)

    def _smoothed(self, place: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """Levels and slopes `(R, 3)` of the latest values `(R, N)` without their season, by falling weights."""
        back, keep = self.end - 1 - place, rest.new_tensor([[0.2], [0.5], [0.8]])
        weight, slow = (one ** back[:, None] * (place >= self.first)[:, None] for one in (keep, (1 + keep) / 2))
        weight, slow = (one / one.sum(-1, keepdim=True) for one in (weight, slow))  # weights of a line fall more slowly
        back, rest = back[:, None], rest[:, None]
        off, rise = (one - (slow * one).sum(-1, keepdim=True) for one in (back, rest))
        spread = (slow * off.square()).sum(-1)
        return (weight * rest).sum(-1), -(slow * off * rise).sum(-1) / (spread + 1.0)

    def _autoregressions(self, level: Tensor, season: Tensor) -> list[Tensor]:
        """Three regressions: on last values and values a season ago; on many of both seasons; on seasonal changes."""
        p, q, n, h, dtype = self.period, self.second, self.n, self.ahead, season.dtype
        rows = (self.values - level).to(EXACT)
        has = (p > _LAGS) & (n > 2 * p + 2 * _LAGS)
        few = self._regression(rows, self.first, _LAGS, 3, [(p, has), (p + 1, has), (2 * p, has)], True)
        has = (p > 2 * _LAGS) & (n > 2 * p + 4 * _LAGS)
        has_second = (q != p) & (q > 2 * _LAGS) & (n > 2 * q + 4 * _LAGS)
        lags = [(p, has), ((p - 1).clamp(min=1), has), (p + 1, has), (2 * p, has), (7 * p, has & (n > 8 * p))]
        lags += [(q, has_second), (q + 1, has_second)]
        many = self._regression(rows, self.first, 2 * _LAGS, 6, lags, True)
        before = torch.arange(rows.shape[1], device=p.device) - p
        changes = torch.where(before >= self.first, self.values - self.at(before), 0.0).to(EXACT)
        lags, first = [(p, (p > 4) & (n > 3 * p + 8))], torch.minimum(self.first + p, self.end - 1)
        change = self._regression(changes, first, 4, 4, lags, False)

        at_lags, weights, rest, bounds = map(torch.cat, zip(few, many, change, strict=True))
        T, at = len(h), torch.arange(len(h) + 1, device=h.device)
        places = (h[:, None, None] + 1 - at_lags).clamp(min=0)  # (T, 3 R, F); at 0 is nothing

        def go_on(number: Tensor, made: Tensor) -> Tensors:
            earlier = made.gather(1, places.index_select(0, number).squeeze(0))
            new = (earlier * weights).sum(1, keepdim=True) + rest.index_select(1, number)
            new, number = torch.minimum(torch.maximum(new, bounds[:, :1]), bounds[:, 1:]), number + 1
            if torch.compiler.is_exporting():
                return (torch.where(at == number, new, made),)
            return (made.index_copy_(1, number, new),)

        (made,) = repeated(go_on, T, rest.new_zeros(rest.shape[0], T + 1))
        by_few, by_many, by_change = torch.unflatten(made[:, 1:], 0, (3, -1)).unbind()
        # changes of the first season are added to it, changes of the next season to the result
        cycle = torch.arange(min(T, _SEASONS_AHEAD), device=h.device)[:, None]
        place = (h - cycle * p[..., None]).flatten(1)
        added = torch.where(place >= 0, by_change.gather(1, place.clamp(min=0)), 0.0).view(-1, len(cycle), T).sum(1)
        total = season + torch.where(p > 1, added, by_change.cumsum(1)).to(dtype)
        return [(by_few + level).to(dtype), (by_many + level).to(dtype), total]

    def _regression(
        self, rows: Tensor, first: Tensor, latest: int, share: int, more: list[tuple[Tensor, Tensor]], to_season: bool
    ) -> Tensors:
        """Regress `(R, L)`, known from `first` on, on lags, by least squares with a small ridge.

        A row reads a constant, `latest` values (fewer than this share of it), and values at the `more` lags `(R, 1)`
        that it has. Weights are drawn towards the last value, or `to_season` also towards the first of these lags.

        Returns lags and weights `(R, F)`, the part of known values and the constant `(R, T)`, and bounds `(R, 2)`.
        """
        end, (R, L) = self.end, rows.shape
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
        earliest = torch.minimum(first, end - 1).clamp(min=0)[..., None]

        def at(place: Tensor) -> Tensor:
            return rows.gather(1, torch.maximum(place, earliest).flatten(1)).view_as(place)

        columns = at(target_at[:, None] - F.pad(lags, (1, 0))[..., None])
        columns = torch.cat([columns, torch.ones_like(columns[:, :1])], 1)  # (R, 1 + F + 1, N)
        target, columns = columns[:, :1], columns[:, 1:]
        residual = target - aim[:, None] @ columns
        weighted = (columns * fitted[:, None]).transpose(1, 2)
        gram = columns @ weighted * used[:, None] * used[..., None]
        right, scale = (residual @ weighted).transpose(1, 2) * used[..., None], gram.diagonal(dim1=1, dim2=2).mean(1)
        ridge = (_RIDGE * (scale + 1e-12) + 1e-9)[:, None, None]
        weights = (
            aim + solved(gram + ridge * torch.eye(gram.shape[1], dtype=EXACT, device=ridge.device), right).squeeze(2)
        ) * used

        weights, constant = weights[:, :-1], weights[:, -1:]
        ahead = self.ahead - lags[..., None]  # (R, F, T)
        known = torch.where(ahead < 0, at(end[..., None] + ahead.clamp(max=-1)), 0.0)
        low, high = self.range(rows)
        bounds = torch.cat([low - (high - low), high + (high - low)], 1)
        rest = (known * weights[..., None]).sum(1) + constant
        lags, weights = (F.pad(part, (0, _MOST_LAGS - part.shape[1])) for part in (lags, weights))
        return lags, weights, rest, bounds
