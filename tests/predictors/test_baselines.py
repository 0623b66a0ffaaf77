"""Naive forecasts, and the ridge against least squares by numpy, with what it chooses."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.data.many_series import prepared
from tests.predictors.cases import windows_for
from tests.toy_windows import toy_task
from tsattn.data import FrameDataModule
from tsattn.errors import UserError
from tsattn.predictors import build_predictor
from tsattn.predictors.ridge import Ridge
from tsattn.ridge import closed_form as ridge_room
from tsattn.ridge import window_products
from tsattn.ridge.closed_form import possible_contexts
from tsattn.ridge.window_products import Waves


@pytest.mark.parametrize(
    ("description", "season"),
    [("persistence", 1), ("seasonal_naive", 6), ({"kind": "seasonal_naive", "season_length": 31}, 31)],
)
def test_the_last_steps_come_again_and_again(description: object, season: int) -> None:
    predictor = build_predictor(description)
    assert not predictor.needs_fit
    predictor.build(toy_task(24, 13))
    assert predictor.context_length == season
    windows = windows_for(predictor, extra=2)
    forecast = predictor(windows)
    L = windows.past.shape[1]
    for step in range(13):
        source = L + step
        while source >= L:
            source -= season
        assert forecast[:, step].equal(windows.past[:, source])


@pytest.mark.parametrize(("own", "L"), [(None, 24), (5, 5)])
def test_the_mean_of_what_was_observed(own: int | None, L: int) -> None:
    predictor = build_predictor({"kind": "window_mean", "context_length": own})
    assert not predictor.needs_fit
    predictor.build(toy_task(24, 13))
    assert predictor.context_length == L
    windows = windows_for(predictor, gaps=True, extra=3)
    forecast = predictor(windows)
    assert forecast.shape == (4, 13, 3)
    for window, channel in np.ndindex(4, 3):
        values, seen = windows.past[window, -L:, channel], windows.past_observed[window, -L:, channel]
        mean = values[seen].mean() if seen.any() else values.mean()
        assert forecast[window, :, channel].tolist() == pytest.approx([float(mean)] * 13)
    with pytest.raises(UserError, match="season_length must be at least 1, not 0"):
        build_predictor({"kind": "seasonal_naive", "season_length": 0})


def sales(channels: int = 3, rows: int = 430, seed: int = 0, start: str = "2024-01-01") -> pd.DataFrame:
    """Hourly channels with waves of a day, noise and a drift; the last one is constant."""
    rng = np.random.default_rng(seed)
    hours = np.arange(rows)[:, None]
    values = np.sin(2 * np.pi * (hours + rng.integers(24, size=channels)) / 24) + 0.003 * hours
    values = values + 0.4 * rng.standard_normal(values.shape)
    values[:, -1] = 5.0
    names = [f"c{number}" for number in range(channels)]
    return pd.DataFrame(values, pd.date_range(start, periods=rows, freq="h", name="date"), names)


def with_gaps(frame: pd.DataFrame, share: float = 0.004) -> pd.DataFrame:
    return frame.mask(np.random.default_rng(1).random(frame.shape) < share)


def data_of(frame: pd.DataFrame, **options: Any) -> FrameDataModule:
    return prepared(frame, **{"context_length": 24, "prediction_length": 7, "eval_batch_size": 50, **options})


@pytest.fixture
def data() -> FrameDataModule:
    """Channels with a few values missing."""
    return data_of(with_gaps(sales()))


def built(data: FrameDataModule, **arguments: Any) -> Ridge:
    ridge = build_predictor({"kind": "ridge", **arguments})
    assert isinstance(ridge, Ridge)
    ridge.build(data.task)
    return ridge


def rows_of(
    data: FrameDataModule, channel: int, choice: dict[str, Any], part: str = "train"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns, targets and levels of the windows of a channel, cut row by row, times the root of their weights."""
    L, T = choice["context_length"], data.prediction_length
    series = data.series
    xs, ys, levels = [], [], []
    for number, split in enumerate(data.splits):
        first = int(series.starts[number])
        start, end = split.bounds(part)
        for origin in range(max(start, L), end - T + 1):
            o = first + origin
            if series.observed is not None and not series.observed[o : o + T, channel].all():
                continue
            weights = np.ones(T) if series.weights is None else series.weights[o : o + T, channel].double().numpy()
            if part == "train" and not (weights > 0).all():
                continue
            x, y = (series.values[a:b, channel].double().numpy() for a, b in ((o - L, o), (o, o + T)))
            level = x[-1]
            turn = 2 * np.pi * (int(series.time[o]) % 86_400) / 86_400
            waves = [1.0, *(f(k * turn) for k in range(1, 7) for f in (np.sin, np.cos))]
            root = np.sqrt(weights.mean()) if part == "train" else 1.0
            xs.append(root * np.r_[x - level, waves])
            ys.append(root * (y - level))
            levels.append(level)
    return np.array(xs), np.array(ys), np.array(levels)


def oracle(data: FrameDataModule, choice: dict[str, Any]) -> list[np.ndarray]:
    """The map of each channel by least squares over rows, with rows for the penalties."""
    rows = [rows_of(data, channel, choice)[:2] for channel in range(data.task.num_channels)]

    def least(x: np.ndarray, y: np.ndarray, penalty: float, towards: np.ndarray) -> np.ndarray:
        root = np.sqrt(penalty)
        x, y = np.vstack([x, root * np.eye(x.shape[1])]), np.vstack([y, root * towards])
        return np.linalg.lstsq(x, y, rcond=None)[0]

    x, y = (np.concatenate(part) for part in zip(*rows, strict=True))
    shared = least(x, y, choice["penalty"], np.zeros((x.shape[1], y.shape[1])))
    if choice["pooling"] is None:
        return [shared] * len(rows)
    return [least(*one, choice["pooling"], shared) for one in rows]


WAYS = [
    {"context_length": 11, "penalty": 3.0, "pooling": 20.0},
    {"context_length": 31, "penalty": 0.2, "pooling": None},
    {"context_length": 24, "penalty": 50.0, "pooling": 4.0},
]


@dataclass
class Told:
    """What a ridge looks at of a training."""

    member: str = ""
    choices: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.parametrize("way", ["gaps", "weights", "series", "run"])
def test_its_map_is_the_mean_of_least_squares(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of windows cut row by row; updated in runs or multiplied; with what was chosen before taken as it is."""
    frame = sales()
    if way == "weights":
        weight = np.random.default_rng(2).choice([0.0, 1.0, 2.0], size=len(frame), p=[0.01, 0.5, 0.49])
        data = data_of(with_gaps(frame).assign(w=weight), weight_column="w")
    elif way == "series":
        long = pd.concat([sales(2, rows, seed).assign(id=str(seed)) for seed, rows in ((1, 400), (2, 230))])
        options = {"id_column": "id", "time_column": "date", "target": ["c0", "c1"]}
        data = data_of(long.reset_index(), **options)
    else:
        data = data_of(with_gaps(frame) if way == "gaps" else frame)
    monkeypatch.setattr(window_products, "_RUN", 40 if way in ("gaps", "run") else 1000)
    monkeypatch.setattr(window_products, "_AT_ONCE", 100)
    ridge = built(data)
    assert ridge.fit(data, Told("m", {"m": {"maps": WAYS}})) == {"member": "m"}
    assert (ridge.context_length, ridge.weight.dtype) == (31, torch.float64)
    maps = [oracle(data, choice) for choice in WAYS]
    batch = next(iter(data.eval_dataloader("val", 31)))
    forecast = ridge(replace(batch, past_observed=None)).numpy()
    for channel in range(data.task.num_channels):
        expected = 0.0
        for choice, found in zip(WAYS, maps, strict=True):
            past = batch.past[:, 31 - choice["context_length"] :, channel].double().numpy()
            level = past[:, -1]
            turn = 2 * np.pi * (batch.time[:, 31].numpy() % 86_400) / 86_400
            waves = [np.ones(len(turn)), *(f(k * turn) for k in range(1, 7) for f in (np.sin, np.cos))]
            x = np.column_stack([past - level[:, None], *waves])
            expected = expected + (x @ found[channel] + level[:, None]) / len(WAYS)
        np.testing.assert_allclose(forecast[:, :, channel], expected, rtol=1e-7, atol=1e-8)


def test_what_is_chosen_has_the_lowest_errors_on_validation(data: FrameDataModule) -> None:
    told = Told()
    ridge = built(data)
    maps = ridge.fit(data, told)["chosen"]["maps"]
    errors = [one["mse_scaled"] for one in maps]
    assert errors == sorted(errors)
    assert errors[-1] <= 1.1 * errors[0]
    assert ridge.context_length == max(one["context_length"] for one in maps)
    for choice in maps:
        squared = count = 0.0
        for channel, found in enumerate(oracle(data, choice)):
            x, y, _ = rows_of(data, channel, choice, "val")
            squared += ((y - x @ found) ** 2).sum()
            count += y.size
        assert choice["mse_scaled"] == pytest.approx(squared / count, rel=1e-6)
    # any other way with one of these contexts is worse
    way = maps[0]
    for other in ({"penalty": 0.1}, {"penalty": 1e4}):
        changed = {**way, **other, "pooling": None}
        squared = sum(
            ((y - x @ found) ** 2).sum()
            for channel, found in enumerate(oracle(data, changed))
            for x, y, _ in [rows_of(data, channel, changed, "val")]
        )
        assert squared / count >= errors[0] * (1 - 1e-9)
    assert told.lines[0].startswith("ridge (context ")
    again = built(data)
    again.fit(data, Told())
    assert torch.equal(again.weight, ridge.weight), "to the bit"


def test_with_few_windows_for_validation_blocks_of_training_windows_are_left_out() -> None:
    data = data_of(sales(1, 76).assign(c0=lambda one: np.sin(np.arange(76.0)) + 0.1 * one["c0"]), prediction_length=3)
    assert len(data.windows("val")) < 30
    ridge = built(data, context_length=5)
    (choice,) = ridge.fit(data, Told())["chosen"]["maps"]
    x, y, _ = rows_of(data, 0, choice)
    block = np.searchsorted(np.arange(1, 10) * len(x) // 10, np.arange(len(x)), side="right")
    squared = 0.0
    for place in range(10):
        rest = abs(block - place) > 1
        gram = x[rest].T @ x[rest] + choice["penalty"] * np.eye(x.shape[1])
        squared += ((y - x @ np.linalg.solve(gram, x[rest].T @ y[rest]))[block == place] ** 2).sum()
    assert choice["mse_scaled"] == pytest.approx(squared / y.size, rel=1e-7)
    assert choice["pooling"] is None
    assert built(data).fit(data.with_all_rows(), Told())["chosen"]["maps"], "as without validation windows"


def test_contexts_leave_three_quarters_of_the_rows_to_the_windows(
    data: FrameDataModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert possible_contexts(data) == possible_contexts(data, 300) == [6, 12, 24, 48]
    assert possible_contexts(data, 30) == [6, 12, 24, 30]
    monkeypatch.setattr(ridge_room, "CONTEXTS", (300,))
    assert possible_contexts(data) == [(data.splits[0].train_end - 7) // 4]


def test_of_very_many_numbers_the_channels_share_a_map(data: FrameDataModule, monkeypatch: pytest.MonkeyPatch) -> None:
    apart, shared = built(data, penalty=1e4, context_length=24), built(data, context_length=24)
    monkeypatch.setattr(ridge_room, "POOLINGS", (1.0,))
    apart.fit(data, Told())
    monkeypatch.setattr(ridge_room, "_MOST_NUMBERS", 3 * 24 * 7 - 1)
    monkeypatch.setattr(ridge_room, "_KEPT_NUMBERS", 0)
    shared.fit(data, Told())
    assert (len(apart.weight), len(shared.weight), shared.num_parameters) == (3, 1, 24 * 7 + 13 * 7)


def test_it_is_in_float64_whatever_is_cast_around_it(data: FrameDataModule) -> None:
    ridge = build_predictor("ridge")
    ridge.build(data.task)
    batch = next(iter(data.eval_dataloader("val", 48)))
    assert ridge(batch).isnan().all(), "before it is fitted"
    ridge.fit(data, Told())
    for cast in (ridge.half, ridge.bfloat16, ridge.float):
        assert cast().weight.dtype == torch.float64
    assert batch.past.dtype == torch.float32
    assert ridge(batch).dtype == torch.float64
    ridge.waves += 1
    with pytest.raises(UserError, match="uses the calendar and needs time stamps"):
        ridge(replace(batch, time=None))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"penalty": 0.0}, "penalty must be a number above 0, not 0"),
        ({"context_length": 0}, "context_length must be at least 1, not 0"),
        ({"penalty": "much"}, "predictor ridge: penalty must be a number or null, not 'much'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_predictor({"kind": "ridge", **arguments})


@pytest.mark.parametrize(
    ("frequency", "season", "period"),
    [
        ("h", None, 86_400),
        ("15min", None, 86_400),
        ("D", None, 604_800),
        ("W", None, 31_556_952),
        ("MS", None, 31_556_952),
        (None, 12, 12),  # time that counts steps
        (None, 400, 0),  # seen once
    ],
)
def test_waves_have_the_period_of_the_season(frequency: str | None, season: int | None, period: int) -> None:
    rows = 2100 if frequency == "15min" else 600
    index = range(rows) if frequency is None else pd.date_range("2001-01-01", periods=rows, freq=frequency)
    frame = pd.DataFrame({"y": np.arange(rows) % 7.0}, pd.Index(index, name="ds"))
    data = data_of(frame, context_length=12)
    if season is not None:
        data.task = replace(data.task, season_length=season)
        data._scaled = (data.panel, data.task, data.scaler)
    assert Waves.of(data).period == period
    if not period:
        ridge = built(data, context_length=12)
        ridge.fit(data, Told())
        assert (ridge.waves.shape[1], ridge.reads_time) == (0, False)
        assert ridge(next(iter(data.eval_dataloader("val", 12)))).isfinite().all()
