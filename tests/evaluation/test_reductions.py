"""Every score against its definition, pooled and by channel, in any batches; and against fev."""

import math
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.evaluation import oracle
from tests.evaluation.oracle import Cases, drawn
from tsattn.evaluation.reductions import BY_CHANNEL, SCORES, ErrorTotals
from tsattn.scaler import Units

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "scores.md").read_text("utf-8")
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


def totals(cases: Cases, *sizes: int) -> ErrorTotals:
    found = ErrorTotals(len(cases.channels), cases.levels)
    for batch, forecast in cases.batches(*sizes):
        seasonal = torch.tensor(cases.seasonal)[batch.series_id]
        found.update(forecast, batch.target, batch.target_observed, cases.units.of(batch.series_id), seasonal)
    return found


def test_every_score_says_what_it_means() -> None:
    names = totals(drawn(0, levels=LEVELS)).scores()
    described = {re.sub(r"_[\d.]+$", "", name) for name in SCORES}
    pooled = [name for name in names if not name.endswith(BY_CHANNEL)]
    assert {re.sub(r"_[\d.]+$", "", name) for name in pooled} == described
    counts = {"windows", "smape_left_out", "mase_left_out"}
    assert {name.removesuffix(BY_CHANNEL) for name in names if name.endswith(BY_CHANNEL)} == set(pooled) - counts


def test_the_page_says_what_each_score_is() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (.*) \|$", PAGE, re.MULTILINE)
    assert {name: meaning.replace("\\|", "|") for name, meaning in rows} == SCORES


def whole(cases: Cases) -> Cases:
    return Cases(**{**vars(cases), "mean": np.zeros_like(cases.mean), "scale": np.ones_like(cases.scale)})


NAMES = {
    **{"MSE": "mse_original", "RMSE": "rmse_original", "MAE": "mae_original", "WAPE": "wape", "SMAPE": "smape"},
    **{"MASE": "mase", "MQL": "crps_original", "WQL": "wql"},
}
SEASON, PAST = 7, 40


def fev_scores(cases: Cases, past: oracle.Array) -> dict[str, float]:
    fev = pytest.importorskip("fev.metrics", reason="fev is not installed, so the scores are not compared with its")
    arguments = {
        "y_true": np.where(cases.observed, cases.target, np.nan),
        "y_pred": cases.point,
        "y_past": past.reshape(-1, past.shape[-1]),
        "y_past_lengths": np.full(len(past), past.shape[1]),
        "q_pred": cases.forecast,
        "seasonality": SEASON,
        "quantile_levels": list(cases.levels),
    }
    return {f"{ours}{BY_CHANNEL}": fev.get_metric(name).compute(**arguments) for name, ours in NAMES.items()}


def with_history(seed: int, share: float) -> tuple[Cases, oracle.Array]:
    """A window of each of 13 series, and what came before, whose channels have different units."""
    rng = np.random.default_rng(seed)
    found = whole(drawn(seed, windows=13, T=6, S=13, levels=LEVELS, share=1 - share))
    found.series = np.arange(13)
    unit = np.array([1.0, 10.0, 0.1])
    found.forecast, found.target = found.forecast * unit[:, None] + 1, found.target * unit + 1
    past = unit * (1 + rng.standard_normal((13, PAST, 3)))
    past[rng.random(past.shape) < share] = np.nan
    past[2, :, 0] = 5.0  # no seasonal error: zero
    past[3, :, 1] = np.nan  # nor here: unknown
    found.target[4, 0, 2], found.observed[4, 0, 2] = 0.0, True
    found.forecast[4, 0, 2] = 0.0
    with warnings.catch_warnings(action="ignore"):  # of the mean of nothing
        found.seasonal = np.nanmean(np.abs(past[:, SEASON:] - past[:, :-SEASON]), axis=1)
    return found, past


@pytest.mark.filterwarnings("ignore:Mean of empty slice")  # fev's, of the history without a value
def test_scores_by_channel_are_those_of_fev() -> None:
    found, past = with_history(0, 0.3)
    with np.errstate(all="ignore"):
        expected = fev_scores(found, past)
    scores = totals(found, 8, 4).scores()
    assert {name: scores[name] for name in expected} == pytest.approx(expected, rel=1e-12)
    assert scores["smape_left_out"] == 1
    assert scores["mase_left_out"] == found.observed[2, :, 0].sum() + found.observed[3, :, 1].sum()


def test_targets_that_are_all_zero_have_no_percentage() -> None:
    found = whole(drawn(1, levels=LEVELS, share=1.0))
    found.target[..., 1] = 0
    scores = totals(found).scores()
    assert math.isfinite(scores["wape"])
    assert math.isfinite(scores["wql"])
    assert math.isnan(scores["wape_by_channel"])
    assert math.isnan(scores["wql_by_channel"])


def test_the_crps_of_a_normal_forecast_is_its_closed_form() -> None:
    """Gneiting & Raftery (2007): the mean over 999 even levels is within a few thousandths."""
    levels = [level / 1000 for level in range(1, 1000)]
    z = torch.special.ndtri(torch.tensor(levels, dtype=torch.float64))
    y = torch.linspace(-2.5, 2.5, 11, dtype=torch.float64).view(-1, 1, 1)
    errors = ErrorTotals(1, levels)
    errors.update(z.expand(11, 1, 1, -1), y, None, Units([[0.0]], [[1.0]]).of(None))
    normal = torch.distributions.Normal(0.0, 1.0)
    exact = y * (2 * normal.cdf(y) - 1) + 2 * normal.log_prob(y).exp() - 1 / math.sqrt(math.pi)
    assert errors.scores()["crps_scaled"] == pytest.approx(exact.mean().item(), rel=5e-3)


@pytest.mark.parametrize("wrong", ["nothing", "a channel is not observed", "a forecast is no number"])
def test_totals_are_added_and_started_anew(wrong: str) -> None:
    found = drawn(3, levels=LEVELS)
    if wrong.startswith("a channel"):
        found.observed[..., 1] = False
    elif wrong.startswith("a forecast"):
        found.forecast[2] = math.nan
    first, both = totals(found.take(np.arange(3))), totals(found, 3, 4)
    assert both.scores() == pytest.approx(oracle.scores(found), rel=1e-12, nan_ok=True)
    assert str(both.scores()) != str(first.scores())
    both.reset()
    assert not both.sums.any()
    assert first.sums.any()


def test_sums_keep_their_precision_when_the_model_is_cast() -> None:
    parts: Any = torch.nn.ModuleList([ErrorTotals(1, (0.5,)), Units([[0.0]], [[0.3]])]).to(torch.bfloat16)
    errors, units = parts
    errors.reset()
    for _ in range(1000):
        errors.update(torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1), None, units.of(None))
    scores = errors.scores()
    assert scores["mae_original"] == pytest.approx(0.3, rel=1e-12)
    assert scores["crps_original"] == pytest.approx(0.3, rel=1e-12)
    assert scores["windows"] == 1000
