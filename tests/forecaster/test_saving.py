"""Folders of saved models and runs: the same forecasts from them; a damaged folder is refused."""

import json
import os
import resource
import shutil
import signal
import stat
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

import tsattn
from tests.forecaster.toys import SMALL, L, frame_of, seal, set_in_json
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster
from tsattn.saved_folders import write_checksums


@pytest.fixture
def saved(fitted: Forecaster, tmp_path: Path) -> Path:
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_model_forecasts_and_scores_the_same(fitted: Forecaster, saved: Path) -> None:
    loaded = tsattn.load(saved)
    pd.testing.assert_frame_equal(loaded.predict(), fitted.predict())
    pd.testing.assert_frame_equal(loaded.predict(frame_of()), fitted.predict(frame_of()))
    pd.testing.assert_frame_equal(loaded.evaluate(frame_of(more=20)), fitted.evaluate(frame_of(more=20)))
    arrays = ("copula.safetensors", "history.safetensors", "model.safetensors")
    assert {path.name for path in saved.iterdir()} == {"SHA256SUMS", "forecaster.json", *arrays}
    assert list(saved.parent.iterdir()) == [saved], "nothing is left beside the folder"
    assert not [path for path in saved.iterdir() if path.read_bytes().startswith((b"PK", b"\x80"))], "no pickle"


def test_a_saved_model_of_one_series_forecasts_the_same_bit_for_bit(tmp_path: Path) -> None:
    """Products of one row, whose sums are in another order where weights begin elsewhere in memory."""
    values = np.random.default_rng(0).normal(size=480).cumsum()
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=480, freq="h"), "y": values})
    forecaster = Forecaster("nlinear", max_steps=3).fit(frame)
    forecaster.save(tmp_path / "model")
    loaded = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.predict(), forecaster.predict(), check_exact=True)


def test_a_folder_is_not_overwritten_unasked(fitted: Forecaster, saved: Path) -> None:
    with pytest.raises(UserError, match="exists already"):
        fitted.save(saved)
    fitted.save(saved, overwrite=True)
    stranger = saved.parent / "thesis"
    stranger.mkdir()
    (stranger / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="not the folder of a saved model and is not overwritten"):
        fitted.save(stranger, overwrite=True)
    assert (stranger / "thesis.tex").exists()


def test_a_folder_whose_replacement_is_killed_between_two_moves_is_found(fitted: Forecaster, saved: Path) -> None:
    (saved / "mark").touch()
    if (child := os.fork()) == 0:  # killed once the old folder is aside
        rename = Path.rename

        def killed(path: Path, to: Path) -> Path:
            if to == saved:
                os.kill(os.getpid(), signal.SIGKILL)
            return rename(path, to)

        Path.rename = killed  # type: ignore[method-assign]
        fitted.save(saved, overwrite=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not saved.exists()
    with pytest.raises(UserError, match="exists already"):
        fitted.save(saved)
    assert (saved / "mark").exists()
    pd.testing.assert_frame_equal(tsattn.load(saved).predict(), fitted.predict())
    saved.rename(saved.with_name(".model.replaced"))
    pd.testing.assert_frame_equal(tsattn.load(saved).predict(), fitted.predict())


def spoil_json(folder: Path) -> None:
    (folder / "forecaster.json").write_text("{")
    seal(folder)


def unlist(name: str, folder: Path) -> None:
    """Leave a file out of the checksums; one that was not saved is put there by somebody else."""
    save_file({"values": torch.zeros(2)}, folder / name)
    write_checksums(folder, [path for path in folder.iterdir() if path.name not in (name, "SHA256SUMS")])


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "forecaster.json").unlink(), "not the folder of a saved model: it has no forecaster"),
        (spoil_json, "damaged: forecaster.json cannot be read"),
        (lambda folder: set_in_json(folder, format="cake"), "not the folder of a model that tsattn has saved"),
        (lambda folder: set_in_json(folder, version=99), "is of format 99, and this version of tsattn reads format 4"),
        (
            lambda folder: (folder / "model.safetensors").unlink(),
            "damaged: model.safetensors is missing or was changed",
        ),
        (lambda folder: flip_byte(folder / "model.safetensors"), "model.safetensors is missing or was changed"),
        (lambda folder: flip_byte(folder / "history.safetensors"), "history.safetensors is missing or was changed"),
        (lambda folder: set_in_json(folder, task={"data": "x"}), "damaged"),
        (lambda folder: (folder / "SHA256SUMS").unlink(), "model has no SHA256SUMS: fit and save it again"),
        (lambda folder: write_checksums(folder, [folder / "model.safetensors"]), "SHA256SUMS lacks forecaster.json"),
        *(
            (partial(unlist, f"{name}.safetensors"), f"damaged: SHA256SUMS lacks {name}.safetensors")
            for name in ("model", "history", "copula", "conformal")
        ),
    ],
)
def test_an_unknown_or_damaged_folder_is_refused(saved: Path, spoil: Any, message: str) -> None:
    spoil(saved)
    with pytest.raises(UserError, match=message) as caught:
        tsattn.load(saved)
    assert len(str(caught.value).splitlines()) == 1


EDITS: list[Any] = [None, -1, 10**400, "nonsense", [], {}]


def edited(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Each value of plain data, of lists the first one, dropped or replaced: its path, the new value, all with it."""
    for key, value in content.items() if isinstance(content, dict) else list(enumerate(content))[:1]:
        for new in (one for one in EDITS if type(one) is not type(value) or one != value):
            yield (*path, key), new, {**content, key: new} if isinstance(content, dict) else [new, *content[1:]]
        if isinstance(content, dict):
            yield (*path, key), "dropped", {name: one for name, one in content.items() if name != key}
        if isinstance(value, dict | list):
            for inner, new, changed in edited(value, (*path, key)):
                whole = {**content, key: changed} if isinstance(content, dict) else [changed, *content[1:]]
                yield inner, new, whole


# where another value of the same type describes another model, or names another column
FREE = {"mean", "scale", "series_mean", "series_scale", "covariate_mean", "season_length", "id_name", "time_name"}


def test_an_edit_of_the_description_is_refused_or_changes_no_forecast(tmp_path: Path) -> None:
    """Where the checksums are those of the edited file; those that were written refuse each edit."""
    forecaster = Forecaster("seasonal_naive", prediction_length=2, calibrate=True, transform="log1p")
    forecaster.fit(frame_of({"a": 200, "b": 190})).save(tmp_path / "model")
    expected = forecaster.predict(level=50)
    file = tmp_path / "model" / "forecaster.json"
    problems = []
    for path, new, content in edited(json.loads(file.read_text())):
        file.write_text(json.dumps(content))
        seal(tmp_path / "model")
        try:
            forecast = tsattn.load(tmp_path / "model").predict(level=50)
        except UserError as error:
            problems += [(path, new, error)] if len(str(error).splitlines()) != 1 else []
        except Exception as error:
            problems.append((path, new, error))
        else:
            problems += [] if FREE & {*path} or forecast.equals(expected) else [(path, new, forecast)]
    assert not problems
    set_in_json(tmp_path / "model", tsattn="0.1.0")
    file.write_text(file.read_text().replace("0.1.0", "0.1.1"))
    with pytest.raises(UserError, match=r"damaged: forecaster.json is missing or was changed"):
        tsattn.load(tmp_path / "model")


def test_a_file_or_a_number_is_no_folder(fitted: Forecaster, tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("no")
    with pytest.raises(UserError, match=r"model.txt is a file, not a folder; valid are the folder"):
        tsattn.load(tmp_path / "model.txt")
    with pytest.raises(UserError, match="does not exist"):
        tsattn.load(tmp_path / "nowhere")
    for call in (fitted.save, tsattn.load):
        with pytest.raises(UserError, match="the folder must be a path, not 3"):
            call(3)


def test_a_tilde_is_the_home_of_the_user(fitted: Forecaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    fitted.save("~/model")
    assert (tmp_path / "model" / "forecaster.json").exists()
    assert repr(tsattn.load("~/model")) == repr(fitted)


def test_an_accelerator_that_is_not_there_is_replaced_where_a_model_is_loaded(
    saved: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    arguments = json.loads((saved / "forecaster.json").read_text())["arguments"]
    set_in_json(saved, arguments={**arguments, "accelerator": "mps"})
    assert tsattn.load(saved).arguments["accelerator"] == "auto"
    assert caplog.messages == [f"{saved}: accelerator mps is not on this machine; using auto"]
    set_in_json(saved, arguments={**arguments, "flavour": "cake"})
    with pytest.raises(UserError, match=r"damaged: .*flavour"):
        tsattn.load(saved)


def test_arguments_are_kept_as_plain_data(tmp_path: Path) -> None:
    names = {"id_column": 0, "time_column": np.int64(1), "target": 2}
    numbers = {"context_length": np.int64(L), "max_steps": np.int32(2), "learning_rate": np.float32(1e-3)}
    levels = {"quantiles": np.array([0.25, 0.5, 0.75]), "backbone": {**SMALL["backbone"], "d_model": np.int64(16)}}
    levels["training"] = {"betas": np.array([0.9, 0.99]), "trainer": {"max_time": timedelta(hours=1)}}
    frame = frame_of({"a": 200}).set_axis([0, 1, 2], axis=1)
    forecaster = Forecaster(**{**SMALL, **names, **numbers, **levels}).fit(frame)
    assert forecaster.predict().columns.tolist() == ["0", "1", "predictions", "0.25", "0.5", "0.75"]
    forecaster.save(tmp_path / "model")
    pd.testing.assert_frame_equal(tsattn.load(tmp_path / "model").predict(frame), forecaster.predict(frame))


def test_what_a_gap_before_the_context_is_imputed_by_is_saved(tmp_path: Path) -> None:
    frame = frame_of({"a": 200, "b": 120})
    rng = np.random.default_rng(0)
    frame["x"] = rng.normal(5, 1, len(frame))
    end = frame.groupby("unique_id").cumcount(ascending=False)
    frame.loc[end.between(10, L + 20), "x"] = np.nan
    frame.loc[(end == L - 1) & (frame["unique_id"] == "b"), "y"] = np.nan  # the first row of a context
    made = {**SMALL, "backbone": {**SMALL["backbone"], "kind": "transformer"}, "past_covariates": ["x"]}
    made["backbone"].pop("patch_len")
    forecaster = Forecaster(**{**made, "max_steps": 2}).fit(frame)
    forecaster.save(tmp_path / "model")
    again = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.predict(), forecaster.predict())
    pd.testing.assert_frame_equal(again.predict(), again.predict(frame))


def test_ids_that_are_tuples_come_back(tmp_path: Path) -> None:
    frame = frame_of({"a": 100, "b": 100})
    frame["unique_id"] = [("shop", name) for name in frame["unique_id"]]
    forecaster = Forecaster("seasonal_naive", prediction_length=2).fit(frame)
    forecaster.save(tmp_path / "model")
    pd.testing.assert_frame_equal(tsattn.load(tmp_path / "model").predict(), forecaster.predict())


def test_a_model_is_never_lost_where_it_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forecaster = Forecaster("seasonal_naive", prediction_length=2).fit(frame_of({"a": 100}))
    forecaster.save(tmp_path / "model")
    rename, calls = Path.rename, []

    def stops(path: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", stops)
    with pytest.raises(KeyboardInterrupt):
        forecaster.save(tmp_path / "model", overwrite=True)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert len(tsattn.load(tmp_path / "model").predict()) == 2
    forecaster.save(tmp_path / "model", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_appears_while_a_model_is_saved_stays(
    overwrite: bool, fitted: Forecaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thesis = tmp_path / "model" / "thesis.tex"

    def late(*given: Any) -> None:
        thesis.parent.mkdir()
        thesis.write_text("years of work")
        save_file(*given)

    monkeypatch.setattr("tsattn.forecaster.model_folder.save_file", late)
    with pytest.raises(UserError, match=r"model .*not overwritten"):
        fitted.save(tmp_path / "model", overwrite=overwrite)
    assert [*tmp_path.iterdir()] == [thesis.parent]
    assert [*thesis.parent.iterdir()] == [thesis]


def test_a_disk_that_is_full_is_one_sentence(fitted: Forecaster, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"model cannot be written: .*File too large"):
            fitted.save(tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("mask", "modes"), [(0o077, {0o700, 0o600}), (0o022, {0o755, 0o644})])
def test_folder_and_files_are_as_open_as_the_user_wants_them(
    mask: int, modes: set[int], fitted: Forecaster, tmp_path: Path
) -> None:
    before = os.umask(mask)
    try:
        fitted.save(tmp_path / "model")
    finally:
        os.umask(before)
    folder = tmp_path / "model"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())} == modes


def test_rows_that_were_held_out_are_scored_the_same_where_the_model_is_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Their context lies before them, and so further back than the end of the series."""
    frame = frame_of({"small": 260, "large": 200})
    fitted = Forecaster(**{**SMALL, "max_steps": 2}, val_rows=20, test_rows=30).fit(frame)
    tail = frame.groupby("unique_id").tail(30)
    expected = fitted.evaluate(tail)
    fitted.save(tmp_path / "model")
    loaded = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.evaluate(tail), expected)
    pd.testing.assert_frame_equal(loaded.predict(), fitted.predict())
    assert loaded.series.panel.lengths.tolist() == [L + 30, L + 30]
    assert not [message for message in caplog.messages if "not saved" in message]


def test_the_baselines_of_a_loaded_forecaster_know_the_season_before(tmp_path: Path) -> None:
    """Of a context that is shorter than the season, and of rows whose last season has a hole."""
    frame = frame_of({"a": 200})
    frame.loc[[175, 151, 180], "y"] = np.nan
    fitted = Forecaster("ridge", context_length=7, prediction_length=4, val_rows=8, test_rows=8).fit(frame[:192])
    expected = fitted.evaluate(frame[192:])
    fitted.save(tmp_path / "model")
    pd.testing.assert_frame_equal(tsattn.load(tmp_path / "model").evaluate(frame[192:]), expected)


OWN_ATTENTION = """
from tsattn.attention.kinds import StandardAttention

class Mine(StandardAttention):
    pass
"""


def test_a_model_with_attention_of_a_user_is_loaded_from_its_import_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_attention.py").write_text(OWN_ATTENTION)
    monkeypatch.syspath_prepend(str(tmp_path))
    frame = frame_of({"a": 200})
    fitted = Forecaster(**{**SMALL, "max_steps": 2}, attention="own_attention.Mine")
    fitted.fit(frame, folder=tmp_path / "run").save(tmp_path / "model")
    for name in ("model", "run"):
        monkeypatch.delitem(sys.modules, "own_attention")
        pd.testing.assert_frame_equal(tsattn.load(tmp_path / name).predict(frame), fitted.predict(frame), rtol=1e-5)


@pytest.fixture
def run(toy_run: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_run[1], tmp_path / "run"))


def test_a_run_knows_its_checkpoints_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--run", str(run)]) == 0
    checkpoint = run / "checkpoints" / "best.ckpt"
    content = bytearray(checkpoint.read_bytes())
    content[len(content) // 2] ^= 1  # torch.load does not see that
    checkpoint.write_bytes(content)
    for command in ("predict", "test", "validate"):
        capsys.readouterr()
        assert main([command, "--run", str(run)]) == 2
        message = f"{run} is damaged: checkpoints/best.ckpt is missing or was changed"
        assert message in capsys.readouterr().err
    with pytest.raises(UserError, match=r"is damaged: checkpoints/best\.ckpt"):
        tsattn.load(run)


def test_weights_that_are_not_finite_are_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a folder without checksums, which is read otherwise."""
    (run / "SHA256SUMS").unlink()
    assert main(["test", "--run", str(run)]) == 0
    checkpoint = run / "checkpoints" / "best.ckpt"
    content = torch.load(checkpoint, weights_only=True)
    name = next(name for name, one in content["state_dict"].items() if name.startswith("network.") and one.ndim == 2)
    content["state_dict"][name][0, 0] = float("nan")
    torch.save(content, checkpoint)
    says = f"its weight {name} holds numbers that are not finite"
    assert main(["predict", "--run", str(run)]) == 2
    assert says in capsys.readouterr().err
    with pytest.raises(UserError, match=says):
        tsattn.load(run)


def test_values_far_from_those_trained_on_and_damaged_weights_give_no_forecast() -> None:
    wide = frame_of({"slow": 300, "wave": 300}).pivot_table(index="ds", columns="unique_id", values="y")
    forecaster = Forecaster(**{**SMALL, "max_steps": 2, "quantiles": None}).fit(wide)
    later = wide.copy()
    later.loc[later.index[290], "slow"] = 1e160
    with pytest.raises(UserError, match=r"series slow has the value 1e\+160"):
        forecaster.predict(later)
    assert np.isfinite(forecaster.predict(wide.assign(slow=1e9 * wide["slow"]))["predictions"]).all()
    with torch.no_grad():
        next(forecaster.fitted.predictor.parameters()).fill_(float("inf"))
    with pytest.raises(UserError, match="the forecast of series slow is not finite"):
        forecaster.predict()
