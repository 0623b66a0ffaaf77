"""Several threads fit, load and predict as each would alone."""

from __future__ import annotations

import logging
import random
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
from tsattn.forecaster import Forecaster
from tsattn.training.execution import quiet_lightning

BACKBONE = {**SMALL["backbone"], "dropout": 0.3}
OPTIONS: dict[str, Any] = {**SMALL, "backbone": BACKBONE, "max_steps": 30}


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
        others = [*threads.map(predict, range(20)), *threads.map(load, range(5))]
        for seed, fit in fits.items():
            pd.testing.assert_frame_equal(fit.result().predict(), expected[seed])
    for forecast in others:
        pd.testing.assert_frame_equal(forecast, expected[1])
    assert torch.equal(torch.get_rng_state(), before)


def generators() -> list[Any]:
    """The states of the generators that belong to the process."""
    return [torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()]  # type: ignore[index]  # noqa: NPY002


@pytest.mark.parametrize("backbone", [{"kind": "ensemble", "members": ["ridge", BACKBONE]}])
def test_a_fit_leaves_all_generators_as_they_were(backbone: Any) -> None:
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
