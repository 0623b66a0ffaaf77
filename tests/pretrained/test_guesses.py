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


def by_hand(row: Array, periods: list[int], lowest: float, T: int, bounds: tuple[float, float]) -> Array:
    """Each guess `(T, K)` after a row, in plain numbers; `bounds` are the least and most value of the whole row."""
    n, h = len(row), np.arange(T)
    step = h + 1.0
    p, second = (one if one < n else 1 for one in periods)
    second = second if periods[1] < n else p

    def at(places: Any) -> Any:
        return row[np.clip(places, 0, n - 1)]

    def mean(start: int, stop: int) -> float:
        stop = max(min(stop, n), 1)
        return float(row[min(max(start, 0), stop - 1) : stop].mean())

    def season_at(phase: int, cycles: int = 5) -> tuple[float, float]:
        if p == 1:
            return 0.0, 1.0
        weights, around, share = [], [], []
        for one in range(1, min(cycles, n // p) + 1):
            place = n - one * p + phase
            start = min(place - p // 2, n - p)
            middle = mean(start, start + p)
            weights.append(0.8 ** (one - 1))
            around.append(at(place) - middle)
            share.append((at(place) - lowest) / (middle - lowest))
        return np.average(around, weights=weights), np.average(share, weights=weights)

    def slope(steps: int) -> float:
        width = max(1, min(p, n // 2))
        span = min(max(steps, width), max(1, n - width))
        return (mean(n - width, n) - mean(n - width - span, n - span)) / span

    def smoothed(alpha: float) -> tuple[float, float]:
        back = np.arange(min(64, n))
        rest = np.array([row[n - 1 - one] - season_at((p - 1 - one) % p, 4)[0] for one in back])
        weight, slow = (1 - alpha) ** back, (1 - alpha / 2) ** back
        centre, mean_rest = np.average(back, weights=slow), np.average(rest, weights=slow)
        together = np.average((back - centre) * (rest - mean_rest), weights=slow)
        return np.average(rest, weights=weight), -together / (np.average((back - centre) ** 2, weights=slow) + 1)

    def autoregression() -> Array:
        level, several = mean(n - max(p, 2), n), p > 6 and n > 2 * p + 12
        lags = np.array([*range(1, 7), p, p + 1, 2 * p])
        used = np.array([*(lag < n // 3 for lag in range(1, 7)), *[several] * 3])
        reach = 2 * p if several else min(6, n // 3)
        ends = [place for place in range(n) if place - reach >= 0]
        columns = np.array([[*(at(place - lags) - level) * used, 1.0] for place in ends]).reshape(-1, 10)
        weight = 0.5 ** ((n - np.array(ends)) / max(n / 2, 100))
        gram = columns.T @ (weight[:, None] * columns)
        aim = np.zeros(10)
        aim[0], aim[6] = (0.4, 0.6) if several else (0.9, 0.0)
        residual = row[ends] - level - columns @ aim
        ridge = 1e-2 * (np.diag(gram).mean() + 1e-12) + 1e-9
        found = aim + np.linalg.solve(gram + ridge * np.eye(10), columns.T @ (weight * residual))
        least, most = (one - level for one in (2 * bounds[0] - bounds[1], 2 * bounds[1] - bounds[0]))
        made: list[float] = []
        for ahead in h:
            inputs = [made[ahead - lag] if lag <= ahead else at(n + ahead - lag) - level for lag in lags]
            made.append(float(np.clip((inputs * used) @ found[:9] + found[9], least, most)))
        return np.array(made) + level

    profile, ratios = (np.array([season_at(one)[part] for one in h % p]) for part in (0, 1))
    last, season, whole = row[-1], at(n - p + h % p), h // p + 1
    cycle, cycles = mean(n - p, n), min(n // p, 5)
    growth = (cycle - mean(n - cycles * p, n - (cycles - 1) * p)) / max(cycles - 1, 1)
    near, far = max(1, min(n - 1, max(p, 6))), max(1, min(n - 1, max(6 * p, 30)))
    base, some, quarter = last + profile - season_at(p - 1)[0], p if p > 1 else 8, min(max(p // 4, 1), 12)
    k = p if p > 1 else 3
    ratio = (mean(n - k, n) - lowest) / (mean(n - 2 * k, n - k) - lowest)
    wide = (cycle - lowest) / (mean(n - 3 * p, n - p) - lowest)
    power = np.clip(np.log(np.clip((ratio + wide) / 2, 0.6, 1.6)) * (whole if p > 1 else step / 3), -1.5, 1.5)
    (quick, quick_slope), (slow, slow_slope) = smoothed(0.5), smoothed(0.2)
    damped = np.array([sum(0.85**one for one in range(1, ahead + 2)) for ahead in h])
    bent = 1 + np.clip(slow_slope / (quick - lowest) * damped, -0.5, 0.5)
    made = {
        "last": np.full(T, last),
        "season": season,
        "second_season": at(n - second + h % second),
        "cycles": cycle + profile + growth / 2 * whole,
        "drift": base + slope(near) * step,
        "long_drift": base + slope(far) * step,
        "growth": ((season if p > 1 else last) - lowest) * np.exp(power) + lowest,
        "moved_season": season + mean(n - quarter, n) - mean(n - p - quarter, n - p),
        "smoothed": quick + quick_slope * damped + profile,
        "slowly_smoothed": slow + slope(far) / 2 * (step + 4) + profile if n > 4 else np.full(T, last),
        "ratios": (quick - lowest) * ratios * bent + lowest,
        "usual": mean(n - 10 * some, n) + profile,
        "mean": np.full(T, mean(n - some, n)),
        "autoregression": autoregression(),
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


@pytest.mark.parametrize(
    ("n", "season", "horizon"),
    [(4, 1, 3), (5, 4, 9), (6, 2, 20), (7, 3, 11), (9, 12, 5), (33, 1, 7), (41, 7, 13), (61, 24, 70), (153, 12, 5)],
)
@pytest.mark.parametrize("kind", ["noisy", "negative", "constant"])
def test_each_guess_is_that_of_its_definition_from_each_origin(n: int, season: int, horizon: int, kind: str) -> None:
    row = {"noisy": noisy(n, 12), "negative": noisy(n, season) - 11, "constant": np.full(n, 3.0)}[kind]
    made = made_for(row, season, horizon)
    periods, span = made.periods[0].tolist(), row.max() - row.min()
    lowest = (0.0 if row.min() >= 0 else row.min() - 2 * span) - 1e-6
    back = min(horizon, max(1, n // (ORIGINS + 1)))
    for number, found in enumerate([made.ahead[0], *made.tried[0]]):
        end = n - number * back
        expected = by_hand(row[:end], periods, lowest, horizon, (row.min(), row.max()))
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5, err_msg=f"{number} {periods}")
        if number:
            came = row[end : end + back]
            assert made.counts[0, number - 1].tolist() == [*[end >= 4] * back, *[False] * (horizon - back)]
            np.testing.assert_allclose(made.truth[0, number - 1, :back].numpy(), came)


def test_gaps_are_filled_by_lines_and_a_guess_is_not_compared_with_them() -> None:
    row = noisy(60, 12)
    known = np.random.default_rng(1).random(60) > 0.3
    known[:5], known[55:] = False, False
    whole, first = filled(torch.tensor(row)[None], torch.tensor(known)[None])
    np.testing.assert_allclose(whole[0], np.interp(np.arange(60), np.flatnonzero(known), row[known]))
    assert first.tolist() == [np.flatnonzero(known)[0]]
    made = made_for(np.where(known, row, np.nan), 12, 10, known)
    assert made.ahead.isfinite().all()
    assert made.counts[0, 0].tolist() == [*known[50:]], "the last ten steps, of which five are not known"
    nothing = made_for(np.full(20, np.nan), 4, 6, np.zeros(20, dtype=bool))
    assert nothing.ahead.eq(0).all()
    assert not nothing.counts.any()


@pytest.mark.parametrize(("n", "season", "period"), [(120, 12, 12), (120, 1, 12), (20, 12, 12), (300, 24, 24)])
def test_a_clear_season_is_found_and_that_of_the_frequency_preferred(n: int, season: int, period: int) -> None:
    values = torch.tensor(np.sin(2 * np.pi * np.arange(n) / period))[None]
    periods, strength = find_periods(values, torch.tensor([0]), torch.tensor([season]))
    assert periods[0, 0] == (period if (2 * season <= n and season > 1) or 2 * period < n else 1)
    assert n < 100 or strength[0, 0] > 0.8


def test_two_seasons_are_found() -> None:
    time = np.arange(1000)
    values = torch.tensor(np.sin(2 * np.pi * time / 24) + (time // 24 % 7 >= 5))[None]
    assert find_periods(values, torch.tensor([0]), torch.tensor([24]))[0].tolist() == [[24, 168]]


def rows_until(values: Tensor, end: int, horizon: int) -> Tensor:
    R = len(values)
    first, periods = torch.zeros(R, dtype=torch.long), torch.tensor([[12, 30]]).expand(R, -1)
    return _Row(values, first, periods, torch.zeros(R), torch.full((R,), end), horizon).guesses()


def test_a_guess_uses_no_value_after_its_origin() -> None:
    """But for the least and most one, which bound the autoregression."""
    row = torch.tensor(noisy(150, 12))[None]
    other = row.clone()
    other[:, 90:] = row[:, 90:].flip(1)
    assert torch.equal(rows_until(other, 90, 20), rows_until(row, 90, 20))
    other[:, 89] += 0.5
    assert not torch.equal(rows_until(other, 90, 20), rows_until(row, 90, 20))


def test_steps_before_a_row_and_rows_beside_it_change_nothing() -> None:
    rows = [noisy(n, 12) for n in (150, 97, 40, 9, 5)]
    known = np.array([[*[False] * (150 - len(row)), *[True] * len(row)] for row in rows])
    together = made_for([np.r_[np.full(150 - len(row), 7e5), row] for row in rows], 12, 15, known)
    for number, row in enumerate(rows):
        for name, part in vars(made_for(row, 12, 15)).items():
            near = {"rtol": 1e-4, "atol": 1e-4} if name == "strength" else {"rtol": 1e-9, "atol": 1e-9}
            torch.testing.assert_close(
                vars(together)[name][number], part[0], **near, msg=lambda said, name=name: name + said
            )


@pytest.mark.parametrize(("level", "size"), [(0.0, 1.0), (1e9, 50.0), (-4.0, 1e-6), (0.0, 1e9), (3e-9, 1e-10)])
def test_rows_are_brought_to_changes_of_about_1_whatever_their_units(level: float, size: float) -> None:
    row = level + size * noisy(80, 12)
    values, middle, scale = standardised(torch.tensor(row)[None], torch.ones(1, 80).bool(), torch.tensor([12]))
    assert values.dtype == torch.float32
    assert 0.3 < (values[:, 12:] - values[:, :-12]).abs().mean() < 3
    np.testing.assert_allclose((values.double() * scale + middle)[0], row, rtol=1e-6, atol=1e-5 * float(scale))
