"""Covariates on their way to the tokens and to the horizon, against the formulas written out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.layers import CalendarFeatures, Covariates, HorizonEffect, Patches, TokenEmbedding
from tsattn.task import Task

B, L, T, C, D, Q = 3, 11, 5, 2, 8, 4
BARE = Task("toy", L, T, ("a", "b"), "h", 24)
FULL = replace(
    BARE,
    past_covariates=("rain", "wind"),
    future_covariates=("price",),
    static=("shop", "town"),
    categories=(("x", "y", "z"), ("u", "v")),
)


def batch() -> Batch:
    generator = torch.Generator().manual_seed(0)
    stamps = torch.from_numpy(pd.date_range("2016-12-30 20:00", periods=L + T, freq="h").as_unit("s").asi8.copy())
    return Batch(
        torch.randn(B, L, C, generator=generator, dtype=torch.float64),
        time=stamps + 3600 * torch.arange(B)[:, None],
        past_covariates=torch.randn(B, L, 2, generator=generator, dtype=torch.float64),
        future_covariates=torch.randn(B, L + T, 1, generator=generator, dtype=torch.float64),
        static=torch.tensor([[0, 1], [2, 0], [2, 1]]),
    )


def randomised(module: Any) -> Any:
    with torch.no_grad():
        for parameter in module.double().parameters():
            parameter.normal_()
    return module


def test_the_effect_is_a_network_of_a_step_beside_the_mean_of_the_tokens() -> None:
    effect = randomised(HorizonEffect(3, D, Q, dropout=0.0))
    features = torch.randn(B, T, 3, dtype=torch.float64, requires_grad=True)
    tokens = torch.randn(B * C, 7, D, dtype=torch.float64, requires_grad=True)
    weight = torch.cat([effect.step.weight, effect.context.weight], 1)
    rows = []
    for window in range(B):
        for channel in range(C):
            mean = tokens[window * C + channel].mean(0)
            for step in range(T):
                hidden = F.gelu(weight @ torch.cat([features[window, step], mean]) + effect.step.bias)
                rows.append(effect.output.weight @ hidden + effect.output.bias)
    expected = torch.stack(rows).view(B * C, T, Q)
    found = effect(features, tokens)
    torch.testing.assert_close(found, expected)
    inputs = [features, tokens, *effect.parameters()]
    gradients = (torch.autograd.grad(out.square().sum(), inputs) for out in (found, expected))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("calendar", "patches"), [(False, None), (True, None), (True, Patches(L, 4, 3))])
def test_the_term_of_the_tokens_is_linear_in_the_numbers_of_the_context(calendar: bool, patches: Any) -> None:
    covariates = randomised(Covariates(FULL, calendar, D, Q, 0.0, patches))
    window = batch()
    parts = [window.past_covariates, window.future_covariates[:, :L]]
    if calendar:
        parts.append(CalendarFeatures("h")(window.time, torch.float64)[:, :L])
    numbers = torch.cat(parts, -1)
    if patches is not None:
        columns = [patches(column) for column in numbers.unbind(-1)]
        numbers = torch.cat(columns, -1)
    tables = [table.weight for table in covariates.static]
    expected = numbers @ covariates.value.weight.T
    expected = expected + (tables[0][[0, 2, 2]] + tables[1][[1, 0, 1]])[:, None]
    torch.testing.assert_close(covariates.embed(window), expected)
    embedding = randomised(TokenEmbedding(1, D, L, "learned", 0.0))
    x = torch.randn(B * C, numbers.shape[1], 1, dtype=torch.float64)
    # the channels of a window stand in a row and share its term
    torch.testing.assert_close(embedding(x, expected), embedding(x) + expected.repeat_interleave(C, 0))


def test_the_effect_starts_at_zero_and_reads_the_horizon() -> None:
    covariates = Covariates(FULL, True, D, Q, 0.0).double()
    window, tokens = batch(), torch.randn(B, L, D, dtype=torch.float64)
    raw = torch.randn(B, T, Q, dtype=torch.float64)
    assert torch.equal(covariates.add_effect(window, tokens, raw), raw)
    covariates = randomised(covariates)
    assert window.future_covariates is not None
    assert window.time is not None
    features = [window.future_covariates, CalendarFeatures("h")(window.time, torch.float64)]
    expected = raw + covariates.effect(torch.cat(features, -1)[:, L:], tokens)
    torch.testing.assert_close(covariates.add_effect(window, tokens, raw), expected)


def test_nothing_known_is_nothing_built_and_no_random_number_drawn() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    covariates = Covariates(BARE, False, D, Q, 0.1)
    assert torch.equal(torch.get_rng_state(), before)
    assert covariates.state_dict() == {}
    window, raw = batch(), torch.randn(B, T, Q)
    assert covariates.embed(window) is None
    assert covariates.add_effect(window, torch.randn(B, L, D), raw) is raw


def test_a_batch_must_hold_what_the_task_names() -> None:
    covariates = Covariates(FULL, True, D, Q, 0.0).double()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"past_covariates": None}, r"needs past_covariates rain, wind of shape \(B, 11, 2\) .* which has none"),
        ({"future_covariates": None}, r"needs future_covariates price of shape \(B, 16, 1\) .* which has none"),
        ({"future_covariates": torch.zeros(B, L, 1)}, r"of shape \(B, 16, 1\) in a batch, which has \(B, 11, 1\)"),
        ({"past_covariates": torch.zeros(B, L + T, 2)}, r"of shape \(B, 11, 2\) in a batch, which has \(B, 16, 2\)"),
        ({"static": None}, r"needs static shop, town of shape \(B, 2\) in a batch, which has none"),
        ({"static": torch.zeros(B, 1)}, r"of shape \(B, 2\) in a batch, which has \(B, 1\)"),
        ({"time": None}, "calendar features need time stamps in a batch, for all 16 steps"),
        ({"time": torch.zeros(B, L)}, "calendar features need time stamps in a batch, for all 16 steps"),
    ]
    for missing, message in wrong:
        with pytest.raises(UserError, match=message):
            covariates.embed(replace(batch(), **missing))
