"""Draw one series of a kind: functions of a generator, a length and a period, and the parts that they share.

Rates are per step: a stretch cut from a long series looks like a short one. `corpus.py` says how often each kind comes.
Sources of ideas: innovations state-space models, Hyndman, Koehler, Ord & Snyder, *Forecasting with Exponential
Smoothing* (2008); polynomials drawn by their roots, SarSim0 (arXiv 2601.00970); causal mixtures, CauKer (arXiv
2508.02879); composed Gaussian processes, KernelSynth (Ansari et al., *Chronos*, TMLR 2024), here by random features
(Rahimi & Recht, 2007); trend times season times noise, ForecastPFN (arXiv 2311.01933).
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

Series: TypeAlias = NDArray[np.float64]
Random: TypeAlias = np.random.Generator


def log_uniform(rng: Random, low: float, high: float) -> float:
    return float(low * (high / low) ** rng.random())


def reined(path: Series, most: float) -> Series:
    """Shrink a path whose range is above `most`."""
    extent = float(np.ptp(path))
    return path * (most / extent) if extent > most else path


def unit(path: Series) -> Series:
    return (path - path.mean()) / (path.std() + 1e-12)


def memory(shocks: Series, decay: float) -> Series:
    """Filter unit shocks into a first-order autoregression of unit variance."""
    shocks, gain = shocks.copy(), math.sqrt(1 - decay**2)
    shocks[0] /= gain
    return np.asarray(lfilter([gain], [1, -decay], shocks))


def smooth(rng: Random, length: int, steps: float) -> Series:
    """Draw a smooth path of about unit variance that turns about once in `steps` steps."""
    burn, decay = min(int(3 * steps) + 1, 800), math.exp(-2 / max(steps, 1))
    gain = math.sqrt((1 - decay**2) ** 3 / (1 + decay**2))
    return np.asarray(lfilter([gain], [1, -2 * decay, decay**2], rng.standard_normal(length + burn))[burn:])


def shocks(rng: Random, length: int) -> Series:
    """Draw unit shocks without memory: normal, heavy-tailed or skewed, sometimes in clusters."""
    place = rng.random()
    if place < 0.25:
        freedom = rng.uniform(2.5, 8)
        drawn = np.clip(rng.standard_t(freedom, length) * math.sqrt((freedom - 2) / freedom), -12, 12)
    elif place < 0.32:
        shape = rng.uniform(0.5, 4)
        drawn = (rng.standard_gamma(shape, length) - shape) / math.sqrt(shape) * rng.choice((-1, 1))
    else:
        drawn = rng.standard_normal(length)
    if rng.random() < 0.2:
        spread = rng.uniform(0.3, 0.9)
        drawn = drawn * np.exp(spread * memory(rng.standard_normal(length), rng.uniform(0.7, 0.99)) - spread**2)
    return drawn


def remainder(rng: Random, length: int) -> Series:
    """Draw shocks of about unit variance, half of them with a memory."""
    drawn = shocks(rng, length)
    return memory(drawn, rng.uniform(-0.3, 0.97)) if rng.random() < 0.5 else drawn


def profile(rng: Random, period: float) -> Series:
    """Draw the shape of one period, of mean 0 and standard deviation 1."""
    steps = max(math.ceil(period), 2)
    phase, place = np.arange(steps) / period, rng.random()
    if place < 0.35:  # few harmonics
        order = np.arange(1, min(steps // 2, int(rng.integers(1, 7))) + 1)
        size = rng.standard_normal(len(order)) / order ** rng.uniform(0.2, 2)
        shape = size @ np.sin(2 * np.pi * (order[:, None] * phase + rng.random((len(order), 1))))
    elif place < 0.6:  # free, of as many knots as a year has months or weeks
        knots = min(steps, int(rng.integers(4, 54)))
        drawn = rng.standard_normal(knots)
        shape = np.interp(phase * knots, np.arange(knots + 1), np.append(drawn, drawn[0]))
    elif place < 0.75:  # flat with a peak or two, or a gap, as of retail and holidays
        shape = 0.2 * rng.standard_normal(steps) if steps < 60 else np.zeros(steps)
        for _ in range(rng.integers(1, 3)):
            width = max(1, int(steps * rng.uniform(0.02, 0.15)))
            shape[(rng.integers(steps) + np.arange(width)) % steps] += rng.normal(0, 3)
    elif place < 0.8:  # a rise that falls at once, as under yearly limits
        shape = (phase + rng.random()) % 1 * rng.choice((-1, 1)) + rng.uniform(0, 0.3) * rng.standard_normal(steps)
    elif place < 0.87:  # working hours, with edges that are sharp or not
        shape = 1 / (1 + np.exp(-np.clip(log_uniform(rng, 5, 100) * (_bump(phase, rng.random(), 0.2) - 0.5), -50, 50)))
    else:
        shape = np.sum([rng.gamma(1.5) * _bump(phase, rng.random(), log_uniform(rng, 0.03, 0.2)) for _ in "123"], 0)
    return unit(shape)


def _bump(phase: Series, centre: float, width: float) -> Series:
    return np.asarray(np.exp(-0.5 * (((phase - centre + 0.5) % 1 - 0.5) / width) ** 2))


def repeated(shape: Series, steps: Series, period: float) -> Series:
    """Return a profile at these steps, between its values where steps or periods are not whole."""
    if period % 1 == 0 and steps.dtype.kind == "i":
        return shape[steps % int(period)]
    return np.interp(steps % period, [*range(len(shape)), period], np.append(shape, shape[0]))


def season(rng: Random, length: int, period: float, changing: float = 0.4) -> Series:
    """Draw a season of unit size whose amplitude, phase or shape may change; (`changing`: share of those that do)."""
    steps = np.arange(length) + rng.integers(math.ceil(period))
    if rng.random() < 0.15 * changing:
        steps = steps + period * reined(smooth(rng, length, 6 * period), 2) * rng.uniform(0.02, 0.2)
    drawn = repeated(profile(rng, period), steps, period)
    if rng.random() < 0.6 * changing:
        share = 1 / (1 + np.exp(-3 * smooth(rng, length, log_uniform(rng, 3, 30) * period)))
        drawn = share * drawn + (1 - share) * repeated(profile(rng, period), steps, period)
    if rng.random() < changing:
        drawn = drawn * np.exp(rng.uniform(0.1, 0.7) * smooth(rng, length, log_uniform(rng, 3, 30) * period))
    return drawn


def trend(rng: Random, length: int) -> Series:
    """Draw a trend: straight, broken, exponential, damped, saturating, a walk or smooth."""
    span, place = log_uniform(rng, 25, 2 * length + 25), rng.random()
    time = np.arange(length) / span
    if place < 0.15:
        return np.zeros(length)
    if place < 0.3:
        path = rng.normal() * time
    elif place < 0.45:
        turns = rng.uniform(0, length / span, (rng.poisson(length / span) + 1, 1))
        path = rng.normal() * time + rng.normal(0, 1.5, len(turns)) @ np.maximum(time - turns, 0)
    elif place < 0.55:
        path = rng.choice((-1, 1, 1)) * np.expm1(np.minimum(time * rng.uniform(0.3, 2), 2.5))
    elif place < 0.65:
        path = rng.normal() * -np.expm1(-time * rng.uniform(1, 6))
    elif place < 0.73:
        start = rng.uniform(0, length / span)
        path = 2 * rng.normal() / (1 + np.exp(-np.clip((time - start) * rng.uniform(4, 20), -50, 50)))
    elif place < 0.88:
        path = np.cumsum(shocks(rng, length) + rng.normal(0, 0.2)) / math.sqrt(span)
    else:
        path = smooth(rng, length, span / 2)
    return reined(path, 5)


def arma(rng: Random, shocks: Series, period: int = 1) -> Series:
    """Filter shocks by a stable ARMA whose polynomials are drawn by the roots."""
    for lag in (1, period) if period > 1 else (1,):
        below, above = (polynomial(rng, rng.integers(4 if lag == 1 else 2), lag) for _ in range(2))
        shocks = np.asarray(lfilter(above, below, shocks))
    return shocks


def polynomial(rng: Random, order: int, lag: int) -> Series:
    """Return the coefficients, in steps of `lag`, of the polynomial with random roots within the unit circle."""
    roots: list[complex] = []
    while len(roots) < order:
        size = 0.98 * rng.random() ** 0.5
        if lag == 1 and order - len(roots) > 1 and rng.random() < 0.4:
            turn = np.exp(1j * rng.uniform(0, np.pi))
            roots += [size * turn, size * turn.conjugate()]
        else:
            roots.append(size if rng.random() < (0.7 if lag == 1 else 0.95) else -size)
    wide = np.zeros(order * lag + 1)
    wide[::lag] = np.poly(roots).real if order else 1.0
    return wide


def smoothing(rng: Random, length: int, period: float) -> Series:
    """Simulate exponential smoothing: level, damped trend and season, each with a smoothing of its own.

    Errors are additive on the scale itself or on that of logarithms, or the season multiplies a straight level. Some
    levels also wander, apart from the error, and some slopes change at once.
    """
    cycle = round(period)
    size = log_uniform(rng, 0.003, 0.2)
    error, level_share = size * shocks(rng, length), rng.random() ** 1.5
    trend_share = level_share * 0.3 * rng.random() ** 3 if rng.random() < 0.6 else 0.0
    damping = rng.uniform(0.8, 0.985) if trend_share > 0.01 or rng.random() < 0.3 else 1.0
    turns = np.cumsum(rng.random(length) < rng.choice((0, 0.15)) / max(cycle, 3))
    start = rng.normal(0.3, 0.7, length)[turns] * log_uniform(rng, 0.01, 0.15) / cycle
    slope = np.append(0, lfilter([trend_share], [1, -damping], error)[:-1])
    first = start * (damping ** np.arange(length) if rng.random() < 0.3 else 1.0)
    level = np.cumsum(slope + first + np.append(0, level_share * error[:-1]))
    if rng.random() < 0.5:
        level = level + log_uniform(rng, 0.002, 0.06) * np.cumsum(shocks(rng, length)) / cycle**0.25
    level = reined(level, rng.uniform(1, 5))
    turning = np.zeros(length)
    if cycle > 1:
        amplitude = size * log_uniform(rng, 0.3, 30) if rng.random() < 0.5 else log_uniform(rng, 0.02, 0.6)
        season_share = (1 - level_share) * rng.random() ** 2 * 0.6 if rng.random() < 0.7 else 0.0
        turning = np.resize(min(amplitude, 0.8) * profile(rng, cycle), length) + by_cycle(season_share * error, cycle)
        if cycle in (12, 52) and rng.random() < 0.3:
            turning = turning + rng.normal(0, 0.1) * _moving_holidays(rng, length, cycle)
        if cycle == 12 and rng.random() < 0.3:
            turning = turning + rng.uniform(0.2, 1) * _working_days(rng, length)
    place = rng.random()
    if place < 0.55:
        return np.exp(level + turning + error)
    if place < 0.8:
        total = 1 + level + turning + error
        return total + max(0.0, rng.uniform(0, 0.3) - total.min()) * (rng.random() < 0.9)
    return (level + max(1.0, rng.uniform(0.05, 0.5) - level.min())) * np.exp(turning + error)


def by_cycle(error: Series, cycle: int) -> Series:
    """Sum, at each step, the errors one, two, ... whole cycles before it."""
    sums = np.zeros(cycle * (-(-len(error) // cycle) + 1))
    sums[cycle : cycle + len(error)] = error
    return np.asarray(np.cumsum(sums.reshape(-1, cycle), axis=0).ravel()[: len(error)])


def _moving_holidays(rng: Random, length: int, cycle: int) -> Series:
    """Mark one step of each cycle, at a place that moves by one or two, as Easter does."""
    marks = np.arange(rng.integers(cycle), length, cycle)
    marks = marks + rng.integers(0, 2 if cycle < 20 else 4, len(marks))
    return np.bincount(marks, minlength=length)[:length].astype(np.float64)


def _working_days(rng: Random, length: int) -> Series:
    """Return the logarithm of the working days of months, over their mean."""
    first = np.arange(length + 1) + np.datetime64("1960-01") + rng.integers(600)
    days = first.astype("datetime64[D]")
    return np.log(np.busday_count(days[:-1], days[1:]) / 21.74)


def decomposed(rng: Random, length: int, period: float) -> Series:
    """Join a trend, one to three seasons and a remainder by sums or products."""
    exact = {52: 52.18, 365: 365.25}.get(round(period), period)
    turning = season(rng, length, exact) * log_uniform(rng, 0.1, 1.5)
    if period > 1 and rng.random() < 0.35:
        second = {24: 168.0, 48: 336.0, 96: 672.0, 7: 365.25}.get(round(period), period * rng.integers(2, 13))
        turning = turning + season(rng, length, second) * log_uniform(rng, 0.1, 1.0)
    size = 0.0 if rng.random() < 0.06 else log_uniform(rng, 0.02, 1.5)
    path, left = trend(rng, length) * log_uniform(rng, 0.3, 3), size * remainder(rng, length)
    place = rng.random()
    if place < 0.4:
        return _centred_exp(path + turning + left, log_uniform(rng, 0.1, 0.8))
    if place < 0.6:  # the season grows with the trend
        share = log_uniform(rng, 0.1, 0.8)
        return (path - path.min() + rng.uniform(0.1, 2)) * np.exp(np.clip(share * (turning + left), -3, 3))
    total = path + turning + left
    return total - total.min() + rng.uniform(0, 1.5) * np.ptp(total) if rng.random() < 0.7 else total


def _centred_exp(path: Series, size: float) -> Series:
    return np.asarray(np.exp(reined((path - path.mean()) * size, 6)))


def sarima(rng: Random, length: int, period: float) -> Series:
    """Draw a seasonal ARMA by its roots, integrated up to twice over steps and once over cycles."""
    cycle = round(period) if period <= 60 else 1
    burn = 100 + 3 * cycle
    drawn = unit(arma(rng, shocks(rng, length + burn), cycle)[burn:])
    if cycle > 1 and rng.random() < 0.5:
        drawn = by_cycle(drawn, cycle) + np.resize(profile(rng, cycle) * log_uniform(rng, 0.5, 20), length)
    for chance in 0.6, 0.1:
        if rng.random() < chance:
            drawn = np.cumsum(drawn + rng.normal(0, 0.1) * drawn.std())
    return _centred_exp(unit(drawn), log_uniform(rng, 0.02, 0.8)) if rng.random() < 0.6 else unit(drawn) + 3


def economy(rng: Random, length: int, period: float) -> Series:
    """Draw yearly figures of a country: output or trade, a share of output, or its people."""
    place = rng.random()
    if place < 0.5:
        changes = np.cumsum(rng.random(length) < 1 / log_uniform(rng, 15, 100))
        regimes = rng.normal(rng.uniform(0, 0.08), 0.03, length)[changes]
        size = log_uniform(rng, 0.01, 0.15)
        growth = regimes + size * memory(shocks(rng, length), rng.uniform(0, 0.6))
        crises = (rng.random(length) < 0.03) * rng.normal(-0.08, 0.12, length)
        growth += crises - rng.uniform(0, 0.8) * np.append(0, crises[:-1])
        return np.exp(reined(np.cumsum(growth), 9))
    if place < 0.75:
        back, size = rng.uniform(0, 0.2) * (rng.random() < 0.8), log_uniform(rng, 0.02, 0.2)
        walk = lfilter([size], [1, back - 1], shocks(rng, length) + rng.normal(0, 0.15))
        breaks = np.cumsum((rng.random(length) < 0.02) * rng.normal(0, 0.4, length))
        return np.exp(reined(walk + breaks, 3))
    rate = rng.normal(0.016, 0.012) + log_uniform(rng, 0.001, 0.01) * smooth(rng, length, log_uniform(rng, 8, 60))
    return np.exp(reined(np.cumsum(rate + rng.random() ** 6 * 0.01 * rng.standard_normal(length)), 6))


def walk(rng: Random, length: int, period: float) -> Series:
    """Draw a random walk with drift, as of prices and rates."""
    path = np.cumsum(shocks(rng, length) + rng.normal(0, 0.12))
    if rng.random() < 0.1:
        path = np.cumsum(path)
    return np.exp(reined(path * log_uniform(rng, 0.002, 0.08), 4)) if rng.random() < 0.7 else reined(path, 1) + 1


def _hours(rng: Random, day: int, centres: tuple[float, ...], quiet: float, width: float) -> Series:
    """Return the rates of a day, of mean 1: bumps at about the centres over a quiet night."""
    phase = np.arange(day) / day
    bumps = (rng.gamma(3) * _bump(phase, rng.normal(at, 0.03), width * rng.uniform(0.6, 1.6)) for at in centres)
    rates = quiet + sum(bumps) + rng.choice((0, 1, 2)) * _bump(phase, 0.57, 0.15)  # and a broad day
    return rates / rates.mean()


def crowd(rng: Random, length: int, period: float) -> Series:
    """Draw how many walk, drive, call or click: days of two forms, a week, holidays, quiet nights; often counts."""
    day = round(period)
    days = length // day + 2
    quiet, width = log_uniform(rng, 3e-4, 0.5), log_uniform(rng, 0.04, 0.13)
    centres = ((0.34, 0.52, 0.73), (0.52, 0.72), (0.5,), (0.35, 0.72), (0.8,))[rng.integers(5)]
    work, free = (_hours(rng, day, at, quiet, width) for at in (centres, (0.56, 0.8)[: rng.integers(1, 3)]))
    weekday = (np.arange(days) + rng.integers(7)) % 7
    at_leisure = (weekday >= 5) & (rng.random() < 0.8) | (rng.random(days) < rng.choice((0, 0.01, 0.04)))
    size = np.exp(rng.normal(0, rng.uniform(0.02, 0.25), 7))[weekday]
    size *= np.where(at_leisure, log_uniform(rng, 0.2, 2), 1)
    size *= np.exp(rng.uniform(0, 0.4) * smooth(rng, days, 30) + rng.uniform(0.01, 0.2) * remainder(rng, days))
    size[rng.random(days) < 0.01] *= 2 * rng.random() ** 2
    rates = np.where(at_leisure[:, None], free, work) * size[:, None]
    rates = rates.ravel()[(first := rng.integers(day)) : first + length] * log_uniform(rng, 2, 3000)
    if rng.random() < 0.65:
        return counted(rng, rates * np.exp(rng.uniform(0, 0.2) * memory(rng.standard_normal(length), 0.7)))
    busy = rates * np.exp(rng.uniform(0.02, 0.4) * remainder(rng, length))
    return busy / (busy + busy.max() * rng.uniform(0.3, 3)) if rng.random() < 0.2 else busy


def counted(rng: Random, rates: Series) -> Series:
    """Draw Poisson or negative binomial counts of these rates."""
    if rng.random() < 0.6:
        shape = log_uniform(rng, 1, 200)
        rates = rates * rng.standard_gamma(shape, len(rates)) / shape
    return rng.poisson(np.clip(rates, 0, 1e9)).astype(np.float64)


def demand(rng: Random, length: int, period: float) -> Series:
    """Draw a demand of energy or water: days, weekends, and a response to warm and cold spells that shapes the day."""
    day = round(period)
    time = np.arange(length) + rng.integers(7 * day)
    phase, weekday = (time % day) / day, time // day % 7
    peaks = ((0.33, 0.78), (0.3, 0.5, 0.8), (0.4, 0.6), (0.35, 0.55, 0.75, 0.95))[rng.integers(4)]
    hours = _hours(rng, day, peaks, log_uniform(rng, 0.7, 8), log_uniform(rng, 0.04, 0.1))
    heated = _hours(rng, day, ((0.3, 0.8), (0.65,))[rng.integers(2)], log_uniform(rng, 0.3, 3), 0.08)
    spells = rng.normal(0, 1) + smooth(rng, length, rng.uniform(1, 5) * day) + 0.6 * smooth(rng, length, 30 * day)
    warm = spells + rng.uniform(0.2, 1) * np.sin(2 * np.pi * (phase - 0.4))
    response = np.maximum(warm - 0.5, 0) * rng.choice((0, 1)) + np.maximum(-warm, 0) * rng.uniform(0, 1)
    holiday = (rng.random(length // day + 9) < 0.015)[time // day - time[0] // day]
    work = np.where((weekday >= 5) | holiday, rng.uniform(0.65, 1.02), 1 + 0.02 * rng.standard_normal(7)[weekday])
    used = hours[time % day] * work + rng.uniform(0, 0.4) * response * heated[time % day]
    return used * np.exp(log_uniform(rng, 0.003, 0.1) * memory(rng.standard_normal(length), rng.uniform(0.3, 0.97)))


def sunlight(rng: Random, length: int, period: float) -> Series:
    """Draw sunlight or its power: nothing at night, clouds by the day and by the hour."""
    phase = ((np.arange(length) + rng.integers(round(period))) % period) / period
    clear = np.maximum(np.sin(2 * np.pi * phase) + rng.uniform(-0.4, 0.4), 0) ** rng.uniform(0.8, 2)
    clouds = rng.normal(0.5, 1) + smooth(rng, length, period) + rng.uniform(0.1, 1) * memory(shocks(rng, length), 0.8)
    return clear / (1 + np.exp(-1.5 * clouds))


def price(rng: Random, length: int, period: float) -> Series:
    """Draw prices of a market by the hour: days, weeks, a level that wanders, clusters of unrest, spikes that fade."""
    level = rng.uniform(0.1, 0.5) * smooth(rng, length, log_uniform(rng, 5, 60) * period)
    turning = rng.uniform(0.05, 0.35) * season(rng, length, period, 0.6)
    if rng.random() < 0.7:
        turning = turning + rng.uniform(0.03, 0.2) * season(rng, length, 7 * period, 0.6)
    unrest = np.exp(rng.uniform(0, 0.8) * smooth(rng, length, 3 * period))
    left = rng.uniform(0.02, 0.3) * unrest * memory(shocks(rng, length), rng.uniform(0.5, 0.97))
    rare = rng.random(length) < np.minimum(log_uniform(rng, 3e-4, 0.02) * unrest**2, 0.2)
    spikes = lfilter([1], [1, -rng.uniform(0, 0.8)], rare * rng.standard_gamma(1.0, length) * log_uniform(rng, 0.3, 8))
    if rng.random() < 0.5:
        return np.exp(np.clip(level + turning + left, -4, 4)) + spikes
    return 1 + level + turning + left + spikes * (1 if rng.random() < 0.8 else -0.3)


def daily(rng: Random, length: int, period: float) -> Series:
    """Draw sales or visits by the day: weekdays, a year, holidays that move, paydays, days when it is closed."""
    time = np.arange(length) + rng.integers(365)
    weekday, year = time % 7, time % 365.25
    log = rng.normal(0, log_uniform(rng, 0.03, 0.6), 7)[weekday]
    log = log + rng.uniform(0, 0.5) * season(rng, length, 365.25, 0.1) * (rng.random() < 0.7)
    log = log + log_uniform(rng, 0.02, 0.5) * trend(rng, length) + log_uniform(rng, 0.01, 0.4) * remainder(rng, length)
    log = log + rng.uniform(0, 0.2) * _bump((year % 30.44) / 30.44, rng.random(), 0.06) * (rng.random() < 0.3)
    for _ in range(rng.poisson(2.5)):  # rises for days, then falls at once, or only a day
        moved = rng.integers(365) + rng.integers(-12, 13, length // 365 + 3)[time // 365 - time[0] // 365]
        log = log + rng.normal(0.2, 0.6) * np.exp(-((moved - year) % 365) / log_uniform(rng, 0.5, 15))
    opened = (weekday != rng.integers(7)) if rng.random() < 0.15 else 1.0
    visits = np.exp(np.clip(log, -5, 5)) * opened * log_uniform(rng, 2, 1000)
    return counted(rng, visits) if rng.random() < 0.4 else visits * log_uniform(rng, 1e-3, 1e5)


def counts(rng: Random, length: int, period: float) -> Series:
    """Draw counts whose rate has a trend and a season."""
    rates = smoothing(rng, length, period) if rng.random() < 0.5 else decomposed(rng, length, period)
    rates = np.maximum(rates, 0)
    return counted(rng, rates / (rates.mean() + 1e-12) * log_uniform(rng, 0.3, 300))


def intermittent(rng: Random, length: int, period: float) -> Series:
    """Draw a demand that comes seldom, in whole lots; it may have a season, and may end."""
    rate = 0.8 * season(rng, length, period) * (rng.random() < 0.5)
    rate = rate + 0.5 * smooth(rng, length, log_uniform(rng, 20, 500))
    rate = np.minimum(log_uniform(rng, 0.03, 0.5) * np.exp(np.clip(rate, -3, 2)), 0.95)
    shape = log_uniform(rng, 0.5, 10)
    lots = 1 + rng.poisson(log_uniform(rng, 0.1, 50) * rng.standard_gamma(shape, length) / shape)
    return (rng.random(length) < rate) * lots.astype(np.float64)


def sensor(rng: Random, length: int, period: float) -> Series:
    """Draw Gaussian processes by random features, with a season or not, at times saturated."""
    steps, path = np.arange(length), np.zeros(length)
    for _ in range(rng.integers(1, 4)):
        scale, features = log_uniform(rng, 3, 400), 24
        rates = rng.standard_normal((features, 1)) / scale
        if rng.random() < 0.4:  # of Student's t: a rough process
            rates = rates / np.sqrt(rng.standard_gamma(1.0, (features, 1)))
        path = path + rng.gamma(1) * np.cos(rates * steps + rng.uniform(0, 2 * np.pi, (features, 1))).mean(0) * 5
    if rng.random() < 0.6:
        path = path + season(rng, length, period) * log_uniform(rng, 0.2, 4)
    path = path + path.std() * log_uniform(rng, 0.003, 0.6) * remainder(rng, length)
    place = rng.random()
    if place < 0.15:
        return np.clip(path, np.quantile(path, rng.uniform(0, 0.4)), np.quantile(path, rng.uniform(0.7, 1)))
    return 1 / (1 + np.exp(-np.clip(unit(path) * rng.uniform(0.5, 3), -30, 30))) if place < 0.25 else path


def mixture(rng: Random, length: int, period: float) -> Series:
    """Draw one node of a causal graph: latent series, delayed, mixed and bent."""
    makers = (
        lambda: season(rng, length, period),
        lambda: trend(rng, length),
        lambda: remainder(rng, length),
        lambda: smooth(rng, length, log_uniform(rng, 5, 200)),
    )
    nodes = [
        unit(makers[rng.integers(5) % 4]() + 0.05 * rng.standard_normal(length)) for _ in range(rng.integers(2, 5))
    ]
    bends = (np.tanh, np.abs, np.sin, lambda x: np.maximum(x, 0), lambda x: x, lambda x: x, lambda x: x * np.abs(x))
    for _ in range(rng.integers(1, 4)):
        mixed = np.zeros(length)
        for parent in rng.permutation(len(nodes))[:3]:
            delay = int(rng.integers(0, min(12, length // 4)))
            mixed = mixed + rng.normal() * nodes[parent][np.maximum(np.arange(length) - delay, 0)]
        bent = bends[rng.integers(len(bends))](1.5 * mixed) + rng.random() ** 3 * remainder(rng, length)
        nodes.append(unit(bent))
    return nodes[-1]


def form(rng: Random, length: int, period: float) -> Series:
    """Draw a sine, square, saw, triangle or pulse, or the sum of two, mostly without noise."""
    total = np.zeros(length)
    for number in range(1 + (rng.random() < 0.3)):
        phase = (np.arange(length) / (period if not number else period * rng.integers(2, 8)) + rng.random()) % 1
        duty = log_uniform(rng, 0.02, 0.9)
        shapes = np.sin(2 * np.pi * phase), phase < duty, phase, np.minimum(phase / duty, (1 - phase) / (1 - duty))
        total = total + rng.choice((-1, 1)) * shapes[rng.integers(4)] / (1 + number * rng.random())
    if rng.random() < 0.3:
        total = total * np.linspace(1, rng.uniform(0.2, 3), length) + rng.normal() * np.linspace(0, 2, length)
    return total + log_uniform(rng, 0.01, 0.3) * rng.standard_normal(length) if rng.random() < 0.4 else total


def switch(rng: Random, length: int, period: float) -> Series:
    """Draw a state that is held for a while: on and off, or a few levels."""
    changes = np.cumsum(rng.random(length) < 1 / log_uniform(rng, 3, 80))
    levels = rng.standard_normal(length) if rng.random() < 0.4 else np.arange(length) % 2.0
    held = levels[changes] + rng.choice((0.0, 0.03, 0.2)) * remainder(rng, length)
    late = rng.uniform(0.3, 0.95) if rng.random() < 0.4 else 0.0  # a level that is approached
    return np.asarray(lfilter([1 - late], [1, -late], held))
