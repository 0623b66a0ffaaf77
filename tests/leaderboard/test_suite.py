"""Suites as files: what they mean, and what is refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.leaderboard.cases import SMOKE
from tsattn.cli.benchmark import find_suite
from tsattn.errors import UserError
from tsattn.experiments.configs import config_names
from tsattn.leaderboard.suite import ORDER, Suite
from tsattn.leaderboard.suite_file import read_suite


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
    assert made.selection is None


@pytest.mark.parametrize("name", config_names("suites/*.yaml"))
def test_those_that_come_along_are_valid(name: str) -> None:
    found = find_suite(Path(name).stem)
    assert found.name == Path(name).name
    assert find_suite(name) == find_suite(str(found)) == found
    read_suite(found)


def test_a_suite_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"no suite nothing: neither a file nor one of .*ett"):
        find_suite("nothing")


PREDICTOR = SMOKE["predictors"]["patchtst"]

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "key": ({"horizon": [8]}, r"a suite has no key 'horizon' \(did you mean horizons\?\); valid: data, horizons"),
    "data": ({"data": []}, "a suite must name data"),
    "public": ({"data": ["ETTh9"]}, "unknown data set 'ETTh9'; valid: ETTh1"),
    "nameless": ({"data": [{"class_path": "CO2DataModule"}]}, "a data set is a public one's name, or a mapping"),
    "twice": ({"data": ["ETTh1", {"name": "ETTh1"}]}, "two data sets are called ETTh1; give each a name of its own"),
    "fresh": (
        {"selection": {"search": "leaderboard", "trials": 2, "folds": 0, "horizon": 8}, "fresh_seeds": [1]},
        "fresh_seeds has 1, the first seed, with which values are chosen; fresh are those after it",
    ),
    "horizons": ({"horizons": [8, 8]}, "one of horizons is there twice"),
    "steps": ({"horizons": [0]}, "each of horizons must be at least 1 and a whole number, not 0"),
    "seeds": ({"seeds": {8: 2}}, "seeds says no number for horizon 4"),
    "no seeds": ({"seeds": 0}, "seeds must be at least 1"),
    "seeds twice": (
        {"predictors": {"both": {"backbone": {"kind": "ensemble", "members": ["ridge"], "seeds": 4}, "seeds": 2}}},
        "both is the mean of several seeds, and with another first seed it would be of some of the same trainings",
    ),
    "order": ({"order": ["seed"]}, "order must name each of seed, horizon, dataset, predictor, attention once"),
    "values": ({"values": {"data.prediction_length": 8}}, "values cannot set data.init_args.prediction_length"),
    "both": ({"predictors": {"a": {"backbone": "ridge", "mix": {"of": ["b"]}}}}, "must have a backbone, its descr"),
    "mix": ({"predictors": {"a": {"mix": {"of": ["b"]}}}}, "the mix a is of b, which is no other predictor"),
    "itself": ({"predictors": {"a": {"mix": {"of": ["a"]}}}}, "the mix a is of a, which is no other predictor"),
    "weights": (
        {"predictors": {"r": "ridge", "a": {"mix": {"of": ["r"], "weights": [0.5, 0.5]}}}},
        "weights of the mix a must be 1 numbers of at least 0",
    ),
    "mix values": (
        {"predictors": {"r": "ridge", "a": {"mix": {"of": ["r"]}, "values": {"model.loss": "mae"}}}},
        "a is a mix: values and their selection belong to the predictors",
    ),
    "mixed mixes": (
        {"predictors": {"r": "ridge", "a": {"mix": {"of": ["r"]}}, "b": {"mix": {"of": ["a"]}}}},
        "the mix b is of a, a mix itself",
    ),
    "longer": (
        {"predictors": {"p": {**PREDICTOR, "goes_on_with": "q"}}},
        "p goes on with q, which must be a predictor of the suite that begins anew",
    ),
    "itself longer": ({"predictors": {"p": {**PREDICTOR, "goes_on_with": "p"}}}, "p goes on with p, which must be a"),
    "limits": (
        {"predictors": {"p": {**PREDICTOR, "attentions": ["mrl"]}}},
        r"p is restricted to mrl, which is not under attentions \(did you mean mlr\?\)",
    ),
    "by data": ({"predictors": {"p": {"backbone": "ridge", "by_data": {"x": {}}}}}, "by_data of p names x"),
    "attention": ({"attentions": {"a": 3}}, "the attention a must be a kind or a description, not 3"),
    "selection": ({"selection": {"trials": 3}}, "selection must name a search space under search"),
    "folds": ({"selection": {"search": "mlr", "folds": 1}}, "folds of the selection must be 0"),
    "which": ({"selection": {"search": "mlr", "attentions": "all"}}, "must be each or first, not all"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    changed, message = REFUSED[name]
    with pytest.raises(UserError, match=message) as refused:
        suite(tmp_path, **changed)
    assert str(refused.value).startswith(f"{tmp_path / 'toy.yaml'}: ")


def test_what_is_no_suite(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    for text, message in (("a: [", "is not YAML"), ("- a", "a suite is a mapping with the keys data, horizons")):
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            read_suite(path)


def test_a_part_of_a_suite(tmp_path: Path) -> None:
    made = suite(tmp_path)
    part = made.narrowed(data=["ETTh1"], predictors=["patchtst+ridge"], attentions=["btt", "mlr"], seeds=3)
    assert list(part.predictors) == ["patchtst", "ridge", "patchtst+ridge"]  # what a mix is of comes along
    assert part.data["ETTh1"].source["class_path"] == "PublicDataModule"
    assert [one.description for one in part.attentions.values()] == ["btt", {"kind": "mlr", "ranks": [2, 2]}]
    assert part.seeds == 3
    assert made.narrowed() == made
    for words, message in (
        ({"data": ["ETTh3"]}, r"no data set 'ETTh3' \(did you mean ETTh\d\?\); valid: co2, ETTh1"),
        ({"predictors": ["patch"]}, "no predictor 'patch'.*; valid: ridge, patchtst, patchtst.ridge, patchtst x2, "),
        ({"attentions": ["standart"]}, r"no attention 'standart' \(did you mean standard\?\); valid: standard, mlr"),
        ({"horizons": [2]}, "the suite toy says no number of seeds at horizon 2: --seeds"),
    ):
        with pytest.raises(UserError, match=message):
            made.narrowed(**words)  # type: ignore[arg-type]
    assert made.narrowed(horizons=[2], seeds=1).horizons == (2,)
