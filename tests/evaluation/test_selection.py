"""Weights are chosen by the validation error of what is trained."""

from __future__ import annotations

import re

import pytest

from tsattn.errors import UserError
from tsattn.evaluation.reductions import SCORES
from tsattn.evaluation.selection import SELECTION_CHOICES, selection_metric
from tsattn.training.losses import LOSSES, PINBALL

QUANTILES = (0.1, 0.5, 0.9)


RULE = {"mse": "mse", "huber": "mse", "mae": "mae", "frequency": "mae", "pinball": "crps"}


def test_the_rule() -> None:
    for loss, metric in RULE.items():
        quantiles = QUANTILES if loss == "pinball" else ()
        assert selection_metric(loss, quantiles) == f"{metric}_scaled"
        for choice, chosen in SELECTION_CHOICES.items():
            if quantiles or choice != "crps":
                assert selection_metric(loss, quantiles, choice) == chosen


def test_every_loss_has_a_score_that_is_there() -> None:
    for loss in (*LOSSES, PINBALL):
        assert selection_metric(loss, QUANTILES) in SCORES
    assert set(SELECTION_CHOICES.values()) <= set(SCORES)


def test_what_cannot_be_selected_by_is_refused() -> None:
    for loss, choice, message in (
        ("mse", "crps", "weights are selected by crps only with quantiles; without them by one of mse, mae"),
        ("pinball", None, "weights are selected by crps only with quantiles"),
        ("mse", "wql", "weights are selected by one of mse, mae, crps, not wql"),
        ("hinge", None, "loss must be one of mse, huber, mae, frequency, pinball, nll, not hinge"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            selection_metric(loss, (), choice)
