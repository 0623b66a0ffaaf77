"""Figures by layer, head and level show the numbers and the time stamps that they are said to show."""

from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from tests.forecaster.toys import entries as legend
from tsattn.errors import UserError
from tsattn.figures.layer_maps import plot_layers
from tsattn.figures.style import ACCENT, use_house_style
from tsattn.predictors.attention_layers import AttentionLayer

N, HEADS = 12, 3


def layer(name: str = "layer 0", levels: int = 2, labels: Any = None, seed: int = 0) -> AttentionLayer:
    rng = np.random.default_rng(seed)
    labels = pd.date_range("2024-02-28", periods=N, freq="D") if labels is None else pd.Index(labels)
    count = len(labels)
    place = np.arange(count)
    shared = [place[:, None] * blocks // count == place * blocks // count for blocks in (1, 2)]
    scores = {
        f"level {number + 1}": rng.normal(size=(HEADS, count, count)) * shared[number] for number in range(levels)
    }
    weights = rng.dirichlet(np.ones(count), (HEADS, count))
    zones = {f"level {number + 1}: 2 components": shared[number] for number in range(levels)}
    return AttentionLayer(name, "mlr" if levels else "standard", "patch", None, weights, scores, zones, labels, labels)


def drawn_maps(figure: Figure) -> list[np.ndarray[Any, Any]]:
    return [np.ma.filled(ax.images[0].get_array(), 0.0) for ax in figure.axes if ax.images]


def borders(figure: Figure) -> list[LineCollection]:
    """Of each zone, coarse to fine; what lies below them is their rim."""
    lines = [part for part in figure.axes[0].collections if isinstance(part, LineCollection)]
    return [part for part in lines if part.get_zorder() == 3]


def ticks(figure: Figure, axis: str, number: int = -2) -> dict[float, str]:
    """Of one of the maps, the last by default, after which comes the bar."""
    figure.canvas.draw()
    part = getattr(figure.axes[number], f"{axis}axis")
    shown = part.get_ticklabels()
    return {
        place: label.get_text() for place, label in zip(part.get_ticklocs(), shown, strict=True) if label.get_visible()
    }


def test_a_row_is_a_layer_and_a_column_a_head() -> None:
    layers = [layer(), layer("layer 1", seed=1)]
    figure = plot_layers(layers, title="named")
    np.testing.assert_array_equal(drawn_maps(figure), [*layers[0].weights, *layers[1].weights])
    assert figure.get_suptitle() == "named"
    assert [ax.get_title() for ax in figure.axes[:6]] == ["head 0", "head 1", "head 2"] * 2
    assert figure.axes[0].get_ylabel().startswith("layer 0: mlr\nquery patch")
    assert figure.axes[3].get_ylabel().startswith("layer 1: mlr\nquery patch")
    assert len({(ax.images[0].norm.vmin, ax.images[0].norm.vmax) for ax in figure.axes[:6]}) == 1
    assert figure.axes[-1].get_ylabel() == "probability"
    assert legend(figure) == ["level 1: 2 components, all pairs", "level 2: 2 components"]
    (fine,) = borders(figure)
    # where two blocks of 6 meet, each has two sides of 6 segments
    assert {tuple(point) for segment in fine.get_segments() for point in segment} >= {(N / 2 - 0.5, N / 2 - 0.5)}
    assert len(fine.get_segments()) == 2 * 2 * N // 2


def test_levels_have_one_scale_around_zero() -> None:
    one = layer()
    figure = plot_layers([one], levels="all", heads=[2, 0])
    expected = [one.levels[level][head] for level in ("level 1", "level 2") for head in (2, 0)]
    np.testing.assert_array_equal(drawn_maps(figure), expected)
    norms = {(ax.images[0].norm.vmin, ax.images[0].norm.vmax) for ax in figure.axes[:4]}
    assert len(norms) == 1
    assert sum(norms.pop()) == 0
    assert figure.axes[-1].get_ylabel() == "added to the score"
    assert legend(figure)[-1] == "adds nothing"
    np.testing.assert_array_equal(
        drawn_maps(plot_layers([one], levels=[2], heads="mean"))[0], one.levels["level 2"].mean(0)
    )


def test_ticks_stand_at_their_time_stamps() -> None:
    figure = plot_layers([layer()], heads=[0])
    for axis in ("x", "y"):
        found = ticks(figure, axis)
        assert len(found) > 2
        for place, text in found.items():
            stamp = pd.Timestamp("2024-02-28") + pd.Timedelta(place, "D")
            assert text == f"{stamp:%b} {stamp.day}"
    assert figure.axes[0].get_xlabel() == "key patch, 2024"
    hours = pd.date_range("2023-12-31 18:00", periods=N, freq="h")
    figure = plot_layers([layer(labels=hours)], heads=[1])
    assert all(
        text == f"{hours[int(place)]:%H:%M\n%b} {hours[int(place)].day}" for place, text in ticks(figure, "x").items()
    )
    assert figure.axes[0].get_xlabel() == "key patch", "of two years neither is that of all"
    for start, freq, form in (("2023-12-27", "D", "%Y-%m-%d"), ("2023-08-01", "MS", "%b %Y")):
        stamps = pd.date_range(start, periods=N, freq=freq)
        figure = plot_layers([layer(labels=stamps)], heads=[1])
        found = ticks(figure, "x")
        assert found == {place: f"{stamps[round(place)]:{form}}" for place in found}
        assert figure.axes[0].get_xlabel() == "key patch"
    day = plot_layers([layer(labels=pd.date_range("2024-02-01", periods=1), levels=0)], heads=[1])
    assert ticks(day, "x") == {0: "Feb"}, "no time of day"
    steps = plot_layers([layer(labels=range(100, 112))], heads=[1])
    assert all(float(text) == 100 + place for place, text in ticks(steps, "y").items())


def test_names_of_channels_and_special_tokens_are_ticks() -> None:
    names = ["a", "b", "a long name"]
    figure = plot_layers([layer(labels=names)])
    assert ticks(figure, "x") == dict(enumerate(names))
    mixed = pd.Index([*pd.date_range("2024-02-01", periods=9, freq="D"), "window"], dtype=object)
    found = ticks(plot_layers([layer(labels=mixed, levels=0)]), "x")
    assert found[9] == "window"
    assert all(place < 8 for place, text in found.items() if text != "window")


def test_layers_of_other_tokens_have_their_own_ticks() -> None:
    layers = [layer(), layer("layer 1", labels=range(7))]
    figure = plot_layers(layers, heads="mean")
    first, second = figure.axes[:2]
    assert first.get_title() == "layer 0: mlr\nmean of 3 heads"
    assert first.get_ylabel()
    assert second.get_ylabel()
    assert second.get_xlabel() == "key patch"


def test_the_bar_has_arrows_where_numbers_go_beyond_it() -> None:
    one = layer()
    even = AttentionLayer(**{**vars(one), "weights": np.full_like(one.weights, 1 / N)})
    for drawn, levels, extend in ((one, None, "max"), (even, None, "neither"), (one, "all", "both")):
        figure = plot_layers([drawn], levels=levels)
        assert [ax.images[0].colorbar for ax in figure.axes if ax.images][-1].extend == extend


def test_many_heads_go_on_in_the_next_row() -> None:
    one = layer()
    many = AttentionLayer(**{**vars(one), "weights": np.repeat(one.weights, 4, 0)})
    figure = plot_layers([many])
    assert len(drawn_maps(figure)) == 12
    assert {ax.get_subplotspec().get_gridspec().ncols for ax in figure.axes[:12]} == {8}
    assert len(drawn_maps(plot_layers([many], chosen=np.array([0]), heads=[np.int64(1), 2]))) == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"chosen": 0}, r"layers must be all, or some of the numbers 0 to 1, such as \[0\], not 0"),
        ({"chosen": "first"}, "layers must be all"),
        ({"heads": [-1]}, r"heads must be mean, all, or some of the numbers 0 to 2, such as \[0\], not \[-1\]"),
        ({"heads": []}, "heads must be mean, all"),
        ({"levels": [0], "chosen": [0]}, r"levels must be all, or some of the numbers 1 to 2, such as \[1\], not \[0"),
        ({"levels": "all"}, "layer 1 has attention standard, which has no levels; those of mlr, bilinear_mlr and mlb"),
    ],
)
def test_what_is_not_there_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        plot_layers([layer(), layer("layer 1", levels=0)], **wrong)


def test_the_house_style_is_for_charts_of_your_own() -> None:
    with matplotlib.rc_context():
        use_house_style()
        ax = Figure().subplots()
        (line,) = ax.plot([1, 2])
        assert line.get_color() == ACCENT
        assert not ax.spines["top"].get_visible()
        figure = plot_layers([layer()])
    assert all(spine.get_visible() for spine in figure.axes[0].spines.values())
