"""A space is held against the configuration before the first trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pretrained.small_models import small_weights
from tests.tuning.cases import SEARCH, Toy, toy
from tsattn.cli import main
from tsattn.cli.words import session
from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.experiments.configs import config_names, find_config
from tsattn.tuning import HeldData, check_search, comparable, read_search


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return toy(tmp_path_factory.mktemp("check"))


def test_a_right_space_is_taken(made: Toy) -> None:
    made.check(SEARCH)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"model.lerning_rate": [1.0]}, r"has no model.lerning_rate .did you mean model.learning_rate"),
        ({"model.backbone.depth": [1]}, r"no argument 'depth'; valid: .*num_layers"),
        ({"attention.window_size": [4]}, r"attention mlr has no argument 'window_size'; valid: .*ranks"),
        (
            {"attention.kind": ["mlr", "mrl"]},
            r"kind cannot be 'mrl': unknown attention 'mrl' .did you mean mlr.*valid: .*mlr",
        ),
        (
            {"trainer.max_steps": {"type": "float", "low": 1, "high": 2}},
            r"max_steps cannot be 1.0: .*whole number, not 1.0",
        ),
        ({"model.backbone.num_layers": ["two"]}, r"num_layers must be a whole number, not 'two'"),
        ({"model.backbone.dropout": {"type": "float", "low": 0, "high": 2}}, r"dropout cannot be 2.0: .*dropout"),
        ({"attention.ranks": [[5, 5]]}, r"ranks cannot be '\[5, 5\]'"),
        ({"data.context_length": [24, 4000]}, r"context_length cannot be 4000"),
        ({"data.prediction_length": [6, 12]}, r"decides what is scored"),
        ({"seed_everything": [1, False]}, r"seed_everything cannot be False: a trial needs a seed, so that"),
        ({"model.calibrate": [False, 0.5]}, r"model.calibrate decides what is scored"),
        ({"trainer.limit_test_batches": [1]}, r"limit_test_batches cannot be set"),
    ],
)
def test_what_the_configuration_cannot_take(parameters: dict[str, Any], said: str, made: Toy) -> None:
    with pytest.raises(UserError, match=said) as error:
        made.check({"parameters": parameters})
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("search.yaml: ")


@pytest.mark.parametrize(
    ("changes", "kinds", "said"),
    [
        ({"trainer.limit_val_batches": 1}, None, "leave out trainer.limit_val_batches, which is 1; data.val_windows"),
        ({"trainer.fast_dev_run": True}, None, "leave out trainer.fast_dev_run, which is True;"),
        ({"data.val_windows": 3}, ["dlinear", "ridge"], "only networks are scored on 3 .*: data.val_windows must be"),
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
    # 3 heads divide 12, not the 8 of the configuration
    made.check(
        {"parameters": {"model.backbone.d_model": [8, 12], "model.backbone.num_heads": [2, 3], "attention": ["swa"]}}
    )


def test_tune_refuses_before_the_first_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = toy(tmp_path, {"parameters": {"model.lerning_rate": [1.0]}})
    config, search = ["--config", str(tmp_path / "config.yaml")], ["--search", str(tmp_path / "search.yaml")]
    for words, said in (
        (made.words()[1:], "has no model.lerning_rate (did you mean model.learning_rate?)"),
        (
            config,
            "tune needs a search space: --search NAME, a file or one of search/chronos.yaml, search/leaderboard.yaml",
        ),
        (search, "tune needs a configuration: --config NAME, a file or one of chronos_mlr.yaml"),
        (
            [*config, "--search", "search/none.yaml"],
            "no search space search/none.yaml: neither a file nor one of search/",
        ),
        ([*config, *search, "--trials", "0"], "--trials must be a whole number of at least 1, not 0"),
        ([*config, *search, "--seed_everything", "false"], "a trial needs a seed, so that its result can be had again"),
        *(
            ([*config, *search, *words], "tune takes none of --run, --ckpt_path, --start, --resume, --refit: its")
            for words in (["--run", "x"], ["--ckpt_path=x"], ["--start", "x"], ["--resume", "x"], ["--refit", "--test"])
        ),
        ([*config, *search, "--triels", "3"], "unknown argument --triels"),
        (
            [*config, *search, "--trainer.devices", "2"],
            "a trial runs on one device: --trainer.devices must be 1, not 2",
        ),
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
        values = {"model.backbone.weights": small_weights()}
    search = read_search(find_config(name))
    with session():
        base = comparable(Experiment.read(config, values)).to_dict()
        check_search(search, base, HeldData().check)
    if name in ("search/mlr.yaml", "search/paper.yaml"):
        assert search.configured(base) is not None  # so that the shipped one is among the trials
