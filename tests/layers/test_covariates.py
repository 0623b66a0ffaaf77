"""Covariates, categories and the calendar on their way to tokens and horizon, against formulas and pandas."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.layers import CalendarFeatures, CategoryVectors, Covariates, HorizonEffect, Patches, TokenEmbedding
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


CATEGORIES = ((), ("a", "b", "c"), ("x",), tuple("abcdefghijkl"))


def test_a_category_is_its_vector_and_one_not_seen_the_mean_of_all() -> None:
    torch.manual_seed(0)
    vectors = CategoryVectors(CATEGORIES).double()
    rng = np.random.default_rng(0)
    columns = np.stack([rng.standard_normal((2, 5)), *(rng.integers(0, n + 1, (2, 5)) for n in (3, 1, 12))], -1)
    found = vectors(torch.from_numpy(columns)).detach().numpy()
    tables = [table.weight.detach().numpy() for table in vectors.vectors]
    assert [table.shape for table in tables] == [(3, 3), (1, 1), (12, 8)]
    for place in np.ndindex(2, 5):
        number, *codes = columns[place]
        rows = [table.mean(0) if code == 0 else table[int(code) - 1] for table, code in zip(tables, codes, strict=True)]
        np.testing.assert_allclose(found[place], np.concatenate([[number], *rows]))
    assert found.shape[-1] == CategoryVectors.count(CATEGORIES, 4) == 1 + 3 + 1 + 8


DAY, WEEK, YEAR = 2, 2, 2


@given(st.lists(st.datetimes(pd.Timestamp("1700-01-01"), pd.Timestamp("2250-01-01")), min_size=1, max_size=30))
def test_features_are_those_of_pandas(times: list[Any]) -> None:
    index = pd.DatetimeIndex(times).as_unit("s")
    time_of_day = (index - index.normalize()) / pd.Timedelta(1, "D")
    length = np.where(index.is_leap_year, 366, 365)
    phases = [time_of_day, index.day_of_week / 7, (index.day_of_year - 1 + time_of_day) / length]
    expected = [wave(2 * np.pi * np.asarray(phase)) for phase in phases for wave in (np.sin, np.cos)]
    found = CalendarFeatures("h")(torch.from_numpy(index.asi8.copy()), torch.float64)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found, np.stack(expected, -1), atol=1e-12)


COUNTS = {
    **dict.fromkeys(("s", "h", "bh", "12h"), DAY + WEEK + YEAR),
    **dict.fromkeys(("24h", "B", "2D"), WEEK + YEAR),
    **dict.fromkeys(("W-WED", "ME", "SME", "QE-NOV", "2QE"), YEAR),
}


def test_only_what_varies_at_a_frequency() -> None:
    for frequency, count in COUNTS.items():
        features = CalendarFeatures(frequency)
        assert features.count == count
        time = pd.date_range("2016-07-01", periods=40, freq=frequency).as_unit("s").asi8.reshape(4, 10)
        found = features(torch.from_numpy(time), torch.float32)
        assert found.shape == (4, 10, count)
        everything = CalendarFeatures("s")(torch.from_numpy(time), torch.float32)
        assert torch.equal(found, everything[..., -count:])


def test_years_have_no_calendar() -> None:
    for frequency in ("YE", "BYE-JUN", "12ME"):
        with pytest.raises(UserError, match=f"need two or more steps a year, but the frequency is '{frequency}'"):
            CalendarFeatures(frequency)
