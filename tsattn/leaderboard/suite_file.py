"""Reading a suite: YAML that names data, predictors and attentions.

::

    data:
      - ETTh1                           # a public data set
      - {name: weather, seeds: 2, values: {data.batch_size: 24}}
      - {name: shops, class_path: CSVDataModule, init_args: {path: shops.csv, target: [sales]}}
    horizons: [96, 336, 192, 720]       # the most worth first
    seeds: {96: 5, 336: 5, 192: 3, 720: 3}   # or a number; anywhere below: at most so many
    first_seed: 1                       # the default
    fresh_seeds: [4, 5]                 # have no part in what reports find, and confirm it; none by default
    caveats: ["What every report should say."]
    order: [seed, horizon, dataset, predictor, attention]   # the default: what changes least first
    values: {data.context_length: 512}  # of all experiments, by their dotted paths
    attentions:
      standard: standard                # a kind, or a description
      mlr: {kind: mlr, ranks: [2, 2]}
      window: {attention: {kind: swa, window_size: 4}, seeds: 2, horizons: [96], predictors: [patchtst]}
      uniform: {attention: uniform, chosen_as: standard}   # has no search of its own
      wide: {attention: {kind: mlr, ranks: [2, 2]}, by_data: {weather: {kind: mlr, ranks: [4, 4]}}}
    predictors:
      ridge: ridge                      # a kind, or an import path
      patchtst:
        backbone: {kind: patchtst, d_model: 16}   # its description
        values: {model.learning_rate: 0.001}
        by_data: {weather: {trainer.max_steps: 800}}   # in place of these, on one data set
        attentions: [standard, mlr]     # all by default; none leaves the description as it is
        goes_on_with: patchtst_short    # the same with fewer steps, whose training its own goes on with
        data: [ETTh1]                   # all by default
      patchtst+ridge:
        mix: {of: [patchtst, ridge], weights: [0.5, 0.5]}   # seeds: 5 is the mean of five trainings
    selection: {search: leaderboard, trials: 12, folds: 3, horizon: 96, attentions: each}   # or none; values: of trials
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tsattn.data.public.cards import card_of
from tsattn.errors import UserError, is_whole_number, one_of, shown, whole_number
from tsattn.experiments.dotted import did_you_mean, full_path
from tsattn.leaderboard import suite_keys
from tsattn.leaderboard.suite import ORDER, Arm, AttentionArm, Limits, Mix, Selection, Suite, SuiteData
from tsattn.yaml_text import parsed

__all__ = ["read_suite"]

_SET_BY_SUITE = ("data.init_args.prediction_length", "seed_everything", "data.class_path", "model.backbone")


def read_suite(path: Path) -> Suite:
    """The suite in a YAML file.

    Raises:
        UserError: if it is not one; the message names the file, the key and what is valid.
    """
    try:
        content = parsed(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    try:
        return _suite(path.stem, content)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _suite(name: str, content: Any) -> Suite:
    if not isinstance(content, Mapping):
        raise UserError(f"a suite is a mapping with the keys {one_of(suite_keys.SUITE)}")
    _check_keys(content, suite_keys.SUITE, "a suite")
    for key in ("data", "horizons", "predictors"):
        if not content.get(key):
            raise UserError(f"a suite must name {key}")
    horizons = _horizons(content["horizons"], "horizons")
    data = _data_sets(content["data"])
    attentions = _mapping(content.get("attentions") or {}, "attentions")
    predictors = _mapping(content["predictors"], "predictors")
    names = {"data": list(data), "predictors": list(predictors), "attentions": list(attentions)}
    seeds = _seeds(content.get("seeds", 1), "seeds")
    if isinstance(seeds, Mapping) and (lacking := [one for one in horizons if one not in seeds]):
        raise UserError(f"seeds says no number for horizon {lacking[0]}")
    suite = Suite(
        name=name,
        data=data,
        horizons=horizons,
        seeds=seeds,
        predictors={str(key): _arm(str(key), value) for key, value in predictors.items()},
        attentions={str(key): _attention(str(key), value) for key, value in attentions.items()},
        values=_values(content.get("values"), "values"),
        first_seed=whole_number("first_seed", content.get("first_seed", 1), least=0),
        order=_order(content.get("order", ORDER)),
        selection=_selection(content.get("selection"), horizons),
        fresh_seeds=_fresh_seeds(content.get("fresh_seeds")),
        caveats=_caveats(content.get("caveats")),
    )
    _check_fresh(suite)
    for name, limits in [
        *((part.name, part.limits) for part in suite.data.values()),
        *((part.name, part.limits) for part in suite.predictors.values()),
        *((part.name, part.limits) for part in suite.attentions.values()),
    ]:
        _check_limits(name, limits, names, horizons)
    for arm in suite.predictors.values():
        _check_arm(arm, suite)
    for attention in suite.attentions.values():
        if attention.chosen_as and attention.chosen_as not in names["attentions"]:
            hint = did_you_mean(attention.chosen_as, names["attentions"])
            raise UserError(f"chosen_as of {attention.name} is {attention.chosen_as}, no attention of the suite{hint}")
    for name, by_data in [
        *((part.name, [*part.by_data]) for part in suite.predictors.values()),
        *((part.name, [*part.by_data]) for part in suite.attentions.values()),
    ]:
        unknown = [one for one in by_data if one not in data]
        if unknown:
            raise UserError(f"by_data of {name} names {unknown[0]}, which is no data set of the suite")
    return suite


def _data(given: Any) -> tuple[str, SuiteData]:
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise UserError(f"a data set is a public one's name, or a mapping with a name, not {shown(given)}")
    name = given["name"]
    _check_keys(given, suite_keys.DATA_SET, f"the data set {name}")
    if "class_path" in given:
        source = {"class_path": given["class_path"], "init_args": dict(_mapping(given.get("init_args") or {}, name))}
    else:
        card_of(name, files_only=True)
        arguments = _mapping(given.get("init_args") or {}, name)
        source = {"class_path": "PublicDataModule", "init_args": {"name": name, **arguments}}
    return name, SuiteData(name, source, _values(given.get("values"), f"values of {name}"), _limits(given, name))


def _arm(name: str, given: Any) -> Arm:
    if isinstance(given, str):
        given = {"backbone": given}
    given = _mapping(given, f"the predictor {name}")
    _check_keys(given, suite_keys.PREDICTOR, f"the predictor {name}")
    if ("backbone" in given) == ("mix" in given):
        raise UserError(f"the predictor {name} must have a backbone, its description, or a mix of others")
    limits = given
    attentions = given.get("attentions")
    if attentions == "none":
        limits = {key: value for key, value in given.items() if key != "attentions"}
    if given.get("selection", "all") not in ("none", "all"):
        raise UserError(f"selection of {name} must be none, to leave its values as they are, or all")
    mix = _mix(name, given["mix"]) if "mix" in given else None
    if mix is not None and set(given) & {"values", "by_data", "selection", "goes_on_with"}:
        raise UserError(f"{name} is a mix: values and their selection belong to the predictors that it is made of")
    if (mix.seeds if mix is not None else _seeds_of(given["backbone"])) > 1:
        if given.get("seeds", 1) != 1:
            raise UserError(
                f"{name} is the mean of several seeds, and with another first seed it would be of some of the same "
                "trainings, so that its luck seemed less than it is: leave out its seeds beside them"
            )
        limits = {**limits, "seeds": 1}
    on = _mapping(given.get("by_data") or {}, f"by_data of {name}")
    return Arm(
        name=name,
        backbone=given.get("backbone"),
        values=_values(given.get("values"), f"values of {name}"),
        by_data={str(data): _values(values, f"values of {name} on {data}") for data, values in on.items()},
        mix=mix,
        goes_on_with=str(given.get("goes_on_with", "")),
        has_attentions=attentions != "none",
        is_selected=given.get("selection", "all") == "all",
        limits=_limits(limits, name),
    )


def _seeds_of(backbone: Any) -> int:
    """Of how many trainings of a member a description is the mean; 1 of all but ensembles that say so."""
    seeds = backbone.get("seeds") if isinstance(backbone, Mapping) and backbone.get("kind") == "ensemble" else None
    return seeds if isinstance(seeds, int) else 1


def _mix(name: str, given: Any) -> Mix:
    given = _mapping(given, f"mix of {name}")
    _check_keys(given, suite_keys.MIX, f"the mix {name}")
    of, weights = given.get("of"), given.get("weights")
    if not isinstance(of, list) or not of or not all(isinstance(one, str) for one in of):
        raise UserError(f"the mix {name} must say of which predictors it is, a list of names")
    if weights is not None:
        numbers = isinstance(weights, list) and all(
            isinstance(one, int | float) and not isinstance(one, bool) and one >= 0 for one in weights
        )
        if not numbers or len(weights) != len(of) or not sum(weights):
            raise UserError(f"weights of the mix {name} must be {len(of)} numbers of at least 0, not {shown(weights)}")
    seeds = whole_number(f"seeds of the mix {name}", given.get("seeds", 1))
    return Mix(tuple(of), None if weights is None else tuple(map(float, weights)), seeds)


def _attention(name: str, given: Any) -> AttentionArm:
    if isinstance(given, Mapping) and "attention" in given:
        _check_keys(given, suite_keys.ATTENTION, f"the attention {name}")
        by_data = _mapping(given.get("by_data") or {}, f"by_data of {name}")
        return AttentionArm(
            name, given["attention"], dict(by_data), str(given.get("chosen_as") or ""), _limits(given, name)
        )
    if not isinstance(given, str | Mapping):
        raise UserError(f"the attention {name} must be a kind or a description, not {shown(given)}")
    return AttentionArm(name, given)


def _selection(given: Any, horizons: Sequence[int]) -> Selection | None:
    if given in (None, "none"):
        return None
    given = _mapping(given, "selection")
    _check_keys(given, suite_keys.SELECTION, "selection")
    if not isinstance(given.get("search"), str):
        raise UserError("selection must name a search space under search")
    attentions = given.get("attentions", "each")
    if attentions not in ("each", "first"):
        raise UserError(f"attentions of the selection must be each or first, not {shown(attentions)}")
    folds = whole_number("folds of the selection", given.get("folds", 3), least=0)
    if folds == 1:
        raise UserError("folds of the selection must be 0, for the validation part, or at least 2")
    return Selection(
        search=given["search"],
        trials=whole_number("trials of the selection", given.get("trials", 12)),
        folds=folds,
        horizon=whole_number("horizon of the selection", given.get("horizon", horizons[0])),
        attentions=attentions,
        values=_values(given.get("values"), "values of the selection"),
    )


def _data_sets(given: Any) -> dict[str, SuiteData]:
    listed = [_data(one) for one in _listed(given, "data")]
    names = [name for name, _ in listed]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"two data sets are called {twice[0]}; give each a name of its own")
    return dict(listed)


def _check_fresh(suite: Suite) -> None:
    if suite.selection is not None and suite.first_seed in suite.fresh_seeds:
        raise UserError(
            f"fresh_seeds has {suite.first_seed}, the first seed, with which values are chosen; fresh are those after "
            "it"
        )


def _fresh_seeds(given: Any) -> tuple[int, ...]:
    listed = [] if given in (None, []) else _listed(given, "fresh_seeds")
    return tuple(sorted({whole_number("each of fresh_seeds", one, least=0) for one in listed}))


def _caveats(given: Any) -> tuple[str, ...]:
    listed = [] if given in (None, []) else _listed(given, "caveats")
    if not all(isinstance(one, str) and one.strip() for one in listed):
        raise UserError(f"caveats must be a list of sentences, not {shown(given)}")
    return tuple(" ".join(one.split()) for one in listed)


def _order(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or sorted(map(str, given)) != sorted(ORDER):
        raise UserError(f"order must name each of {one_of(ORDER)} once, not {shown(given)}")
    return tuple(given)


def _check_arm(arm: Arm, suite: Suite) -> None:
    before = suite.predictors.get(arm.goes_on_with)
    if arm.goes_on_with and (before is None or before.mix is not None or before.goes_on_with):
        hint = did_you_mean(arm.goes_on_with, suite.predictors)
        raise UserError(
            f"{arm.name} goes on with {arm.goes_on_with}, which must be a predictor of the suite that begins anew{hint}"
        )
    for name in arm.mix.of if arm.mix is not None else ():
        if name == arm.name or name not in suite.predictors:
            hint = did_you_mean(name, suite.predictors)
            raise UserError(f"the mix {arm.name} is of {name}, which is no other predictor of the suite{hint}")
        if suite.predictors[name].mix is not None:
            raise UserError(f"the mix {arm.name} is of {name}, a mix itself: name what that is made of")


def _check_limits(name: str, limits: Limits, names: Mapping[str, list[str]], horizons: Sequence[int]) -> None:
    for key in ("data", "predictors", "attentions"):
        for one in getattr(limits, key) or ():
            if one not in names[key]:
                hint = did_you_mean(one, names[key])
                raise UserError(f"{name} is restricted to {one}, which is not under {key}{hint}")
    for horizon in limits.horizons or ():
        if horizon not in horizons:
            raise UserError(f"{name} is restricted to horizon {horizon}, which is not under horizons")


def _limits(given: Mapping[str, Any], name: str) -> Limits:
    found: dict[str, Any] = {}
    if given.get("horizons") is not None:
        found["horizons"] = _horizons(given["horizons"], f"horizons of {name}")
    if given.get("seeds") is not None:
        found["seeds"] = _seeds(given["seeds"], f"seeds of {name}")
    for key in ("data", "predictors", "attentions"):
        if given.get(key) is not None:
            found[key] = tuple(map(str, _listed(given[key], f"{key} of {name}")))
    return Limits(**found)


def _horizons(given: Any, what: str) -> tuple[int, ...]:
    found = [whole_number(f"each of {what}", one) for one in _listed(given, what)]
    if len(set(found)) < len(found):
        raise UserError(f"one of {what} is there twice")
    return tuple(found)


def _seeds(given: Any, what: str) -> int | dict[int, int]:
    if isinstance(given, Mapping):
        if not all(is_whole_number(horizon) for horizon in given):
            raise UserError(f"{what} must be a number, or one for each horizon, not {shown(given)}")
        return {int(horizon): whole_number(what, number) for horizon, number in given.items()}
    return whole_number(what, given)


def _values(given: Any, what: str) -> dict[str, Any]:
    values = {full_path(str(path)): value for path, value in _mapping(given or {}, what).items()}
    for path in _SET_BY_SUITE:
        if path in values:
            raise UserError(f"{what} cannot set {path}, which the suite says by its own keys")
    return values


def _mapping(given: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise UserError(f"{what} must be a mapping, not {shown(given)}")
    return given


def _listed(given: Any, what: str) -> list[Any]:
    if not isinstance(given, list) or not given:
        raise UserError(f"{what} must be a list, not {shown(given)}")
    return given


def _check_keys(given: Mapping[Any, Any], valid: Mapping[str, str], what: str) -> None:
    for key in given:
        if key not in valid:
            raise UserError(f"{what} has no key {key!r}{did_you_mean(str(key), valid)}; valid: {one_of(valid)}")
