"""Calibrated intervals hold the share of targets that they say, whatever predictor they are of."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.predictors import Predictor
from tsattn.predictors.base import AnyHorizon
from tsattn.predictors.calibrated import (
    POINT,
    Calibrated,
    ConformalScores,
    highest_level,
    intervals_of,
    levels_of,
    needed_scores,
    scores_of,
)
from tsattn.task import Output, Task

T, C = 3, 2
TASK = Task("toy", 4, T, ("a", "b"), "h", 24)


class Wrong(Predictor):
    """Quantiles that are far too narrow, and not around the middle of what comes."""

    emits_quantiles = True

    @override
    def fit(self, data: Any, training: Any = None) -> dict[str, Any]:
        return {}

    @override
    def forward(self, batch: Batch) -> Tensor:
        point = (batch.past[:, -1:] + 0.3).expand(-1, T, -1)
        spread = torch.tensor(self.output.quantiles or (0.5,)) - 0.5
        return point[..., None] + 0.2 * spread if self.output.quantiles else point


def built(levels: tuple[float, ...]) -> Wrong:
    predictor = Wrong()
    predictor.build(TASK, Output(levels))
    return predictor


def drawn(rng: np.random.Generator, windows: int) -> Batch:
    """Exchangeable windows, with a skewed noise that is larger in the second channel."""
    past = torch.from_numpy(rng.standard_normal((windows, 4, C))).float()
    noise = torch.from_numpy(rng.gamma(2, 1, (windows, T, C)) * [1.0, 5.0]).float()
    return Batch(past=past, target=past[:, -1:] + noise, series_id=torch.zeros(windows, dtype=torch.long))


def calibrated_by(predictor: Predictor, batch: Batch, levels: tuple[float, ...]) -> Calibrated:
    own = predictor.output.quantiles
    scores = scores_of(predictor(batch), batch.target, batch.target_observed, own)
    return Calibrated(predictor, ConformalScores.of(intervals_of(own), (), [scores]), levels, ["x"])


@pytest.mark.parametrize("own", [(), (0.25, 0.4, 0.5, 0.6, 0.75)], ids=["point", "20 and 50"])
def test_a_new_window_is_covered_as_often_as_theory_says(own: tuple[float, ...]) -> None:
    predictor, seeds, n, new = built(own), 200, 39, 60
    inside: dict[float, list[Tensor]] = {80: [], 95: []}
    for seed in range(seeds):
        rng = np.random.default_rng([7, seed])
        calibrated = calibrated_by(predictor, drawn(rng, n), levels_of([80, 95]))
        batch = drawn(rng, new)
        forecast = calibrated(batch)
        for level, low, high in ((80, 1, 3), (95, 0, 4)):
            inside[level].append(((batch.target >= forecast[..., low]) & (batch.target <= forecast[..., high])).float())
    for level, hits in inside.items():
        rank = math.ceil((n + 1) * level / 100)
        expected = rank / (n + 1)
        assert expected >= level / 100 - 1e-9
        # of one draw of n scores coverage is Beta(rank, n + 1 - rank), and each new window a coin of that
        spread = math.sqrt(expected * (1 - expected) * (1 / (n + 2) + 1 / new) / seeds)
        found = torch.stack(hits).mean((0, 1))  # (T, C)
        assert found.shape == (T, C)
        assert (found - expected).abs().max() < 4.5 * spread, (level, found)


def test_bounds_are_those_of_sorted_scores() -> None:
    """Of each step and channel by itself, with missing targets, by numpy."""
    rng = np.random.default_rng(1)
    batch = drawn(rng, 30)
    batch.target_observed = torch.from_numpy(rng.random((30, T, C)) < 0.8)
    batch.target[~batch.target_observed] = 1e9
    new = drawn(rng, 5)
    for own in ((), (0.1, 0.5, 0.9)):
        predictor = built(own)
        found = calibrated_by(predictor, batch, (0.1, 0.5, 0.9))(new).numpy()
        before, forecast = predictor(batch).numpy(), predictor(new).numpy()
        low, high = (before, before) if not own else (before[..., 0], before[..., 2])
        new_low, new_high = (forecast, forecast) if not own else (forecast[..., 0], forecast[..., 2])
        for step, channel in np.ndindex(T, C):
            known = batch.target_observed[:, step, channel].numpy()
            y = batch.target[:, step, channel].numpy()[known]
            outside = np.maximum(low[known, step, channel] - y, y - high[known, step, channel])
            move = np.sort(outside)[math.ceil((known.sum() + 1) * 0.8 - 1e-9) - 1]
            np.testing.assert_allclose(found[:, step, channel, 0], new_low[:, step, channel] - move, rtol=1e-5)
            np.testing.assert_allclose(found[:, step, channel, 2], new_high[:, step, channel] + move, rtol=1e-5)


def test_bounds_do_not_cross_and_hold_the_median() -> None:
    """Too wide quantiles are narrowed to the median at most; a level without a partner is one bound."""
    rng = np.random.default_rng(3)
    batch = drawn(rng, 50)
    predictor = built((0.05, 0.2, 0.5, 0.8, 0.9))
    assert intervals_of((0.05, 0.2, 0.5, 0.8, 0.9)) == [(0.2, 0.8), (0.05, None), (None, 0.9)]
    wide = scores_of(predictor(batch), predictor(batch)[..., 2], None, (0.05, 0.2, 0.5, 0.8, 0.9)) - 100
    scores = ConformalScores.of(intervals_of((0.05, 0.2, 0.5, 0.8, 0.9)), (), [wide])
    new = drawn(rng, 4)
    narrow = Calibrated(predictor, scores, (0.05, 0.2, 0.5, 0.8, 0.9), ["x"])(new)
    torch.testing.assert_close(narrow, predictor(new)[..., 2:3].expand(-1, -1, -1, 5))
    found = calibrated_by(predictor, batch, levels_of([10, 50, 80, 90]))(new)
    assert (found.diff(dim=-1) >= 0).all()


def test_a_series_with_scores_of_its_own_takes_those() -> None:
    rng = np.random.default_rng(4)
    loud, quiet = (torch.from_numpy(rng.random((20, 1, T, C)) * size).float() for size in (10.0, 0.1))
    scores = ConformalScores.of([POINT], ["loud", 7], [torch.cat([loud, quiet]), loud, quiet])
    assert scores.groups(["7", "new", "loud"]).tolist() == [2, 0, 1]
    calibrated = Calibrated(built(()), scores, levels_of(80), ["7", "new", "loud"])
    batch = drawn(rng, 3)
    batch.series_id = torch.tensor([2, 0, 1])
    width = (calibrated(batch)[..., 2] - calibrated(batch)[..., 0]).mean((1, 2))
    assert width[0] > width[2] > width[1]
    # 20 scores are too few for 97 percent, 40 are not
    highest = Calibrated(built(()), scores, levels_of(97), ["7", "new", "loud"])(batch)
    torch.testing.assert_close(*(highest[..., 2] - highest[..., 1])[:2])


class Twice(AnyHorizon):
    """Forecasts any horizon by itself: the number of the step."""

    @property
    @override
    def steps_at_once(self) -> int:
        return 100

    @override
    def fit(self, data: Any, training: Any = None) -> dict[str, Any]:
        return {}

    @override
    def forecast_to(self, batch: Batch, horizon: int) -> Tensor:
        return torch.arange(float(horizon))[None, :, None].expand(len(batch), -1, C)


@pytest.mark.parametrize("kind", [Wrong, Twice])
def test_steps_beyond_the_horizon_have_the_scores_of_the_last(kind: type[Predictor]) -> None:
    predictor = kind()
    predictor.build(TASK, Output())
    size = torch.arange(1.0, T + 1)[None, None, :, None].expand(9, -1, -1, C)
    calibrated = Calibrated(predictor, ConformalScores.of([POINT], (), [size]), levels_of(80), ["x"])
    batch = drawn(np.random.default_rng(5), 2)
    found = calibrated.forecast_to(batch, 7)
    assert found.shape == (2, 7, C, 3)
    torch.testing.assert_close(found[0, :, 0, 2] - found[0, :, 0, 1], torch.tensor([1.0, 2, 3, 3, 3, 3, 3]))
    if kind is Twice:
        assert found[0, :, 0, 1].tolist() == list(range(7))


def test_levels_and_the_scores_that_they_need() -> None:
    assert levels_of([80, 95]) == (0.025, 0.1, 0.5, 0.9, 0.975)
    assert levels_of(np.float64(80.0)) == (0.1, 0.5, 0.9)
    assert [needed_scores((low, 1 - low)) for low in (0.1, 0.05, 0.025, 0.005)] == [4, 9, 19, 99]
    assert needed_scores(POINT) == 0
    assert [highest_level(count) for count in (0, 4, 19, 99)] == [0, 80, 95, 99]
    for wrong in (0, 100, "80", [80, None], [], True, math.nan):
        with pytest.raises(UserError, match="level must be percent"):
            levels_of(wrong)


def test_too_few_scores_for_a_level_are_counted() -> None:
    batch = drawn(np.random.default_rng(6), 19)
    calibrated_by(built(()), batch, levels_of(95))
    batch.target_observed = torch.ones(19, T, C, dtype=torch.bool)
    batch.target_observed[3, 1, 1] = False
    with pytest.raises(UserError, match="level 95 needs 19 validation windows, but b, step 2, has 18: ask"):
        calibrated_by(built(()), batch, levels_of(95))


def test_scores_are_plain_data() -> None:
    scores = ConformalScores.of([(0.1, 0.9), (None, 0.7)], ["a", 3, ("b", 1)], [torch.rand(5, 2, T, C)] * 4)
    again = ConformalScores.from_dict(scores.to_dict())
    assert (again.intervals, again.ids) == (scores.intervals, scores.ids)
    assert torch.equal(again.values, scores.values)
