"""One run of the experiments: from weights, an arm and a data set to plain data that is kept as a record."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from conversion.arms import ORIGINAL, Sizes, converted, described, series_of, surroundings
from conversion.score_counts import flops_by_layer
from conversion.structure_report import compare_structures
from tsattn import PublicDataModule, run
from tsattn.chronos import AdaptedChronos, adapt
from tsattn.chronos.adapted import open_weights
from tsattn.chronos.bolt.bolt_file import read_model
from tsattn.chronos.opening import NamedWeights
from tsattn.evaluation import ErrorTable
from tsattn.experiments import Experiment
from tsattn.experiments.measuring import measured
from tsattn.experiments.running import Hooks
from tsattn.predictors import build_predictor
from tsattn.task import Output
from tsattn.training import Execution, TrainerOptions

SHARES = (1.0, 0.5)  # of the parameters of queries and keys, that structures may have at most

__all__ = ["attention_flops", "fine_tuned", "structure_errors", "trained_on", "zero_shot"]


def trained_on(weights: str) -> tuple[str, ...]:
    """The public data sets whose training parts a model has seen; none of one that does not say so."""
    file = NamedWeights.of(weights).file
    return () if file is None else read_model(file).trained_on


def _data(name: str, plain: AdaptedChronos, sizes: Sizes) -> tuple[PublicDataModule, Execution]:
    """A data set, set up, and where its windows are forecast."""
    arguments = {"context_length": plain.pipeline.model_context_length, "prediction_length": sizes.horizon}
    described = {"class_path": "PublicDataModule", "init_args": {"name": name, **arguments}}
    data, trainer = Experiment.of({"data": described, "trainer": {"accelerator": "cpu"}}).made()
    assert isinstance(data, PublicDataModule)
    data.prepare_data()
    data.setup("fit")
    return data, Execution(TrainerOptions.of(trainer, is_new=False))


def zero_shot(weights: str, name: str, arm: str, sizes: Sizes) -> dict[str, Any]:
    """Scores of an arm that is converted and nothing else on the test part, and the errors of its attentions there."""
    plain = open_weights(weights)
    data, execution = _data(name, plain, sizes)
    assert data.task is not None
    with tempfile.TemporaryDirectory() as folder:
        where, found = weights, {}
        if arm != ORIGINAL:
            began = time.perf_counter()
            adapted = converted(plain, arm, data, sizes)
            found["seconds_of_conversion"] = round(time.perf_counter() - began, 2)
            contexts = series_of(data, "test", plain.pipeline.model_context_length, sizes.learned_from)
            found["output_errors"] = {
                str(layer): float(error) for layer, error in adapted.output_errors(contexts).items()
            }
            found["parameters"] = sum(
                part.numel() for one in adapted.swapped.values() for part in one.attention.projection.parameters()
            )
            where = str(adapted.save(Path(folder) / arm))
        predictor = build_predictor({"kind": "chronos", "weights": where})
        predictor.build(data.task, Output(tuple(plain.pipeline.quantiles)))
        scores = measured(predictor, data, "test", execution).scores()
    return {
        "seen": name in trained_on(weights),
        "windows": int(scores["windows"]),
        "mase": scores["mase_by_channel"],
        "wql": scores["wql_by_channel"],
        **found,
    }


def fine_tuned(weights: str, name: str, arm: str, sizes: Sizes, seed: int) -> dict[str, Any]:
    """Scores after calibration, where attention was swapped, and some steps of training; MASE by origin."""
    plain = open_weights(weights)
    backbone: dict[str, Any] = {"kind": "chronos", "weights": str(Path(weights)), "trained": "all"}
    if arm != ORIGINAL:
        backbone |= {**described(arm, surroundings(plain)), "calibrate": sizes.calibrate}
    length, steps = plain.pipeline.model_context_length, sizes.fine_tuning
    arguments = {"name": name, "context_length": length, "prediction_length": sizes.horizon, "batch_size": 32}
    experiment = {
        "seed_everything": seed,
        "data": {"class_path": "PublicDataModule", "init_args": {**arguments, "val_windows": sizes.val_windows}},
        "model": {"backbone": backbone, "quantiles": list(plain.pipeline.quantiles), "learning_rate": 1e-4},
        "trainer": {
            "max_steps": steps,
            "val_check_interval": max(1, steps // 4),
            "check_val_every_n_epoch": None,
            "gradient_clip_val": 1.0,
            "accelerator": "cpu",
        },
    }
    began = time.perf_counter()
    result = run(experiment, hooks=Hooks(beside=False, say=lambda line: None))
    assert result.errors is not None
    scores = result.errors.scores()
    return {
        "seen": name in trained_on(weights),
        "windows": int(scores["windows"]),
        "mase": scores["mase"],
        "wql": scores["wql_by_channel"],
        "best_step": result.fit["best_step"],
        "seconds": round(time.perf_counter() - began, 1),
        **_by_origin(result.errors),
    }


def _by_origin(errors: ErrorTable) -> dict[str, Any]:
    """The numerators and denominators of MASE, summed over the windows that start at one time."""
    frame = errors.frame()
    usable = frame["seasonal_error"].gt(0)
    scaled = np.where(usable, frame["absolute_original"] / frame["seasonal_error"].where(usable, 1), 0)
    counts = np.where(usable, frame["count"], 0)
    rows = frame.assign(scaled=scaled, counts=counts).groupby("origin")[["scaled", "counts"]].sum()
    return {"sums": [float(f"{value:.7g}") for value in rows["scaled"]], "counts": rows["counts"].astype(int).tolist()}


def structure_errors(weights: str) -> dict[str, Any]:
    """The mean errors of each structure, and of a low-rank matrix of its size, over layers and heads."""
    rows: dict[str, dict[str, Any]] = {}
    for share in SHARES:
        table = compare_structures(open_weights(weights).pipeline, share=share)
        for name, part in table.groupby("structure", sort=False):
            errors = {column: float(part[column].mean()) for column in ("error", "low_rank_error")}
            rows[f"{name}, {share:g}"] = {"share": share, "parameters": int(part["parameters"].max()), **errors}
    return {"structures": rows}


def attention_flops(weights: str) -> dict[str, Any]:
    """Those of MLR by layer, in closed form and counted, beside the original's."""
    plain = open_weights(weights)
    mlr = described("mlr", surroundings(plain))["attention"]
    return {"attention": mlr, "layers": flops_by_layer(adapt(plain.pipeline, mlr))}
