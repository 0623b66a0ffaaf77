"""Made-up records of runs, of which a test knows what they say."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import yaml

from tsattn.leaderboard.records import Records, by_stretch
from tsattn.leaderboard.suite import Suite

PROMPT_DIMENSIONS = 8
AROUND = (0.0002, 0.005)  # learning rates about that of .001, which validation likes less
VERSIONS = '{"tsattn": "0.1.0", "torch": "2.13.0", "python": "3.11.7"}'

Record: TypeAlias = dict[str, Any]


def made_up(
    predictor: str,
    attention: str,
    seed: int | None,
    experiment: Mapping[str, Any],
    status: str = "done",
    *,
    windows: pd.DataFrame | None = None,
    **values: Any,
) -> Record:
    table = {"dataset": "made_up", "horizon": 8}
    table |= {name: value for name, value in values.items() if name in table}
    key = f"{predictor}-{attention}-{seed}-{table}"
    row = {"suite": "made_up", **table, "predictor": predictor, "attention": attention, "seed": seed, "key": key}
    row |= {"status": status, "reason": "" if status == "done" else "training diverged", "versions": VERSIONS}
    row |= {"experiment": yaml.safe_dump(dict(experiment)), "cpu": "a CPU", "device": "cpu"}
    row |= {"finished": datetime(2026, 1, 1, tzinfo=UTC)}
    if status == "done":
        row |= {"parameters": 100, "flops": 1000.0, "seconds": 2.0, "mse": 0.0, "mae": 0.0, **values}
        score = {"squared": row["mse"] or 0.0, "absolute": row["mae"] or 0.0}
        one = pd.DataFrame({"origin": [0], **score, "count": [1]}) if windows is None else windows
        row |= by_stretch(one, row["horizon"])
    return row


def records_of(*parts: list[Record] | Record) -> Records:
    return Records.of(one for part in parts for one in (part if isinstance(part, list) else [part]))


def suite_of(predictors: Iterable[str], attentions: Iterable[str], questions: Iterable[tuple[str, str, str]]) -> Suite:
    """A suite of which only names and questions matter: words, a model, and what it is compared with."""
    backbones = {name: {"backbone": {"kind": "x", "d_model": n}} for n, name in enumerate(predictors)}
    first = next(iter(backbones))
    asked = []
    for ask, *pair in questions:
        one, other = (model if ", " in model else f"{first}, {model}" for model in pair)
        asked.append({"ask": ask, "models": [one], "against": other})
    content = {"data": ["ETTh1"], "horizons": [8], "predictors": backbones, "questions": asked}
    return Suite.of("made_up", yaml.safe_dump(content | {"attentions": dict.fromkeys(attentions, "standard")}))


def at_rates(make: Callable[[float, Any], list[Record]], best: Any, worse: Any) -> list[Record]:
    """The runs of three rates, of which validation prefers the one between."""
    tried = {0.001: best, **dict.fromkeys(AROUND, worse)}
    return [one for rate, validation in tried.items() for one in make(rate, validation)]


def forecasts(
    attention: str,
    factor: float,
    *,
    rate: float | None = None,
    validation: float | None = None,
    seeds: int = 3,
    description: Mapping[str, Any] | None = None,
    windows: int = 320,
    **table: Any,
) -> list[Record]:
    """Runs whose errors in all windows are those of a standard one by a factor, and a little by their seed."""
    on_validation = factor if validation is None else validation
    if rate is None:
        named = {"seeds": seeds, "description": description, "windows": windows, **table}

        def make(rate: float, validation: float) -> list[Record]:
            return forecasts(attention, factor, rate=rate, validation=validation, **named)

        return at_rates(make, on_validation, 9 * on_validation)
    backbone = {"kind": "transformer", "d_model": 64, "attention": dict(description or {"kind": attention})}
    experiment = {
        "data": {"init_args": {"context_length": 32, "batch_size": 8}},
        "model": {"learning_rate": rate, "backbone": backbone},
        "trainer": {"max_steps": 10},
    }
    found = []
    for seed in range(1, seeds + 1):
        errors = (1 + 0.1 * np.random.default_rng(1).random(windows)) * factor * (1 + 0.001 * seed)
        errors = errors * (1 + 0.002 * np.random.default_rng([seed, len(attention)]).standard_normal(windows))
        frame = pd.DataFrame({"origin": range(windows), "squared": 8 * errors, "absolute": 4 * errors, "count": 8})
        scores = {"mse": float(errors.mean()), "mae": float(0.5 * errors.mean())}
        scores |= {"validation_mse": on_validation, "validation_mae": 0.5 * on_validation}
        found.append(made_up(f"transformer_{rate}", attention, seed, experiment, windows=frame, **table, **scores))
    return found


def prompt_runs(
    name: str,
    kind: str,
    errors: list[float],
    *,
    rate: float | None = None,
    validation: float | None = None,
    status: str = "done",
) -> list[Record]:
    """The seeds of a model of width 16 with one learning rate; errors are those over d."""
    if rate is None:
        of = name, kind, errors
        return at_rates(lambda rate, v: prompt_runs(*of, rate=rate, validation=v, status=status), validation, 9)
    backbone = {"d_model": 16, "num_heads": 8, "num_layers": 3, "attention": {"kind": kind}}
    experiment = {
        "data": {"init_args": {"dimensions": PROMPT_DIMENSIONS, "batch_size": 64, "curriculum": 0.06}},
        "model": {"learning_rate": rate, "backbone": backbone},
        "trainer": {"max_steps": 100},
    }
    found = []
    for seed, error in enumerate(errors, 1):
        scores = {"mse": error, "validation_mse": error if validation is None else validation}
        scores = {of: PROMPT_DIMENSIONS * value for of, value in scores.items()}
        found.append(made_up(f"w16_8_{rate}", name, seed, experiment, status, **scores))
    return found


def closed_form() -> Record:
    data, backbone = {"init_args": {"dimensions": PROMPT_DIMENSIONS}}, {"kind": "x", "alpha": 0.0}
    experiment = {"data": data, "model": {"backbone": backbone}}
    return made_up("least_squares", "", None, experiment, mse=1e-9, validation_mse=1e-9)
