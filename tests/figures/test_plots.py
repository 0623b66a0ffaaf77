"""Figures of forecasts: whose they are, how much came before, no times of day without any; and of residuals."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

from tsattn.data import FrameDataModule, Panel, panel_from_frame
from tsattn.errors import UserError
from tsattn.evaluation.measure import ScoredBatch
from tsattn.figures import plot_test_forecasts
from tsattn.figures import residual_plots as module
from tsattn.figures.forecasts import axis_name, forecast_title, plot_forecast
from tsattn.figures.residual_plots import ResidualRecorder, Residuals, autocorrelation, plot_residuals
from tsattn.predictors import build_predictor
from tsattn.predictors.network import NetworkPredictor
from tsattn.task import Output, Task


def panel(frequency: str, rows: int = 2000) -> Panel:
    time = pd.date_range("2020-01-01", periods=max(3, rows), freq=frequency, name="date")
    table = pd.DataFrame({"load": np.arange(len(time), dtype=float)}, index=time)
    return panel_from_frame(table, source="toy").until(np.array([rows]))


def task(horizon: int, season: int, frequency: str) -> Task:
    return Task("toy", 48, horizon, ("load",), frequency, season)


def drawn(frequency: str, season: int, horizon: int, rows: int = 2000) -> Figure:
    history = panel(frequency, rows)
    time = history.future_time(0, horizon)
    forecast = pd.DataFrame({"unique_id": "load", "ds": time, "predictions": 1.0})
    figure = plot_forecast(forecast, history, task(horizon, season, frequency), Output())
    figure.canvas.draw()
    return figure


def points_before(figure: Figure) -> int:
    return len(np.asarray(figure.axes[0].lines[0].get_xdata()))


@pytest.mark.parametrize(
    ("frequency", "season", "horizon", "before"),
    [
        ("5min", 288, 12, 60),  # not a day of 288 points
        ("5min", 288, 96, 288),
        ("h", 24, 1, 24),
        ("MS", 12, 12, 24),
        ("W-SUN", 52, 4, 52),  # a year
    ],
)
def test_history_is_as_long_as_horizon_and_season_ask_for(
    frequency: str, season: int, horizon: int, before: int
) -> None:
    assert points_before(drawn(frequency, season, horizon, rows=1000)) == before


def test_the_origins_of_a_cross_validation_lengthen_no_history() -> None:
    history = panel("h")
    stamps = history.time[-48:]
    forecast = pd.DataFrame({"unique_id": "load", "ds": stamps, "predictions": 1.0})
    forecast["cutoff"] = np.repeat([stamps[0], stamps[12], stamps[24], stamps[36]], 12)
    figure = plot_forecast(forecast, history, task(12, 24, "h"), Output())
    assert points_before(figure) == 24 + 48


@pytest.mark.parametrize(
    ("frequency", "season", "rows"), [("D", 7, 1), ("D", 7, 3), ("MS", 12, 200), ("YS", 1, 2), ("QS", 4, 1)]
)
def test_dates_have_no_time_of_day(frequency: str, season: int, rows: int) -> None:
    figure = drawn(frequency, season, 1, rows)
    axis = figure.axes[0].xaxis
    labels = [label.get_text() for label in axis.get_ticklabels()] + [axis.get_offset_text().get_text()]
    assert any(labels)
    assert not [label for label in labels if ":" in label]


def test_hours_keep_their_time_of_day() -> None:
    axis = drawn("h", 24, 6).axes[0].xaxis
    assert any(":" in label.get_text() for label in axis.get_ticklabels())


def test_the_test_windows_of_a_long_table_are_named_by_their_series() -> None:
    rows = 60
    frames = [
        pd.DataFrame({"unique_id": name, "ds": pd.date_range("2020-01-01", periods=rows, freq="MS"), "y": range(rows)})
        for name in ("Harbour", "Mill", "Bridge")
    ]
    long = FrameDataModule(pd.concat(frames, ignore_index=True), context_length=12, prediction_length=3)
    wide = FrameDataModule(
        frames[0].set_index("ds")[["y"]].astype(float), context_length=12, prediction_length=3, name="wide"
    )
    titles = {}
    for name, data in {"long": long, "wide": wide}.items():
        data.setup("fit")
        predictor = NetworkPredictor({"kind": "transformer", "d_model": 8, "num_heads": 2})
        predictor.build(data.task)
        figure = plot_test_forecasts(predictor, data, "the title")
        assert figure.get_suptitle() == "the title"
        titles[name] = [ax.get_title("left") for ax in figure.axes[:3]]
    assert [title.split(", ")[0] for title in titles["long"]] == list(long.panel.ids)
    assert all(title.split(", ")[1].startswith("forecast from 20") for title in titles["long"])
    assert all(title.startswith("forecast from 20") for title in titles["wide"])
    assert not [title for some in titles.values() for title in some if ":" in title]


@pytest.mark.parametrize(
    ("data", "frequency", "horizon", "title"),
    [
        ("co2", "W-SAT", 52, "CO2, 52 weeks ahead: PatchTST"),
        ("ETTh1", "h", 1, "ETTh1, 1 hour ahead: PatchTST"),
        ("sales", "MS", 12, "sales, 12 months ahead: PatchTST"),
        ("sales", "QS-JAN", 4, "sales, 4 quarters ahead: PatchTST"),
        ("panel", "30min", 48, "48 steps of 30 minutes ahead: PatchTST"),
        ("panel", "WOM-2TUE", 3, "3 steps ahead: PatchTST"),
        ("panel", "1", 3, "3 steps ahead: PatchTST"),
    ],
)
def test_titles_are_plain(data: str, frequency: str, horizon: int, title: str) -> None:
    assert forecast_title(Task(data, 48, horizon, ("load",), frequency, 7), horizon, "PatchTST") == title


def test_models_and_axes_have_plain_names() -> None:
    described = {"kind": "patchtst", "d_model": 8, "num_heads": 2, "num_layers": 2}
    names = {
        "PatchTST with MLR attention": {**described, "attention": {"kind": "mlr", "ranks": [2, 2]}},
        "PatchTST with standard and sliding-window attention": {**described, "attention": ["standard", "swa"]},
        "seasonal naive": "seasonal_naive",
        "ridge": "ridge",
    }
    assert [build_predictor(description).title for description in names.values()] == list(names)
    co2, load = (Task(name, 48, 12, ("co2",), "W-SAT", 52) for name in ("co2", "own"))
    assert (axis_name(co2, "co2"), axis_name(load, "co2")) == ("CO2 (ppm)", "co2")


def test_a_forecast_is_joined_to_its_history_alone() -> None:
    history = panel("B", 100)  # over a weekend, too
    time = history.future_time(0, 6)
    frame = pd.DataFrame({"unique_id": "load", "ds": time, "predictions": 1.0})
    for after, length in ((frame, 1 + 6), (frame[2:], 4)):
        figure = plot_forecast(after, history, task(6, 5, "B"), Output(), model="ridge")
        forecast = figure.axes[0].lines[1]
        assert len(np.asarray(forecast.get_xdata())) == length
        assert figure.get_suptitle() == f"toy, {len(after)} business days ahead: ridge"


L, T = 4, 3


def hours_of(*ids: str, columns: tuple[str, ...] = ("y",)) -> Panel:
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
    recorder = ResidualRecorder(hours_of("a", "b"), ["a"], ahead=2)
    for one in batches:
        recorder(one)
    found = recorder.finish()
    assert not found.is_scaled
    assert found.season_length == 24
    expected = {}
    for one in batches:
        for window in np.flatnonzero(one.series.numpy() == 0):
            stamp = np.datetime64(int(one.time[window, L + 1]), "s")
            is_seen = bool(one.observed[window, 1, 0])
            expected[stamp] = 4 * float(one.target[window, 1, 0] - one.point[window, 1, 0]) if is_seen else np.nan
    (time, values), *others = found.lines.values()
    assert not others
    assert time.tolist() == sorted(stamp.tolist() for stamp in expected)
    np.testing.assert_allclose(values, [expected[np.datetime64(stamp)] for stamp in time], rtol=1e-6)
    np.testing.assert_allclose(np.sort(found.pooled), np.sort(values[~np.isnan(values)]))


def test_several_series_are_scaled_and_thinned_where_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POOLED", 50)
    recorder = ResidualRecorder(hours_of(*"abcdefgh", columns=("load", "gas")))
    every = []
    for seed in range(40):
        one = batch(seed, [seed % 8] * 3, channels=2)
        recorder(one)
        every += (one.target - one.point)[:, 0][one.observed[:, 0]].tolist()
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
    heights = [patch.get_height() * patch.get_width() for patch in panels["histogram"].patches]
    assert sum(heights) == pytest.approx(1)
    quantiles = np.asarray(panels["quantiles and a normal distribution"].lines[0].get_ydata())
    assert (np.diff(quantiles) >= 0).all()
    assert quantiles[[0, -1]].tolist() == [given.pooled.min(), given.pooled.max()]
    assert len(figure.legends) == (lines > 1)


def test_few_or_no_residuals() -> None:
    plot_residuals(residuals(rows=2), {"mine": [1.0]}, "short").canvas.draw()
    with pytest.raises(UserError, match="no observed residual"):
        plot_residuals(Residuals(1, {}, np.empty(0), False, 1), {"mine": [1.0]}, "none")
