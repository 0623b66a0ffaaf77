"""Draw what trained models look at, `docs/images/attention-maps.png`: `python docs/images/maps.py`, about a minute.

A small model for each attention, trained to forecast a year of weekly CO2 from three; mean of its four heads. Each map
has a scale of its own: the darkest hundredth of its probabilities looks alike.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from draw import write_png
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tsattn import CO2DataModule, Forecaster
from tsattn.figures.style import HEAT, INK

HERE = Path(__file__).parent
BACKBONE = {"kind": "transformer", "d_model": 32, "num_heads": 4, "num_layers": 1, "dropout": 0.0}
ATTENTIONS = {
    "standard": ("standard", "any week"),
    "swa": ({"kind": "swa", "window_size": 27}, "13 weeks around"),
    "mlr": ({"kind": "mlr", "ranks": [4, 2, 2], "blocks": [1, 3, 12]}, "years and quarters"),
    "btt": ("btt", "any week, full rank"),
}
SETTINGS = {"font.size": 12, "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK}


def draw_map(axes: Axes, frame: pd.DataFrame, name: str) -> None:
    """The probabilities of a trained model in the last three years; grey where they are 0."""
    attention, about = ATTENTIONS[name]
    options = {"context_length": 156, "prediction_length": 52, "max_steps": 400, "learning_rate": 3e-3}
    forecaster = Forecaster(BACKBONE, attention=attention, quantiles=None, **options)
    (layer,) = forecaster.fit(frame).attention_weights()
    weights = layer.weights.mean(0)
    top = float(np.quantile(weights[weights > 0], 0.99))
    axes.imshow(np.ma.masked_equal(weights, 0), cmap=HEAT, vmin=0, vmax=top, interpolation="nearest")
    axes.set_title(name, size=14, weight="bold", loc="left")
    axes.set_title(about, size=11, loc="right")
    weeks = pd.DatetimeIndex(layer.keys)
    years = [(int(np.argmax(weeks.year == year)), str(year)) for year in sorted({*weeks.year[1:]})]
    ticks = [(place, year) for place, year in years if place > 0]
    axes.set_xticks(*zip(*ticks, strict=True))
    axes.set_yticks(*zip(*ticks, strict=True), rotation=90, va="center")
    axes.spines[:].set_visible(False)


def main() -> None:
    """Train the models, and write the picture."""
    frame = CO2DataModule().load_frame()
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(6.4, 6.8), layout="constrained")
        axes = figure.subplots(2, 2)
        for one, name in zip(axes.flat, ATTENTIONS, strict=True):
            draw_map(one, frame, name)
        for row in axes:
            row[0].set_ylabel("week that looks")
        for column in axes[-1]:
            column.set_xlabel("week looked at")
        write_png(figure, HERE / "attention-maps.png", dpi=130)


if __name__ == "__main__":
    main()
