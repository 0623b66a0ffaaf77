"""Plain words for figures and messages: what is forecast, how far ahead, by which model, in which unit."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pandas as pd

from tsattn.batch import Batch
from tsattn.data import Panel
from tsattn.data.public.cards import CARDS
from tsattn.errors import number_of
from tsattn.predictors.attention_layers import AttentionLayer
from tsattn.predictors.base import Predictor
from tsattn.predictors.calibrated import Calibrated
from tsattn.predictors.fitted import FittedPredictor
from tsattn.task import Task

_WORDS = {
    **{"patchtst": "PatchTST", "itransformer": "iTransformer", "btt": "BTT", "mlr": "MLR", "mlbtc": "MLBTC"},
    **{"bilinear_mlr": "bilinear MLR", "swa": "sliding-window", "global_swa": "global sliding-window"},
}
_STEPS = {
    **{"s": "second", "min": "minute", "h": "hour", "D": "day", "B": "business day", "W": "week"},
    **{"ME": "month", "MS": "month", "QE": "quarter", "QS": "quarter", "YE": "year", "YS": "year"},
}


def model_words(predictor: Predictor) -> str:
    """Name a model and its attention, e.g. ``PatchTST with MLR attention``."""
    if isinstance(predictor, Calibrated):
        predictor = predictor.predictor
    attention = predictor.description.get("attention") or []
    layers = attention if isinstance(attention, list) else [attention]
    kinds = dict.fromkeys(layer if isinstance(layer, str) else layer["kind"] for layer in layers)
    name = str(predictor.description["kind"]) if kinds else predictor.name
    return _words(name) + (f" with {' and '.join(map(_words, kinds))} attention" if kinds else "")


def forecast_title(task: Task, horizon: int, model: str = "") -> str:
    """Name the data, if they have a name, the horizon and the model: ``CO2, 52 weeks ahead: PatchTST``."""
    number, base = re.match(r"(\d*)([A-Za-z]*)", task.frequency).groups()  # type: ignore[union-attr]
    step = _STEPS.get(base, "step")
    far = number_of(horizon, step if number in ("", "1") else "step")
    of_each = f" of {number} {step}s" if far.partition(" ")[2].rstrip("s") != step else ""
    data = "" if task.data == "panel" else f"{CARDS[task.data].label if task.data in CARDS else task.data}, "
    return f"{data}{far}{of_each} ahead" + (f": {model}" if model else "")


def axis_name(task: Task, name: str) -> str:
    """Name a series on an axis, with its unit where it is known."""
    card = CARDS.get(task.data)
    return name if card is None or card.unit is None else f"{card.label if name == card.name else name} ({card.unit})"


def _words(kind: str) -> str:
    return _WORDS.get(kind, kind.replace("_", " "))


def window_title(fitted: FittedPredictor, panel: Panel, batch: Batch, layers: Iterable[AttentionLayer]) -> str:
    """Return the predictor, the series and channel, and the last step of the context of a window."""
    task = fitted.predictor.task
    names = [] if panel.is_wide or batch.series_id is None else [str(panel.ids[int(batch.series_id[0])])]
    channels = dict.fromkeys(layer.channel for layer in layers if layer.channel is not None)
    names += [*channels] if task.num_channels > 1 else []
    now = int(batch.time[0, batch.past.shape[1] - 1])  # type: ignore[index]  # windows of a panel have time
    stamp = pd.Timestamp(now, unit="s")
    until = now if task.counts_steps else stamp.date() if stamp == stamp.normalize() else f"{stamp:%Y-%m-%d %H:%M}"
    return ", ".join([model_words(fitted.predictor), *names, f"context up to {until}"])
