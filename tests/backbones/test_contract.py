"""What every backbone must keep, whatever its kind."""

import json
from dataclasses import replace

import pytest
import torch

from tests.backbones.cases import CASES, EQUIVARIANT, build, emits_quantiles, uses_covariates
from tests.toy_windows import LEVELS, changed_covariates, one_window, toy_task, toy_windows
from tsattn.backbones import BACKBONES, build_backbone, complete_backbone
from tsattn.errors import UserError
from tsattn.task import Output, Task

cases = pytest.mark.parametrize("case", CASES)


def full_task(case: str) -> Task:
    """With covariates, if the case uses some."""
    return toy_task(covariates=uses_covariates(case))


def test_every_kind_has_a_case() -> None:
    assert {case["kind"] for case in CASES.values()} == set(BACKBONES)


@cases
def test_a_forecast_for_each_step_and_channel_in_either_precision(case: str) -> None:
    for L, T, B in ((33, 13, 2), (7, 1, 1)):
        task = toy_task(L, T, 3, covariates=uses_covariates(case))
        exact, rounded = (
            build(case, task, dtype=dtype)(toy_windows(task, B, dtype=dtype))
            for dtype in (torch.float64, torch.float32)
        )
        assert exact.shape == (B, T, 3)
        assert (exact.dtype, rounded.dtype) == (torch.float64, torch.float32)
        assert exact.isfinite().all()
        torch.testing.assert_close(rounded.double(), exact, rtol=1e-3, atol=1e-3)


@cases
def test_quantiles_rise_and_covariates_move_the_forecast_or_are_refused(case: str) -> None:
    if not emits_quantiles(case):
        with pytest.raises(UserError, match="forecasts points only"):
            build(case, toy_task(), Output(LEVELS))
    if not uses_covariates(case):
        with pytest.raises(UserError, match="uses no covariates, but the data has rain"):
            build(case, toy_task(covariates=True))
    task = full_task(case)
    backbone, windows = build(case, task, Output(LEVELS if emits_quantiles(case) else ())), toy_windows(task)
    forecast = backbone(windows)
    if emits_quantiles(case):
        assert forecast.shape == (4, 8, 3, 3)
        assert (forecast.diff(dim=-1) >= 0).all()
    for name, other in changed_covariates(windows) if uses_covariates(case) else ():
        if name != "time":  # which a calendar alone reads
            assert not torch.allclose(backbone(other), forecast), name


@cases
def test_a_forecast_is_of_its_own_window_alone(case: str) -> None:
    """Not of its target, of a window beside it, or of chance; and finite with missing values."""
    task = full_task(case)
    output = Output(LEVELS if emits_quantiles(case) else ())
    backbone, windows = build(case, task, output), toy_windows(task, 5, gaps=True)
    state = torch.get_rng_state()
    together = backbone(windows)
    assert together.isfinite().all()
    assert torch.equal(backbone(replace(windows, target=None)), together)
    assert torch.equal(torch.get_rng_state(), state)
    for number in range(5):
        torch.testing.assert_close(backbone(one_window(windows, number))[0], together[number], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", EQUIVARIANT)
def test_forecasts_move_and_grow_with_the_window(case: str) -> None:
    """A window in other units gets the same forecast in those units."""
    task = full_task(case)
    backbone, windows = build(case, task), toy_windows(task, gaps=True)
    windows = one_window(windows, 1)  # one with observed values
    moved = backbone(replace(windows, past=100 + 7 * windows.past))
    torch.testing.assert_close(moved, 100 + 7 * backbone(windows), rtol=1e-4, atol=1e-4)


@cases
def test_its_state_and_its_complete_description_are_all_that_it_is(case: str) -> None:
    task = full_task(case)
    output = Output(LEVELS if emits_quantiles(case) else ())
    backbone, windows = build(case, task, output), toy_windows(task)
    complete = complete_backbone(CASES[case])
    assert complete_backbone(complete) == complete
    assert json.loads(json.dumps(complete)) == complete
    with torch.device("meta"):
        hollow = build_backbone(complete, task, output).double().eval()
    hollow.load_state_dict(backbone.state_dict(), assign=True)
    assert torch.equal(hollow(windows), backbone(windows))
