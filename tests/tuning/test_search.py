"""Search spaces as a file has them, held against the configuration before the first trial."""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from optuna.distributions import FloatDistribution

from tests.chronos.tiny_models import weights_of
from tests.tuning.cases import SEARCH, Toy, toy
from tsattn.cli import main
from tsattn.cli.words import session
from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.experiments.configs import config_names, find_config, get_at, paths, with_values
from tsattn.tuning import HeldData, Search, check_search, comparable, read_search
from tsattn.tuning.search import complete

CONFIG: dict[str, Any] = {
    "seed_everything": 1,
    "data": {"class_path": "CSVDataModule", "init_args": {"batch_size": 8}},
    "model": {
        "backbone": {"kind": "transformer", "num_layers": 2, "attention": {"kind": "mlr", "ranks": [2, 2]}},
        "learning_rate": 0.01,
    },
    "trainer": {"max_steps": 10},
}


def read(folder: Path, content: Any) -> Search:
    file = folder / "s.yaml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return read_search(file)


def one(**description: Any) -> dict[str, Any]:
    return {"parameters": {"model.learning_rate": description}}


def test_a_space_is_read_as_it_is_written(tmp_path: Path) -> None:
    search = read(
        tmp_path,
        """
        sampler: random
        pruner: none
        objectives: [error, flops]
        constraints: {parameters: 1e5, memory: 1.5 GB}
        parameters:
          model.learning_rate: {type: float, low: 1e-5, high: 5e-3, log: true}
          data.batch_size: {type: int, low: 8, high: 32, step: 8}
          attention.window_size: {type: int, low: 2, high: 8, when: {attention.kind: [swa, global_swa]}}
          attention.kind: [mlr, swa, global_swa]
        """,
    )
    assert search.objectives == ("error", "flops")
    assert search.constraints == {"parameters": 1e5, "memory": 1.5e9}
    assert (search.sampler, search.pruner) == ("random", "none")
    assert list(search.parameters) == [
        "model.learning_rate",
        "data.init_args.batch_size",
        "model.backbone.attention.kind",
        "model.backbone.attention.window_size",
    ]
    rate, size, kind, window = search.parameters.values()
    assert rate.distribution == FloatDistribution(1e-5, 5e-3, log=True)
    assert [*(size.values() or ())] == [8, 16, 24, 32]
    assert [*(kind.values() or ())] == ["mlr", "swa", "global_swa"]
    assert window.when == {kind.path: ("swa", "global_swa")}


def test_dates_are_text(tmp_path: Path) -> None:
    search = read(
        tmp_path,
        """
        parameters:
          trainer.default_root_dir: [2016-01-01, 2016-01-01 12:00:00]
          trainer.callbacks:
            type: categorical
            choices: {2016-01-01: [{day: 2016-01-01}]}
            when: {trainer.default_root_dir: 2016-01-01}
        """,
    )
    root, callbacks = search.parameters.values()
    assert root.values() == ("2016-01-01", "2016-01-01 12:00:00")
    assert callbacks.choices == {"2016-01-01": [{"day": "2016-01-01"}]}
    assert callbacks.when == {root.path: ("2016-01-01",)}


def test_conditions_decide_what_is_there(tmp_path: Path) -> None:
    search = read(tmp_path, SEARCH)
    kind, ranks = "model.backbone.attention.kind", "model.backbone.attention.ranks"
    rng = random.Random(0)
    drawn = [search.drawn(rng, {}) for _ in range(40)]
    assert {taken[kind] for taken in drawn} == {"mlr", "swa"}
    assert all((ranks in taken) == (taken[kind] == "mlr") for taken in drawn)
    assert search.needed(ranks) == {kind: "mlr"}


def test_values_are_put_at_their_paths(tmp_path: Path) -> None:
    search = read(tmp_path, SEARCH)
    kind, ranks = "model.backbone.attention.kind", "model.backbone.attention.ranks"
    changed = search.applied(CONFIG, {ranks: "one", kind: "mlr", "model.learning_rate": 0.5})
    assert changed["model"] == {
        "backbone": {"kind": "transformer", "num_layers": 2, "attention": {"kind": "mlr", "ranks": [4]}},
        "learning_rate": 0.5,
    }
    # another kind has no arguments of the old one; the same keeps them
    assert search.applied(CONFIG, {kind: "swa"})["model"]["backbone"]["attention"] == {"kind": "swa"}
    assert search.applied(CONFIG, {kind: "mlr"}) == CONFIG
    assert CONFIG["model"]["backbone"]["attention"] == {"kind": "mlr", "ranks": [2, 2]}


def test_a_layer_of_its_own_has_a_path() -> None:
    config = with_values(CONFIG, {"model.backbone.attention": ["swa", {"kind": "mlr"}]})
    first, second = "model.backbone.attention.0.window_size", "model.backbone.attention.1.ranks"
    changed = with_values(config, {first: 4, second: [8]})
    assert changed["model"]["backbone"]["attention"] == [
        {"kind": "swa", "window_size": 4},
        {"kind": "mlr", "ranks": [8]},
    ]
    assert get_at(changed, first) == 4
    assert second in set(paths(changed))
    with pytest.raises(UserError, match=r"learning_rate is 0.01, so nothing inside it can be set"):
        with_values(CONFIG, {"model.learning_rate.low": 1})
    with pytest.raises(UserError, match=r"is a list of 2, so there is no model.backbone.attention.5"):
        with_values(config, {"model.backbone.attention.5": "swa"})
    for path in ("b", "model.backbone.attention.5", "model.backbone.attention.0.c", "model.backbone.attention.x"):
        with pytest.raises(KeyError):
            get_at(changed, path)


def test_a_grid_holds_every_combination_once(tmp_path: Path) -> None:
    content = {
        "sampler": "grid",
        "parameters": {
            "attention.kind": ["mlr", "swa"],
            "attention.window_size": {"type": "int", "low": 2, "high": 4, "when": {"attention.kind": "swa"}},
            "model.learning_rate": {"type": "float", "low": 0.1, "high": 0.3, "step": 0.1},
        },
    }
    search = read(tmp_path, content)
    grid = search.grid()
    assert len(grid) == len({str(point) for point in grid}) == (1 + 3) * 3
    rate = search.parameters["model.learning_rate"]
    assert rate.values() == [0.1, 0.2, 0.3], "no number beyond the end"
    assert all(map(rate.takes, rate.values() or ()))


def test_the_configuration_itself_is_found_in_the_space(tmp_path: Path) -> None:
    search, config = read(tmp_path, SEARCH), complete(CONFIG)
    taken = search.configured(config)
    assert taken == {
        "model.learning_rate": 0.01,
        "model.backbone.attention.kind": "mlr",
        "model.backbone.attention.ranks": "two",
    }
    assert complete(search.applied(config, taken)) == config
    for path, value in (("model.learning_rate", 0.5), ("model.backbone.attention.ranks", [3, 1])):
        assert search.configured(complete(with_values(config, {path: value}))) is None
    with_swa = complete(with_values(config, {"model.backbone.attention.kind": "swa"}))
    assert search.configured(with_swa) == {"model.learning_rate": 0.01, "model.backbone.attention.kind": "swa"}


def choice(**more: Any) -> dict[str, Any]:
    return {"type": "categorical", "choices": [1], **more}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *(
            (f"parameters:\n  model.loss: [{value}]\n", "must be a number, a text, true, false, null, a list or")
            for value in ("!!binary aGVsbG8=", "!!set {a}", "[[!!set {a}]]")
        ),
        ({"parameters": {}}, "parameters must name at least one"),
        ({"parametres": {}, "parameters": {"a": [1]}}, "has no argument 'parametres' .did you mean parameters"),
        ({"sampler": "cma", "parameters": {"a": [1]}}, "sampler must be one of tpe, random, grid, not"),
        ({"objectives": ["loss"], "parameters": {"a": [1]}}, "objectives must be a list of error, flops, parameters"),
        ({"objectives": ["flops", "error"], "parameters": {"a": [1]}}, "each once, error first, not"),
        ({"constraints": {"memory": "2 GX"}, "parameters": {"a": [1]}}, "memory must be a number above 0, or a number"),
        (one(low=0, high=1), "must be a list of choices, or a mapping with type"),
        (one(type="number", low=0, high=1), "type must be one of float, int, categorical, not 'number'"),
        (one(type="float", low=2, high=1), "low=2, high=1"),
        (one(type="float", low=0, high=1, step=0.3), "step of model.learning_rate must divide high - low"),
        (one(type="int", low=0.5, high=1), "model.learning_rate: low must be a whole number, not 0.5"),
        (one(type="categorical", choices=[]), "choices of model.learning_rate must be a list of values or a mapping"),
        (one(type="categorical", choices=[1, 1]), "a choice of model.learning_rate is there twice"),
        ({"parameters": {"attention": ["mlr"], "model.backbone.attention": ["swa"]}}, "is there twice"),
        (
            {"parameters": {"a": choice(when={"attention.kin": 1})}},
            "a depends on model.backbone.attention.kin, which is not searched for",
        ),
        ({"parameters": {"a": choice(when={"b": 3}), "b": [1, 2]}}, "a depends on b being 3, which is not one of"),
        (
            {"parameters": {"a": choice(when={"b": 1}), "b": choice(when={"a": 1})}},
            "the conditions of a, b depend on each other",
        ),
        ({"sampler": "grid", **one(type="float", low=0, high=1)}, "a grid needs a step or choices"),
        ({"sampler": "grid", "parameters": {"a": list(range(101)), "b": list(range(100))}}, "more than 10000"),
    ],
)
def test_a_wrong_space_is_refused_in_one_sentence(content: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said) as error:
        read(tmp_path, content)
    assert str(error.value).startswith(str(tmp_path / "s.yaml"))
    assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return toy(tmp_path_factory.mktemp("check"))


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"model.lerning_rate": [1.0]}, "has no model.lerning_rate .did you mean model.learning_rate"),
        ({"model.backbone.depth": [1]}, "no argument 'depth'; valid: .*num_layers"),
        ({"attention.window_size": [4]}, "attention mlr has no argument 'window_size'; valid: .*ranks"),
        ({"trainer.max_steps": {"type": "float", "low": 1, "high": 2}}, "max_steps cannot be 1.0: .*whole number"),
        ({"model.backbone.dropout": {"type": "float", "low": 0, "high": 2}}, "dropout cannot be 2.0: .*dropout"),
        ({"data.context_length": [24, 4000]}, "context_length cannot be 4000"),
        ({"data.prediction_length": [6, 12]}, "changes the scored windows"),
        ({"seed_everything": [1, False]}, "seed_everything cannot be False: a trial needs a seed to"),
        ({"model.calibrate": [False, 0.5]}, "model.calibrate changes the scored windows"),
        ({"trainer.limit_test_batches": [1]}, "limit_test_batches cannot be set"),
    ],
)
def test_what_the_configuration_cannot_take(parameters: dict[str, Any], said: str, made: Toy) -> None:
    with pytest.raises(UserError, match=rf"^search.yaml: [^\n]*{said}[^\n]*$"):
        made.check({"parameters": parameters})


@pytest.mark.parametrize(
    ("changes", "kinds", "said"),
    [
        ({"trainer.limit_val_batches": 1}, None, "leave out --trainer.limit_val_batches 1; to score fewer"),
        ({"data.val_windows": 3}, ["dlinear", "ridge"], "it mixes networks, scored on 3 .*: set --data.val_windows"),
    ],
)
def test_trials_are_scored_on_the_same_windows(
    changes: dict[str, Any], kinds: list[str] | None, said: str, made: Toy
) -> None:
    space = made.search({"parameters": {"model.backbone.kind": kinds} if kinds else {"data.eval_batch_size": [4, 8]}})
    base = made.base().with_values(changes)
    with session(), pytest.raises(UserError, match=said) as error:
        check_search(space, base.to_dict(), HeldData().check)
    assert "\n" not in str(error.value)


def test_what_scores_the_same_windows_is_taken(made: Toy) -> None:
    base = made.base().with_values({"model.backbone": "dlinear"})
    for changes, kinds in (
        ({"trainer.limit_val_batches": 1.0}, ["dlinear", "ridge"]),
        ({"data.val_windows": 3}, ["dlinear", "nlinear"]),
        ({"data.val_windows": 3}, ["ridge", "persistence"]),
    ):
        space = made.search({"parameters": {"model.backbone.kind": kinds}})
        with session():
            check_search(space, base.with_values(changes).to_dict(), HeldData().check)


def test_a_value_that_needs_other_values_is_taken(made: Toy) -> None:
    made.check(SEARCH)
    sizes = {"model.backbone.d_model": [8, 12], "model.backbone.num_heads": [2, 3]}
    made.check({"parameters": {**sizes, "attention": ["swa"]}})


def test_tune_refuses_before_the_first_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = toy(tmp_path, {"parameters": {"model.lerning_rate": [1.0]}})
    config, search = ["--config", str(tmp_path / "config.yaml")], ["--search", str(tmp_path / "search.yaml")]
    both = [*config, *search]
    for words, said in (
        (made.words()[1:], "has no model.lerning_rate (did you mean model.learning_rate?)"),
        (config, "tune needs a search space: --search NAME, a file or one of search/chronos.yaml"),
        (search, "tune needs a configuration: --config NAME, a file or one of chronos_mlr.yaml"),
        *(
            ([*both, *words], "tune does not accept --run, --ckpt_path, --start, --resume, --refit: it")
            for words in (["--run", "x"], ["--refit", "--test"])
        ),
        ([*both, "--trainer.devices", "2"], "a trial runs on one device: --trainer.devices must be 1, not 2"),
    ):
        assert main(["tune", *words]) == 2
        captured = capsys.readouterr()
        assert said in captured.err
        assert captured.err.count("\n") == 1
        assert captured.out == ""
    assert not made.study.exists()


@pytest.mark.real_data
@pytest.mark.parametrize("name", config_names("search/*.yaml"))
def test_the_spaces_that_come_with_tsattn_fit_their_configurations(name: str) -> None:
    others = {"search/paper.yaml": "etth1_mlr_paper.yaml", "search/chronos.yaml": "chronos_mlr.yaml"}
    config, values = others.get(name, "etth1_mlr.yaml"), {}
    if name == "search/chronos.yaml":  # small weights in the place of its own
        values = {"model.backbone.weights": weights_of("bolt")}
    search = read_search(find_config(name))
    with session():
        base = comparable(Experiment.read(config, values)).to_dict()
        check_search(search, base, HeldData().check)
    if name in ("search/mlr.yaml", "search/paper.yaml"):
        assert search.configured(base) is not None  # so that the shipped one is among the trials
