"""Plans: which entries a suite comes to, in which order, as which experiments."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.leaderboard.cases import SMOKE
from tests.leaderboard.test_suite import suite
from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.leaderboard.plan import Entry, Planner, member_experiments


def plan(folder: Path, **changed: Any) -> list[Entry]:
    return Planner().plan(suite(folder, **changed))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    """The plan of the suite as it is, with rolling origins."""
    return plan(tmp_path_factory.mktemp("suite"), origins=2)


def find(made: list[Entry], **labels: Any) -> Entry:
    (found,) = [entry for entry in made if labels.items() <= entry.labels.items()]
    return found


def test_the_entries_of_a_suite(made: list[Entry]) -> None:
    assert len(made) == 16
    assert Counter(entry.predictor for entry in made) == {
        **{"ridge": 2, "patchtst": 7, "patchtst+ridge": 6, "patchtst x2": 1}
    }
    assert len({entry.key for entry in made}) == 16
    for entry in made:
        assert (entry.experiment is None) == bool(entry.reason) == (entry.key == "")
        if entry.experiment is not None:
            assert entry.experiment.data["init_args"]["prediction_length"] == entry.horizon
            assert entry.experiment == Experiment.of(entry.experiment.to_dict())
    one = find(made, predictor="patchtst", attention="mlr", horizon=8, seed=2)
    assert one.experiment is not None
    assert one.key == one.experiment.key  # found here without reading the data again
    assert one.experiment.seed == 2
    assert one.experiment.model["backbone"]["attention"]["ranks"] == [2, 2]
    assert one.experiment.model["learning_rate"] == 0.02  # that of the data set, not of the suite
    assert find(made, predictor="ridge", horizon=8).seed is None
    # origins are those of the first seed and horizon
    assert {(entry.horizon, entry.seed) for entry in made if entry.origins} == {(8, None), (8, 1)}
    assert all(entry.origins in (0, 2) for entry in made)


def test_members_are_entries(made: list[Entry]) -> None:
    network = find(made, predictor="patchtst", attention="mlr", horizon=8, seed=2)
    mixture = find(made, predictor="patchtst+ridge", attention="mlr", horizon=8, seed=2)
    assert mixture.members == (network.key,)
    assert mixture.experiment is not None
    assert [one.key for one in member_experiments(mixture.experiment).values()] == [network.key]
    assert [member["kind"] for member in mixture.experiment.model["backbone"]["members"]] == ["patchtst", "ridge"]
    mean = find(made, predictor="patchtst x2")
    alone = [find(made, predictor="patchtst", attention="standard", horizon=8, seed=seed) for seed in (1, 2)]
    assert mean.members == tuple(one.key for one in alone)


def test_members_may_differ_in_their_options(tmp_path: Path) -> None:
    predictors = copy.deepcopy(SMOKE["predictors"])
    other = copy.deepcopy(predictors["patchtst"])
    other["values"] = {"data.context_length": 64, "model.loss": "mae", "trainer.max_steps": 4}
    predictors |= {"other": other, "ridge": {"backbone": "ridge", "values": {"data.context_length": 32}}}
    predictors["both"] = {"mix": {"of": ["other", "patchtst", "ridge"]}, "attentions": ["mlr"], "seeds": 1}
    made = plan(tmp_path, predictors=predictors)
    both = find(made, predictor="both", horizon=8)
    parts = [find(made, predictor=name, attention="mlr", horizon=8, seed=1) for name in ("other", "patchtst")]
    assert both.members == tuple(part.key for part in parts)
    assert both.experiment is not None
    _, second, ridge = both.experiment.model["backbone"]["members"]
    assert (second["context_length"], second["max_steps"], ridge["context_length"]) == (48, 6, 32)
    predictors["other"]["values"]["data.batch_size"] = 16
    refused = find(plan(tmp_path, predictors=predictors), predictor="both", horizon=8)
    assert "cannot be made of other and patchtst: they differ in data.init_args.batch_size" in refused.reason


def test_the_order_of_worth_and_origins_change_no_experiment(made: list[Entry], tmp_path: Path) -> None:
    assert [(entry.seed or 1, entry.horizon) for entry in made] == [(1, 8)] * 7 + [(1, 4)] * 5 + [(2, 8)] * 4
    order = ["horizon", "attention", "predictor", "seed", "dataset"]
    entries = plan(tmp_path, order=order)
    keys, others = ({tuple(one.labels.values()): one.key for one in some} for some in (made, entries))
    assert keys == others
    assert [entry.horizon for entry in entries] == [8] * 11 + [4] * 5
    assert [entry.attention for entry in entries if entry.horizon == 4] == ["", *["standard"] * 2, *["mlr"] * 2]


def test_what_does_not_apply_and_what_cannot_be(made: list[Entry], tmp_path: Path) -> None:
    refused = find(made, attention="calendar")
    assert refused.reason == "ranks [1, 1] sum to 2, but must sum to the head size 4"
    long = plan(tmp_path, horizons=[8, 4, 4000], seeds=1)
    assert all("4000" in entry.reason for entry in long if entry.horizon == 4000)
    assert find(long, predictor="ridge", horizon=8).key
    alone = {"predictors": {"p": SMOKE["predictors"]["patchtst"]}}
    for changed, message in (
        (
            {"attentions": {"a": {"kind": "mlr", "rank": 2}}, **alone},
            "the attention a of the suite toy: .*no argument 'rank'",
        ),
        ({"predictors": {"p": "patchts"}}, "the predictor p of the suite toy: unknown predictor 'patchts'"),
        ({"predictors": {"p": {"backbone": {"kind": "patchtst", "d": 3}}}}, "the predictor p .*no argument 'd'"),
        ({"values": {"model.lr": 3}}, "the predictor ridge of the suite toy: .*lr"),
    ):
        with pytest.raises(UserError, match=message):
            plan(tmp_path, **changed)


def test_limits_and_chosen_values(tmp_path: Path) -> None:
    attentions = {"standard": "standard", "mlr": {"attention": {"kind": "mlr", "ranks": [2, 2]}, "seeds": {8: 1}}}
    data = [{"name": "co2", "class_path": "CO2DataModule", "horizons": [8, 4], "predictors": ["patchtst", "ridge"]}]
    chosen = {"co2": {"patchtst, mlr": {"model.learning_rate": 0.005}}}
    made = plan(tmp_path, attentions=attentions, data=data, chosen=chosen)
    assert {entry.predictor for entry in made} == {"patchtst", "ridge"}
    assert [entry.seed for entry in made if entry.attention == "mlr"] == [1]  # none at the other horizon
    assert len([entry for entry in made if entry.attention == "standard"]) == 3
    rates = {one.attention: one.experiment.model["learning_rate"] for one in made if one.attention and one.experiment}
    assert rates == {"standard": 0.02, "mlr": 0.005}
    assert {entry.seed for entry in plan(tmp_path, first_seed=11, seeds=2)} == {None, 11, 12}


def test_data_and_arms_are_parsed_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    parse = Experiment.of
    monkeypatch.setattr(Experiment, "of", lambda content: given.append(content) or parse(content))
    lengths = {f"co2 {length}": {"data.context_length": length} for length in (32, 48, 64)}
    data = [{**SMOKE["data"][0], "name": name, "values": values} for name, values in lengths.items()]
    predictors = {"ridge": "ridge", "patchtst": {"backbone": "patchtst"}}
    attentions = {"standard": "standard", "mlr": "mlr"}
    made = plan(tmp_path, data=data, predictors=predictors, attentions=attentions, questions=[])
    assert len({entry.key for entry in made if entry.experiment is not None}) == len(made) > 9
    # three data sets; ridge, and PatchTST as it is and with each attention
    assert len(given) == 3 + 4
    assert all(entry.experiment == parse(entry.experiment.to_dict()) for entry in made if entry.experiment is not None)
