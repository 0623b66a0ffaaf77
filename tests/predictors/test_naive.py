"""Persistence and seasonal naive, step by step."""

from __future__ import annotations

import pytest

from tests.predictors.cases import windows_for
from tests.toy_windows import toy_task
from tsattn.errors import UserError
from tsattn.predictors import build_predictor


@pytest.mark.parametrize(
    ("description", "season"),
    [
        ("persistence", 1),
        ("seasonal_naive", 6),
        ({"kind": "seasonal_naive", "season_length": 5}, 5),
        ({"kind": "seasonal_naive", "season_length": 31}, 31),
    ],
)
def test_the_last_steps_come_again_and_again(description: object, season: int) -> None:
    predictor = build_predictor(description)  # type: ignore[arg-type]
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


def test_a_season_has_a_step() -> None:
    with pytest.raises(UserError, match="season_length must be at least 1, not 0"):
        build_predictor({"kind": "seasonal_naive", "season_length": 0})


@pytest.mark.parametrize(("own", "L"), [(None, 24), (5, 5), (31, 31)])
def test_the_mean_of_what_was_observed(own: int | None, L: int) -> None:
    predictor = build_predictor({"kind": "window_mean", "context_length": own})
    assert not predictor.needs_fit
    predictor.build(toy_task(24, 13))
    assert predictor.context_length == L
    windows = windows_for(predictor, gaps=True, extra=3)
    forecast = predictor(windows)
    assert forecast.shape == (4, 13, 3)
    for window in range(4):
        for channel in range(3):
            values = windows.past[window, -L:, channel]
            seen = windows.past_observed[window, -L:, channel]
            mean = values[seen].mean() if seen.any() else values.mean()
            assert forecast[window, :, channel].tolist() == pytest.approx([float(mean)] * 13)
