"""Residuals: which they are, their correlation by its definition, and what is drawn of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tsattn.data import Panel, panel_from_frame
from tsattn.errors import UserError
from tsattn.evaluation.measure import ScoredBatch
from tsattn.figures import residual_plots as module
from tsattn.figures.residual_plots import ResidualRecorder, Residuals, autocorrelation, plot_residuals

L, T = 4, 3


def panel(*ids: str, columns: tuple[str, ...] = ("y",)) -> Panel:
    time = pd.date_range("1970-01-01", periods=40, freq="h")
    values = {name: np.arange(40.0) for name in columns}
    frame = pd.concat([pd.DataFrame({"unique_id": name, "ds": time, **values}) for name in ids])
    return panel_from_frame(frame, target=columns)


def batch(seed: int, series: list[int], channels: int = 1) -> ScoredBatch:
    generator = torch.Generator().manual_seed(seed)
    shape = len(series), T, channels
    time = 3600 * (torch.arange(L + T) + torch.arange(len(series))[:, None] + 10 * seed)
    return ScoredBatch(
        torch.randn(shape, generator=generator),
        torch.randn(shape, generator=generator),
        torch.rand(shape, generator=generator) < 0.8,
        (torch.zeros(len(series), 1, channels), torch.full((len(series), 1, channels), 4.0)),
        torch.tensor(series),
        time,
    )


def test_residuals_are_what_came_less_what_was_forecast_at_a_step() -> None:
    batches = [batch(1, [1, 0, 1]), batch(0, [0, 0])]
    recorder = ResidualRecorder(panel("a", "b"), ["a"], ahead=2)
    for one in batches:
        recorder(one)
    found = recorder.finish()
    assert not found.is_scaled
    assert found.season_length == 24
    expected = {}
    for one in batches:
        for window in np.flatnonzero(one.series.numpy() == 0):
            stamp = np.datetime64(int(one.time[window, L + 1]), "s")
            is_seen = bool(one.observed[window, 1, 0])  # type: ignore[index]
            expected[stamp] = 4 * float(one.target[window, 1, 0] - one.point[window, 1, 0]) if is_seen else np.nan
    (time, values), *others = found.lines.values()
    assert not others
    assert time.tolist() == sorted(stamp.tolist() for stamp in expected)
    np.testing.assert_allclose(values, [expected[np.datetime64(stamp)] for stamp in time], rtol=1e-6)
    np.testing.assert_allclose(np.sort(found.pooled), np.sort(values[~np.isnan(values)]))


def test_several_series_are_scaled_and_thinned_where_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POOLED", 50)
    recorder = ResidualRecorder(panel(*"abcdefgh", columns=("load", "gas")))
    every = []
    for seed in range(40):
        one = batch(seed, [seed % 8] * 3, channels=2)
        recorder(one)
        every += (one.target - one.point)[:, 0][one.observed[:, 0]].tolist()  # type: ignore[index]
    found = recorder.finish()
    assert found.is_scaled
    assert [*found.lines] == ["a, load", "a, gas", "b, load", "b, gas", "c, load", "c, gas"]
    assert 25 < len(found.pooled) <= 52
    assert np.isin(found.pooled.astype(np.float32), np.array(every, np.float32)).all()
    assert len(np.unique(found.pooled)) == len(found.pooled)


def test_autocorrelation_is_that_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    values = np.cumsum(rng.standard_normal(60)) + 5
    centred = values - values.mean()
    expected = [sum(centred[i] * centred[i - lag] for i in range(lag, 60)) / sum(centred**2) for lag in range(1, 11)]
    np.testing.assert_allclose(autocorrelation(values, 10), expected)
    values[7] = np.nan
    assert np.isfinite(autocorrelation(values, 10)).all()
    assert np.isnan(autocorrelation(np.ones(9), 3)).all()


def residuals(lines: int = 1, rows: int = 200) -> Residuals:
    rng = np.random.default_rng(1)
    time = np.arange("2020-01-01", rows, dtype="M8[h]").astype("M8[s]")
    parts: dict[str, Any] = {f"s{number}": (time, rng.standard_normal(rows)) for number in range(lines)}
    return Residuals(1, parts, np.concatenate([values for _, values in parts.values()]), lines > 1, 24)


@pytest.mark.parametrize("lines", [1, 3])
def test_each_panel_shows_what_it_says(lines: int) -> None:
    given = residuals(lines)
    figure = plot_residuals(given, {"mine": np.arange(1.0, 13), "persistence": np.ones(12)}, "toy")
    figure.canvas.draw()
    panels = {ax.get_title().split(":")[0]: ax for ax in figure.axes}
    over_time = panels["residuals a step ahead"]
    np.testing.assert_array_equal(over_time.lines[0].get_ydata(), given.lines["s0"][1])
    steps = panels["error by step"]
    assert [line.get_label() for line in steps.lines] == ["mine", "persistence"]
    np.testing.assert_array_equal(steps.lines[0].get_ydata(), np.arange(1.0, 13))
    heights = [patch.get_height() * patch.get_width() for patch in panels["histogram"].patches]  # type: ignore[attr-defined]
    assert sum(heights) == pytest.approx(1)
    quantiles = np.asarray(panels["quantiles and a normal distribution"].lines[0].get_ydata())
    assert (np.diff(quantiles) >= 0).all()
    assert quantiles[[0, -1]].tolist() == [given.pooled.min(), given.pooled.max()]
    assert len(figure.legends) == (lines > 1)


def test_few_or_no_residuals() -> None:
    plot_residuals(residuals(rows=2), {"mine": [1.0]}, "short").canvas.draw()
    with pytest.raises(UserError, match="no observed residual"):
        plot_residuals(Residuals(1, {}, np.empty(0), False, 1), {"mine": [1.0]}, "none")
