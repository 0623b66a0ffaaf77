"""Small runs, one for each path to a number, and what they came to when they were last recorded.

Without the native kernels, dropout draws other numbers, so what runs came to without them is recorded too.

`python -m tests.experiments.golden` records them anew, in the commit that raises `RESULTS_VERSION`.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import tsattn
from tsattn.data.mapped import convert
from tsattn.data.reader import TableReader
from tsattn.experiments import RESULTS_VERSION
from tsattn.ops.native.library import kernels_taken

RECORD = Path(__file__).with_name("golden.json")

SIZES = {"context_length": 24, "prediction_length": 6, "batch_size": 16}
NETWORK = {
    "kind": "patchtst",
    "d_model": 8,
    "num_heads": 2,
    "num_layers": 1,
    "attention": {"kind": "mlr", "ranks": [2, 2]},
}
STEPS = {"max_steps": 12, "val_check_interval": 4, "accelerator": "cpu"}


def sales(series: int = 3, rows: int = 120) -> pd.DataFrame:
    """A long table with gaps, a covariate of each sort and a category."""
    rng = np.random.default_rng(0)
    parts = []
    for number in range(series):
        step = np.arange(rows - 10 * number)
        price = rng.standard_normal(len(step)).round(3)
        y = 10 * number + np.sin(2 * np.pi * step / 12) + price + 0.1 * rng.standard_normal(len(step))
        y[rng.random(len(step)) < 0.03] = np.nan
        dates = pd.date_range("2020-01-01", periods=len(step), freq="h")
        part = {"unique_id": f"s{number}", "ds": dates, "y": y.round(4), "price": price, "rain": y.round(1) % 1}
        parts.append(pd.DataFrame({**part, "kind": "ab"[number % 2]}))
    return pd.concat(parts, ignore_index=True)


def described(folder: Path, backbone: Any, **changes: Any) -> dict[str, Any]:
    path = folder / "sales.csv"
    if not path.exists():
        sales().to_csv(path, index=False)
    data = {"class_path": "CSVDataModule", "init_args": {"path": str(path), **SIZES, **changes.pop("data", {})}}
    trainer = {**STEPS, **changes.pop("trainer", {})}
    return {"data": data, "model": {"backbone": backbone, **changes}, "trainer": trainer}


COVARIATES = {"past_covariates": ["rain"], "future_covariates": ["price"], "static": ["kind"]}
ENSEMBLE = {"kind": "ensemble", "members": ["ridge", {**NETWORK, "loss": "mae", "context_length": 12}], "seeds": 2}


def of_run(backbone: Any, **changes: Any) -> Callable[[Path], dict[str, float]]:
    """What a run of `tsattn.run` comes to: the validation error, and the pooled test scores."""

    def scores(folder: Path) -> dict[str, float]:
        result = tsattn.run(described(folder, backbone, **dict(changes)))
        test = result.scores.iloc[0]
        names = [name for name in test.index if not name.endswith("by_channel")]
        return {"validation_error": result.fit["validation_error"], **{name: float(test[name]) for name in names}}

    return scores


def of_embedded_data(folder: Path) -> dict[str, float]:
    data = {"class_path": "CO2DataModule", "init_args": {"context_length": 104, "prediction_length": 26}}
    backbone = {**NETWORK, "kind": "transformer", "linear_path": "ridge"}
    result = tsattn.run({"data": data, "model": {"backbone": backbone}, "trainer": STEPS})
    return {name: float(score) for name, score in result.scores["mse_scaled"].items()}


def of_refit(folder: Path) -> dict[str, float]:
    forecaster = tsattn.Forecaster(NETWORK, data=SIZES, max_steps=12, accelerator="cpu").fit(sales(), refit=True)
    return {"sum": float(forecaster.predict()["predictions"].sum())}


def of_forecaster(folder: Path) -> dict[str, float]:
    """Forecasts beyond the end and rolled on, cross-validation, and scores by channel."""
    forecaster = tsattn.Forecaster(NETWORK, data=SIZES, max_steps=12, accelerator="cpu").fit(sales().iloc[:-40])
    rolled = forecaster.predict(horizon=14)
    crossed = forecaster.cross_validate(sales(), windows=2)
    scores = forecaster.evaluate(sales(), detail=True).iloc[0]
    return {
        "rolled": float(rolled["0.9"].sum()),
        "crossed": float((crossed["predictions"] - crossed["y"]).abs().sum()),
        **{str(name): float(score) for name, score in scores.items()},
    }


def of_channels(folder: Path) -> dict[str, float]:
    """Forecasts of channels that attend to each other, in groups, with covariates; a wide table of three."""
    wide = sales().pivot_table(index="ds", columns="unique_id", values="y", dropna=False)
    backbone = {"kind": "itransformer", "d_model": 8, "num_heads": 2, "num_layers": 1, "calendar": True}
    backbone |= {"attention": {"kind": "mlr", "ranks": [2, 2]}, "groups": ["all", [0, 1, 0]]}
    forecaster = tsattn.Forecaster(backbone, data=SIZES, max_steps=12, accelerator="cpu").fit(wide)
    return {"sum": float(forecaster.predict()["predictions"].sum())}


def of_pretrained(folder: Path) -> dict[str, float]:
    forecaster = tsattn.Forecaster("tiny", prediction_length=6, accelerator="cpu")
    forecast = forecaster.predict(sales()[["unique_id", "ds", "y"]])
    return {name: float(forecast[name].sum()) for name in ("predictions", "0.1", "0.9")}


def of_resumed(folder: Path) -> dict[str, float]:
    run = Path(tempfile.mkdtemp(dir=folder)) / "run"
    tsattn.run(described(folder, NETWORK), run)
    result = tsattn.resume(run, {"max_steps": 20})
    test = result.scores.iloc[0]
    return {"validation_error": result.fit["validation_error"], "mse_scaled": float(test["mse_scaled"])}


def of_calibrated(folder: Path) -> dict[str, float]:
    options = {"data": SIZES, "max_steps": 12, "accelerator": "cpu", "quantiles": [0.1, 0.5, 0.9], "calibrate": True}
    forecast = tsattn.Forecaster(NETWORK, **options).fit(sales()).predict()
    return {name: float(forecast[name].sum()) for name in ("0.1", "0.5", "0.9")}


def of_converted(folder: Path) -> dict[str, float]:
    """A converted table with covariates, a category, gaps and series of unequal length."""
    sales().to_csv(folder / "table.csv", index=False)
    options = TableReader.of({"past_covariates": ["rain"], "future_covariates": ["price"], "static": ["kind"]}).options
    convert(folder / "table.csv", folder / "converted", options, overwrite=True)
    data = {"class_path": "CSVDataModule", "init_args": {"path": str(folder / "converted"), **SIZES}}
    result = tsattn.run({"data": data, "model": {"backbone": NETWORK}, "trainer": STEPS})
    test = result.scores.iloc[0]
    return {"validation_error": result.fit["validation_error"], "mse_scaled": float(test["mse_scaled"])}


PATHS: dict[str, Callable[[Path], dict[str, float]]] = {
    "network": of_run(NETWORK, data={"scaling": "global"}),
    "network_of_quantiles": of_run(NETWORK, quantiles=[0.1, 0.5, 0.9]),
    "network_with_covariates": of_run(NETWORK, data=COVARIATES),
    "network_by_mup": of_run({**NETWORK, "attention": {"kind": "btt"}}, mup=True, loss="huber"),
    "accumulated": of_run(NETWORK, trainer={"accumulate_grad_batches": 2}, loss="mae"),
    "ridge": of_run("ridge"),
    "seasonal_naive": of_run("seasonal_naive"),
    "persistence": of_run("persistence"),
    "ensemble": of_run(ENSEMBLE),
    "embedded_data": of_embedded_data,
    "refit": of_refit,
    "forecaster": of_forecaster,
    "channels": of_channels,
    "pretrained": of_pretrained,
    "resumed": of_resumed,
    "calibrated": of_calibrated,
    "converted": of_converted,
    "dlinear": of_run("dlinear"),
    "window_mean": of_run("window_mean"),
    "without_queries": of_run({**NETWORK, "num_layers": 3, "attention": ["identity", "uniform", "fixed_mixing"]}),
}


def record(folder: Path) -> None:
    """Write what all paths come to."""
    numbers = {}
    for kernels in ("auto", "off"):
        with kernels_taken(kernels):
            numbers[kernels] = {name: path(folder) for name, path in PATHS.items()}
    content = {"results_version": RESULTS_VERSION, "numbers": numbers["auto"], "without_kernels": numbers["off"]}
    RECORD.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        record(Path(temporary))
