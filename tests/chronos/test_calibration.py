"""Calibration brings the outputs of swapped attentions nearer to the original's, which stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pretraining_data import seasonal_series

from tests.chronos.tiny_models import series, tiny_pipeline, weights_of
from tsattn import Forecaster
from tsattn.chronos import AdaptedChronos, adapt, open_pipeline
from tsattn.chronos.adapted import ContextWindows
from tsattn.chronos.families import family_of
from tsattn.errors import UserError

KINDS: dict[str, tuple[Any, str]] = {
    "swa": ({"kind": "swa", "window_size": 3}, "copy"),
    "mlr": ({"kind": "mlr", "ranks": [2, 2, 4], "blocks": [1, 4, 16]}, "copy"),
    "btt": ({"kind": "btt", "side": "both"}, "project"),
}


def windows_of(rows: Any) -> ContextWindows:
    return ContextWindows.of(rows, family_of(tiny_pipeline("bolt")), [])


def data() -> list[torch.Tensor]:
    return series(64, 40, 90, 120, 200, 80)


@pytest.mark.parametrize(
    ("family", "kind"), [("t5", "swa"), ("bolt", "mlr"), ("bolt", "btt"), ("chronos2", "swa"), ("chronos2", "btt")]
)
def test_outputs_come_nearer(family: str, kind: str) -> None:
    pipeline = tiny_pipeline(family)
    weights = {name: weight.clone() for name, weight in pipeline.inner_model.state_dict().items()}
    attention, convert = KINDS[kind]
    adapted = adapt(pipeline, attention, "encoder", convert)
    before = adapted.output_errors(data())
    report = adapted.calibrate(data(), steps=40, batch_size=8)
    assert report["layer"].tolist() == ["encoder.0", "encoder.1", "encoder.2"]
    assert (report["after"] < report["before"]).all()
    assert report["after"].mean() < 0.9 * report["before"].mean()
    assert (adapted.output_errors(data()) < before).all()
    assert all(torch.equal(weight, weights[name]) for name, weight in pipeline.inner_model.state_dict().items())
    assert all(not weight.isnan().any() for weight in adapted.model.parameters())


@pytest.mark.parametrize(
    ("prepared", "prediction_length"),
    [({"convert": "copy", "calibrate": 1}, 2), ({"convert": "rotate", "trained": "all"}, 2), ({"calibrate": 1}, 3)],
    ids=["calibrated", "rotated", "long enough"],
)
def test_a_fit_says_how_long_windows_must_be_for_a_decoder(prepared: dict[str, Any], prediction_length: int) -> None:
    index = pd.date_range("2024-01-01", periods=200, freq="h")
    frame = pd.DataFrame({"y": series(200)[0].numpy()}, index=index)
    described = {
        "kind": "chronos",
        "weights": weights_of("t5"),
        "attention": {"kind": "mlr", "ranks": [4, 4]},
        **prepared,
    }
    sizes: dict[str, Any] = {"context_length": 4, "prediction_length": prediction_length, "max_steps": 1}
    made = Forecaster({**described, "where": "decoder"}, **sizes, val_rows=30, test_rows=40)
    if prediction_length == 3:
        made.fit(frame)
        return
    with pytest.raises(UserError, match=r"context_length \+ prediction_length must be more than 6, .*; they have 6"):
        made.fit(frame)


def test_windows_that_are_held_out_are_not_learned_from() -> None:
    for rows in (data(), series(100)):
        training, held_out = windows_of(rows).split()
        generator = torch.Generator().manual_seed(0)
        learned = {float(x) for x in training.draw(200, generator)[:, -1]}
        assert learned.isdisjoint(float(x) for x in held_out.draw(200, generator)[:, -1])


@pytest.mark.parametrize("channels", [1, 5])
def test_a_fit_holds_out_the_latest_windows_with_all_their_channels(
    channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A channel that is held out in all windows would be one that nothing is learnt of."""
    seen: list[tuple[Any, Any]] = []
    monkeypatch.setattr(AdaptedChronos, "calibrate", lambda adapted, data, held_out, **_: seen.append((data, held_out)))
    steps = np.arange(300.0)
    frame = pd.DataFrame(
        {f"c{number}": 1000 * number + steps for number in range(channels)},
        index=pd.date_range("2024-01-01", periods=300, freq="h"),
    )
    swapped = {"kind": "chronos", "weights": weights_of("t5"), "attention": "swa", "calibrate": 1}
    Forecaster(swapped, context_length=20, prediction_length=6, val_rows=30, test_rows=40).fit(frame)
    ((learnt, held_out),) = seen
    assert len(held_out) == len(learnt) // 4
    ends: list[dict[int, list[int]]] = [{channel: [] for channel in range(channels)} for _ in range(2)]
    for part, rows in zip(ends, (learnt, held_out), strict=True):
        for row in rows:
            part[round(float(row[-1])) // 1000].append(round(float(row[-1])) % 1000)
    for channel in range(channels):
        assert max(ends[0][channel]) < min(ends[1][channel])


@pytest.mark.parametrize(
    "rows",
    [[], [torch.full((3,), torch.nan)], ["text"], 7, torch.zeros(2, 3, 4)],
    ids=["none", "nan", "text", "7", "3d"],
)
def test_other_data_is_refused(rows: Any) -> None:
    with pytest.raises(UserError, match="data must be a list of series"):
        windows_of(rows)


# scores that were learned, of a small Chronos-T5 (`benchmarks/small_t5.py` made it)

FOLDER = Path(__file__).parent / "small_t5"


def drawn(seed: int, count: int = 24) -> list[torch.Tensor]:
    """Series of the kind that it was trained on."""
    return [*torch.from_numpy(seasonal_series(count, 96, seed=seed)).float()]


@pytest.fixture(scope="module")
def trained() -> Any:
    return open_pipeline(FOLDER, dtype="float32")


def error(adapted: Any) -> float:
    """Of the attention outputs, in the mean over layers, on series that nothing was learned from."""
    errors = adapted.output_errors(drawn(2))
    return float(errors.mean())


def test_far_pairs_keep_more_of_what_was_learned_by_rotation(trained: Any) -> None:
    copied, rotated, learned = (
        adapt(trained, {"kind": "mlr", "ranks": [8, 4, 4]}, convert=convert, data=data)
        for convert, data in (("copy", None), ("rotate", None), ("rotate", drawn(1)))
    )
    assert error(learned) < 0.5 * error(copied)
    assert error(learned) <= error(rotated) < error(copied)


@pytest.mark.parametrize(
    "attention", [{"kind": "bilinear_mlr", "ranks": [8, 4, 4]}, {"kind": "btt"}], ids=lambda one: one["kind"]
)
def test_projection_keeps_more_than_a_fresh_start(trained: Any, attention: Any) -> None:
    projected, fresh = (adapt(trained, attention, convert=convert) for convert in ("project", "fresh"))
    assert error(projected) < 0.6 * error(fresh)
