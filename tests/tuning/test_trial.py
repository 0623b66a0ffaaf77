"""One trial: what counts and is recorded, how it ends untrained, and that those that share their data are equal."""

import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import TrialState

from tests.tuning.cases import Toy, states, toy
from tsattn.cli import main
from tsattn.cli.words import session
from tsattn.data import ByShare, CSVDataModule, ForecastDataModule
from tsattn.data.splits import Recut
from tsattn.errors import UserError, is_out_of_memory
from tsattn.experiments import Experiment, Result, measuring, run
from tsattn.experiments.result import fitted_in
from tsattn.experiments.run_folder import RunFolder
from tsattn.training import ForecastingModule
from tsattn.tuning import Fold, HeldData, open_storage, run_trial
from tsattn.tuning import trial as trial_module

RATE = {"parameters": {"model.learning_rate": [0.01, 0.02]}}


def asked(search: dict[str, Any], made: Toy, folds: int = 0) -> tuple[optuna.trial.FrozenTrial, list[float] | None]:
    """A trial of the configuration with the first value of everything, as it ended."""
    space = made.search(search)
    study = optuna.create_study(directions=["minimize"] * len(space.objectives))
    trial, values = study.ask(), None
    taken = space.taken(lambda parameter: parameter.probes()[0])
    with session():
        try:
            values = run_trial(trial, made.base(), taken, search=space, held=HeldData(), folds=folds)
            study.tell(trial, values)
        except optuna.TrialPruned:
            study.tell(trial, state=TrialState.PRUNED)
    return study.trials[0], values


def test_what_is_recorded(tmp_path: Path) -> None:
    made = toy(tmp_path)
    trial, values = asked(RATE, made)
    facts = trial.user_attrs
    assert values == [facts["error"]] == facts["errors"]
    assert facts["parameters"] == run(made.base(), test=False).fitted.predictor.num_parameters > 0
    assert facts["selected_by"] == "mse_scaled"
    assert (facts["seed"], facts["device"]) == (1, "cpu")
    assert facts["step"] in (1, 2)
    assert facts["seconds"] > 0
    assert facts["memory"] > 50_000_000  # torch alone takes more
    assert set(trial.intermediate_values) == {1, 2}  # reported by step: both validations lie in one epoch
    assert min(trial.intermediate_values.values()) == facts["error"]


def test_flops_are_those_of_a_pass_of_one_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, objectives = toy(tmp_path), ("error", "flops", "parameters")
    narrow, values = asked({"objectives": [*objectives], **RATE}, made)
    assert values == [narrow.user_attrs[name] for name in objectives]
    deep, _ = asked({"parameters": {"model.backbone.num_layers": [3]}}, made)
    tokens, d_model, d_ff = 24, 8, 16
    layer = 2 * tokens * (4 * d_model * d_model + 2 * d_model * d_ff)  # projections and feed-forward
    scores = 2 * tokens * tokens * d_model  # a multiply-add for each pair and component, or less
    added = (deep.user_attrs["flops"] - narrow.user_attrs["flops"]) / 2
    assert layer + scores < added < layer + 4 * scores

    def refused(*_: object) -> float:
        raise UserError("this attention runs on CUDA only")

    monkeypatch.setattr(measuring, "forward_flops", refused)
    trial, values = asked(RATE, made)
    assert values is not None
    assert "flops" not in trial.user_attrs
    trial, values = asked({"constraints": {"flops": 1e12}, **RATE}, made)
    assert values is None
    assert trial.user_attrs["reason"] == "refused: this attention runs on CUDA only"


def test_folds_are_averaged_and_reported_one_by_one(tmp_path: Path) -> None:
    trial, values = asked(RATE, toy(tmp_path), folds=3)
    errors = trial.user_attrs["errors"]
    assert len(set(errors)) == 3
    assert trial.user_attrs["step"] is None, "each fold has a step of its own"
    assert values == [pytest.approx(sum(errors) / 3)]
    means = [errors[0], sum(errors[:2]) / 2, sum(errors) / 3]
    assert list(trial.intermediate_values.values()) == pytest.approx(means)


def test_a_trial_above_its_limit_is_not_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"parameters": 1e6, "flops": 1e9, "memory": "1 MB"}
    trial, values = asked({"constraints": limits, **RATE}, toy(tmp_path))
    assert values is not None
    assert max(trial.constraints["parameters"], trial.constraints["flops"]) < 0
    assert trial.constraints["memory"] == trial.user_attrs["memory"] - 10**6 > 0  # known when all is done
    monkeypatch.setattr(ForecastingModule, "training_step", lambda *_: pytest.fail("it was trained"))
    for name in ("parameters", "flops"):
        trial, values = asked({"constraints": {name: 10}, **RATE}, toy(tmp_path))
        assert values is None
        assert trial.state == TrialState.PRUNED
        assert trial.constraints == {name: trial.user_attrs[name] - 10}
        assert trial.user_attrs["reason"] == f"{trial.user_attrs[name]:,} {name}, above the 10 allowed"


def test_a_diverged_trial_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ForecastingModule._made
    monkeypatch.setattr(ForecastingModule, "_made", lambda self, batch: math.nan * made(self, batch))
    trial, values = asked(RATE, toy(tmp_path))
    assert values is None
    assert trial.state == TrialState.PRUNED
    assert trial.user_attrs["reason"].startswith("training diverged: the loss of step 1 ")


def test_a_trial_without_memory_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(ForecastingModule, "training_step", step)
    trial, _ = asked(RATE, toy(tmp_path))
    assert (trial.state, trial.user_attrs["reason"]) == (TrialState.PRUNED, "out of memory")
    refused, _ = asked({"parameters": {"model.backbone.d_model": [9]}}, toy(tmp_path))
    assert refused.state == TrialState.PRUNED
    assert re.match("refused: .*num_heads", refused.user_attrs["reason"])


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (OSError("cannot allocate memory"), False),
        (UserError("out of memory"), False),
    ],
)
def test_only_an_allocator_lacks_memory(error: Exception, is_memory: bool) -> None:
    assert is_out_of_memory(error) is is_memory
    told = UserError("make the batches smaller")
    told.__cause__ = error
    assert is_out_of_memory(told) is is_memory


def test_a_mistake_in_the_program_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(*_: object) -> None:
        raise RuntimeError("a bug")

    made = toy(tmp_path, RATE)
    monkeypatch.setattr(ForecastingModule, "training_step", step)
    with pytest.raises(RuntimeError, match="a bug"):
        made.tune("--trials", "2")
    failed = [trial for trial in made.trials() if trial.state == TrialState.FAIL]
    assert [trial.user_attrs["reason"] for trial in failed] == ["RuntimeError: a bug"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [([], "worse than the median at step 1"), (["--cv", "2"], "worse than the median after 1 of 2 origins")],
)
def test_what_is_worse_than_the_others_is_pruned(more: list[str], reason: str, tmp_path: Path) -> None:
    # five trials must be there before the median counts; the last one is hopeless
    rates = [0.01, 0.011, 0.012, 0.013, 0.014, 1e-9]
    made = toy(tmp_path, {"sampler": "grid", "parameters": {"model.learning_rate": rates}}, backbone="nlinear")
    assert made.tune(*more) == 0
    trials = made.trials()
    assert states(trials) == {"COMPLETE": 5, "PRUNED": 1}
    assert trials[5].user_attrs["reason"] == reason


def test_the_data_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tsattn.data import FrameSource

    made, reads = toy(tmp_path), []
    load = FrameSource.load

    def counted(self: FrameSource) -> Any:
        reads.append(self)
        return load(self)

    monkeypatch.setattr(FrameSource, "load", counted)
    held, base = HeldData(), made.base()
    first, same = held.of(base), held.of(base.with_values({"model.learning_rate": 0.5}))
    longer, fold = held.of(base.with_values({"data.context_length": 30})), held.of(base, Fold(0, 2))
    assert len(reads) == 1
    assert first.series is same.series
    assert longer.series is not first.series
    assert first.splits != fold.splits
    assert first is not same  # what a training notes in its data is no other's


@given(st.integers(40, 5000), st.floats(0.2, 0.8), st.floats(0.02, 0.15), st.integers(2, 6))
def test_folds_lie_side_by_side_before_the_test_part(rows: int, train: float, val: float, count: int) -> None:
    whole = ByShare(train, val).split(range(rows))
    rules = [Recut(ByShare(train, val), Fold(number, count).split) for number in range(count)]
    folds = [rule.split(range(rows)) for rule in rules]  # of which it takes the length
    assert folds[-1].val_end == whole.val_end
    for earlier, later in pairwise(folds):
        assert earlier.val_end == later.train_end
    for fold in folds:
        assert fold.test_end == fold.val_end <= whole.val_end  # no row is left to test on
        assert fold.val_end - fold.train_end == folds[0].val_end - folds[0].train_end <= whole.val_end - whole.train_end
    assert folds[0].train_end >= whole.val_end / 2 - 1


def fold_of(path: Path, number: int = 1) -> ForecastDataModule:
    data = Fold(number, 2).hold_out(CSVDataModule(str(path), context_length=24, prediction_length=6))
    data.setup("fit")
    return data


def test_a_fold_is_scaled_and_cut_by_its_own_rows(toy_csv: Path, toy_frame: pd.DataFrame) -> None:
    first, second = fold_of(toy_csv, 0), fold_of(toy_csv, 1)
    # 600 rows, 420 / 60 / 120: blocks of 60 end at row 480
    assert [split.bounds("val") for split in (*first.splits, *second.splits)] == [(360, 420), (420, 480)]
    assert second.scaler.mean == pytest.approx(toy_frame.iloc[:420].mean().tolist())
    assert len(first.windows("train")) == 360 - 30 + 1
    assert len(first.windows("val")) == 60 - 6 + 1
    with pytest.raises(UserError, match="the test part of the data has no rows"):
        first.windows("test")


def test_the_test_rows_change_no_trial(tmp_path: Path) -> None:
    errors = []
    for name in ("as_it_is", "other"):
        (tmp_path / name).mkdir()
        made = toy(tmp_path / name, RATE, backbone="dlinear")
        if name == "other":
            frame = pd.read_csv(tmp_path / name / "toy.csv", index_col=0)
            frame.iloc[480:] = -1e6
            frame.to_csv(tmp_path / name / "toy.csv")
        for study, more in (("one", []), ("folds", ["--cv", "2"])):
            assert made.tune("--trials", "1", "--study", str(tmp_path / name / study), *more) == 0
            storage = open_storage(None, tmp_path / name / study)
            trials = optuna.load_study(study_name=study, storage=storage).trials
            errors.append([trial.user_attrs["errors"] for trial in trials])
            assert {len(folds) for folds in errors[-1]} == {2 if more else 1}
            assert [trial.value for trial in trials] == pytest.approx([np.mean(folds) for folds in errors[-1]])
    assert errors[:2] == errors[2:]


NETWORK: dict[str, Any] = {"kind": "patchtst", "d_model": 8, "num_heads": 2, "num_layers": 1, "patch_len": 8}
ENSEMBLE: dict[str, Any] = {"kind": "ensemble", "members": ["ridge", {**NETWORK, "context_length": 30}], "seeds": 2}


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    found: list[Result] = []

    def kept(*given: Any, **options: Any) -> Result:
        found.append(run(*given, **options))
        return found[-1]

    monkeypatch.setattr(trial_module, "run", kept)
    return found


def one_trial(experiment: Experiment, made: Toy, held: HeldData, folds: int = 0) -> optuna.trial.FrozenTrial:
    space = made.search({"pruner": "none", "parameters": {"model.learning_rate": [0.01]}})
    study = optuna.create_study()
    trial = study.ask()
    study.tell(trial, run_trial(trial, experiment, {}, search=space, held=held, folds=folds))
    return study.trials[0]


def assert_same(one: Result, other: Result) -> None:
    states = [result.fitted.predictor.state_dict() for result in (one, other)]
    assert states[0].keys() == states[1].keys()
    for name, weight in states[0].items():
        assert torch.equal(weight, states[1][name]), name
    assert one.fit["validation_error"] == other.fit["validation_error"]
    assert one.fitted.scaler == other.fitted.scaler
    assert one.key == other.key


@pytest.mark.parametrize(("backbone", "folds"), [(None, 2), (ENSEMBLE, 0)], ids=str)
def test_equal_trials_are_equal_whatever_lies_between(
    backbone: Any, folds: int, results: list[Result], tmp_path: Path
) -> None:
    made = toy(tmp_path, **({} if backbone is None else {"backbone": backbone}))
    base, held = made.base(), HeldData()
    others: list[dict[str, Any]] = [
        {},
        {"trainer.max_steps": 5, "trainer.val_check_interval": 2, "model.learning_rate": 0.1},
        {"data.batch_size": 16, "data.context_length": 40, "data.eval_batch_size": 7},
        {},
    ]
    trials = [one_trial(base.with_values(values), made, held, folds) for values in others]
    alone = one_trial(base, made, HeldData(), folds)
    times = max(1, folds)
    assert len(results) == times * 5
    for fold in range(times):
        first, *between, again, fresh = results[fold::times]
        assert_same(first, again)
        assert_same(first, fresh)
        assert all(other.key != first.key for other in between)
    attributes = ("errors", "step", "parameters", "flops", "seed", "device")
    for name in attributes:
        assert trials[0].user_attrs[name] == trials[3].user_attrs[name] == alone.user_attrs[name]
    assert trials[2].user_attrs["errors"] != trials[0].user_attrs["errors"]


def test_fit_of_the_best_has_its_weights(results: list[Result], tmp_path: Path) -> None:
    made = toy(tmp_path, {"parameters": {"seed_everything": [1, 2]}}, backbone=ENSEMBLE)
    assert made.tune("--trials", "2") == 0
    expected = results[made.summary()["best"]["trial"]].fitted.predictor.state_dict()
    assert main(["fit", "--config", str(made.study / "best.yaml"), "--run", str(tmp_path / "run")]) == 0
    weights = fitted_in(RunFolder(tmp_path / "run")).predictor.state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in weights.items())


def test_each_fold_knows_the_categories_of_its_own_training_rows(results: list[Result], tmp_path: Path) -> None:
    made = toy(tmp_path, backbone={**NETWORK, "linear_path": "none"})
    table = pd.read_csv(tmp_path / "toy.csv")
    rows = np.arange(len(table))
    # training rows end at 300, 360 and 420 in the folds, at 420 without them
    table["kind"] = np.select([rows < 310, rows < 370], [np.array(["a", "b"])[rows % 2], "c"], "d")
    table.to_csv(tmp_path / "toy.csv", index=False)
    base = made.base().with_values({"data.target": ["wave", "drift"], "data.future_covariates": ["kind"]})
    held = HeldData()
    held.check(base.to_dict())
    for fold in [*range(3), None]:
        split = None if fold is None else Fold(fold, 3)
        panel, alone = held.of(base, split).panel, HeldData().of(base, split).panel
        assert panel.covariate_categories == alone.covariate_categories
        assert panel.covariate_categories["kind"] == ("a", "b", "c", "d")[: 4 if fold is None else 2 + fold]
    errors = one_trial(base, made, held, folds=3).user_attrs["errors"]
    for fold, error in enumerate(errors):
        read_anew = run(base, data=HeldData().of(base, Fold(fold, 3)), test=False)
        assert read_anew.fit["validation_error"] == error
