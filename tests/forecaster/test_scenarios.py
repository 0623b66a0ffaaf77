"""`predict(future=[...])` and `predict --future A --future B`: each scenario as if it had been given alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.forecaster.toys import SMALL, T, entries, promotions
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster

COLUMNS: dict[str, Any] = {"future_covariates": ["promotion"], "static": ["region"]}


def futures(frame: pd.DataFrame, days: int = T) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A promotion on every day after the end, and on none."""
    parts = []
    for name, part in frame.groupby("unique_id"):
        stamps = pd.date_range(part["ds"].max() + pd.Timedelta(days=1), periods=days, freq="D")
        parts.append(pd.DataFrame({"unique_id": name, "ds": stamps, "promotion": 1.0}))
    always = pd.concat(parts, ignore_index=True)
    return always, always.assign(promotion=0.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Forecaster]:
    folder = tmp_path_factory.mktemp("scenarios") / "run"
    return folder, Forecaster(**{**SMALL, "max_steps": 5}, **COLUMNS).fit(promotions(150), folder=folder)


def test_each_is_as_if_it_were_alone(run: tuple[Path, Forecaster]) -> None:
    _, fitted = run
    always, never = futures(promotions(150))
    alone = [fitted.predict(future=one) for one in (always, never)]
    assert (alone[0]["predictions"] != alone[1]["predictions"]).all()
    for given, names in (([always, never], [0, 1]), ({"all": always, "none": never.sample(frac=1)}, ["all", "none"])):
        found = fitted.predict(future=given)
        assert list(found.columns[:4]) == ["unique_id", "ds", "scenario", "predictions"]
        assert found["scenario"].unique().tolist() == names
        for name, one in zip(names, alone, strict=True):
            part = found[found["scenario"] == name].drop(columns="scenario").reset_index(drop=True)
            pd.testing.assert_frame_equal(part, one)
    other = promotions(160, seed=1)
    history = other[other["ds"] < other["ds"].max() - pd.Timedelta(days=T - 1)]
    plans = {"as it came": other.drop(columns=["y", "region"]).merge(history["ds"], how="left", indicator=True)}
    plans = {name: one[one["_merge"] == "left_only"].drop(columns="_merge") for name, one in plans.items()}
    found = fitted.predict(history, future=plans)
    pd.testing.assert_frame_equal(found.drop(columns="scenario"), fitted.predict(history, future=plans["as it came"]))
    batches = pd.concat([*fitted.predict_batches(future=[always, never])], ignore_index=True)
    pd.testing.assert_frame_equal(batches, fitted.predict(future=[always, never]))
    figure = fitted.plot(fitted.predict(future={"all": always, "none": never}))
    assert entries(figure) == ["observed", "all", "none"]


def test_what_is_no_scenario_is_refused(run: tuple[Path, Forecaster]) -> None:
    _, fitted = run
    always, never = futures(promotions(150))
    with pytest.raises(UserError, match="future has no scenario"):
        fitted.predict(future=[])
    with pytest.raises(UserError, match=r"a scenario is named by a text or a number, not by \('a', 1\)"):
        fitted.predict(future={("a", 1): always})
    with pytest.raises(UserError, match=r"stops early: series north has no value at .*, step 12 of the 12 to forecast"):
        fitted.predict(future=[always, never[: T - 1]])
    renamed = Forecaster(**{**SMALL, "max_steps": 1}, **COLUMNS, id_column="scenario")
    renamed.fit(promotions(150).rename(columns={"unique_id": "scenario"}))
    with pytest.raises(UserError, match="column scenario of the series would be that of scenarios, too: rename it"):
        renamed.predict(future=[one.rename(columns={"unique_id": "scenario"}) for one in (always, never)])


def test_the_command_line_writes_the_same(
    run: tuple[Path, Forecaster], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, fitted = run
    promotions(150).to_csv(tmp_path / "history.csv", index=False)
    always, never = futures(promotions(150))
    always.to_csv(tmp_path / "a.csv", index=False)
    never.to_csv(tmp_path / "b.csv", index=False)
    words = ["predict", f"--run={folder}", f"--input={tmp_path / 'history.csv'}", f"--output={tmp_path / 'out.csv'}"]
    both = ["--future", str(tmp_path / "a.csv"), f"--future={tmp_path / 'b.csv'}"]
    assert main([*words, *both]) == 0
    assert "2 scenarios, in original units" in capsys.readouterr().out
    written = pd.read_csv(tmp_path / "out.csv", parse_dates=["ds"])
    pd.testing.assert_frame_equal(written, fitted.predict(future=[always, never]), rtol=1e-5, check_dtype=False)
    assert (tmp_path / "out_plot.png").exists()
    assert main([*words, *both[:2], "--overwrite", "--figure=false"]) == 0
    written = pd.read_csv(tmp_path / "out.csv", parse_dates=["ds"])
    pd.testing.assert_frame_equal(written, fitted.predict(future=always), rtol=1e-5, check_dtype=False)
    assert main([*words, "--overwrite", "--future=nowhere.csv"]) == 2
    assert "nowhere.csv" in capsys.readouterr().err
