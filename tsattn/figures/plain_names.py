"""Plain words for figures and messages: what is forecast, how far ahead, by which model, in which unit."""

from __future__ import annotations

import re

from tsattn.data.public.cards import CARDS
from tsattn.errors import number_of
from tsattn.predictors.base import Predictor
from tsattn.predictors.calibrated import Calibrated
from tsattn.task import Task

__all__ = ["axis_name", "forecast_title", "model_words"]

_WORDS = {
    "patchtst": "PatchTST",
    "itransformer": "iTransformer",
    "swa": "sliding-window",
    "global_swa": "global sliding-window",
    "btt": "BTT",
    "mlr": "MLR",
    "bilinear_mlr": "bilinear MLR",
    "mlbtc": "MLBTC",
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
