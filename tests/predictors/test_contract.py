"""What every predictor must keep, whatever its kind."""

import json
import re
from dataclasses import replace

import pytest
import torch

from tests.peers.there import needs_peers
from tests.predictors.cases import (
    BY_TIME,
    CASES,
    EQUIVARIANT,
    IN_FLOAT32,
    OF_CHANNELS,
    PEERS,
    WITH_WEIGHTS,
    build,
    windows_for,
)
from tests.toy_windows import COVARIATES, LEVELS, ODD_SIZES, changed_covariates, one_window, tensors_of, toy_task
from tsattn.backbones import BACKBONES
from tsattn.errors import UserError
from tsattn.predictors import PREDICTORS, Predictor, build_predictor, complete_predictor
from tsattn.predictors.base import last_context
from tsattn.task import Output

cases = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=needs_peers if case in PEERS else ()) for case in CASES]
)


def full(case: str, levels: tuple[float, ...] = LEVELS) -> Predictor:
    """Built for all that it can do: quantiles and covariates."""
    able = build_predictor(CASES[case])
    task = toy_task(covariates=able.uses_covariates)
    return build(case, task, Output(levels if able.emits_quantiles else ()))


def test_every_kind_has_a_case() -> None:
    kinds = {case["kind"] for case in CASES.values()}
    assert kinds >= set(PREDICTORS)
    assert kinds & set(BACKBONES)


@pytest.mark.parametrize(
    ("case", "size"),
    [
        pytest.param(case, size, marks=needs_peers if case in PEERS else ())
        for case in CASES
        for size in (ODD_SIZES if case in ("ridge", "network", "ensemble") else ODD_SIZES[1:2])
    ],
)
def test_a_forecast_for_each_step_and_channel_of_any_size(case: str, size: tuple[int, ...]) -> None:
    L, T, C, B = size
    if C == 1 and case in OF_CHANNELS:
        with pytest.raises(UserError, match="the data has only one"):
            build(case, toy_task(L, T, C))
        return
    predictor = build(case, toy_task(L, T, C))
    forecast = predictor(windows_for(predictor, B))
    assert forecast.shape == (B, T, C)
    assert forecast.dtype == torch.float64
    assert forecast.isfinite().all()


@cases
def test_quantiles_rise_or_are_refused(case: str) -> None:
    predictor = build_predictor(CASES[case])
    if not predictor.emits_quantiles:
        with pytest.raises(UserError, match=r"forecasts points only: leave quantiles out$"):
            predictor.build(toy_task(), Output(LEVELS))
        return
    predictor = build(case, toy_task(), Output(LEVELS))
    forecast = predictor(windows_for(predictor))
    assert forecast.shape == (4, 8, 3, 3)
    assert (forecast.diff(dim=-1) >= 0).all()


@cases
def test_covariates_are_used_or_left_unread(case: str) -> None:
    predictor = full(case)
    windows = windows_for(predictor)
    forecast = predictor(windows)
    for name, other in changed_covariates(windows):
        if predictor.uses_covariates and name != "time":  # which a calendar alone reads
            assert not torch.allclose(predictor(other), forecast), name
    if not predictor.uses_covariates:
        unread = [name for name in COVARIATES if name != "time" or case not in BY_TIME]
        assert torch.equal(predictor(replace(windows, **dict.fromkeys(unread))), forecast)
        with_some = windows_for(full("network"), extra=predictor.context_length - 24)
        bare = replace(with_some, **dict.fromkeys(unread))
        assert torch.equal(predictor(with_some), predictor(bare))


@cases
def test_only_the_last_steps_of_a_longer_context_count(case: str) -> None:
    predictor = full(case)
    L = predictor.context_length
    longer = windows_for(predictor, extra=13, gaps=True)
    forecast = predictor(longer)
    assert torch.equal(predictor(last_context(longer, L)), forecast)
    earlier = replace(
        longer,
        past=torch.cat([torch.full_like(longer.past[:, :13], 1e3), longer.past[:, 13:]], 1),
        past_observed=torch.cat([~longer.past_observed[:, :13], longer.past_observed[:, 13:]], 1),
    )
    assert torch.equal(predictor(earlier), forecast)
    with pytest.raises(UserError, match=f"needs {L} past steps, but the windows of the batch have {L - 1}"):
        predictor(last_context(longer, L - 1))


@cases
def test_a_forecast_depends_on_its_own_window_alone(case: str) -> None:
    """Not on its target, on a window beside it, or on chance; and it is finite with missing values."""
    predictor = full(case)
    assert bool(predictor.state_dict()) == (predictor.needs_fit or case in WITH_WEIGHTS)
    windows = windows_for(predictor, 5, gaps=True)
    state = torch.get_rng_state()
    together = predictor(windows)
    assert together.isfinite().all()
    assert torch.equal(predictor(replace(windows, target=None)), together)
    assert torch.equal(torch.get_rng_state(), state)
    # rounding differs with the number of rows, by machine; among as many other rows nothing may
    near = 1e-4 if case in IN_FLOAT32 else 1e-9
    for number in range(5):
        alone = predictor(one_window(windows, number))[0]
        torch.testing.assert_close(alone, together[number], rtol=near, atol=near)
    other = windows_for(predictor, 5, gaps=True, seed=1)
    kept = torch.arange(5) == 2
    mixed = replace(
        other,
        **{
            name: torch.where(kept.view(5, *[1] * (part.ndim - 1)), part, getattr(other, name))
            for name, part in tensors_of(windows).items()
        },
    )
    assert torch.equal(predictor(mixed)[2], together[2])
    assert not torch.equal(predictor(mixed)[1], together[1])


@pytest.mark.parametrize("case", EQUIVARIANT)
def test_forecasts_move_and_grow_with_the_window(case: str) -> None:
    predictor = full(case)
    windows = one_window(windows_for(predictor, gaps=True), 1)  # one with observed values
    moved = predictor(replace(windows, past=100 + 7 * windows.past))
    torch.testing.assert_close(moved, 100 + 7 * predictor(windows), rtol=1e-4, atol=1e-4)


@cases
def test_its_state_is_all_that_a_fit_leaves(case: str) -> None:
    predictor = full(case)
    windows = windows_for(predictor)
    drawn = torch.get_rng_state()
    again = build_predictor(predictor.description)
    again.build(predictor.task, predictor.output, empty=True)
    assert torch.equal(torch.get_rng_state(), drawn), "an empty build draws nothing"
    assert all(part.is_meta for part in again.state_dict().values()), "and takes no memory"
    again.load_state_dict(predictor.state_dict(), assign=True)
    assert torch.equal(again.double().eval()(windows), predictor(windows))


@cases
def test_a_description_is_plain_and_complete(case: str) -> None:
    complete = complete_predictor(CASES[case])
    assert complete_predictor(complete) == complete
    assert json.loads(json.dumps(complete)) == complete
    assert build_predictor(CASES[case]).description == complete
    assert re.fullmatch(r"[\w.-]+", build_predictor(CASES[case]).name), "its name can be that of a folder"
    assert build_predictor(complete).description == complete
    given = {name: value for name, value in CASES[case].items() if name != "members"}  # which are completed themselves
    assert {name: complete[name] for name in given} == given
