"""The context of a Forecaster for which nobody has named one: that with which a ridge forecasts validation best."""

from __future__ import annotations

from statistics import median

from tsattn.data import Panel, PanelDataModule
from tsattn.experiments import Experiment
from tsattn.experiments.calibrating import CalibratedRun
from tsattn.predictors.ridge import least, validation_errors
from tsattn.task import Output

__all__ = ["CONTEXTS", "with_chosen_context"]

CONTEXTS = (24, 48, 96, 192, 336, 512)
"""Steps that are tried. A linear map is fitted to each within seconds; what it gains from a longer past, a network that
starts from it gains, too."""

_ALPHAS = (1.0, 10.0, 100.0, 1000.0)
_MOST = 4  # contexts in the training rows of a usual series: fewer tell too little of what a long context is worth


def with_chosen_context(experiment: Experiment, panel: Panel) -> Experiment:
    """The experiment with the context of `CONTEXTS` whose ridge has the least squared error on the validation windows.

    The penalty of each ridge is chosen with it. Contexts of more than a quarter of the training rows that series have
    (their median) are not tried, nor those that leave no whole window to train on; series without rows for validation
    have the shortest.

    Args:
        experiment: on a `PanelDataModule`, with any context.
        panel: the series.

    Raises:
        UserError: for series that are too short for the shortest context.
    """
    shortest = experiment.with_values({"data.context_length": CONTEXTS[0]})
    data, _ = shortest.made()
    assert isinstance(data, PanelDataModule)
    data.give(panel)
    data.setup("fit")
    ends = [split.train_end for split in data.splits]
    rows, longest = median(ends), max(ends) - data.prediction_length
    possible = [length for length in CONTEXTS if length <= min(rows / _MOST, longest)]
    if len(possible) < 2 or "val" not in data.parts:
        return shortest
    parts = CalibratedRun.of(data, shortest.model["calibrate"], Output(tuple(shortest.model["quantiles"])))
    best = least(validation_errors(parts.fit_data, possible, _ALPHAS, lambda line: None))
    return experiment.with_values({"data.context_length": best["context_length"]})
