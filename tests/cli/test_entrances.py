"""One description gives the same numbers, to the last bit, whichever entrance it comes through."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

import tsattn
from tsattn.cli import main
from tsattn.experiments.result import fitted_in
from tsattn.experiments.run_folder import RunFolder

NETWORK = {"kind": "patchtst", "d_model": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.2}
SIZES = {"context_length": 24, "prediction_length": 6, "batch_size": 16, "eval_batch_size": 64}
SPLIT = {"val_rows": 20, "test_rows": 30}
TRAINER = {"max_steps": 6, "val_check_interval": 2, "accelerator": "cpu"}
OPTIONS = {"learning_rate": 0.01, "weight_decay": 0.02, "warmup_steps": 3}
SEED = 5

# each sort of predictor, and each way of scaling
CASES = {
    "network": {"backbone": NETWORK, "scaling": "series", "quantiles": []},
    "quantiles, global": {"backbone": NETWORK, "scaling": "global", "quantiles": [0.1, 0.5, 0.9]},
    "ridge": {"backbone": {"kind": "ridge", "context_length": 24}, "scaling": "series", "quantiles": []},
}


class Outcome(NamedTuple):
    """What came through an entrance: weights, validation error, forecast beyond the end of the table, test scores."""

    weights: Mapping[str, torch.Tensor]
    error: float
    forecast: np.ndarray
    scores: dict[str, float]


def table(path: Path) -> pd.DataFrame:
    rng, parts = np.random.default_rng(0), []
    for number, rows in enumerate((160, 140, 120)):
        step = np.arange(rows)
        y = 10 * number + (1 + number) * np.sin(2 * np.pi * step / 12) + 0.3 * rng.standard_normal(rows)
        y[rng.random(rows) < 0.03] = np.nan
        dates = pd.date_range("2020-01-01", periods=rows, freq="h")
        parts.append(pd.DataFrame({"unique_id": f"s{number}", "ds": dates, "y": y.round(4)}))
    frame = pd.concat(parts, ignore_index=True)
    frame.to_csv(path, index=False)
    return frame


def description(path: Path, case: Mapping[str, Any]) -> dict[str, Any]:
    arguments = {"path": str(path), **SIZES, **SPLIT, "scaling": case["scaling"], "val_windows": "all"}
    model = {"backbone": case["backbone"], "quantiles": case["quantiles"], **OPTIONS}
    data = {"class_path": "CSVDataModule", "init_args": arguments}
    return {"seed_everything": SEED, "data": data, "model": model, "trainer": TRAINER}


def of_folder(run: Path) -> Outcome:
    found = json.loads((run / "metrics.json").read_text())
    output = run.parent / f"{run.name}.parquet"
    assert main(["predict", "--run", str(run), f"--output={output}", "--figure=false"]) == 0
    weights = fitted_in(RunFolder(run), RunFolder(run).best).predictor.state_dict()
    tested = {name: np.nan if one is None else float(one) for name, one in next(iter(found["test"].values())).items()}
    return Outcome(weights, found["validation_error"], numbers(pd.read_parquet(output)), tested)


def of_result(result: tsattn.Result, forecast: pd.DataFrame) -> Outcome:
    tested = {str(name): float(score) for name, score in result.scores.iloc[0].items()}
    return Outcome(result.fitted.predictor.state_dict(), result.fit["validation_error"], numbers(forecast), tested)


def numbers(forecast: pd.DataFrame) -> np.ndarray:
    return forecast.select_dtypes("number").to_numpy()


def by_fit(folder: Path, case: Mapping[str, Any], frame: pd.DataFrame) -> Outcome:
    (folder / "fit.yaml").write_text(yaml.safe_dump(description(folder / "table.csv", case)))
    assert main(["fit", "--config", str(folder / "fit.yaml"), f"--run={folder / 'fit'}"]) == 0
    return of_folder(folder / "fit")


def by_run(folder: Path, case: Mapping[str, Any], frame: pd.DataFrame) -> Outcome:
    result = tsattn.run(description(folder / "table.csv", case))
    return of_result(result, tsattn.Forecaster.of(result).predict())


def by_forecaster(folder: Path, case: Mapping[str, Any], frame: pd.DataFrame) -> Outcome:
    forecaster = tsattn.Forecaster(
        **case,
        seed=SEED,
        max_steps=TRAINER["max_steps"],
        accelerator="cpu",
        data={"val_windows": "all", **SIZES, **SPLIT},
        training={"trainer": {"val_check_interval": TRAINER["val_check_interval"]}, **OPTIONS},
    ).fit(frame)
    return of_result(forecaster.result, forecaster.predict())


def by_tune(folder: Path, case: Mapping[str, Any], frame: pd.DataFrame) -> Outcome:
    (folder / "base.yaml").write_text(yaml.safe_dump(description(folder / "table.csv", case)))
    search = {"parameters": {"model.backbone.context_length": [24]}}
    if case["backbone"] == NETWORK:
        search = {"parameters": {"model.learning_rate": [OPTIONS["learning_rate"]]}}
    (folder / "search.yaml").write_text(yaml.safe_dump({"sampler": "grid", **search}))
    files = ["--config", str(folder / "base.yaml"), "--search", str(folder / "search.yaml")]
    study = folder / "study"
    assert main(["tune", *files, "--trials=1", f"--study={study}"]) == 0
    (error,) = json.loads((study / "study.json").read_text())["best"]["values"]
    assert main(["fit", "--config", str(study / "best.yaml"), f"--run={folder / 'best'}"]) == 0
    again = of_folder(folder / "best")
    assert again.error == error
    return again


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_every_entrance_gives_the_same(
    case: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = table(tmp_path / "table.csv")
    first, *others = (entrance(tmp_path, case, frame) for entrance in (by_fit, by_run, by_forecaster, by_tune))
    assert np.isfinite(first.forecast).all()
    assert first.scores["windows"] == 3 * (30 - 6 + 1)
    for other in others:
        assert other.weights.keys() == first.weights.keys()
        for name, weight in first.weights.items():
            assert torch.equal(weight, other.weights[name]), name
        assert other.error == first.error
        np.testing.assert_array_equal(other.forecast, first.forecast)
        assert other.scores.keys() == first.scores.keys()
        np.testing.assert_array_equal([*other.scores.values()], [*first.scores.values()])
