"""Suites as files: what they mean, and what is refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.leaderboard.cases import SMOKE
from tsattn.errors import UserError
from tsattn.experiments.configs import config_names, find_config
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
    assert made.attentions["calendar"].limits.most_seeds(8) == 1
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

ASK = {"ask": "Does it help?", "arms": ["patchtst, mlr"], "against": "patchtst, standard"}


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
    assert (first.arms, first.against, first.metric, first.data) == (
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
    groups = {"co2": "co2", "b": "north", "c": "north", "d": "7", "e": "7", "f": "co2", "g": "g"}
    assert {name: one.group for name, one in made.data.items()} == groups


def arms(**predictors: Any) -> dict[str, Any]:
    return {"predictors": predictors}


def mix(*of: str, **more: Any) -> dict[str, Any]:
    return {"mix": {"of": [*of], **more}}


SEEDS = {"backbone": {"kind": "ensemble", "members": ["ridge"], "seeds": 4}, "seeds": 2}
SOURCE = {"class_path": "X", "source": "b"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"horizon": [8]}, r"a suite has the key 'horizon', which is not among its keys \(did you mean horizons\?\)"),
    ({"data": []}, "a suite must name data"),
    ({"data": ["ETTh9"]}, "unknown data set 'ETTh9' .did you mean ETTh2..; valid: ETTh1"),
    ({"data": [{"class_path": "CO2DataModule"}]}, "a data set is a public one's name, or a mapping"),
    ({"data": ["ETTh1", {"name": "ETTh1"}]}, "two data sets have one name"),
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
    (arms(both=SEEDS), "both is a mean of seeds, which other first seeds would share: leave out its seeds"),
    ({"order": ["seed"]}, "order must name each of seed, horizon, dataset, predictor, attention once"),
    ({"values": {"data.prediction_length": 8}}, "values cannot set data.init_args.prediction_length"),
    (arms(a={"backbone": "ridge", **mix("b")}), "needs either a backbone"),
    (arms(a=mix("b")), "the mix a is of 'b', which is not among predictors"),
    (arms(a=mix("a")), "the mix a must list the other predictors"),
    (arms(r="ridge", a=mix("r", weights=[0.5, 0.5])), "weights of the mix a must be 1 numbers of at least 0"),
    (arms(r="ridge", a={**mix("r"), "values": {"model.loss": "mae"}}), "a is a mix: give values to the predictors"),
    (arms(r="ridge", a=mix("r"), b=mix("a")), "the mix b is of 'a', which is not among predictors, mixes aside"),
    (arms(p={**PREDICTOR, "attentions": ["mrl"]}), r"p is restricted to 'mrl', .* \(did you mean mlr\?\)"),
    (arms(p={"backbone": "ridge", "by_data": {"x": {}}}), "by_data of p names 'x'"),
    ({"attentions": {"a": 3}}, "the attention a must be a kind or a description, not 3"),
    ({"attentions": {"a, b": "mlr"}}, "the name 'a, b' has a comma"),
    ({"chosen": {"co2": {"patchtst, mrl": {}}}}, r"chosen names 'patchtst, mrl'.* \(did you mean patchtst, mlr\?\)"),
    ({"questions": [{"ask": "Why?"}]}, "a question needs arms"),
    ({"questions": [{**ASK, "against": "ridg"}]}, r"names 'ridg', which is not among the arms .*did you mean ridge"),
    ({"questions": [{**ASK, "horizons": [6]}]}, "names horizon 6, not among horizons"),
    ({"questions": [{**ASK, "metric": "rmse"}]}, "metric of a question must be mse or mae, not rmse"),
    ({"questions": [{**ASK, "posed": "now"}]}, "posed of a question must be before or after, not now"),
    ({"questions": ["why"]}, "a question must be a mapping with the keys"),
    ({"seeds": "two"}, "seeds must be"),
    (arms(p={**PREDICTOR, "horizons": [99]}), "p is restricted to horizon 99, which is not among horizons"),
    ({"margin": 5}, "margin must lie between 0 and 1, not 5"),
]


def test_what_is_refused(tmp_path: Path) -> None:
    for changed, message in REFUSED:
        with pytest.raises(UserError, match=message) as refused:
            suite(tmp_path, **changed)
        assert str(refused.value).startswith(f"{tmp_path / 'toy.yaml'}: ")
    with pytest.raises(UserError, match=r"no suite nothing: neither a file nor one of .*ett"):
        find_config("nothing", "suite", "suites")
    path = tmp_path / "none.yaml"
    for text, message in (("a: [", "not YAML"), ("- a", "a suite must be a mapping with the keys data, horizons")):
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            read_suite(path)
