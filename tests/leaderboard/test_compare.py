"""`compare`: one thing differs, everything else is identical; finished runs on the windows that they share."""

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure

from tests.pictures import save_empty
from tests.processes import serve
from tsattn.cli import main
from tsattn.cli.benchmark import given_overrides
from tsattn.errors import UserError
from tsattn.evaluation import ErrorTable
from tsattn.experiments import Experiment, run
from tsattn.leaderboard.compare import Plan, _names, compare, compare_runs

TOY: dict[str, Any] = {
    "data": {"class_path": "CO2DataModule", "init_args": {"context_length": 48, "prediction_length": 8}},
    "model": {
        "backbone": {
            **{"kind": "patchtst", "patch_len": 8, "stride": 8, "d_model": 8, "num_heads": 2, "num_layers": 1},
            "attention": {"kind": "mlr", "ranks": [2, 2]},
        },
        "learning_rate": 0.01,
    },
    "trainer": {"max_steps": 6, "val_check_interval": 3, "accelerator": "cpu"},
}
SMALL = {"trainer.max_steps": 3, "trainer.val_check_interval": 3}


def test_models_differ_in_one_thing_alone() -> None:
    plan = Plan.of(TOY, attention=["standard", "mlr", {"kind": "mlr", "ranks": [3, 1]}], seeds=2, overrides=SMALL)
    assert plan.models == ("standard", "mlr", "mlr ranks=[3,1]")
    contents = {}
    for entry in plan.entries:
        if entry.predictor in plan.models:
            assert entry.experiment is not None
            assert entry.key == entry.experiment.key
            contents[entry.predictor, entry.seed] = entry.experiment.to_dict()
    assert set(contents) == {(name, seed) for name in plan.models for seed in (1, 2)}
    attentions = {key: content["model"]["backbone"].pop("attention") for key, content in contents.items()}
    assert attentions["mlr", 1]["ranks"] == [2, 2]  # a bare kind that the configuration has keeps its arguments
    assert attentions["standard", 1]["kind"] == "standard"
    assert len({repr(content) for (_, seed), content in contents.items() if seed == 2}) == 1
    assert contents["mlr", 1]["trainer"]["max_steps"] == 3
    assert [entry.predictor for entry in plan.entries[6:]] == ["ridge", "seasonal_naive", "persistence"]
    rates = Plan.of(TOY, vary={"model.learning_rate": [0.01, 0.1]}, seeds=1, baselines=False)
    assert rates.models == ("learning_rate=0.01", "learning_rate=0.1")
    assert given_overrides([("--data.id_column", "#id"), ("--data.stride", "2")]) == {
        "data.id_column": "#id",
        "data.stride": 2,
    }
    untrained = Plan.of(TOY, vary={"model.backbone": ["ridge", "dlinear"]}, seeds=2, baselines=False)
    assert [entry.seed for entry in untrained.entries] == [None, 1, 2]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"attention": ["mlr"]}, "model.backbone.attention needs at least two values"),
    ({"attention": ["mlr", {"kind": "mlr", "ranks": [2, 2]}]}, "two of the models are the same"),
    ({"attention": ["mlr", "mrl"]}, "unknown attention 'mrl'"),
    ({}, "name what differs: either attentions, or one dotted path"),
    ({"attention": "mlr"}, "model.backbone.attention needs a list of values to compare, not mlr"),
    ({"vary": ["model.loss"]}, "name what differs: either attentions, or one dotted path with its values"),
    ({"vary": {"model.learning_rate": 0.1}}, "model.learning_rate needs a list of values to compare, not 0.1"),
    ({"attention": ["mlr", "swa"], "seeds": 0}, "seeds must be at least 1, not 0"),
    ({"vary": {"model.lr": [1, 2]}}, "lr"),
    ({"vary": {"data.context_length": [48, 4000]}}, "4000"),
    ({"vary": {"data.prediction_length": [4, 8]}}, "different horizons: data.prediction_length is 4 and 8"),
    ({"vary": {"data.scaling": ["global", "series"]}}, "different data: data.scaling is 'global' and 'series'"),
    ({"vary": {"seed_everything": [1, 2]}}, "seed_everything is the same for all models"),
    ({"vary": {"trainer.accelerator": ["cpu", "auto"]}}, "two of the models are the same: accelerator=cpu"),
]


def test_what_cannot_be_compared_is_refused() -> None:
    for wrong, message in ({"jobs": -1}, "jobs must be at least 1"), ({"margin": 1}, "margin must lie between 0 and 1"):
        with pytest.raises(UserError, match=message):
            compare(TOY, attention=["mlr", "swa"], **wrong)
    for arguments, message in REFUSED:
        with pytest.raises(UserError, match=message):
            Plan.of(TOY, **arguments)


@pytest.mark.slow
def test_a_comparison_resumes_and_says_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    serve()
    Path("toy.yaml").write_text(Experiment.of(TOY).to_yaml())
    words = ["compare", "--config", "toy.yaml", "--attention", "standard,{kind: mlr, ranks: [3, 1]}", "--seeds", "2"]
    assert main([*words, "--trainer.max_steps=3", "--dry-run"]) == 0
    assert "comparison: 7 runs: 7 to be run" in capsys.readouterr().out
    assert main([*words, "--trainer.max_steps", "3", "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert "co2, 8 steps ahead:" in said
    assert "vs standard" in said
    rows = [line.split() for line in said.splitlines()]
    names = [row[0] for row in rows if row and row[0] in ("standard", "mlr", "ridge", "seasonal_naive", "persistence")]
    assert names == ["standard", "mlr", "ridge", "seasonal_naive", "persistence"]
    assert Path("runs/compare/toy/attention.png").stat().st_size > 5000
    attention = ["standard", {"kind": "mlr", "ranks": [3, 1]}]
    again = compare("toy.yaml", attention=attention, seeds=2, overrides={"trainer.max_steps": 3}, say=lambda line: None)
    assert len(list(Path("runs/compare/toy/logs").iterdir())) == 7  # nothing was run again
    table = again.table
    done = again.records.done.set_index(["predictor", "seed"])
    mlr = "mlr ranks=[3,1]"
    means = {name: np.mean([done.loc[(name, seed), "mse"] for seed in (1, 2)]) for name in ("standard", mlr)}
    assert table.loc["standard", "MSE"] == pytest.approx(means["standard"])
    assert table.loc[mlr, "difference"] == pytest.approx(100 * (means[mlr] / means["standard"] - 1), abs=2e-3)
    assert table.loc[mlr, "low"] < table.loc[mlr, "difference"] < table.loc[mlr, "high"]
    assert table.loc[mlr, "verdict"] in ("better", "worse", "undecided", "equal within 1 %")
    assert table.loc["ridge", "verdict"] == table.loc["standard", "verdict"] == ""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders: two attentions with two seeds each, one on fewer windows, one with another horizon."""
    folder = tmp_path_factory.mktemp("runs")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(Figure, "savefig", save_empty)
    base = Experiment.of(TOY).with_values(SMALL)
    for name, values in {
        "a1": {"attention": "standard"},
        "a2": {"attention": "standard", "seed_everything": 2},
        "b1": {"attention": "swa"},
        "b2": {"attention": "swa", "seed_everything": 2},
        "longer": {"attention": "swa", "data.context_length": 64},
        "other": {"data.prediction_length": 4},
        "ridge": {"model.backbone": "ridge"},
    }.items():
        run(base.with_values(values), folder / name)
    monkeypatch.undo()
    return folder


@pytest.mark.slow
def test_finished_runs_are_compared_on_the_windows_that_they_share(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folders = [str(runs / name) for name in ("a1", "b1", "a2", "b2")]
    found = compare_runs(folders)
    assert found.models == ("standard", "swa")
    errors = {name: ErrorTable.read(runs / name / "errors.parquet").scores()["mse_scaled"] for name in ("a1", "a2")}
    assert found.table.loc["standard", "MSE"] == pytest.approx(np.mean([*errors.values()]), rel=1e-6)
    assert not math.isnan(found.table.loc["swa", "low"])
    fewer = compare_runs(folders[:3])
    assert fewer.table["seeds"].tolist() == [2, 1]
    assert not math.isnan(fewer.table.loc["swa", "low"]), "the variance over seeds is that of the other model"
    assert str(fewer).endswith("the figures of swa are of seed 1 alone")
    apart = compare_runs([folders[0], folders[3]])
    assert str(apart).endswith("no interval: standard and swa share no seed; run them with equal seeds")
    assert apart.table["verdict"].tolist() == ["", "undecided"]
    file = runs / "b1" / "errors.parquet"
    frame = pd.read_parquet(file).sort_values("origin")
    whole, shared = len(frame), frame.iloc[40:]
    monkeypatch.setattr(ErrorTable, "frame", _without(ErrorTable.frame, file, 40))
    part = compare_runs(folders)
    assert part.records.done["windows"].tolist() == [whole - 40] * 4
    other = pd.read_parquet(runs / "a1" / "errors.parquet").sort_values("origin").iloc[40:]
    ratio = shared["squared_scaled"].sum() / other["squared_scaled"].sum() - 1
    assert compare_runs(folders[:2]).table.loc["swa", "difference"] == pytest.approx(100 * ratio, abs=2e-3)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *folders]) == 0
    assert "2 seeds" in capsys.readouterr().out
    assert Path("comparison.png").exists()


def _without(frame: Any, file: Path, count: int) -> Any:

    def less(self: ErrorTable, *arguments: Any) -> pd.DataFrame:
        whole: pd.DataFrame = frame(self, *arguments)
        return whole.sort_values("origin").iloc[count:] if self.path == file else whole

    return less


@pytest.mark.slow
def test_runs_that_cannot_be_compared_are_named(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for names, message in (
        (["a1"], "name at least two run folders"),
        (["a1", "a2"], "one experiment with different seeds"),
        (["a1", "other"], r"forecast different horizons: data.prediction_length is 8 and 4"),
        (["a1", "none"], "none"),
    ):
        with pytest.raises(UserError, match=message):
            compare_runs([str(runs / name) for name in names])
    assert compare_runs([str(runs / "b1"), str(runs / "longer")]).models == ("context_length=48", "context_length=64")
    assert compare_runs([str(runs / "a1"), str(runs / "ridge")]).models == ("patchtst, standard", "ridge")
    plain = Experiment.of(TOY)
    assert _names([plain, plain.with_values({"model.loss": "mae"})]) == ["patchtst", "loss=mae"]
    shutil.copytree(runs / "b1", tmp_path / "changed")
    file = tmp_path / "changed" / "versions.json"
    file.write_text(file.read_text().replace('"fingerprint": "', '"fingerprint": "0'))
    with pytest.raises(UserError, match="tested on different values: their data have changed"):
        compare_runs([str(runs / "a1"), str(tmp_path / "changed")])
    shutil.copytree(runs / "b1", tmp_path / "holes")
    errors = pq.read_table(runs / "b1" / "errors.parquet")
    place, column = errors.schema.get_field_index("squared_scaled"), errors["squared_scaled"].to_numpy().copy()
    column[0] = math.nan
    pq.write_table(errors.set_column(place, errors.field(place), [column]), tmp_path / "holes" / "errors.parquet")
    with pytest.raises(UserError, match="holes: some forecasts are not numbers"):
        compare_runs([str(runs / "a1"), str(tmp_path / "holes")])
    assert main(["compare", str(runs / "a1"), str(runs / "b1"), "--attention", "mlr,swa"]) == 2
    assert "finished runs are compared as they are" in capsys.readouterr().err
    assert main(["compare"]) == 2
    assert "name what to compare" in capsys.readouterr().err
    twice = (["--config", "co2_quantiles.yaml"], ["--vary", "model.loss=mae,mse", "--vary", "model.loss=mse,mae"])
    for words in (*twice, ["--data.path={"], ["--margin", "0"], ["--trainer.max_steps"], ["--attentoin", "a,b"]):
        assert main(["compare", "--config", "co2_mlr.yaml", "--attention", "swa,mlr", *words]) == 2
