"""Guesses are those of their definitions, at any length, and know nothing of what comes after their origin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tsattn.pretrained.guesses import GUESSES, ORIGINS, Guesses, _Row, filled, find_periods, guess
from tsattn.pretrained.tiny_network import standardised

Array = np.ndarray[Any, Any]


def regressed(series: Array, first: int, level: float, lags: dict[str, tuple[int, bool, float]], T: int) -> Array:
    """Regress a series from `first` on, without its level, on lags; each is used or not, and drawn towards a weight."""
    n, rows, made = len(series), series - level, list[float]()
    longest = max(lag * is_used for lag, is_used, _ in lags.values())
    aim = np.array([*(weight for _, _, weight in lags.values()), 0.0])
    gram, right = np.zeros((len(aim),) * 2), np.zeros(len(aim))

    def inputs(place: int) -> Array:
        values = [
            (made[place - lag - n] if place - lag >= n else rows[min(max(place - lag, first), n - 1)]) * is_used
            for lag, is_used, _ in lags.values()
        ]
        return np.array([*values, 1.0])

    for place in range(max(first + longest, n - 800), n):
        row, weight = inputs(place), 0.5 ** ((n - place) / max(n / 2, 100))
        gram += weight * np.outer(row, row)
        right += weight * row * (rows[place] - row @ aim)
    ridge = 1e-2 * (np.trace(gram) / len(gram) + 1e-12) + 1e-9
    weights = aim + np.linalg.solve(gram + ridge * np.eye(len(gram)), right)
    for ahead in range(T):
        new = inputs(n + ahead) @ weights
        made.append(float(np.clip(new, 2 * rows.min() - rows.max(), 2 * rows.max() - rows.min())))
    return np.array(made) + level


def by_hand(row: Array, periods: list[int], strength: float, T: int) -> Array:
    """Each guess `(T, K)` after a row that begins at its first value and whose zero is 0, in plain numbers."""
    n, h = len(row), np.arange(T)
    step, span = h + 1.0, row.max() - row.min()
    lowest = min(row.min(), 0.0) if row.min() >= -1e-5 * span else row.min() - 2 * span
    p = periods[0] if periods[0] < n else 1
    q = periods[1] if periods[1] < n else p
    trusted = min(max(2 * strength, 0.0), 1.0)

    def at(places: Any) -> Any:
        return row[np.clip(places, 0, n - 1)]

    def mean(start: int, stop: int) -> float:
        stop = max(min(stop, n), 1)
        return float(row[min(max(start, 0), stop - 1) : stop].mean())

    def ratio(value: float, of: float) -> float:
        return 1 + (value - of) / max(of - lowest, 1e-6)

    def season_at(phase: int) -> tuple[float, float]:
        """How far the last cycles lie above the mean of a cycle around them, and by which share."""
        if p == 1:
            return 0.0, 0.0
        weights, around, share = [], [], []
        for one in range(1, min(5, n // p) + 1):
            place = n - one * p + phase
            start = min(place - p // 2, n - p)
            middle = mean(start, start + p)
            weights.append(0.8 ** (one - 1))
            around.append(at(place) - middle)
            share.append(ratio(at(place), middle) - 1)
        return trusted * np.average(around, weights=weights), trusted * np.average(share, weights=weights)

    def slope(steps: int) -> float:
        width = max(1, min(p, n // 2))
        span = min(max(steps, width), max(1, n - width))
        return (mean(n - width, n) - mean(n - width - span, n - span)) / span

    def smoothed(alpha: float) -> tuple[float, float]:
        back = np.arange(min(64, n))
        rest = np.array([row[n - 1 - one] - season_at((p - 1 - one) % p)[0] for one in back])
        weight, slow = (1 - alpha) ** back, (1 - alpha / 2) ** back
        centre, mean_rest = np.average(back, weights=slow), np.average(rest, weights=slow)
        together = np.average((back - centre) * (rest - mean_rest), weights=slow)
        return np.average(rest, weights=weight), -together / (np.average((back - centre) ** 2, weights=slow) + 1)

    def by_ratio(level: float, slope: float) -> Array:
        level = max(level, lowest)
        bent = np.clip(slope * damped / max(level - lowest, 1e-6), -0.5, 0.5)
        return lowest + (level - lowest) * (1 + shares) * (1 + bent)

    def second_cycles() -> Array:
        level = mean(n - max(q, 4), n)
        if q == 1:
            return np.full(T, level)
        cycles = range(1, min(4, n // q) + 1)
        parts = [at(n - one * q + h % q) - mean(n - one * q, n - (one - 1) * q) for one in cycles]
        return level + np.mean(parts, 0)

    def autoregression(recent: int, share: int) -> Array:
        """By the latest values, as many as a share of the row, and by those at lags of the seasons."""
        has, level = p > recent and n > 2 * p + 2 * recent, mean(n - max(p, 2), n)
        lags = {f"{lag}": (lag, lag < n // share, 0.0) for lag in range(1, recent + 1)}
        lags["1"] = 1, n // share > 1, 0.4 if has else 0.9
        lags |= {"p": (p, has, 0.6 if has else 0.0), "p + 1": (p + 1, has, 0.0), "2 p": (2 * p, has, 0.0)}
        if recent == 12:
            by_second = q not in (1, p) and q > 12 and n > 2 * q + 24
            lags |= {"p - 1": (max(p - 1, 1), has, 0.0), "7 p": (7 * p, has and n > 8 * p, 0.0)}
            lags |= {"q": (q, by_second, 0.0), "q + 1": (q + 1, by_second, 0.0)}
        return regressed(row, 0, level, lags, T)

    def seasonal_changes() -> Array:
        changes = np.array([row[place] - row[place - p] if place >= p else 0.0 for place in range(n)])
        lags = {f"{lag}": (lag, lag < n // 4, 0.9 * (lag == 1)) for lag in range(1, 5)}
        made = regressed(changes, min(p, n - 1), 0.0, {**lags, "p": (p, p > 4 and n > 3 * p + 8, 0.0)}, T)
        added = [sum(made[ahead - one * p] for one in range(min(8, T)) if one * p <= ahead) for ahead in h]
        return at(n - p + h % p) + (np.array(added) if p > 1 else np.cumsum(made))

    profile, shares = (np.array([season_at(one)[part] for one in h % p]) for part in (0, 1))
    last, season, whole = row[-1], at(n - p + h % p), h // p + 1
    cycle, cycles = mean(n - p, n), min(n // p, 5)
    growth = (cycle - mean(n - cycles * p, n - (cycles - 1) * p)) / max(cycles - 1, 1)
    near, far = max(1, min(n - 1, max(p, 6))), max(1, min(n - 1, max(6 * p, 30)))
    base, some, quarter = last + profile - season_at(p - 1)[0], p if p > 1 else 8, min(max(p // 4, 1), 12)
    k = p if p > 1 else 3
    grows = (ratio(mean(n - k, n), mean(n - 2 * k, n - k)) + ratio(cycle, mean(n - 3 * p, n - p))) / 2
    power = np.clip(np.log(np.clip(grows, 0.6, 1.6)) * (whole if p > 1 else step / 3), -1.5, 1.5)
    (fast, _), (quick, quick_slope), (slow, slow_slope) = smoothed(0.8), smoothed(0.5), smoothed(0.2)
    damped = np.array([sum(0.85**one for one in range(1, ahead + 2)) for ahead in h])
    made = {
        "last": np.full(T, last),
        "season": season,
        "second_season": at(n - q + h % q),
        "cycles": cycle + profile + growth / 2 * whole,
        "second_cycles": second_cycles(),
        "drift": base + slope(near) * step,
        "long_drift": base + slope(far) * step,
        "growth": ((season if p > 1 else last) - lowest) * np.exp(power) + lowest,
        "moved_season": season + mean(n - quarter, n) - mean(n - p - quarter, n - p),
        "smoothed": quick + quick_slope * damped + profile,
        "slowly_smoothed": slow + slope(far) / 2 * (step + 4) + profile if n > 4 else np.full(T, last),
        "theta": quick + slope(far) / 2 * step + profile,
        "ratios": by_ratio(quick, slow_slope),
        "quick_ratios": by_ratio(fast, quick_slope),
        "usual": mean(n - 10 * some, n) + profile,
        "mean": np.full(T, mean(n - some, n)),
        "autoregression": autoregression(6, 3),
        "long_autoregression": autoregression(12, 6),
        "seasonal_changes": seasonal_changes(),
    }
    assert tuple(made) == GUESSES
    return np.stack([*made.values()], -1)


def made_for(rows: Any, season: int, horizon: int, known: Any = None, origin: float = 0.0) -> Guesses:
    values = torch.as_tensor(np.atleast_2d(rows), dtype=torch.float64)
    seen = torch.ones_like(values, dtype=torch.bool) if known is None else torch.as_tensor(np.atleast_2d(known))
    R = len(values)
    return guess(values, seen, torch.full((R,), season), horizon, torch.full((R,), origin, dtype=torch.float64))


def noisy(n: int, season: int, seed: int = 0) -> Array:
    time = np.arange(n)
    return 9 + 2 * np.sin(2 * np.pi * time / season) + 0.03 * time + np.random.default_rng([seed, n]).normal(0, 0.6, n)


def row_of(kind: str, n: int, season: int) -> Array:
    """A row; most counts are zero, and the last of them as well."""
    rows = {"noisy": noisy(n, 12), "negative": noisy(n, season) - 11, "constant": np.full(n, 3.0)}
    rows["two seasons"] = noisy(n, season) + 3 * (np.arange(n) // season % 7 >= 5)
    rows["counts"] = np.random.default_rng(n).poisson(0.3, n) * (np.arange(n) < 0.7 * n) * 1.0
    return rows[kind]


LENGTHS = [(1, 1, 2), (3, 2, 4), (4, 1, 3), (5, 4, 9), (6, 2, 20), (7, 3, 11), (9, 12, 5), (33, 1, 7), (41, 7, 13)]


@pytest.mark.parametrize(("n", "season", "horizon"), [*LENGTHS, (61, 24, 70), (153, 12, 5), (860, 24, 30)])
@pytest.mark.parametrize("kind", ["noisy", "negative", "two seasons", "counts", "constant"])
def test_each_guess_is_that_of_its_definition_from_each_origin(n: int, season: int, horizon: int, kind: str) -> None:
    row = row_of(kind, n, season)
    made = made_for(row, season, horizon)
    periods, strength = made.periods[0].tolist(), float(made.strength[0, 0])
    back = min(horizon, max(1, n // (ORIGINS + 1)))
    for number, found in enumerate([made.ahead[0], *made.tried[0]]):
        end = n - number * back
        if end > 0:
            expected = by_hand(row[:end], periods, strength, horizon)
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5, err_msg=f"{number} {periods}")
        assert found.isfinite().all()
        if number:
            assert made.counts[0, number - 1].tolist() == [*[end >= 4] * back, *[False] * (horizon - back)]
            if end > 0:
                came = row[end : end + back]
                np.testing.assert_allclose(made.truth[0, number - 1, :back].numpy(), came)


def test_gaps_are_filled_from_the_past_and_a_guess_is_not_compared_with_them() -> None:
    nan = np.nan
    rows = np.array([[nan, 1, 2, 3, nan, nan, nan, 7, nan], [nan, 1, 2, nan, nan, nan, 5, nan, nan], [nan] * 9])
    known = torch.tensor(np.isfinite(rows))
    whole, first = filled(torch.tensor(rows), known, torch.tensor([3, 1, 3]))
    # without a season by the last value
    assert whole.tolist() == [[0, 1, 2, 3, 1, 2, 3, 7, 2], [0, 1, 2, 2, 2, 2, 5, 5, 5], [0] * 9]
    assert first.tolist() == [1, 1, 8]
    assert filled(torch.tensor(rows), known, torch.tensor([2, 2, 2]))[0][0].tolist() == [0, 1, 2, 3, 2, 3, 2, 7, 2]
    row, known = noisy(60, 12), torch.tensor(np.random.default_rng(1).random(60) > 0.3)
    known[:5], known[55:] = False, False
    made = made_for(np.where(known, row, nan), 12, 10, known)
    assert made.ahead.isfinite().all()
    assert made.counts[0, 0].tolist() == known[50:].tolist(), "the last ten steps, of which five are not known"
    nothing = made_for(np.full(20, nan), 4, 6, np.zeros(20, dtype=bool))
    assert nothing.ahead.eq(0).all()
    assert not nothing.counts.any()


@pytest.mark.parametrize(("n", "season", "period"), [(120, 12, 12), (120, 1, 12), (20, 12, 1), (300, 24, 24)])
def test_a_clear_season_is_found_and_that_of_the_frequency_preferred(n: int, season: int, period: int) -> None:
    values = torch.tensor(np.sin(2 * np.pi * np.arange(n) / 12 if period == 12 else np.arange(n) % period))[None]
    periods, strength = find_periods(values, torch.tensor([0]), torch.tensor([season]))
    assert periods[0, 0] == period
    assert strength[0, 0] > 0.8 or n < 100


def test_two_seasons_are_found_and_chance_is_none() -> None:
    time, first = np.arange(1000), torch.tensor([0])
    week = torch.tensor(np.sin(2 * np.pi * time / 24) + (time // 24 % 7 >= 5))[None]
    assert find_periods(week, first, torch.tensor([24]))[0].tolist() == [[24, 168]]
    assert find_periods(week, first, torch.tensor([1]))[0].tolist() == [[168, 24]]
    # a season that the frequency names may be longer than those that are looked for
    long = torch.tensor(np.sin(2 * np.pi * np.arange(2048) / 900))[None]
    periods, strength = find_periods(long, first, torch.tensor([900]))
    assert periods[0, 0] == 900
    assert strength[0, 0] > 0.8
    noise = torch.tensor(np.random.default_rng(0).normal(size=(50, 400)))
    assert find_periods(noise, torch.zeros(50).long(), torch.ones(50).long())[0].eq(1).float().mean() > 0.9


def test_a_guess_from_an_earlier_origin_is_that_of_the_shorter_row() -> None:
    """Of which nothing else is known: neither later values, nor gaps that they end."""
    row = noisy(240, 12)
    known = np.random.default_rng(2).random(240) > 0.1
    made = made_for(np.where(known, row, np.nan), 12, 20, known)
    whole, first = filled(torch.tensor(row)[None], torch.tensor(known)[None], torch.tensor([12]))
    for number in range(ORIGINS):
        end = 240 - 20 * (number + 1)
        cut, _ = filled(torch.tensor(row)[None, :end], torch.tensor(known)[None, :end], torch.tensor([12]))
        assert torch.equal(cut, whole[:, :end])
        alone = _Row(20, torch.tensor([end]), cut, first, made.periods, made.strength, torch.zeros(1)).guesses()
        torch.testing.assert_close(made.tried[:, number], alone, rtol=1e-9, atol=1e-9)


def test_ratios_keep_their_digits_far_from_zero() -> None:
    """Values and their zero come in float32."""
    row = torch.tensor(noisy(150, 12))[None]
    known, season = torch.ones(1, 150).bool(), torch.tensor([12])

    def made(dtype: torch.dtype, far: float) -> Tensor:
        return guess(row.to(dtype), known, season, 24, torch.tensor([-far], dtype=dtype)).ahead

    for far in (0.0, 1e4, 1e9):
        torch.testing.assert_close(made(torch.float32, far).double(), made(torch.float64, far), rtol=1e-4, atol=1e-4)


def test_the_zero_of_counts_is_their_least_value_but_for_rounding() -> None:
    row = np.random.default_rng(0).poisson(0.7, 80) - 0.5
    exact, above, beyond = (made_for(row, 7, 14, origin=-0.5 + more).ahead for more in (0, 1e-7, 0.1))
    torch.testing.assert_close(above, exact, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(beyond, exact, rtol=1e-2)
    # and no guess by ratios turns a season upside down below it, where the smoothed level of a row lies there
    fading = row_of("counts", 80, 7)
    made = made_for(fading, 7, 14).ahead[0]
    for name in ("growth", "ratios", "quick_ratios"):
        assert (made[:, GUESSES.index(name)] > -1e-5).all()
    assert (made[:, GUESSES.index("smoothed")] < -1e-3).any()


@pytest.mark.parametrize(
    ("level", "size"), [(0.0, 1.0), (1e9, 50.0), (1e9, 1e-2), (-4.0, 1e-6), (0.0, 1e9), (3e-9, 1e-10)]
)
def test_rows_are_brought_to_changes_of_about_1_whatever_their_units(level: float, size: float) -> None:
    row = level + size * noisy(80, 12)
    values, middle, scale = standardised(torch.tensor(row)[None], torch.ones(1, 80).bool(), torch.tensor([12]))
    assert values.dtype == torch.float32
    assert 0.3 < (values[:, 12:] - values[:, :-12]).abs().mean() < 3
    np.testing.assert_allclose((values.double() * scale + middle)[0], row, rtol=1e-6, atol=1e-5 * float(scale))


def test_rows_without_changes_and_those_of_which_nothing_is_known_keep_their_level() -> None:
    rows = torch.tensor([[0.0] * 9, [5.0] * 9, [-1e9] * 9, [7.0] * 9], dtype=torch.float64)
    known = torch.ones(4, 9).bool()
    known[3] = False
    values, level, size = standardised(rows, known, torch.full((4,), 4))
    assert values.eq(0).all()
    assert level.tolist() == [0, 5, -1e9, 0]
    assert size.tolist() == [1, 5e-3, 1e6, 1]
