"""Several threads fit, load and predict as each would alone, and so does a cluster; a first forecast imports little."""

import logging
import random
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tsattn
from tests.forecaster.toys import SMALL, frame_of
from tsattn.errors import UserError, quiet
from tsattn.forecaster import Forecaster, predict_dataset
from tsattn.training.execution import quiet_lightning

BACKBONE = {**SMALL["backbone"], "dropout": 0.3}
OPTIONS: dict[str, Any] = {**SMALL, "backbone": BACKBONE, "max_steps": 10}


def wave() -> pd.DataFrame:
    return frame_of({"wave": 200})


def test_threads_give_the_forecasts_of_one(tmp_path: Path) -> None:
    alone = {seed: Forecaster(**OPTIONS, seed=seed).fit(wave()) for seed in (1, 2)}
    expected = {seed: forecaster.predict() for seed, forecaster in alone.items()}
    alone[1].save(tmp_path / "model")
    torch.manual_seed(5)
    before = torch.get_rng_state()

    def predict(_: int) -> pd.DataFrame:
        return alone[1].predict()

    def load(_: int) -> pd.DataFrame:
        return tsattn.load(tmp_path / "model").predict()

    with ThreadPoolExecutor(4) as threads:
        fits = {seed: threads.submit(lambda seed=seed: Forecaster(**OPTIONS, seed=seed).fit(wave())) for seed in (1, 2)}
        others = [*threads.map(predict, range(8)), *threads.map(load, range(3))]
        for seed, fit in fits.items():
            pd.testing.assert_frame_equal(fit.result().predict(), expected[seed])
    for forecast in others:
        pd.testing.assert_frame_equal(forecast, expected[1])
    assert torch.equal(torch.get_rng_state(), before)


def generators() -> list[Any]:
    """The states of the generators that belong to the process."""
    return [torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()]  # type: ignore[index]  # noqa: NPY002


def test_a_fit_leaves_all_generators_as_they_were() -> None:
    backbone = {"kind": "ensemble", "members": ["ridge", BACKBONE]}
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    before = generators()
    Forecaster(**{**OPTIONS, "max_steps": 3, "backbone": backbone}).fit(wave(), refit=True).predict()
    assert generators() == before


def test_a_forecast_and_a_model_that_is_read_draw_no_random_numbers(tmp_path: Path) -> None:
    forecaster = Forecaster(**{**OPTIONS, "max_steps": 2}).fit(wave())
    forecaster.save(tmp_path / "model")
    before = torch.get_rng_state()
    forecaster.predict()
    forecaster.evaluate(wave().assign(ds=lambda frame: frame["ds"] + pd.Timedelta(hours=200)))
    tsattn.load(tmp_path / "model").predict()
    assert torch.equal(torch.get_rng_state(), before)


def test_what_lightning_says_is_as_before_once_the_last_thread_is_done() -> None:
    """Whichever order they leave in."""
    logger, filters = logging.getLogger("lightning.pytorch"), [*warnings.filters]
    level = logger.level
    first, second = quiet_lightning(), quiet_lightning()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert logger.level == logging.WARNING
    second.__exit__(None, None, None)
    assert (logger.level, warnings.filters) == (level, filters)
    with pytest.raises(ZeroDivisionError), quiet_lightning():
        raise ZeroDivisionError
    assert (logger.level, warnings.filters) == (level, filters)


def test_quiet_that_is_off_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("tsattn")
    with caplog.at_level("WARNING", "tsattn"), quiet():
        with quiet(False):
            logger.warning("hidden")
        with quiet(lifted=True):
            logger.warning("said")
    assert caplog.messages == ["said"]


@pytest.mark.slow
def test_a_dataset_is_forecast_whatever_block_its_rows_lie_in(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed, so nothing is forecast on a cluster")
    pytest.importorskip("ray.data")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    table = frame_of({f"s{number}": 90 + 11 * number for number in range(8)})
    fitted = Forecaster("tiny", prediction_length=12, accelerator="cpu").fit(table)  # a worker imports little for it
    with pytest.raises(UserError, match=r"predict_dataset takes a dataset of ray.data, not a DataFrame"):
        predict_dataset(fitted, table)
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        ray.data.DataContext.get_current().max_hash_shuffle_aggregators = 1  # a process for all blocks
        scattered = table.sample(frac=1, random_state=5)
        dataset = ray.data.from_pandas([scattered[:400], scattered[400:]])
        found = predict_dataset(fitted, dataset, horizon=5, blocks=2).to_pandas()
        with pytest.raises(UserError, match="no time column found in the dataset"):
            predict_dataset(fitted, ray.data.from_pandas(table[["unique_id", "y"]]))
    finally:
        ray.shutdown()
    expected = fitted.predict(table, horizon=5)
    found = found.sort_values(["unique_id", "ds"], ignore_index=True)[expected.columns]
    pd.testing.assert_frame_equal(found, expected, rtol=1e-6, check_dtype=False)
    with pytest.raises(UserError, match="the forecaster is not fitted yet"):
        predict_dataset(Forecaster(prediction_length=4), None)


FORECAST = """
import sys
sys.modules["chronos"] = sys.modules["peft"] = None  # as where the extra is not installed
sys.modules["resource"] = None  # as on Windows
import numpy as np
import pandas as pd
from tsattn import Forecaster

frame = pd.DataFrame({"ds": pd.date_range("2024", periods=100, freq="h"), "y": np.sin(np.arange(100) / 4)})
forecast = Forecaster("tiny", prediction_length=24, accelerator="cpu").predict(frame)
assert len(forecast) == 24
heavy = "lightning jsonargparse sklearn scipy matplotlib torchmetrics transformers optuna statsmodels torch._dynamo"
heavy += " yaml tsattn.evaluation tsattn.forecaster.scores tsattn.forecaster.sample_paths"
print(*(name for name in heavy.split() if name in sys.modules))
from tsattn import load
from tsattn.predictors import build_predictor
from tsattn.task import Task
build_predictor({"kind": "patchtst", "attention": "mlr"}).build(Task("x", 48, 12, ("a",), "h", 24), empty=True)
print(*(name for name in heavy.split()[:10] if name in sys.modules))
load(f"{sys.argv[1]}/forecaster").predict(f"{sys.argv[1]}/sales.csv")  # a network that was trained
print(*(name for name in heavy.split()[:9] if name in sys.modules))
"""
SAVED = Path(__file__).parents[1] / "training" / "saved"


def test_it_needs_neither_lightning_nor_what_draws_and_tunes() -> None:
    done = subprocess.run([sys.executable, "-c", FORECAST, str(SAVED)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
