"""Scores of what was not trained on, at rolling origins too."""

import numpy as np
import pandas as pd
import pytest
import torch

from tests.forecaster.toys import SMALL, L, T, frame_of, promotions
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster


def test_evaluation_scores_only_what_was_not_fitted(fitted: Forecaster) -> None:
    """A frame with the fitted rows in it and one without them give the same scores."""
    new = frame_of(more=30)
    both = pd.concat([frame_of(), new]).sort_values(["unique_id", "ds"])
    alone, together = fitted.evaluate(new), fitted.evaluate(both)
    pd.testing.assert_frame_equal(alone, together.loc[alone.index], rtol=1e-4)
    with pytest.raises(UserError, match=r"nothing to score: no series has 12 rows .* after the fitted rows"):
        fitted.evaluate(frame_of())


def test_evaluation_equals_the_metrics_by_hand(fitted: Forecaster) -> None:
    new = frame_of(more=T).sort_values(["unique_id", "ds"], ignore_index=True)
    scores = fitted.evaluate(new, detail=True)
    forecast = fitted.predict()
    error = forecast["predictions"] - new["y"]
    row = scores.loc["patchtst_mlr"]
    assert row["windows"] == 4
    assert row["MSE"] == pytest.approx((error**2).mean(), rel=1e-5)
    assert row["MAE"] == pytest.approx(error.abs().mean(), rel=1e-5)
    assert row["WAPE"] == pytest.approx(error.abs().sum() / new["y"].abs().sum(), rel=1e-5)
    inside = (forecast["0.1"] <= new["y"]) & (new["y"] <= forecast["0.9"])
    assert row["cover 80"] == pytest.approx(inside.mean())
    history = frame_of()
    scale = history.groupby("unique_id", sort=False)["y"].apply(lambda y: (y - y.shift(24)).abs().mean())
    assert row["MASE"] == pytest.approx((error.abs() / new["unique_id"].map(scale)).mean(), rel=1e-5)
    persistence = new["y"] - new["unique_id"].map(history.groupby("unique_id")["y"].last())
    assert scores.loc["persistence", "MAE"] == pytest.approx(persistence.abs().mean(), rel=1e-5)


def test_scores_are_printed_in_80_columns_and_are_not_rounded(fitted: Forecaster) -> None:
    new = frame_of({"a": 300}, seed=7)
    assert [*fitted.evaluate(new).columns] == ["windows", "MSE", "MAE", "MASE", "CRPS", "cover 80"]
    details = fitted.evaluate(new, detail=True)
    assert [*details.columns] == [*fitted.evaluate(new).columns, "RMSE", "sMAPE", "WAPE", "WQL"]
    for scores in (
        fitted.evaluate(new),
        fitted.evaluate(new, by="step"),
        fitted.evaluate(new, by="series"),
        fitted.evaluate(new.assign(y=new["y"] * 12345)),
    ):
        printed = repr(scores)
        assert not {"\\", "..."} & {*printed.splitlines()[0].split()}, printed
        assert max(map(len, printed.splitlines())) <= 80, printed
    assert details["MSE"].iloc[0] == pytest.approx(details["RMSE"].iloc[0] ** 2, rel=1e-9)
    assert f"{details['MSE'].iloc[0]:#.3g}" in repr(details)


def test_a_frame_that_goes_on_much_later_is_scored_though_half_of_it_is_filled() -> None:
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame_of({"a": 200}))
    later = frame_of({"a": 1000})[900:]
    assert forecaster.evaluate(later)["windows"].iloc[0] > 0
    with pytest.raises(UserError, match=r"max_filled 0\.5 allows"):
        forecaster.predict(pd.concat([frame_of({"a": 200}), later]))


def test_the_scale_of_strangers_knows_nothing_that_is_scored(fitted: Forecaster) -> None:
    frame = frame_of({"stranger": L + T}, seed=5)
    changed = frame.assign(y=frame["y"].where(frame.index < L, 1e6))
    contexts: list[torch.Tensor] = []
    hook = fitted.fitted.predictor.register_forward_hook(lambda _, inputs, __: contexts.append(inputs[0].past))
    for table in (frame, changed):
        fitted.evaluate(table)
    hook.remove()
    torch.testing.assert_close(*contexts, rtol=0, atol=0)


def test_groups_are_those_of_the_rows_and_come_to_the_whole(fitted: Forecaster) -> None:
    """By series: what the frame of that series alone scores; by step and origin: means that come to the mean of all."""
    new = frame_of(more=30)
    whole = fitted.evaluate(new)
    by_series = fitted.evaluate(new, by="series")
    assert [*by_series.columns] == [*whole.columns]
    assert by_series.index.names == ["forecaster", "unique_id"]
    for name in ("small", "late"):
        alone = fitted.evaluate(new[new["unique_id"] == name])
        pd.testing.assert_frame_equal(by_series.xs(name, level="unique_id"), alone, check_names=False, rtol=1e-4)
    for by in ("step", "origin"):
        groups = fitted.evaluate(new, by=by)
        assert [*groups.columns] == [*whole.columns]
        assert groups.index.names == ["forecaster", by]
        for name, scores in whole.iterrows():
            part = groups.loc[name]
            for score in ("MSE", "MAE", "MASE"):
                mean = np.average(part[score], weights=part["windows"])
                assert mean == pytest.approx(scores[score], rel=1e-9), (by, name, score)
    with pytest.raises(UserError, match="one of series, step, origin, not day"):
        fitted.evaluate(new, by="day")  # type: ignore[arg-type]


def test_what_mase_and_smape_leave_out_is_counted() -> None:
    """Of a series that was constant before what is scored, and of zeros that are forecast as zero."""
    frame = frame_of({"a": 200, "flat": 200})
    frame.loc[frame["unique_id"] == "flat", "y"] = 0.0
    forecaster = Forecaster("persistence", context_length=L, prediction_length=T, quantiles=None)
    scores = forecaster.evaluate(frame, step=T, detail=True)
    windows = len(range(L, 200 - T + 1, T))
    assert scores["windows"].eq(2 * windows).all()
    assert scores["MASE left out"].eq(windows * T).all()
    assert scores["sMAPE left out"].eq(windows * T).all()
    own = forecaster.evaluate(frame[frame["unique_id"] == "a"], step=T, detail=True)
    assert own["MASE"].tolist() == pytest.approx(scores["MASE"].tolist())
    assert not {"MASE left out", "sMAPE left out"} & {*own.columns}
    by_series = forecaster.evaluate(frame, step=T, by="series").loc["persistence"]
    assert by_series["MASE left out"].tolist() == [0, windows * T]


@pytest.mark.parametrize("name", ["windows", "cover 80"])
def test_ids_in_a_column_of_the_name_of_a_score_are_refused(name: str) -> None:
    frame = frame_of({"a": 100}).rename(columns={"unique_id": name})
    forecaster = Forecaster("persistence", id_column=name, context_length=L, prediction_length=T)
    with pytest.raises(UserError, match=f"rename column {name} of the series: the scores have a column of that name"):
        forecaster.evaluate(frame, by="series")
    assert len(forecaster.evaluate(frame, by="step").reset_index()) == 2 * T


def test_residuals_are_drawn(fitted: Forecaster) -> None:
    new = frame_of(more=30)
    figure = fitted.plot_residuals(new, "small", ahead=3)
    line = np.asarray(figure.axes[0].lines[0].get_ydata())
    first = fitted.predict().query("unique_id == 'small'")["predictions"].iloc[2]
    assert line[0] == pytest.approx(new[new["unique_id"] == "small"]["y"].iloc[2] - first, rel=1e-4)
    assert len(line) == 30 - T + 1
    for wrong, message in (({"ids": "large one"}, "no series large one"), ({"ahead": T + 1}, f"from 1 to {T}")):
        with pytest.raises(UserError, match=message):
            fitted.plot_residuals(new, **wrong)  # type: ignore[arg-type]


def test_the_number_of_windows_is_said_and_why_they_are_few(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="tsattn")
    forecaster = Forecaster("persistence", context_length=150, prediction_length=60)
    assert forecaster.evaluate(frame_of({"a": 200})).loc["persistence", "windows"] == 1
    assert caplog.messages[-1] == (
        "1 window scored, one for each of 1 series below 210 rows: give more rows, or a smaller context_length (now "
        "150) or prediction_length (now 60)"
    )


def test_cross_validation_pairs_forecasts_with_what_came() -> None:
    frame = frame_of({"a": 200, "b": 150})
    result = Forecaster(**{**SMALL, "max_steps": 5}).cross_validate(frame, windows=3, step=7)
    assert result.columns.tolist() == ["unique_id", "ds", "cutoff", "predictions", "0.1", "0.5", "0.9", "y"]
    assert len(result) == 3 * 2 * T
    truth = frame.set_index(["unique_id", "ds"])["y"]
    found = truth.loc[pd.MultiIndex.from_frame(result[["unique_id", "ds"]])].to_numpy()
    np.testing.assert_array_equal(result["y"], found)
    ends = frame.groupby("unique_id")["ds"].max()
    for (name, cutoff), part in result.groupby(["unique_id", "cutoff"]):
        hours = [(ends[name] - cutoff) / pd.Timedelta(hours=1)]
        assert hours[0] in (T, T + 7, T + 14)
        assert part["ds"].tolist() == pd.date_range(cutoff, periods=T + 1, freq="h")[1:].tolist()


@pytest.mark.parametrize("refit", [False, True])
def test_cross_validation_never_sees_what_comes(refit: bool) -> None:
    frame = frame_of({"a": 200, "b": 160})
    forecaster = Forecaster(**{**SMALL, "max_steps": 5})
    honest = forecaster.cross_validate(frame, windows=2, refit=refit)
    first = honest["cutoff"].groupby(honest["unique_id"]).min()
    changed = frame.copy()
    after = changed["ds"] > changed["unique_id"].map(first)
    changed.loc[after, "y"] = changed.loc[after, "y"] * 100 - 7
    spoilt = forecaster.cross_validate(changed, windows=2, refit=refit)
    is_first = honest["cutoff"] == honest["unique_id"].map(first)
    assert is_first.sum() == 2 * T
    np.testing.assert_array_equal(spoilt.loc[is_first, "predictions"], honest.loc[is_first, "predictions"])
    assert not spoilt.loc[~is_first, "predictions"].equals(honest.loc[~is_first, "predictions"])


def test_cross_validation_refits_on_all_rows_before_each_origin() -> None:
    """As by hand: validation chooses the steps, and a second model is trained on all rows before the origin."""
    frame = frame_of({"a": 150})
    options = {**SMALL, "max_steps": 8, "training": {"trainer": {"val_check_interval": 2}}}
    rolled = Forecaster(**options).cross_validate(frame, windows=2, refit=True)
    for origin, (_, part) in zip((150 - 2 * T, 150 - T), rolled.groupby("cutoff"), strict=True):
        by_hand = Forecaster(**options).fit(frame[:origin], refit=True)
        assert by_hand.result.refitted is not None
        expected = by_hand.predict()["predictions"].to_numpy()
        np.testing.assert_array_equal(part["predictions"], expected)
        before = Forecaster(**options).fit(frame[:origin]).predict()["predictions"].to_numpy()
        assert not np.allclose(before, expected)


def test_cross_validation_says_which_windows_are_short(caplog: pytest.LogCaptureFixture) -> None:
    forecaster = Forecaster(**{**SMALL, "max_steps": 2})
    result = forecaster.cross_validate(frame_of({"a": 200, "b": 2 * T}), windows=2)
    assert "window 1 of 2 has 1 of 2 series" in caplog.text
    assert result.groupby("unique_id")["cutoff"].nunique().to_dict() == {"a": 2, "b": 1}
    with pytest.raises(UserError, match=r"no series is long enough for 20 windows: the longest has 50 rows, but 241"):
        forecaster.cross_validate(frame_of({"a": 50}), windows=20)
    assert forecaster.fitted is None, "cross-validation leaves the forecaster as it is"


def test_cross_validation_fills_what_covariates_lack_in_rows_that_have_come() -> None:
    """A number or a whole row may be missing in a horizon of the past; ahead of the data each step needs one."""
    frame = promotions(120).drop(columns="region")
    frame.loc[frame.index[[110, 111]], "promotion"] = np.nan
    frame = frame.drop(index=frame.index[[230]])
    forecaster = Forecaster(**{**SMALL, "max_steps": 2, "future_covariates": ["promotion"]})
    result = forecaster.cross_validate(frame, windows=2)
    assert len(result) == 2 * 2 * T
    assert np.isfinite(result["predictions"]).all()
    assert result["y"].isna().sum() == 1, "of the row that is not there"
    with pytest.raises(UserError, match="stops early"):
        forecaster.fit(frame[frame["ds"] < "2023-04-20"]).predict(future=frame[frame["ds"] >= "2023-04-20"])
