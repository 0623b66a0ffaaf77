"""`tune` as a person types it, resumed, and over every key of an experiment."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from filelock import FileLock

import tsattn
from tests.tuning.cases import RATES, Toy, toy
from tsattn.cli import main, tune
from tsattn.descriptions import DEFAULT_BACKBONE
from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.experiments.configs import with_values


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """A toy with a study of four trials; every test leaves it so."""
    made = toy(tmp_path_factory.mktemp("tune"))
    assert made.tune("--trials", "4") == 0
    return made


def test_what_a_study_leaves(done: Toy) -> None:
    files = {path.name for path in done.study.iterdir()}
    assert files == {"study.db", "best.yaml", "trials.csv", "study.json", "history.png", "importance.png"}
    table, summary = pd.read_csv(done.study / "trials.csv"), done.summary()
    assert list(table.trial) == [0, 1, 2, 3]
    assert set(table.state) <= {"complete", "pruned"}
    best = table.loc[table.error.idxmin()]
    assert summary["best"]["trial"] == best.trial
    assert summary["best"]["values"] == [pytest.approx(best.error)]
    assert summary["configuration_as_it_is"]["trial"] == 0  # it is always tried
    assert summary["trials"] == table.state.value_counts().to_dict()
    assert set(summary["importance"]) <= set(table.columns)
    assert summary["versions"]["command"][:2] == ["tsattn", "tune"]


def test_the_same_command_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    toy(tmp_path, RATES, backbone="dlinear")
    words = ["tune", "--config=config.yaml", "--search", "search.yaml", "--trials"]
    assert main([*words, "2"]) == 0
    assert "trial   2" not in capsys.readouterr().out
    assert main([*words, "3"]) == 0
    said = capsys.readouterr().out
    assert "2 of 3 trials are done" in said
    assert said.splitlines()[1].startswith("trial   2  ")
    assert [path.name for path in (tmp_path / "runs" / "tune").iterdir()] == ["config-search"], "the same folder"


def test_a_study_goes_on_with_the_same_data_and_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toy(tmp_path, RATES, backbone="dlinear")
    assert made.tune("--trials", "1") == 0
    table = pd.read_csv(tmp_path / "toy.csv")
    table.assign(wave=table["wave"] + 1e-6).to_csv(tmp_path / "toy.csv", index=False)
    assert made.tune("--trials", "2") == 2
    assert "cannot be resumed: its data have changed since it was begun; name a new --study" in capsys.readouterr().err
    table.to_csv(tmp_path / "toy.csv", index=False)
    assert made.tune("--trials", "2") == 0
    monkeypatch.setattr("tsattn.experiments.experiment.RESULTS_VERSION", 99)
    assert made.tune("--trials", "3") == 2
    assert "cannot be resumed: another version of tsattn began it, whose results" in capsys.readouterr().err
    assert len(made.trials()) == 2


def test_the_best_is_tested_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = toy(tmp_path)
    assert made.tune("--trials", "1", "--test") == 0
    assert "test windows" in capsys.readouterr().out
    metrics = json.loads((made.study / "test" / "metrics.json").read_text())
    assert metrics["validation_error"] == made.summary()["best"]["values"][0]
    scores = [str(number)[:6] for of_one in metrics["test"].values() for number in of_one.values() if number != 0]
    for file in ("study.json", "trials.csv"):  # a study holds no test score
        facts = (made.study / file).read_text().partition('"versions"')[0]
        assert "test" not in facts
        assert not [score for score in scores if "." in score and score in facts]
    assert made.tune("--trials", "2", "--test") == 2
    assert "the best trial was tested already; its results are in" in capsys.readouterr().err
    assert len(made.trials()) == 1


@pytest.mark.parametrize("is_done", [False, True])
def test_one_of_several_workers_tests_the_best(
    is_done: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toy(tmp_path, RATES, backbone="dlinear")
    lock = FileLock(made.study / ".test.lock")
    run_trials = tune.run_trials

    def tune_beside_another(*given: Any) -> None:
        run_trials(*given)
        if is_done:
            (made.study / "test").mkdir()
        else:
            lock.acquire()

    monkeypatch.setattr(tune, "run_trials", tune_beside_another)
    assert made.tune("--trials", "1", "--test") == 0
    assert "another worker is testing the best trial, or has tested it" in capsys.readouterr().out
    assert not (made.study / "test" / "metrics.json").exists()
    lock.release()


@pytest.mark.usefixtures("drawn")
def test_a_front_of_accuracy_and_flops(tmp_path: Path) -> None:
    search = {
        "sampler": "grid",
        "objectives": ["error", "flops", "parameters"],
        "parameters": {"attention": ["swa"], "model.backbone.num_layers": [1, 2], "model.backbone.d_model": [8, 16]},
    }
    made = toy(tmp_path, search)
    assert made.tune() == 0
    table, summary = pd.read_csv(made.study / "trials.csv"), made.summary()
    assert (made.study / "front.png").stat().st_size > 5000
    values = table[["error", "flops", "parameters"]].to_numpy()
    beaten = [any((other <= one).all() and (other < one).any() for other in values) for one in values]
    assert list(table.front) == [not lost for lost in beaten]
    assert sorted(summary["front"]) == table.trial[table.front].tolist()
    configs = {path.stem: yaml.safe_load(path.read_text()) for path in (made.study / "front").iterdir()}
    assert set(configs) == {f"trial_{number}" for number in summary["front"]}
    best = int(table.trial[table.error.idxmin()])
    assert yaml.safe_load((made.study / "best.yaml").read_text()) == configs[f"trial_{best}"]
    depth = int(table["model.backbone.num_layers"][best])
    assert configs[f"trial_{best}"]["model"]["backbone"]["num_layers"] == depth


def test_the_best_keeps_to_the_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = {"sampler": "grid", "parameters": {"attention": ["swa"], "model.backbone.d_model": [8, 64]}}
    bounded = toy(tmp_path, {**space, "constraints": {"parameters": 5000}})
    assert bounded.tune() == 0
    table = pd.read_csv(bounded.study / "trials.csv").set_index("model.backbone.d_model")
    assert table.parameters[8] < 5000 < table.parameters[64]
    assert table.feasible.to_dict() == {8: True, 64: False}
    assert "above the" in table.reason[64]
    none = toy(tmp_path, {**space, "constraints": {"parameters": 1}})
    capsys.readouterr()
    assert none.tune("--study", str(tmp_path / "none")) == 2
    said = capsys.readouterr().err
    assert "no trial of the study none was completed within its constraints; the last: " in said


def test_tasks_of_a_job_array_share_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy(tmp_path, RATES, backbone="dlinear")
    # what srun tells a task, which Lightning looks for
    told = {"JOB_ID": "7", "JOB_NAME": "study", "NTASKS": "1", "PROCID": "0", "LOCALID": "0", "NODEID": "0"}
    for name, value in told.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    for _ in range(2):
        assert made.tune("--trials", "2") == 0
    assert len(made.trials()) == 2


NETWORK: dict[str, Any] = {"kind": "patchtst", "d_model": 8, "num_heads": 2, "num_layers": 1, "patch_len": 8}


def table(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "study" / "trials.csv")


def scored(base: Experiment, values: dict[str, Any]) -> float:
    """The validation error of an experiment with other values, as a run of its own has it."""
    error: float = tsattn.run(base, overrides=values, test=False).fit["validation_error"]
    return error


def test_the_kind_of_the_predictor_with_arguments_of_its_own(tmp_path: Path) -> None:
    kind = "model.backbone.kind"
    space = {
        "sampler": "grid",
        "parameters": {
            kind: ["transformer", "patchtst", "ridge", "seasonal_naive"],
            "model.backbone.patch_len": {"type": "categorical", "choices": [8], "when": {kind: "patchtst"}},
            "model.backbone.d_model": {"type": "categorical", "choices": [8], "when": {kind: "patchtst"}},
            "attention.kind": {"type": "categorical", "choices": ["swa"], "when": {kind: "patchtst"}},
            "attention.window_size": {"type": "categorical", "choices": [2], "when": {"attention.kind": "swa"}},
            "model.backbone.penalty": {"type": "categorical", "choices": [0.1, 1e4], "when": {kind: "ridge"}},
            "model.backbone.context_length": {"type": "categorical", "choices": [24], "when": {kind: "ridge"}},
            "model.learning_rate": {
                "type": "categorical",
                "choices": [0.02],
                "when": {kind: ["transformer", "patchtst"]},
            },
        },
    }
    made = toy(tmp_path, space)
    assert made.tune() == 0
    found = table(tmp_path).set_index(kind)
    assert found.state.tolist() == ["complete"] * 5
    assert sorted(found.index) == ["patchtst", "ridge", "ridge", "seasonal_naive", "transformer"]
    rate = {"model.learning_rate": 0.02}
    patched = {"kind": "patchtst", "patch_len": 8, "d_model": 8, "attention": {"kind": "swa", "window_size": 2}}
    runs = {
        "transformer": rate,
        "patchtst": {**rate, "model.backbone": patched},
        "seasonal_naive": {"model.backbone": "seasonal_naive"},
    }
    for name, values in runs.items():
        assert found.error[name] == scored(made.base(), values)
    ridges = found.loc["ridge"].set_index("model.backbone.penalty")
    for penalty in (0.1, 1e4):
        ridge = {"kind": "ridge", "penalty": penalty, "context_length": 24}
        assert ridges.error[penalty] == scored(made.base(), {"model.backbone": ridge})
    assert found.parameters["seasonal_naive"] == found.flops["seasonal_naive"] == 0
    assert set(ridges.parameters) == {2 * (24 + 13) * 6}  # a map for each channel, of steps and of the calendar
    assert set(ridges.flops) == {2 * (24 + 13) * 6 * 2}  # a multiply-add for each weight and channel
    assert found.step.notna().to_dict() == {**dict.fromkeys(found.index, False), "transformer": True, "patchtst": True}
    best = yaml.safe_load((made.study / "best.yaml").read_text())
    assert best["model"]["backbone"]["kind"] == found.error.idxmin()


def test_the_arguments_of_a_closed_form_without_a_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightning.pytorch.Trainer", lambda **_: pytest.fail("a Trainer was made"))
    penalty = {"type": "float", "low": 0.01, "high": 1e3, "log": True}
    parameters = {"model.backbone.penalty": penalty, "model.backbone.context_length": [12, 48]}
    made = toy(tmp_path, {"objectives": ["error", "parameters", "seconds", "memory"], "parameters": parameters})
    assert made.tune("--model.backbone", "ridge", "--trials", "4") == 0
    found = table(tmp_path)
    assert found.state.tolist() == ["complete"] * 4
    assert (found.parameters == 2 * 6 * (found["model.backbone.context_length"] + 13)).all()
    assert (found.seconds > 0).all()
    assert (found.memory > 50_000_000).all()
    for row in found.to_dict("records")[:2]:
        values = {name: row[name] for name in parameters}
        values["model.backbone.context_length"] = int(values["model.backbone.context_length"])
        assert row["error"] == scored(made.base(), {"model.backbone": "ridge", **values})


def test_members_and_weights_of_an_ensemble(tmp_path: Path) -> None:
    backbone = {"kind": "ensemble", "members": ["ridge", NETWORK], "weights": [1, 1]}
    parameters = {
        "model.backbone.members.0.penalty": [1.0, 1e3],
        "model.backbone.members.1.d_model": [8, 16],
        "model.backbone.members.1.context_length": [16, 24],
        "model.backbone.members.1.learning_rate": {"type": "float", "low": 1e-4, "high": 1e-2, "log": True},
        "model.backbone.weights": {"type": "categorical", "choices": {"even": [1, 1], "linear": [3, 1]}},
    }
    made = toy(tmp_path, {"parameters": parameters}, backbone=backbone)
    assert made.tune("--trials", "4") == 0
    found = table(tmp_path)
    assert found.state.tolist() == ["complete"] * 4
    assert found["model.backbone.weights"].nunique() == 2
    sizes = found.set_index("model.backbone.members.1.d_model").parameters
    assert sizes[[8]].max() < sizes[[16]].min()
    row = found.to_dict("records")[3]
    weights = {"even": [1, 1], "linear": [3, 1]}[row["model.backbone.weights"]]
    values = {name: row[name] for name in parameters if name != "model.backbone.weights"}
    for name in ("d_model", "context_length"):
        values[f"model.backbone.members.1.{name}"] = int(values[f"model.backbone.members.1.{name}"])
    assert row["error"] == scored(made.base(), {**values, "model.backbone.weights": weights})
    assert not any(trial.intermediate_values for trial in made.trials()), "no step of a member prunes an ensemble"


def test_another_loss_is_compared_by_the_error_of_the_base(tmp_path: Path) -> None:
    made = toy(tmp_path, {"sampler": "grid", "parameters": {"model.loss": ["mse", "mae", "huber"]}})
    assert made.tune() == 0
    trials = made.trials()
    assert [trial.user_attrs["selected_by"] for trial in trials] == ["mse_scaled"] * 3
    assert len({trial.value for trial in trials}) == 3
    assert made.summary()["configuration_as_it_is"]["trial"] == 0  # its loss is mse, which nobody wrote
    for trial in trials:
        values = {"model.loss": trial.params["model.loss"], "model.selection": "mse"}
        assert trial.value == scored(made.base(), values)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"data.val_windows": [3]}, "data.init_args.val_windows changes the scored windows"),
        ({"trainer.devices": [1, 2]}, "devices cannot be 2: a trial runs on one device: .* must be 1, not 2; run"),
        ({"model.backbone.members.2.kind": ["ridge"]}, "members is a list of 2, so there is no .*members.2$"),
        ({"model.backbone.members.0.alfa": [1.0]}, "cannot be 1.0: member ridge of the ensemble has no argument"),
        ({"model.backbone.weights": [[1, 1], [1]]}, "cannot be .*give one weight for each of the 2 members, not 1"),
        ({"trainer.accumulate_grad_batches": [1, 2]}, "cannot be 2: val_check_interval 1 must be a multiple of "),
    ],
)
def test_what_is_refused_before_the_first_trial(parameters: dict[str, Any], said: str, tmp_path: Path) -> None:
    made = toy(tmp_path, {"parameters": parameters}, backbone={"kind": "ensemble", "members": ["ridge", NETWORK]})
    with pytest.raises(UserError, match=said):
        made.check({"parameters": parameters})


def test_values_inside_what_a_configuration_leaves_out() -> None:
    assert with_values({}, {"trainer.max_steps": 3}) == {"trainer": {"max_steps": 3}}
    default = {"kind": "patchtst", "d_model": 32, "num_heads": 4, "linear_path": "ridge", "dropout": 0.2}
    assert with_values({}, {"model.backbone.num_layers": 3}) == {"model": {"backbone": {**default, "num_layers": 3}}}
    assert default == DEFAULT_BACKBONE, "it was copied before it was changed"
    switched = with_values(
        {"model": {"backbone": "ridge"}}, {"model.backbone.kind": "transformer", "model.backbone.attention.kind": "swa"}
    )
    assert switched["model"]["backbone"] == {"kind": "transformer", "attention": {"kind": "swa"}}
    with pytest.raises(UserError, match="model is a section; name an option"):
        with_values({}, {"model": {"learning_rate": 0.01}})  # all else of it would be lost
    long = {"data": {"class_path": "CO2DataModule", "init_args": {"context_length": 48}}}
    assert with_values({}, {"data": "CO2DataModule", "data.context_length": 48}) == long
