"""Suites as files: what they mean, what is refused, and the plans that they come to."""

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.leaderboard.cases import SMOKE
from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.experiments.configs import config_names, find_config
from tsattn.leaderboard.plan import Entry, Planner, member_experiments
from tsattn.leaderboard.suite import ORDER, Suite, read_suite


def suite(folder: Path, **changed: Any) -> Suite:
    path = folder / "toy.yaml"
    path.write_text(yaml.safe_dump({**copy.deepcopy(SMOKE), **changed}, sort_keys=False))
    return read_suite(path)


def test_what_is_read(tmp_path: Path) -> None:
    made = suite(tmp_path)
    assert made.name == "toy"
    assert made.order == ORDER
    assert made.horizons == (8, 4)
    assert made.seeds == {8: 2, 4: 1}
    assert made.predictors["ridge"].backbone == "ridge"
    assert made.predictors["patchtst"].by_data == {"co2": {"model.learning_rate": 0.02}}
    assert made.predictors["patchtst x2"].limits.seeds == 1  # the mean of two seeds is there once
    assert made.values["data.init_args.context_length"] == 48
    assert made.attentions["calendar"].limits.most_seeds("co2", 8, "patchtst", "calendar") == 1
    assert made.attentions["mlr"].description == {"kind": "mlr", "ranks": [2, 2]}
    assert list(made.seeds_of("co2", 8, "patchtst", "calendar")) == [1]
    assert not made.seeds_of("co2", 4, "patchtst", "calendar")


def test_those_that_come_along_are_valid() -> None:
    for name in config_names("suites/*.yaml"):
        found = find_config(Path(name).stem, "suite", "suites")
        assert found.name == Path(name).name
        assert all(find_config(one, "suite", "suites") == found for one in (name, str(found)))
        read_suite(found)


PREDICTOR = SMOKE["predictors"]["patchtst"]

ASK = {"ask": "Does it help?", "models": ["patchtst, mlr"], "against": "patchtst, standard"}


def test_a_part_of_a_suite(tmp_path: Path) -> None:
    made = suite(tmp_path)
    part = made.narrowed(predictors=["patchtst+ridge"], attentions=["mlr"], horizons=[4], seeds=1)
    assert list(part.predictors) == ["patchtst", "ridge", "patchtst+ridge"]  # with the members of a mix
    assert (list(part.attentions), part.horizons, part.seeds) == (["mlr"], (4,), {8: 1, 4: 1})
    assert made.narrowed(seeds=9).seeds == made.seeds
    assert made.narrowed() == made
    for key, name, message in (
        ("data", "co3", r"has no co3 in data \(did you mean co2\?\); it has co2"),
        ("predictors", "patch", "it has ridge, patchtst, patchtst.ridge, patchtst x2"),
        ("attentions", "standart", r"did you mean standard"),
        ("horizons", 2, "has no 2 in horizons; it has 8, 4"),
    ):
        with pytest.raises(UserError, match=message):
            made.narrowed(**{key: [name]})


def test_questions(tmp_path: Path) -> None:
    second = {**ASK, "metric": "mae", "data": ["co2"], "horizons": [4], "posed": "after"}
    made = suite(tmp_path, questions=[ASK, second], margin=0.02)
    first, second = made.questions
    assert (first.models, first.against, first.metric, first.data) == (
        ("patchtst, mlr",),
        "patchtst, standard",
        "mse",
        None,
    )
    assert (first.posed_before, second.posed_before, second.data, made.margin) == (True, False, ("co2",), 0.02)
    assert (first.horizons, second.horizons) == (None, (4,))
    assert Suite.of("again", made.text).questions == made.questions


def test_data_sets_share_a_source_by_its_name(tmp_path: Path) -> None:
    given = {"co2": None, "b": " north ", "c": "north", "d": 7, "e": "7", "f": "co2"}
    data = [{"name": name, "class_path": "X", "source": source} for name, source in given.items()]
    made = suite(tmp_path, data=[*data, {"name": "g", "class_path": "X"}])
    sources = {"co2": "co2", "b": "north", "c": "north", "d": "7", "e": "7", "f": "co2", "g": "g"}
    assert {name: one.source for name, one in made.data.items()} == sources


def models(**predictors: Any) -> dict[str, Any]:
    return {"predictors": predictors}


def mix(*of: str, **more: Any) -> dict[str, Any]:
    return {"mix": {"of": [*of], **more}}


SEEDS = {"backbone": {"kind": "ensemble", "members": ["ridge"], "seeds": 4}, "seeds": 2}
SOURCE = {"class_path": "X", "source": "b"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"horizon": [8]}, r"a suite has the key 'horizon', which is not among its keys \(did you mean horizons\?\)"),
    ({"data": []}, "a suite needs the key data"),
    ({"data": ["ETTh9"]}, "unknown data set 'ETTh9' .did you mean ETTh2..; valid: ETTh1"),
    ({"data": [{"class_path": "CO2DataModule"}]}, "a data set must be a public name, or a mapping"),
    ({"data": ["ETTh1", {"name": "ETTh1"}]}, "two data sets have the same name"),
    (
        {"data": [{"name": "a", **SOURCE}, {"name": "b", **SOURCE, "source": "c"}]},
        "source of a is the data set b, whose own source is c",
    ),
    *(
        ({"data": [{"name": "a", **SOURCE, "source": wrong}]}, "source of a must be a name or a number")
        for wrong in ("", " ", [], ["b"], {"b": 1}, True, float("nan"))
    ),
    ({"horizons": [8, 8]}, "horizons names a horizon twice"),
    ({"horizons": [0]}, "each of horizons must be at least 1, not 0"),
    ({"seeds": {8: 2}}, "seeds gives no number for horizon 4"),
    ({"seeds": 0}, "seeds must be at least 1"),
    (models(both=SEEDS), "both is a mean of seeds already: give seeds in its mix only"),
    ({"order": ["seed"]}, "order must name each of seed, horizon, dataset, predictor, attention once"),
    ({"values": {"data.prediction_length": 8}}, "values cannot set data.init_args.prediction_length"),
    ({"values": {"data": {"init_args": {"batch_size": 24}}}}, "values cannot set all of data; name an option"),
    ({"values": {"model": {"learning_rate": 0.01}}}, "values cannot set all of model; name an option"),
    ({"values": {"model.backbone.kind": "nlinear"}}, "values cannot set model.backbone.kind"),
    (models(a={"backbone": "ridge", **mix("b")}), "needs either a backbone"),
    (models(a=mix("b")), "the mix a is of 'b', which is not among predictors"),
    (models(a=mix("a")), "the mix a must list its predictors"),
    (models(r="ridge", a=mix("r", weights=[0.5, 0.5])), "weights of the mix a must be 1 numbers of at least 0"),
    (models(r="ridge", a=mix("r", weights="test")), "weights of the mix a must be 1 numbers of at least 0"),
    (models(r="ridge", a={**mix("r"), "values": {"model.loss": "mae"}}), "a is a mix: give values and by_data to its"),
    (models(r="ridge", a=mix("r"), b=mix("a")), "the mix b is of 'a', which is not among predictors, mixes aside"),
    (models(p={**PREDICTOR, "attentions": ["mrl"]}), r"p is restricted to 'mrl', .* \(did you mean mlr\?\)"),
    (models(p={"backbone": "ridge", "by_data": {"x": {}}}), "by_data of p names 'x'"),
    ({"attentions": {"a": 3}}, "the attention a must be a kind or a description, not 3"),
    ({"attentions": {"a, b": "mlr"}}, "the name 'a, b' has a comma"),
    ({"questions": [{"ask": "Why?"}]}, "a question needs models"),
    ({"questions": [{**ASK, "against": "ridg"}]}, r"names 'ridg', which is not among the models .*did you mean ridge"),
    ({"questions": [{**ASK, "horizons": [6]}]}, "names 6, which is not among horizons; valid: 8, 4"),
    ({"questions": [{**ASK, "metric": "rmse"}]}, "metric of a question must be mse or mae, not rmse"),
    ({"questions": [{**ASK, "posed": "now"}]}, "posed of a question must be before or after, not now"),
    ({"questions": [{**ASK, "models": ["ridge", "ridge"]}]}, "each model once, not ridge, ridge against patchtst,"),
    ({"questions": [{**ASK, "models": ["ridge"], "against": "ridge"}]}, "each model once, not ridge against ridge"),
    ({"questions": 5}, "questions must be a list, not 5"),
    ({"caveats": "text"}, "caveats must be a list, not text"),
    ({"questions": ["why"]}, "a question must be a mapping with the keys"),
    ({"seeds": "two"}, "seeds must be"),
    (models(p={**PREDICTOR, "horizons": [99]}), "p is restricted to 99, which is not among horizons"),
    ({"margin": 5}, "margin must lie between 0 and 1, not 5"),
]


def test_what_is_refused(tmp_path: Path) -> None:
    for changed, message in REFUSED:
        with pytest.raises(UserError, match=message) as refused:
            suite(tmp_path, **changed)
        assert str(refused.value).startswith(f"{tmp_path / 'toy.yaml'}: ")
    with pytest.raises(UserError, match=r"no suite nothing: neither a file nor one of .*peers"):
        find_config("nothing", "suite", "suites")
    path = tmp_path / "none.yaml"
    for text, message in (("a: [", "not YAML"), ("- a", "a suite must be a mapping with the keys data, horizons")):
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            read_suite(path)


def plan(folder: Path, **changed: Any) -> list[Entry]:
    return Planner().plan(suite(folder, **changed))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    return plan(tmp_path_factory.mktemp("suite"))


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
    predictors["both"]["mix"] |= {"weights": "validation", "seeds": 2}
    by_validation = find(plan(tmp_path, predictors=predictors), predictor="both", horizon=8)
    assert by_validation.experiment is not None
    assert by_validation.members[:1] == both.members[:1]
    assert len(by_validation.members) == 4, "two trainings of each"
    described = by_validation.experiment.model["backbone"]
    assert (described["kind"], described["members"][1:]) == ("auto", [second, ridge])
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


def test_limits(tmp_path: Path) -> None:
    attentions = {"standard": "standard", "mlr": {"attention": {"kind": "mlr", "ranks": [2, 2]}, "seeds": {8: 1}}}
    data = [{"name": "co2", "class_path": "CO2DataModule", "horizons": [8, 4], "predictors": ["patchtst", "ridge"]}]
    made = plan(tmp_path, attentions=attentions, data=data)
    assert {entry.predictor for entry in made} == {"patchtst", "ridge"}
    assert [entry.seed for entry in made if entry.attention == "mlr"] == [1]  # none at the other horizon
    assert len([entry for entry in made if entry.attention == "standard"]) == 3
    assert {entry.seed for entry in plan(tmp_path, first_seed=11, seeds=2)} == {None, 11, 12}


def test_data_and_models_are_parsed_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
