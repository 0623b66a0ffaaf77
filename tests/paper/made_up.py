"""Made-up records of runs, of which a test knows what they say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import yaml

from tsattn.leaderboard.records import Records, by_stretch

__all__ = ["AROUND", "PROMPT_DIMENSIONS", "Record", "closed_form", "forecasts", "made_up", "prompt_runs", "records_of"]

PROMPT_DIMENSIONS = 8

AROUND = (0.0002, 0.005)
"""Learning rates about that of .001, which validation likes less."""

_TABLE = ("dataset", "horizon")

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
    """One run; `values` are columns of the records."""
    row = {
        "suite": "made_up",
        "dataset": "made_up",
        "horizon": 8,
        "predictor": predictor,
        "attention": attention,
        "seed": seed,
        "status": status,
        "reason": "" if status == "done" else "training diverged",
        "key": f"{predictor}-{attention}-{seed}{''.join(f'-{values[name]}' for name in _TABLE if name in values)}",
        "experiment": yaml.safe_dump(dict(experiment)),
        "versions": '{"tsattn": "0.1.0", "torch": "2.13.0", "python": "3.11.7"}',
        "cpu": "a CPU",
        "device": "cpu",
        "finished": datetime(2026, 1, 1, tzinfo=UTC),
    }
    if status == "done":
        row |= {"parameters": 100, "flops": 1000.0, "seconds": 2.0}
    row |= {name: value for name, value in values.items() if status == "done" or name in _TABLE}
    if status == "done":
        score = {"squared": row.get("mse") or 0.0, "absolute": row.get("mae") or 0.0}
        row = {"mse": 0.0, "mae": 0.0, **row}
        one = pd.DataFrame({"origin": [0], **score, "count": [1]}) if windows is None else windows
        row |= by_stretch(one, row["horizon"])
    return row


def records_of(*records: Record) -> Records:
    return Records.of(records)


def forecasts(
    attention: str,
    factor: float,
    *,
    rate: float | None = None,
    steps: int = 10,
    validation: float | None = None,
    seeds: int = 3,
    description: Mapping[str, Any] | None = None,
    dataset: str = "made_up",
    horizon: int = 8,
    windows: int = 320,
    **values: Any,
) -> list[Record]:
    """Runs whose errors in all windows are those of a standard one by a factor, and a little by their seed.

    Without a rate, that which validation prefers among three.
    """
    if rate is None:
        best = factor if validation is None else validation
        named = {"steps": steps, "seeds": seeds, "description": description, "dataset": dataset, "horizon": horizon}
        tried = {0.001: best, **dict.fromkeys(AROUND, 9 * best)}
        return [
            one
            for rate, found in tried.items()
            for one in forecasts(attention, factor, rate=rate, validation=found, windows=windows, **named, **values)
        ]
    backbone = {"kind": "transformer", "d_model": 64, "attention": dict(description or {"kind": attention})}
    experiment = {
        "data": {"init_args": {"context_length": 32, "batch_size": 8}},
        "model": {"learning_rate": rate, "backbone": backbone},
        "trainer": {"max_steps": steps},
    }
    found = []
    for seed in range(1, seeds + 1):
        rng = np.random.default_rng(1)
        errors = (1 + 0.1 * rng.random(windows)) * factor * (1 + 0.001 * seed)
        own = 1 + 0.002 * np.random.default_rng([seed, len(attention)]).standard_normal(windows)
        count = 8
        table = {"origin": np.arange(windows)}
        table |= {"squared": count * errors * own, "absolute": count * 0.5 * errors * own}
        table |= {"count": np.full(windows, count)}
        scores = {"mse": float((errors * own).mean()), "mae": float(0.5 * (errors * own).mean())}
        on_validation = factor if validation is None else validation
        scores |= {"validation_mse": on_validation, "validation_mae": 0.5 * on_validation}
        where = {"dataset": dataset, "horizon": horizon}
        columns = {**where, **scores, **values}
        found.append(
            made_up(f"transformer_{rate}_{steps}", attention, seed, experiment, windows=pd.DataFrame(table), **columns)
        )
    return found


def prompt_runs(
    name: str,
    kind: str,
    errors: list[float],
    *,
    heads: int = 8,
    width: int = 16,
    rate: float | None = None,
    validation: float | None = None,
    flops: float = 1000.0,
    status: str = "done",
    **description: Any,
) -> list[Record]:
    """The seeds of an arm with one learning rate; errors are those over d.

    Without a rate, with that which validation prefers among three.
    """
    if rate is None:
        named = {"heads": heads, "width": width, "flops": flops, "status": status, **description}
        tried = {0.001: validation, **dict.fromkeys(AROUND, 9 * max(errors) + 9)}
        return [
            one
            for rate, found in tried.items()
            for one in prompt_runs(name, kind, errors, rate=rate, validation=found, **named)
        ]
    attention = {"kind": kind, **({"ranks": [1, 1], "blocks": [1, 2]} if kind == "bilinear_mlr" else {}), **description}
    experiment = {
        "data": {"init_args": {"dimensions": PROMPT_DIMENSIONS, "batch_size": 64, "curriculum": 0.06}},
        "model": {
            "learning_rate": rate,
            "backbone": {"d_model": width, "num_heads": heads, "num_layers": 3, "attention": attention},
        },
        "trainer": {"max_steps": 100},
    }
    return [
        made_up(
            f"w{width}_{heads}_{rate}",
            name,
            seed,
            experiment,
            status,
            mse=error * PROMPT_DIMENSIONS,
            validation_mse=(error if validation is None else validation) * PROMPT_DIMENSIONS,
            flops=flops,
        )
        for seed, error in enumerate(errors, 1)
    ]


def closed_form() -> Record:
    experiment = {
        "data": {"init_args": {"dimensions": PROMPT_DIMENSIONS}},
        "model": {"backbone": {"kind": "x", "alpha": 0.0}},
    }
    return made_up("least_squares", "", None, experiment, mse=1e-9, validation_mse=1e-9)
