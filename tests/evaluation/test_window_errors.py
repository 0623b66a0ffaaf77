"""The sums of a window and channel against their definitions, in whatever windows are drawn."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluation import oracle
from tests.evaluation.oracle import Cases, drawn
from tsattn.errors import UserError
from tsattn.evaluation.window_errors import central_intervals, sum_names, window_errors

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


def measured(cases: Cases, *, masked: bool = True) -> torch.Tensor:
    ((batch, forecast),) = cases.batches(masked=masked)
    units = cases.units.of(batch.series_id)
    return window_errors(forecast, batch.target, batch.target_observed, units, cases.levels)


def named(cases: Cases, errors: torch.Tensor) -> dict[str, torch.Tensor]:
    return dict(zip(sum_names(cases.levels), errors.unbind(-1), strict=True))


def assert_as_defined(cases: Cases, errors: torch.Tensor) -> None:
    for (n, c), expected in oracle.rows(cases).items():
        found = {name: part[n, c].item() for name, part in named(cases, errors).items()}
        del expected["seasonal_error"]
        assert found == pytest.approx(expected, rel=1e-11, abs=1e-11, nan_ok=True), (n, c)


@st.composite
def cases(draw: st.DrawFn) -> Cases:
    levels = draw(st.sampled_from([(), (0.5,), (0.2, 0.5), (0.1, 0.5, 0.9), LEVELS]))
    sizes = {"windows": draw(st.integers(1, 4)), "T": draw(st.integers(1, 4)), "C": draw(st.integers(1, 3))}
    share = draw(st.sampled_from([1.0, 0.5, 0.0]))
    found = drawn(draw(st.integers(0, 2**16)), **sizes, S=draw(st.integers(1, 3)), levels=levels, share=share)
    if draw(st.sampled_from([True, True, False])):  # bounds count as inside
        found.forecast, found.target = np.round(found.forecast), np.round(found.target)
    if draw(st.sampled_from([False, False, True])):  # a point beside levels
        found.forecast = found.point
    wrong = draw(st.sampled_from(["nothing", "forecast", "target", "infinite", "crossing"]))
    place = np.random.default_rng(draw(st.integers(0, 2**16))).random(found.forecast.shape) < 0.2
    if wrong in ("forecast", "infinite"):
        found.forecast = np.where(place, math.nan if wrong == "forecast" else math.inf, found.forecast)
    elif wrong == "target":
        found.target = np.where(place if place.ndim == 3 else place[..., 0], math.nan, found.target)
    elif wrong == "crossing":
        found.forecast = -found.forecast
    return found


def test_sums_are_those_of_the_definitions() -> None:
    reached: Counter[str] = Counter()

    @settings(derandomize=True, deadline=None, max_examples=200)
    @given(cases())
    def holds(found: Cases) -> None:
        errors = measured(found)
        with np.errstate(invalid="ignore"):
            assert_as_defined(found, errors)
        errors = named(found, errors)
        finite = errors["squared_scaled"].isfinite()
        reached["finite"] += bool((finite & (errors["count"] > 0)).any())
        reached["nan"] += bool(errors["squared_scaled"].isnan().any())
        reached["unobserved"] += bool((errors["count"] == 0).any())
        reached["points beside levels"] += bool(found.levels) and found.forecast.ndim == 3
        reached["quantiles"] += found.forecast.ndim == 4
        if found.forecast.ndim == 4:
            reached["ties"] += bool((found.forecast == found.target[..., None])[found.observed].any())

    holds()
    assert len(reached) == 6
    assert min(reached.values()) > 5, reached


def test_the_oracle_of_a_window_is_arithmetic_by_hand() -> None:
    """One step of which all is known: scaled error 1 at scale 2, mean 3."""
    one = Cases(
        forecast=np.array([[[[0.0, 1.0, 5.0]]]]),
        target=np.array([[[2.0]]]),
        observed=np.array([[[True]]]),
        series=np.array([0]),
        mean=np.array([[3.0]]),
        scale=np.array([[2.0]]),
        seasonal=np.array([[4.0]]),
        levels=(0.1, 0.5, 0.9),
    )
    expected = {
        **{"count": 1, "squared_scaled": 1, "absolute_scaled": 1, "squared_original": 4, "absolute_original": 2},
        **{"absolute_target_original": 7, "smape_sum": 2 * 2 / (7 + 5), "smape_count": 1},
        **{"pinball_scaled_0.1": 0.4, "pinball_scaled_0.5": 1, "pinball_scaled_0.9": 0.6},
        **{"pinball_original_0.1": 0.8, "pinball_original_0.5": 2, "pinball_original_0.9": 1.2},
        **{"below_0.1": 0, "below_0.5": 0, "below_0.9": 1, "inside_80": 1},
    }
    errors = named(one, measured(one))
    assert {name: part.item() for name, part in errors.items()} == pytest.approx(expected)
    assert oracle.row(one, 0, 0) == pytest.approx({**expected, "seasonal_error": 4})


def test_a_channel_without_scale_or_observation_has_no_error() -> None:
    found = drawn(1, levels=LEVELS, share=1.0)
    found.observed[..., 1] = False
    found.mean[:, 1] = found.scale[:, 1] = np.nan
    assert not measured(found)[:, 1].any()


def test_half_precision_is_measured_in_full() -> None:
    found = drawn(4, share=1.0)
    found.forecast = torch.tensor(found.forecast).bfloat16().double().numpy()
    ((batch, forecast),) = found.batches()
    half = window_errors(forecast.bfloat16(), batch.target, None, found.units.of(batch.series_id))
    assert torch.equal(half, measured(found))


def test_shapes_that_would_broadcast_are_refused() -> None:
    units, three = (torch.zeros(1, 1, 2), torch.ones(1, 1, 2)), (0.1, 0.5, 0.9)
    points, quantiles = [(4, 3, 1), (4, 3, 2, 3), (3, 2)], [(4, 3, 2, 2), (4, 3, 1, 3)]
    for shape, levels in (*((one, ()) for one in points), *((one, three) for one in quantiles)):
        with pytest.raises(UserError, match=r"does not fit targets of shape \(4, 3, 2\) and \d quantiles"):
            window_errors(torch.zeros(shape), torch.zeros(4, 3, 2), None, units, levels)


def test_central_intervals_pair_the_levels() -> None:
    assert central_intervals((0.025, 0.1, 0.5, 0.9, 0.975)) == [(95.0, 0, 4), (80.0, 1, 3)]
    assert central_intervals((0.1, 0.2, 0.5)) == []
    sevenths = (2 * (1 / 7), 0.5, 5 * (1 / 7))
    assert sevenths[0] + sevenths[2] != 1, "but nearly"
    assert central_intervals(sevenths) == [(42.857143, 0, 2)]
