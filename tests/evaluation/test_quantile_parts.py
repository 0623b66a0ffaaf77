"""What quantiles are measured by: their loss, and the intervals between them."""

from __future__ import annotations

import torch

from tsattn.evaluation.window_errors import central_intervals, quantile_loss


def test_the_quantile_loss_is_twice_the_pinball_loss() -> None:
    target, forecast = torch.tensor([3.0, 3.0]), torch.tensor([[1.0, 1.0], [4.0, 4.0]])
    expected = torch.tensor([[2 * 0.1 * 2, 2 * 0.5 * 2], [2 * 0.9 * 1, 2 * 0.5 * 1]])
    torch.testing.assert_close(quantile_loss(forecast, target, (0.1, 0.5)), expected)


def test_central_intervals_pair_the_levels() -> None:
    assert central_intervals((0.025, 0.1, 0.5, 0.9, 0.975)) == [(95.0, 0, 4), (80.0, 1, 3)]
    assert central_intervals((0.1, 0.2, 0.5)) == []
    sevenths = (2 * (1 / 7), 0.5, 5 * (1 / 7))
    assert sevenths[0] + sevenths[2] != 1, "but nearly"
    assert central_intervals(sevenths) == [(42.857143, 0, 2)]
