"""Figures of attention and of errors by horizon show the numbers that they are said to show."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor

from tsattn.attention import KINDS, build_attention
from tsattn.attention.maps import attention_map
from tsattn.attention.patterns import TokenOrigin
from tsattn.backbones import build_backbone
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.figures.attention_maps import plot_attention, plot_attention_maps
from tsattn.figures.horizon_errors import plot_error_by_horizon
from tsattn.figures.style import ACCENT, use_house_style
from tsattn.scaler import Scaler
from tsattn.task import Task
from tsattn.training import ForecastingModule

L, T, C = 24, 6, 2
TASK, SCALER = Task("toy", L, T, ("a", "b"), "h", 24), Scaler((1.0, -2.0), (2.0, 0.5))
SMALL: dict[str, Any] = {"kind": "transformer", "d_model": 16, "num_heads": 4}


def windows(count: int, *, gaps: bool = False, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    batch = Batch(
        past=torch.randn(count, L, C, generator=generator),
        target=torch.randn(count, T, C, generator=generator),
        time=(torch.arange(count)[:, None] * 5 + torch.arange(L + T)) * 3600,
    )
    if gaps:
        assert batch.target is not None
        batch.target_observed = torch.rand(count, T, C, generator=generator) > 0.3
        batch.target[~batch.target_observed] = torch.nan
    return batch


def drawn_maps(figure: Figure) -> list[np.ndarray[Any, Any]]:
    return [np.ma.filled(ax.images[0].get_array(), 0.0) for ax in figure.axes if ax.images]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def borders(figure: Figure) -> list[LineCollection]:
    """Of each zone, coarse to fine; what lies below them is their rim."""
    lines = [part for part in figure.axes[0].collections if isinstance(part, LineCollection)]
    return [part for part in lines if part.get_zorder() == 3]


@pytest.mark.parametrize("kind", KINDS)
def test_heat_maps_show_the_chosen_heads(kind: str) -> None:
    attention = build_attention(kind, d_model=16, num_heads=4, max_length=L)
    x = torch.randn(3, L, 16)
    expected = attention_map(attention, x)[1]
    np.testing.assert_allclose(drawn_maps(plot_attention(attention, x, row=1))[0], expected.mean(0), rtol=1e-5)
    some = drawn_maps(plot_attention(attention, x, heads=[2, 0], row=1))
    np.testing.assert_allclose(some, expected[[2, 0]], rtol=1e-5)
    assert len(drawn_maps(plot_attention(attention, x, heads="all"))) == 4


def test_borders_are_those_of_blocks_and_windows() -> None:
    x = torch.randn(1, 12, 16)
    mlr = build_attention(
        {"kind": "mlr", "ranks": [2, 1, 1], "blocks": [1, 3, 6]}, d_model=16, num_heads=4, max_length=12
    )
    figure = plot_attention(mlr, x)
    assert legend(figure) == ["level 1: 2 components, all pairs", "level 2: 1 component", "level 3: 1 component"]
    coarse, fine = borders(figure)
    assert coarse.get_linewidth()[0] > fine.get_linewidth()[0]
    # between the tokens 3 and 4, and 7 and 8
    assert {x for segment in coarse.get_segments() for x in segment.ravel()} >= {3.5, 7.5}
    assert {tuple(point) for segment in coarse.get_segments() for point in segment} >= {(3.5, 3.5), (7.5, 7.5)}
    # where two blocks of 4 meet, each has two sides of 4 segments; they meet twice
    assert len(coarse.get_segments()) == 2 * (2 * 2 * 4)
    swa = build_attention({"kind": "swa", "window_size": 3}, d_model=16, num_heads=4, causal=True)
    figure = plot_attention(swa, x)
    assert legend(figure) == ["window of 3", "probability 0"]
    assert len(borders(figure)) == 1
    assert np.ma.getmaskarray(figure.axes[0].images[0].get_array()).sum() == 12 * 12 - (12 + 11 + 10)
    figure = plot_attention(build_attention("standard", d_model=16, num_heads=4), x)
    assert not legend(figure)
    assert not borders(figure)


def test_a_padded_row_and_a_context_are_drawn() -> None:
    attention = build_attention("standard", d_model=16, num_heads=4)
    x, context = torch.randn(2, 5, 16), torch.randn(2, 9, 16)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, :4] = False
    given = {"context": context, "attention_mask": mask, "bias": torch.randn(1, 4, 5, 9), "row": 1}
    shown = drawn_maps(plot_attention(attention, x, **given))[0]
    del given["row"]
    np.testing.assert_allclose(shown, attention_map(attention, x, **given)[1].mean(0), rtol=1e-5)
    assert not shown[:, :4].any()


def test_maps_of_a_model_are_of_what_its_layer_is_given() -> None:
    calendar = {"kind": "mlr", "ranks": [2, 2], "blocks": {"calendar": ["all", "day"]}}
    backbone = build_backbone({**SMALL, "attention": ["standard", calendar]}, TASK).train()
    batch = windows(4)
    figure = plot_attention_maps(backbone, batch, layer=1, window=2, heads="all", title="named")
    assert backbone.training
    assert figure.get_suptitle() == "named"
    assert legend(figure) == ["level 1 (all): 2 components, all pairs", "level 2 (day): 2 components"]
    # window 2 starts at 10:00, so that its first day has 14 hours
    assert {x for segment in borders(figure)[0].get_segments() for x in segment.ravel()} >= {13.5}
    backbone.eval()
    block = backbone.encoder.blocks[1]
    seen: list[Tensor] = []
    block.attention_norm.register_forward_hook(lambda module, args, out: seen.append(out))
    backbone(batch)
    blocks = block.attention.pattern.blocks_of(TokenOrigin(batch.time[:, :L]))
    expected = attention_map(block.attention, seen[0], blocks=blocks)[2]
    np.testing.assert_allclose(drawn_maps(figure), expected, rtol=1e-4, atol=1e-7)


def test_maps_of_channels_apart_and_of_a_module() -> None:
    model = ForecastingModule({"kind": "patchtst", "patch_len": 8, "d_model": 16, "num_heads": 4})
    batch = windows(3)
    with pytest.raises(UserError, match="has no attention"):
        plot_attention_maps(model, batch)
    model.build(TASK, SCALER)
    one, other = (drawn_maps(plot_attention_maps(model, batch, channel=channel))[0] for channel in (0, 1))
    assert one.shape == (5, 5)
    assert not np.allclose(one, other)
    for wrong, message in (
        ({"channel": 2}, "channel must be from 0 to 1"),
        ({"window": 3}, "window must be from 0 to 2"),
        ({"layer": 2}, "layer must be from 0 to 1"),
        ({"heads": [4]}, "heads must be mean, all, or some of the numbers 0 to 3"),
        ({"heads": "first"}, "heads must be mean, all"),
        ({"heads": []}, "heads must be mean, all"),
    ):
        with pytest.raises(UserError, match=message):
            plot_attention_maps(model, batch, **wrong)
    with pytest.raises(UserError, match="row must be from 0 to 0"):
        plot_attention(build_attention("standard", d_model=16, num_heads=4), torch.randn(1, 3, 16), row=1)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(UserError, match="at least one model"):
        plot_error_by_horizon({}, "nothing")
    with pytest.raises(UserError, match=r"errors of wide must be one number for each step, not of shape \(2, 2\)"):
        plot_error_by_horizon({"wide": np.ones((2, 2))}, "wide")


def test_lines_are_the_errors_of_each_step() -> None:
    errors = {f"model {number}": torch.rand(4 + number) for number in range(7)}
    figure = plot_error_by_horizon(errors, "seven", measure="MSE", unit="ppm²")
    (ax,) = figure.axes
    assert legend(figure) == list(errors)
    assert (ax.get_ylabel(), ax.get_title("left"), ax.get_ylim()[0]) == ("MSE (ppm²)", "seven", 0)
    for line, values in zip(ax.lines, errors.values(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(1, len(values) + 1))
        np.testing.assert_allclose(line.get_ydata(), values)
    looks = {(line.get_color(), line.get_linestyle()) for line in ax.lines}
    assert len(looks) == 7
    assert plot_error_by_horizon({"one": [0.3]}, "one step").axes[0].lines[0].get_marker() == "o"


def test_lines_that_nearly_coincide_are_drawn_as_differences() -> None:
    errors = {"standard": [1.0, 2.0], "mlr": [1.01, 1.9], "longer": [2.0, 2.0, 5.0]}
    (ax,) = plot_error_by_horizon(errors, "three", compared_with="standard").axes
    np.testing.assert_allclose([line.get_ydata() for line in ax.lines], [[0, 0], [1, -5], [100, 0]], atol=1e-9)
    assert ax.get_ylabel() == "MAE compared with standard (%)"
    with pytest.raises(UserError, match="compared_with must be standard, mlr, longer, not 'swa'"):
        plot_error_by_horizon(errors, "three", compared_with="swa")


def test_the_house_style_is_for_charts_of_your_own() -> None:
    with matplotlib.rc_context():
        use_house_style()
        ax = Figure().subplots()
        (line,) = ax.plot([1, 2])
        assert line.get_color() == ACCENT
        assert not ax.spines["top"].get_visible()
        attention = build_attention("standard", d_model=8, num_heads=2, max_length=6)
        figure = plot_attention(attention, torch.randn(1, 6, 8))
    assert all(spine.get_visible() for spine in figure.axes[0].spines.values())
