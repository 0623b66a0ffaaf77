"""Metrics against plain numpy formulas and against fev, on data with gaps, cut into uneven batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsattn.errors import UserError
from tsattn.evaluation import ForecastErrors, Score
from tsattn.evaluation.metrics import (
    CRPS,
    MAE,
    MASE,
    MSE,
    RMSE,
    SMAPE,
    WAPE,
    WQL,
    Coverage,
    SummedMetric,
    central_intervals,
    seasonal_error,
)
from tsattn.evaluation.pinball import quantile_loss
from tsattn.scaler import Units

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
NAMES = ("MSE", "RMSE", "MAE", "WAPE", "SMAPE", "MASE", "CRPS", "WQL")
N, T, L, C, SEASON = 13, 6, 40, 3, 7
Array = NDArray[np.float64]


@dataclass
class Data:
    """Arrays with NaN where a value is missing, as fev takes them."""

    past: Array
    target: Array
    forecast: Array

    @property
    def median(self) -> Array:
        return self.forecast[..., LEVELS.index(0.5)]


@pytest.fixture(params=[0.0, 0.3], ids=["whole", "gaps"])
def data(request: pytest.FixtureRequest) -> Data:
    rng = np.random.default_rng(0)
    units = np.array([1.0, 10.0, 0.1])
    past, target = (units * (1 + rng.standard_normal((N, length, C))) for length in (L, T))
    forecast = units[:, None] * (1 + np.sort(rng.standard_normal((N, T, C, len(LEVELS)))))
    for part in (past, target):
        part[rng.random(part.shape) < request.param] = np.nan
    return Data(past, target, forecast)


def scored(
    metric: SummedMetric,
    data: Data,
    *,
    quantiles: bool = False,
    scale: Tensor | None = None,
    units: tuple[Tensor, Tensor] | None = None,
) -> Any:
    """The metric of the data, in batches of 8, 4 and 1; what is missing holds junk, and is said to be missing."""
    forecast = torch.tensor(data.forecast if quantiles else data.median)
    observed = torch.tensor(~np.isnan(data.target))
    target = torch.tensor(np.where(np.isnan(data.target), 1e9, data.target))
    for part in (slice(0, 8), slice(8, 12), slice(12, 13)):
        extra: dict[str, Any] = {} if scale is None else {"scale": scale[part]}
        extra |= {} if units is None else {"units": units}
        metric.update(forecast[part], target[part], observed=observed[part], **extra)
    return metric.compute()


def history(data: Data) -> Tensor:
    junk = torch.tensor(np.where(np.isnan(data.past), 1e9, data.past))
    return seasonal_error(junk, SEASON, torch.tensor(~np.isnan(data.past)))


def per_channel(values: Array) -> Array:
    return np.array([np.mean(channel[~np.isnan(channel)]) for channel in values.reshape(-1, C).T])


def numpy_metrics(data: Data) -> dict[str, float]:
    """The formulas of the literature, channel by channel."""
    error, size = data.target - data.median, np.abs(data.target)
    loss = np.zeros_like(data.target)
    for number, level in enumerate(LEVELS):
        for index in np.ndindex(*data.target.shape):
            y, f = data.target[index], data.forecast[(*index, number)]
            loss[index] += 2 * (level * (y - f) if y > f else (1 - level) * (f - y)) / len(LEVELS)
    seasonal = np.empty((N, C))
    for n in range(N):
        for c in range(C):
            steps = [abs(data.past[n, t, c] - data.past[n, t - SEASON, c]) for t in range(SEASON, L)]
            seasonal[n, c] = np.mean([step for step in steps if not math.isnan(step)])
    return {
        "MSE": per_channel(error**2).mean(),
        "RMSE": np.sqrt(per_channel(error**2)).mean(),
        "MAE": per_channel(np.abs(error)).mean(),
        "WAPE": (per_channel(np.abs(error)) / per_channel(size)).mean(),
        "SMAPE": per_channel(2 * np.abs(error) / (size + np.abs(data.median))).mean(),
        "MASE": per_channel(np.abs(error) / seasonal[:, None]).mean(),
        "CRPS": per_channel(loss).mean(),
        "WQL": (per_channel(loss) / per_channel(size)).mean(),
    }


def our_metrics(data: Data) -> dict[str, float]:
    ours = {metric.__name__: scored(metric(C), data).item() for metric in (MSE, RMSE, MAE, WAPE, SMAPE)}
    ours["MASE"] = scored(MASE(C), data, scale=history(data)).item()
    ours |= {metric.__name__: scored(metric(LEVELS, C), data, quantiles=True).item() for metric in (CRPS, WQL)}
    return ours


def test_metrics_are_the_formulas_of_the_literature(data: Data) -> None:
    assert our_metrics(data) == pytest.approx(numpy_metrics(data), rel=1e-12)


def fev_metrics(data: Data) -> dict[str, float]:
    fev = pytest.importorskip("fev.metrics", reason="fev is not installed, so the metrics are not compared with its")
    arguments = {
        "y_true": data.target,
        "y_pred": data.median,
        "y_past": data.past.reshape(-1, C),
        "y_past_lengths": np.full(N, L),
        "q_pred": data.forecast,
        "seasonality": SEASON,
        "quantile_levels": list(LEVELS),
    }
    return {name: fev.get_metric({"CRPS": "MQL"}.get(name, name)).compute(**arguments) for name in NAMES}


def test_metrics_are_those_of_fev(data: Data) -> None:
    assert our_metrics(data) == pytest.approx(fev_metrics(data), rel=1e-12)


@pytest.mark.filterwarnings("ignore:Mean of empty slice")  # fev's, of the history without a value
def test_what_fev_leaves_out_is_left_out_and_counted(data: Data) -> None:
    data.past[2, :, 0] = 5.0  # no seasonal error: zero
    data.past[3, :, 1] = np.nan  # nor here: unknown
    data.target[4, 0, 2] = data.forecast[4, 0, 2] = 0.0
    left_out = (~np.isnan(data.target[2, :, 0])).sum() + (~np.isnan(data.target[3, :, 1])).sum()
    mase, smape = MASE(C), SMAPE(C)
    ours = {"MASE": scored(mase, data, scale=history(data)).item(), "SMAPE": scored(smape, data).item()}
    assert mase.left_out == left_out
    assert smape.left_out == 1
    with np.errstate(all="ignore"):
        expected = fev_metrics(data)
    assert ours == pytest.approx({name: expected[name] for name in ours}, rel=1e-12)


@pytest.mark.parametrize("metric", [MSE, RMSE, MAE, WAPE, SMAPE, MASE, CRPS, WQL, Coverage])
def test_nothing_to_score_is_nan_not_zero(metric: Any, data: Data) -> None:
    data.target[..., 1] = np.nan
    of_quantiles = metric in (CRPS, WQL, Coverage)
    measured = metric(LEVELS, C) if of_quantiles else metric(C)
    value = scored(measured, data, quantiles=of_quantiles, scale=history(data) if metric is MASE else None)
    values = list(value.values()) if isinstance(value, dict) else [value]
    assert all(value.isnan() for value in values)


@pytest.mark.parametrize("metric", [MSE, RMSE, MAE, WAPE, SMAPE, MASE, CRPS, WQL, Coverage])
def test_an_unknown_target_that_is_said_to_be_observed_shows(metric: Any) -> None:
    of_quantiles = metric in (CRPS, WQL, Coverage)
    measured = metric(LEVELS) if of_quantiles else metric()
    target = torch.ones(2, 3, 1)
    target[1, 1] = torch.nan
    extra = {"scale": torch.ones(1)} if metric is MASE else {}
    measured.update(torch.ones(2, 3, 1, 5) if of_quantiles else torch.ones(2, 3, 1), target, **extra)
    value = measured.compute()
    assert all(v.isnan() for v in (value.values() if isinstance(value, dict) else [value]))


@pytest.mark.parametrize("metric", [WAPE(), WQL(LEVELS)])
def test_targets_that_are_all_zero_have_no_percentage(metric: Any) -> None:
    shape = (2, 3, 1, 5) if isinstance(metric, WQL) else (2, 3, 1)
    metric.update(torch.ones(shape), torch.zeros(2, 3, 1))
    assert metric.compute().isnan()


def test_the_seasonal_error_of_a_short_history_is_unknown() -> None:
    past = torch.arange(6.0).view(1, 6, 1)
    assert seasonal_error(past, 2).item() == 2
    assert seasonal_error(past, 6).isnan().all()
    assert seasonal_error(past, 9).isnan().all()
    with pytest.raises(UserError, match="season_length must be at least 1, not 0"):
        seasonal_error(past, 0)


def test_the_crps_of_a_normal_forecast_is_its_closed_form() -> None:
    """Gneiting & Raftery (2007): the mean over 999 even levels is within a few thousandths."""
    levels = [level / 1000 for level in range(1, 1000)]
    z = torch.special.ndtri(torch.tensor(levels, dtype=torch.float64))
    y = torch.linspace(-2.5, 2.5, 11, dtype=torch.float64).view(-1, 1, 1)
    metric = CRPS(levels)
    metric.update(z.expand(11, 1, 1, -1), y)
    normal = torch.distributions.Normal(0.0, 1.0)
    exact = y * (2 * normal.cdf(y) - 1) + 2 * normal.log_prob(y).exp() - 1 / math.sqrt(math.pi)
    assert metric.compute().item() == pytest.approx(exact.mean().item(), rel=5e-3)


def test_coverage_counts_what_lies_inside(data: Data) -> None:
    coverage = scored(Coverage(LEVELS, C), data, quantiles=True)
    assert list(coverage) == [*(f"below_{level}" for level in LEVELS), "coverage_80", "coverage_50"]
    for name, low, high in (("coverage_80", 0, 4), ("coverage_50", 1, 3)):
        inside = (data.forecast[..., low] <= data.target) & (data.target <= data.forecast[..., high])
        shares = [inside[..., c][~np.isnan(data.target[..., c])].mean() for c in range(C)]
        assert coverage[name].item() == pytest.approx(np.mean(shares), rel=1e-12)
    shares = [(data.target <= data.forecast[..., 1])[..., c][~np.isnan(data.target[..., c])].mean() for c in range(C)]
    assert coverage["below_0.25"].item() == pytest.approx(np.mean(shares), rel=1e-12)


def test_true_quantiles_are_covered_as_often_as_they_say() -> None:
    z = torch.special.ndtri(torch.tensor(LEVELS, dtype=torch.float64))
    metric = Coverage(LEVELS)
    metric.update(z.expand(400, 100, 1, -1), torch.randn(400, 100, 1, generator=torch.Generator().manual_seed(0)))
    shares = metric.compute()
    expected = {**{f"below_{level}": level for level in LEVELS}, "coverage_80": 0.8, "coverage_50": 0.5}
    assert {name: share.item() for name, share in shares.items()} == pytest.approx(expected, abs=0.01)


def test_central_intervals_pair_the_levels() -> None:
    assert central_intervals((0.025, 0.1, 0.5, 0.9, 0.975)) == [(95.0, 0, 4), (80.0, 1, 3)]
    assert central_intervals((0.1, 0.2, 0.5)) == []


def test_sums_keep_their_precision_when_the_model_is_cast() -> None:
    units = Units([[0.0]], [[0.3]])
    errors = torch.nn.ModuleList([ForecastErrors(1, LEVELS), MSE(), units]).to(torch.bfloat16)
    for metric in errors[:2]:
        assert isinstance(metric, SummedMetric)
        metric.reset()
    for _ in range(1000):
        errors[0].update(torch.ones(1, 1, 1, 5), torch.zeros(1, 1, 1), None, units.of(None))
        errors[1].update(torch.ones(1, 1, 1), torch.zeros(1, 1, 1))
    assert errors[0].compute()["mae_original"].item() == pytest.approx(0.3, rel=1e-12)
    assert errors[0].compute()["crps_original"].item() == pytest.approx(0.3, rel=1e-12)
    assert errors[1].compute() == 1


def test_the_errors_of_quantiles_are_those_of_the_metrics(data: Data) -> None:
    """On the scale of the data and in original units, which differ by mean and scale."""
    mean, scale = np.array([4.0, -2.0, 0.5]), np.array([2.0, 0.5, 3.0])
    scaled = Data(data.past, (data.target - mean) / scale, (data.forecast - mean[:, None]) / scale[:, None])
    errors, units = ForecastErrors(3, LEVELS), Units(mean[None], scale[None]).of(None)
    for _ in range(2):  # the second time after a reset
        scored(errors, scaled, quantiles=True, units=units)
        score = Score.of(errors)
        errors.reset()
    observed = ~np.isnan(data.target)
    assert score.mse == pytest.approx(np.mean((scaled.target - scaled.median)[observed] ** 2))
    assert score.mae_original == pytest.approx(np.abs((data.target - data.median)[observed]).mean())
    assert score.windows == N
    original, ours = numpy_metrics(data), dict(score.quantile)
    assert ours.pop("wql") == pytest.approx(original["WQL"])
    assert ours.pop("crps_original") == pytest.approx(original["CRPS"])
    assert ours.pop("crps") == pytest.approx(numpy_metrics(scaled)["CRPS"])
    assert list(ours) == ["coverage_80", "coverage_50"]
    assert score.to_dict() == {
        "mse": score.mse,
        "mae": score.mae,
        "mse_original": score.mse_original,
        "mae_original": score.mae_original,
        "windows": N,
        **score.quantile,
    }


def test_what_is_not_defined_is_written_as_nothing() -> None:
    score = Score(1.0, 1.0, 1.0, 1.0, 3, {"wql": math.nan, "crps": 0.5})
    assert score.to_dict()["wql"] is None
    assert score.to_dict()["crps"] == 0.5


def test_the_quantile_loss_is_twice_the_pinball_loss() -> None:
    target, forecast = torch.tensor([3.0, 3.0]), torch.tensor([[1.0, 1.0], [4.0, 4.0]])
    expected = torch.tensor([[2 * 0.1 * 2, 2 * 0.5 * 2], [2 * 0.9 * 1, 2 * 0.5 * 1]])
    torch.testing.assert_close(quantile_loss(forecast, target, (0.1, 0.5)), expected)


@pytest.mark.parametrize(
    ("metric", "forecast", "message"),
    [
        (MSE(2), (4, 3, 1), r"must be \(B, T, 2\) and the target \(B, T, 2\), not \(4, 3, 1\) and \(4, 3, 2\)"),
        (WQL(LEVELS, 2), (4, 3, 2), r"must be \(B, T, 2, 5\) and the target \(B, T, 2\), not \(4, 3, 2\)"),
    ],
)
def test_shapes_that_would_broadcast_are_refused(metric: Any, forecast: tuple[int, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        metric.update(torch.zeros(forecast), torch.zeros(4, 3, 2))


def test_quantile_metrics_need_levels() -> None:
    with pytest.raises(UserError, match="a metric of quantiles needs their levels"):
        WQL(())
