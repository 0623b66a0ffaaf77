"""A description of a run as plain data: complete, the same wherever it comes from, and told apart by its key."""

import gc
import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.experiments.golden import NETWORK, described, sales
from tsattn import CO2DataModule, Experiment, run
from tsattn.errors import UserError
from tsattn.experiments import experiment as experiments
from tsattn.experiments.experiment import instantiated, parsed, plain, user_errors


class NoisyCO2(CO2DataModule):
    in_key = ("noise",)

    def __init__(self, noise: float, **sizes: Any) -> None:
        super().__init__(**sizes)
        self.noise = noise


@pytest.fixture
def content(tmp_path: Path) -> dict[str, Any]:
    return described(tmp_path, NETWORK)


def test_it_is_complete_and_the_same_again(content: dict[str, Any], tmp_path: Path) -> None:
    experiment = Experiment.of(content)
    assert experiment.model["backbone"]["attention"]["align"] == "end"
    assert experiment.trainer["gradient_clip_val"] == 1.0
    assert experiment.seed == 1
    assert Experiment.of(experiment.to_dict()) == experiment
    (tmp_path / "again.yaml").write_text(experiment.to_yaml())
    assert Experiment.read(tmp_path / "again.yaml") == experiment
    assert yaml.safe_load(experiment.to_yaml()) == experiment.to_dict()


def test_one_that_comes_along_is_found_by_its_name() -> None:
    assert Experiment.read("co2_mlr.yaml") == Experiment.read("co2_mlr")
    assert Experiment.read("co2_mlr").model["backbone"]["kind"] == "transformer"


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        ("attention", "swa", lambda one: one.model["backbone"]["attention"]["kind"] == "swa"),
        ("attention.ranks", [1, 3], lambda one: one.model["backbone"]["attention"]["ranks"] == [1, 3]),
        ("attention.kind", "swa", lambda one: "ranks" not in one.model["backbone"]["attention"]),
        ("model.backbone", "ridge", lambda one: one.model["backbone"]["kind"] == "ridge"),
        ("model.backbone.d_model", 4, lambda one: one.model["backbone"]["d_model"] == 4),
        ("data.batch_size", 7, lambda one: one.data["init_args"]["batch_size"] == 7),
        ("trainer.max_steps", 3, lambda one: one.trainer["max_steps"] == 3),
        ("seed_everything", 5, lambda one: one.seed == 5),
        ("seed_everything", False, lambda one: one.seed is None),
    ],
)
def test_overrides(content: dict[str, Any], path: str, value: Any, found: Callable[[Experiment], bool]) -> None:
    before = Experiment.of(content)
    assert not found(before)
    assert found(before.with_values({path: value}))
    assert before == Experiment.of(content), "it is left as it was"


def test_the_seed_of_a_description_is_the_same_wherever_its_files_lie(content: dict[str, Any], tmp_path: Path) -> None:
    seeded = Experiment.of({**content, "seed_everything": True})
    files = ["elsewhere/table.csv", tmp_path / "other.csv"]
    assert {seeded.with_values({"seed_everything": True, "data.path": file}).seed for file in files} == {seeded.seed}
    assert seeded.with_values({"seed_everything": True, "data.batch_size": 7}).seed != seeded.seed
    assert seeded.with_values({"data.path": "here.csv"}).data["init_args"]["path"] == str(Path("here.csv").absolute())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"predictor": 1}, "an experiment has no key 'predictor'; valid: seed_everything, data, model, trainer"),
        ({"seed_everything": -1}, "seed_everything must be from 0 to"),
        ({"trainer": {"max_step": 3}}, "max_step"),
        ({"model": {"backbone": "patchtts"}}, "unknown predictor 'patchtts'"),
        ({"model": {"backbone": {"kind": "ridge", "beta": 1}}}, "predictor ridge has no argument 'beta'"),
        ({"data": "Nothing"}, "--data must be one of"),
        ({"model": {"backbone": "ridge", "betas": [0.9]}}, "betas must be two numbers of at least 0 and below 1"),
        ({"model": {"backbone": "ridge", "schedule": "linear"}}, "schedule must be one of cosine, constant"),
    ],
)
def test_what_is_not_valid_is_named(content: dict[str, Any], changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Experiment.of({**content, **changes})


def test_what_is_no_mapping_is_said_to_be_none() -> None:
    with pytest.raises(UserError, match=r"not 'co2_mlr.yaml'; read a file with `Experiment.read\(NAME\)`"):
        Experiment.of("co2_mlr.yaml")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, str]:
    experiment = Experiment.of(described(tmp_path_factory.mktemp("whole"), NETWORK))
    return experiment, experiment.key


class TestKey:
    def test_what_decides_no_number_is_not_in_it(self, content: dict[str, Any]) -> None:
        before = Experiment.of(content)
        values = {
            "data.num_workers": 2,
            "data.resident_gb": 0.0,
            "trainer.accelerator": "auto",
            "trainer.log_every_n_steps": 50,
            "trainer.enable_progress_bar": False,
            "trainer.default_root_dir": "elsewhere",
            "trainer.devices": "auto",
        }
        assert before.with_values(values).key == before.key

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("seed_everything", 2),
            ("model.learning_rate", 0.01),
            ("model.betas", [0.9, 0.95]),
            ("attention.ranks", [1, 3]),
            ("trainer.max_steps", 13),
            ("data.batch_size", 8),
            ("data.scaling", "global"),
            ("data.val_windows", "all"),
            ("data.train_fraction", 0.6),
            ("data.future_covariates", ["price"]),
        ],
    )
    def test_what_decides_a_number_is_in_it(self, whole: tuple[Experiment, str], path: str, value: Any) -> None:
        before, key = whole
        assert before.with_values({path: value}).key != key

    def test_a_transform_is_in_it_where_there_is_one(self, content: dict[str, Any], tmp_path: Path) -> None:
        sales().assign(y=lambda table: table["y"].abs() + 1).to_csv(tmp_path / "table.csv", index=False)
        before = Experiment.of(content).with_values({"data.path": str(tmp_path / "table.csv")})
        assert before.with_values({"data.transform": None}).key == before.key
        described = [{"kind": "box_cox"}, {"kind": "box_cox", "lambda": 0.5}]
        transforms = ["log", "log1p", "box_cox", *described]
        keys = [before.with_values({"data.transform": transform}).key for transform in transforms]
        assert keys[2] == keys[3]
        assert len({before.key, *keys}) == 5

    def test_another_file_of_the_same_values_has_the_same_key(self, content: dict[str, Any], tmp_path: Path) -> None:
        before = Experiment.of(content)
        other = tmp_path / "other" / "table.parquet"
        other.parent.mkdir()
        sales().sample(frac=1.0, random_state=0).to_parquet(other)  # rows in another order
        assert before.with_values({"data.path": str(other)}).key == before.key

    @pytest.mark.parametrize(
        "change",
        [
            lambda table: table.assign(y=table["y"].where(table.index != 5, 0.0)),
            lambda table: table.assign(ds=table["ds"] + pd.Timedelta(1, "h")),
            lambda table: table.replace({"unique_id": {"s0": "s00"}}),
            lambda table: table.iloc[:-1],
        ],
    )
    def test_other_values_have_another_key(
        self, whole: tuple[Experiment, str], tmp_path: Path, change: Callable[[pd.DataFrame], pd.DataFrame]
    ) -> None:
        before, key = whole
        other = tmp_path / "other.csv"
        change(sales()).to_csv(other, index=False)
        assert before.with_values({"data.path": str(other)}).key != key

    def test_what_came_after_records_had_been_kept_leaves_their_keys(self, content: dict[str, Any]) -> None:
        whole = Experiment.of(content)
        older = {
            name: value for name, value in whole.model.items() if name not in ("schedule", "betas", "distribution")
        }
        assert len(older) == len(whole.model) - 3
        assert replace(whole, model=older).key == whole.key

    def test_nor_does_what_came_later_in_networks(self, content: dict[str, Any]) -> None:
        network = {"kind": "patchtst", "d_model": 8, "num_heads": 2}
        for backbone in (network, {"kind": "ensemble", "members": ["ridge", network]}):
            whole = Experiment.of({**content, "model": {"backbone": backbone}})
            text = json.dumps(whole.model)
            for before, other in (
                (', "patch_mask": 0.0', ', "patch_mask": 0.2'),
                (', "pad_end": false', ', "pad_end": true'),
                (', "subtract_last": false', ', "subtract_last": true'),
            ):
                assert before in text
                older = json.loads(text.replace(before, ""))
                assert replace(whole, model=older).key == whole.key
                changed = json.loads(text.replace(before, other))
                assert replace(whole, model=changed).key != whole.key

    def test_nor_does_it_change_seeds_that_the_description_decides(
        self, content: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def seed(**arguments: Any) -> int | None:
            network = {"kind": "patchtst", "d_model": 8, "num_heads": 2, **arguments}
            return Experiment.of({**content, "model": {"backbone": network}, "seed_everything": True}).seed

        now = seed()
        assert seed(pad_end=True) != now
        complete = experiments.complete_predictor
        monkeypatch.setattr(
            experiments,
            "complete_predictor",
            lambda asked: {name: value for name, value in complete(asked).items() if name != "pad_end"},
        )
        assert seed() == now

    def test_so_is_what_a_data_set_does_to_each_batch(self) -> None:
        before = Experiment.of({"data": {"class_path": f"{__name__}.NoisyCO2", "init_args": {"noise": 0.1}}})
        other = before.with_values({"data.noise": 0.25})
        assert other.key != before.key
        data = before.data_module()
        with pytest.raises(UserError, match=r"have noise 0.1, but the experiment has 0.25"):
            run(other, data=data, test=False)

    def test_the_version_of_the_results_is_in_it(
        self, content: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = Experiment.of(content).key
        monkeypatch.setattr(experiments, "RESULTS_VERSION", experiments.RESULTS_VERSION + 1)
        assert Experiment.of(content).key != before

    def test_a_linear_path_from_the_ridge_has_a_later_version(self, content: dict[str, Any]) -> None:
        """Its numbers changed, in the default model too, and no others."""
        for backbone in ({**NETWORK, "linear_path": "ridge"}, "auto", NETWORK):
            model = Experiment.of({**content, "model": {**content["model"], "backbone": backbone}}).model
            assert ("'version': 2" in str(experiments._said(model))) == (backbone != NETWORK)


def small(**trainer: Any) -> dict[str, Any]:
    return {
        "data": {"class_path": "CO2DataModule"},
        "model": {"backbone": {"kind": "ridge"}},
        "trainer": {"max_steps": 3, **trainer},
    }


def completed(content: dict[str, Any]) -> dict[str, Any]:
    return plain(parsed(content))


def test_what_one_reader_changes_is_not_read_by_the_next() -> None:
    first = completed(small())
    first["trainer"]["max_steps"] = 4
    first["data"]["init_args"].clear()
    again = completed(small())
    assert again["trainer"]["max_steps"] == 3
    assert again["data"]["init_args"]
    instantiated(parsed(small()), "trainer").max_steps = 5
    assert instantiated(parsed(small()), "trainer").max_steps == 3
    assert instantiated(parsed(small()), "data") is not instantiated(parsed(small()), "data")


def test_a_data_set_that_is_defined_anew_has_its_new_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    content = {**small(), "data": {"class_path": f"{__name__}.Redefined"}}
    for steps in (26, 13):

        class Redefined(CO2DataModule):
            def __init__(self, prediction_length: int = steps, **kwargs: Any) -> None:
                super().__init__(prediction_length=prediction_length, **kwargs)

        Redefined.__qualname__ = "Redefined"
        monkeypatch.setitem(globals(), "Redefined", Redefined)
        assert completed(content)["data"]["init_args"]["prediction_length"] == steps
        assert instantiated(parsed(content), "data").prediction_length == steps


def test_a_name_of_two_data_sets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("module_of_twin")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for where, names in ((__name__, globals()), (module.__name__, module.__dict__)):
        monkeypatch.setitem(names, "Twin", type("Twin", (CO2DataModule,), {"__module__": where}))
    paths = f"{__name__}.Twin, module_of_twin.Twin"
    with pytest.raises(
        UserError, match=f"^--data Twin names more than one class; give the import path of one: {paths}$"
    ):
        completed({**small(), "data": {"class_path": "Twin"}})
    for path in paths.split(", "):
        assert completed({**small(), "data": {"class_path": path}})["data"]["class_path"] == path
    monkeypatch.undo()
    gc.collect()


def test_what_is_replaced_in_an_experiment_is_made() -> None:
    before = Experiment.of(small())
    arguments = {**before.data["init_args"], "prediction_length": 7}
    after = replace(before, data={**before.data, "init_args": arguments}, trainer={**before.trainer, "max_steps": 9})
    assert (after.data_module().prediction_length, after.trainer_arguments()["max_steps"]) == (7, 9)
    assert pickle.loads(pickle.dumps(before)).trainer_arguments()["max_steps"] == 3


def wrapped(cause: Exception) -> None:
    """A sentence as the parser raises it: inside an error of its own."""
    try:
        raise UserError("no such file") from cause
    except UserError as error:
        raise ValueError("Parser key data: no such file, among much else") from error


def test_a_sentence_goes_through_several_layers_unchanged_and_with_its_cause() -> None:
    cause = OSError("the disk")
    with pytest.raises(UserError, match=r"^no such file$") as caught, user_errors(), user_errors():
        wrapped(cause)
    assert caught.value.__cause__ is cause


def test_a_package_that_is_missing_is_named() -> None:
    message = "needs a package that is not installed: No module named 'nothing'"
    with pytest.raises(UserError, match=message), user_errors(), user_errors():
        raise ModuleNotFoundError("No module named 'nothing'")


def test_a_fault_of_the_program_stays_what_it_is() -> None:
    fault = ValueError("shapes")
    with pytest.raises(ValueError, match="shapes") as caught, user_errors():
        raise fault
    assert caught.value is fault
