"""Plans: which entries a suite comes to, in which order, as which experiments."""

from __future__ import annotations

import copy
import importlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.leaderboard.cases import SMOKE, without
from tests.leaderboard.test_suite import suite
from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.experiments.members import member_experiments
from tsattn.leaderboard.plan import Entry, Plan
from tsattn.leaderboard.planner import Planner
from tsattn.leaderboard.shards import Shard

SEARCH = {"parameters": {"model.learning_rate": [0.01, 0.02], "model.backbone.dropout": [0.0, 0.1]}}


def plan(folder: Path, chosen: dict[str, Any] | None = None, **changed: Any) -> Plan:
    return Planner({} if chosen is None else chosen).plan(suite(folder, **changed))


def find(made: Plan, **labels: Any) -> Entry:
    (found,) = [entry for entry in made.entries if labels.items() <= entry.labels.items()]
    return found


def test_the_entries_of_a_suite(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert len(made.entries) == 16
    assert Counter(entry.predictor for entry in made.entries) == {
        **{"ridge": 2, "patchtst": 7, "patchtst+ridge": 6, "patchtst x2": 1}
    }
    assert len({entry.key for entry in made.entries}) == 16
    for entry in made.entries:
        assert (entry.experiment is None) == bool(entry.reason) == (entry.key == "")
        assert not entry.waits
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


def test_members_are_entries(tmp_path: Path) -> None:
    made = plan(tmp_path)
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


def test_the_order_of_worth(tmp_path: Path) -> None:
    entries = plan(tmp_path).entries
    assert [(entry.seed or 1, entry.horizon) for entry in entries] == [(1, 8)] * 7 + [(1, 4)] * 5 + [(2, 8)] * 4
    order = ["horizon", "attention", "predictor", "seed", "dataset"]
    entries = plan(tmp_path, order=order).entries
    assert [entry.horizon for entry in entries] == [8] * 11 + [4] * 5
    assert [entry.attention for entry in entries if entry.horizon == 4] == ["", *["standard"] * 2, *["mlr"] * 2]


def test_what_does_not_apply_and_what_cannot_be(tmp_path: Path) -> None:
    refused = find(plan(tmp_path), attention="calendar")
    assert refused.reason == "ranks [1, 1] sum to 2, but must sum to the head size 4"
    long = plan(tmp_path, horizons=[8, 4, 4000], seeds=1)
    assert all("4000" in entry.reason for entry in long.entries if entry.horizon == 4000)
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


def test_limits(tmp_path: Path) -> None:
    attentions = {"standard": "standard", "mlr": {"attention": {"kind": "mlr", "ranks": [2, 2]}, "seeds": {8: 1}}}
    data = [{"name": "co2", "class_path": "CO2DataModule", "horizons": [8, 4], "predictors": ["patchtst", "ridge"]}]
    made = plan(tmp_path, attentions=attentions, data=data)
    assert {entry.predictor for entry in made.entries} == {"patchtst", "ridge"}
    assert [entry.seed for entry in made.entries if entry.attention == "mlr"] == [1]  # none at the other horizon
    assert len([entry for entry in made.entries if entry.attention == "standard"]) == 3
    assert {entry.seed for entry in plan(tmp_path, first_seed=11, seeds=2).entries} == {None, 11, 12}


def test_seeds_that_are_asked_for_are_those_of_each_data_set(tmp_path: Path) -> None:
    data = [{"name": "co2", "class_path": "CO2DataModule", "seeds": {8: 1}}]
    made = suite(tmp_path, data=data)
    of_suite, asked = (
        Counter((entry.attention, entry.horizon) for entry in Planner({}).plan(one).entries if entry.seed is not None)
        for one in (made, made.narrowed(seeds=3))
    )
    assert of_suite["standard", 8] == 3, "a network, a mix, and the mean of two seeds"
    assert of_suite["standard", 4] == 0
    assert asked["standard", 8] == 3 + 3 + 1, "a predictor's own restriction holds"
    assert asked["standard", 4] == 3 + 3


def test_seeds_beyond_those_of_a_suite_stay_when_they_are_done(tmp_path: Path) -> None:
    made = suite(tmp_path)
    more = Planner({}).plan(made.narrowed(seeds=4)).entries
    done = {entry.key for entry in more if entry.attention == "mlr" and entry.seed != 4}
    kept = Planner({}, done.__contains__).plan(made).entries
    seeds = {
        name: {e.seed for e in kept if (e.predictor, e.attention, e.horizon) == name}
        for name in (("patchtst", "mlr", 8), ("patchtst", "mlr", 4), ("patchtst", "standard", 8), ("ridge", "", 8))
    }
    assert list(seeds.values()) == [{1, 2, 3}, {1, 2, 3}, {1, 2}, {None}]
    assert {entry.key for entry in kept} == {entry.key for entry in Planner({}).plan(made).entries} | done


def test_studies_come_before_what_takes_their_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(SEARCH))
    selection = {"search": str(tmp_path / "space.yaml"), "trials": 2, "folds": 2, "horizon": 8}
    changed = without({"attentions": SMOKE["attentions"]}, "attentions", "calendar")
    experiment_module = importlib.import_module("tsattn.experiments.experiment")
    completed: list[str] = []
    complete = experiment_module.completed

    def counted(content: Any) -> Any:
        completed.append(json.dumps(content))
        return complete(content)

    monkeypatch.setattr(experiment_module, "completed", counted)
    made = plan(tmp_path, selection=selection, **changed)
    assert len(completed) == len(set(completed)), "nothing is parsed twice"
    monkeypatch.undo()
    assert [study.title for study in made.studies] == ["co2: patchtst standard", "co2: patchtst mlr"]
    waiting = [entry for entry in made.entries if entry.waits]
    assert {entry.predictor for entry in waiting} == {"patchtst", "patchtst+ridge", "patchtst x2"}
    chosen = {made.studies[1].name: {"model.learning_rate": 0.02, "model.backbone.dropout": 0.0}}
    later = plan(tmp_path, chosen, selection=selection, **changed)
    assert [study.name for study in later.studies] == [study.name for study in made.studies]
    for entry in later.entries:
        assert entry.waits == (entry.attention == "standard")
    for name in ("patchtst", "patchtst+ridge"):
        experiment = find(later, predictor=name, attention="mlr", horizon=4).experiment
        assert experiment is not None
        assert experiment.model["learning_rate"] == 0.02
    first = plan(tmp_path, selection={**selection, "attentions": "first"}, **changed)
    assert [study.title for study in first.studies] == ["co2: patchtst"]
    assert all(entry.studies == (first.studies[0].name,) for entry in first.entries if entry.attention)
    other = plan(tmp_path, selection={**selection, "trials": 3}, **changed)
    assert other.studies[0].name != made.studies[0].name  # of another selection nothing is taken
    predictors = {**SMOKE["predictors"]}
    predictors["patchtst"] = {**predictors["patchtst"], "selection": "none"}
    assert not plan(tmp_path, selection=selection, predictors=predictors, **changed).studies


def test_shards_are_a_partition_that_keeps_members_together(tmp_path: Path) -> None:
    made = plan(tmp_path, seeds=4)
    for count in (1, 2, 3, 7):
        parts = [Shard(number, count).of(made.entries) for number in range(1, count + 1)]
        assert sorted(entry.name for part in parts for entry in part) == sorted(entry.name for entry in made.entries)
        homes = {entry.key: number for number, part in enumerate(parts) for entry in part if entry.key}
        for entry in made.entries:
            assert {homes[key] for key in entry.members} <= {homes.get(entry.key)}
    assert sum(bool(Shard(number, 3).of(made.entries)) for number in (1, 2, 3)) >= 2
    assert Shard.parse("2/8") == Shard(2, 8)
    for text in ("0/2", "3/2", "2", "a/b", "1/0"):
        with pytest.raises(UserError, match=f"--shard must be a part of how many, as 2/8, not {text}"):
            Shard.parse(text)
