"""Training on from weights that are there, and a Forecaster of the folder of a run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging

import tsattn
from tests.forecaster.toys import SMALL, L, T, frame_of
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster

QUICK: dict[str, Any] = {**SMALL, "max_steps": 3, "quantiles": None}
FRAME = frame_of({"a": 200, "b": 160})


def weights(forecaster: Forecaster) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in forecaster.fitted.predictor.state_dict().items()}


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved forecaster."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    Forecaster(**QUICK).fit(FRAME).save(folder)
    return folder


def test_a_warm_start_begins_where_the_last_fit_ended(first: Path) -> None:
    warm = tsattn.load(first)
    before, scaler = weights(warm), warm.scaler
    warm.fine_tune(FRAME, max_steps=1, learning_rate=1e-7)
    # one step of AdamW moves a weight by no more than its learning rate, and weights anew lie far away
    assert 0 < distance(before, weights(warm)) < 1e-6
    assert warm.scaler == scaler
    anew = Forecaster(**{**QUICK, "max_steps": 1, "learning_rate": 1e-7, "seed": 2}).fit(FRAME)
    assert distance(before, weights(anew)) > 1e-3


def test_weights_are_averaged_from_the_start_at_the_ridge_on() -> None:
    """Lightning copies the module before the first step: the maps must have their sizes by then."""
    wide = FRAME.assign(y2=FRAME["y"].to_numpy()[::-1])[["ds", "y", "y2"]].head(200)
    backbone = {"kind": "patchtst", "d_model": 8, "num_heads": 2, "linear_path": "ridge"}
    training = {"callbacks": [EMAWeightAveraging(decay=0.5)]}
    fitted = Forecaster(**{**QUICK, "backbone": backbone}, target=["y", "y2"], training=training).fit(wide)
    assert weights(fitted)["network.backbone.linear_path.weight"].abs().sum() > 0


def test_series_that_are_known_keep_their_scale_and_new_ones_get_one(first: Path) -> None:
    warm = tsattn.load(first)
    scaler = warm.scaler
    more = frame_of({"a": 200, "c": 300}, seed=5)
    more["y"] *= 3
    warm.fine_tune(more, max_steps=1)
    assert warm.scaler.ids == ("a", "b", "c")
    assert warm.scaler.series_mean[:2] == scaler.series_mean
    assert warm.scaler.series_scale[:2] == scaler.series_scale
    rows = more[more["unique_id"] == "c"]["y"].to_numpy()[: 300 - 30]  # the last tenth is for validation
    assert warm.scaler.series_mean[2] == (pytest.approx(rows.mean()),)
    assert warm.scaler.series_scale[2] == (pytest.approx(rows.std()),)
    warm.fine_tune(more, max_steps=1, rescale=True)
    assert warm.scaler.ids == ("a", "c")
    assert warm.scaler.series_mean[0] == (pytest.approx(more["y"].to_numpy()[: 200 - 20].mean()),)


def test_rows_of_an_earlier_fit_are_not_scored_after_a_later_one(first: Path, tmp_path: Path) -> None:
    warm = tsattn.load(first).fine_tune(frame_of({"a": 150}), max_steps=1)
    warm.save(tmp_path / "model")
    for forecaster in (warm, tsattn.load(tmp_path / "model")):
        with pytest.raises(UserError, match="nothing to score"):
            forecaster.evaluate(FRAME)
        longer = pd.concat([FRAME, frame_of({"a": 200, "b": 160}, more=24)])
        assert forecaster.evaluate(longer)["windows"].tolist() == [2 * (24 - 12 + 1)] * 3


def test_a_changed_channel_is_refused_by_name() -> None:
    index = pd.date_range("2024-01-01", periods=200, freq="h")
    wide = pd.DataFrame(np.random.default_rng(0).random((200, 2)), index=index, columns=["w", "x"])
    forecaster = Forecaster(**QUICK).fit(wide)
    with pytest.raises(UserError, match="the frame lacks x and adds z: further training needs the same channels, w"):
        forecaster.fit(wide.rename(columns={"x": "z"}), warm_start=True)
    with pytest.raises(UserError, match="the frame adds z"):
        forecaster.fine_tune(wide.assign(z=1.0), 1)
    forecaster.fine_tune(wide[["x", "w"]], 1)  # in another order they are the same
    assert forecaster.task.channels == ("w", "x")


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        ({"warm_start": True}, "a warm start needs a fitted model"),
        ({"rescale": True}, "rescale needs a warm start"),
        ({"checkpoint": "none.ckpt"}, "the checkpoint none.ckpt does not exist"),
        ({"checkpoint": "none.ckpt", "warm_start": True}, "give warm_start or checkpoint, not both"),
    ],
)
def test_what_a_fit_cannot_start_from_is_refused(fit: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Forecaster(**QUICK).fit(FRAME, **fit)


def test_a_closed_form_has_no_weights_to_start_from(first: Path) -> None:
    ridge = Forecaster("ridge", context_length=48, prediction_length=12).fit(FRAME)
    with pytest.raises(UserError, match="only a single network can start from trained weights, not ridge"):
        ridge.fine_tune(FRAME)
    with pytest.raises(UserError, match="give warm_start or refit, not both"):
        tsattn.load(first).fit(FRAME, warm_start=True, refit=True)


def test_a_training_goes_on_from_its_checkpoint_as_if_it_had_never_ended(tmp_path: Path) -> None:
    steady = {"schedule": "constant", "warmup_steps": 0, "trainer": {"val_check_interval": 2}}
    kept, longer = tmp_path / "kept", {**QUICK, "max_steps": 8}
    all_kept = Forecaster(**longer, training={**steady, "save_top_k": -1, "checkpoints": kept}).fit(FRAME)
    all_kept.fine_tune(FRAME, max_steps=1)  # whose checkpoints are not kept
    assert sorted(file.name for file in kept.iterdir()) == [
        "last.ckpt",
        *(f"step_{step}.ckpt" for step in (2, 4, 6, 8)),
    ]
    broken = Forecaster(**{**longer, "context_length": "auto"}, training=steady)
    broken.fit(FRAME, checkpoint=kept / "step_4.ckpt")
    assert broken.result.fit["training"]["steps"] == 8
    assert broken.result.fit["best_step"] in (6, 8)
    at = {step: torch.load(kept / f"step_{step}.ckpt", weights_only=True)["state_dict"] for step in (6, 8)}
    assert distance(weights(broken), at[broken.result.fit["best_step"]]) == 0.0
    with pytest.raises(UserError, match=r"step_8.ckpt has all 8 steps already: give a higher max_steps"):
        broken.fit(FRAME, checkpoint=kept / "step_8.ckpt")
    with pytest.raises(UserError, match="has checkpoints already: name another folder"):
        Forecaster(**QUICK, training={**steady, "checkpoints": kept}).fit(FRAME)


def test_a_training_without_validation_leaves_its_last_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training, rows = {"checkpoints": tmp_path / "kept", "schedule": "constant"}, {"val_rows": 0, "test_rows": 24}
    Forecaster(**QUICK, data=rows, training=training).fit(FRAME, folder=tmp_path / "run")
    last = [tmp_path / "kept" / "last.ckpt", tmp_path / "run" / "checkpoints" / "last.ckpt"]
    assert [torch.load(one, weights_only=True)["global_step"] for one in last] == [QUICK["max_steps"]] * 2
    more = Forecaster(**{**QUICK, "max_steps": 6}, data=rows, training={"schedule": "constant"})
    assert more.fit(FRAME, checkpoint=last[0]).result.fit["training"]["steps"] == 6
    assert "no series is long enough" not in caplog.text


def test_a_run_folder_keeps_as_many_checkpoints_as_are_asked_for(tmp_path: Path) -> None:
    training = {"save_top_k": 2, "trainer": {"val_check_interval": 2}}
    forecaster = Forecaster(**{**QUICK, "max_steps": 6}, training=training)
    forecaster.fit(FRAME, folder=tmp_path / "run")
    names = {file.name for file in (tmp_path / "run" / "checkpoints").iterdir()}
    assert {"best.ckpt", "last.ckpt"} < names
    assert len(names) == 4
    with pytest.raises(UserError, match="save_top_k needs a folder"):
        forecaster.fit(FRAME)


def run_of(path: Path, *words: str) -> str:
    """The folder of a run on this file."""
    sizes = [f"--data.context_length={L}", f"--data.prediction_length={T}", "--model.backbone.d_model=16"]
    small = ["--model.backbone.num_heads=2", "--trainer.max_epochs=1", "--trainer.accelerator=cpu"]
    run = str(path.with_suffix(".run"))
    assert main(["fit", "--data=CSVDataModule", f"--data.path={path}", *sizes, *small, *words, f"--run={run}"]) == 0
    assert main(["predict", f"--run={run}"]) == 0
    return run


def test_a_run_does_not_know_its_rows(toy_csv: Path, toy_frame: pd.DataFrame, tmp_path: Path) -> None:
    forecaster = tsattn.load(run_of(toy_csv))
    frame = toy_frame.reset_index()
    with pytest.warns(UserWarning, match="does not know which rows it was trained on: rows of the frame may be among"):
        scores = forecaster.evaluate(frame)
    assert scores["windows"].eq(600 - L - T + 1).all()
    forecaster.save(tmp_path / "model")
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert names == ["SHA256SUMS", "forecaster.json", "model.safetensors"]
    loaded = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.predict(frame), forecaster.predict(frame))
    with pytest.raises(UserError, match="pass a frame"):
        loaded.predict()


def written(run: Path) -> pd.DataFrame:
    assert main(["predict", f"--run={run}", "--overwrite"]) == 0
    return pd.read_csv(run / "forecast.csv")


@pytest.mark.parametrize(
    ("backbone", "refit"), [(SMALL["backbone"], True), ("persistence", False)], ids=("net", "naive")
)
def test_the_result_of_a_run_forecasts_what_its_folder_does(backbone: Any, refit: bool, tmp_path: Path) -> None:
    frame = frame_of()
    frame.to_csv(tmp_path / "mine.csv", index=False)
    sizes = {"context_length": L, "prediction_length": T}
    content = {
        "data": {"class_path": "CSVDataModule", "init_args": {"path": str(tmp_path / "mine.csv"), **sizes}},
        "model": {"backbone": backbone, "learning_rate": 0.004},
        "trainer": {"max_steps": 4, "accelerator": "cpu", "gradient_clip_val": 0.5},
    }
    result = tsattn.run(content, tmp_path / "run", refit=refit)
    expected = written(tmp_path / "run")["predictions"]
    forecaster = Forecaster.of(result)
    np.testing.assert_allclose(forecaster.predict()["predictions"], expected, rtol=1e-5)
    loaded = tsattn.load(tmp_path / "run")
    for other in (forecaster, loaded):
        np.testing.assert_allclose(other.predict(frame)["predictions"], expected, rtol=1e-5)
        # fitted anew, it is trained as the run was
        assert other.arguments["learning_rate"] == 0.004
        assert other.arguments["max_steps"] == 4
        assert other.experiment.trainer["gradient_clip_val"] == 0.5
    if refit:
        scores = forecaster.evaluate(pd.concat([frame, frame_of(more=20)]))
        assert scores["windows"].eq(4 * (20 - T + 1)).all()
    else:
        row, tested = forecaster.evaluate(frame).iloc[0], result.scores.iloc[0]
        assert row["windows"] == tested["windows"]
        assert row["MAE"] == pytest.approx(tested["mae_original_by_channel"], rel=1e-5)


@pytest.fixture(scope="module")
def own_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Forecaster, Path]:
    """A Forecaster that was fitted into a folder, to a frame with names of its own; no test changes either."""
    run = tmp_path_factory.mktemp("own") / "run"
    names = {"id_column": "shop", "time_column": "hour", "target": "sold", "quantiles": (0.25, 0.5, 0.75)}
    forecaster = Forecaster(**{**SMALL, "max_steps": 4}, **names)
    return forecaster.fit(named(), folder=run, refit=True), run


def named() -> pd.DataFrame:
    return frame_of().set_axis(["shop", "hour", "sold"], axis=1)


def test_a_folder_of_a_forecaster_is_loaded_with_its_columns(own_run: tuple[Forecaster, Path]) -> None:
    forecaster, run = own_run
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt", "refit.ckpt"}
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["refit"]
    loaded = tsattn.load(run)
    pd.testing.assert_frame_equal(loaded.predict(named()), forecaster.predict(), rtol=1e-5)
    same = ("id_column", "time_column", "quantiles", "max_steps", "scaling", "seed")
    assert {name: loaded.arguments[name] for name in same} == {name: forecaster.arguments[name] for name in same}
    assert loaded.arguments["data"]["eval_batch_size"] == forecaster.arguments["data"]["eval_batch_size"]
    with pytest.raises(UserError, match="exists already; name another folder with --run"):
        forecaster.fit(named(), folder=run)


@pytest.mark.parametrize("words", [["predict"], ["fit", "--trainer.max_steps=9"]])
def test_what_needs_the_series_says_in_a_sentence_that_they_are_not_there(
    words: list[str], own_run: tuple[Forecaster, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, run = own_run
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main([*words, f"--{'resume' if words[0] == 'fit' else 'run'}={run}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the series of this run were given in Python and are not in its folder: ")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
