"""From a suite to its runs: an experiment and its key for each, with every data set read once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tsattn.attention import complete_attention
from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.experiments.configs import BACKBONE, get_at, paths, with_values
from tsattn.experiments.experiment import fingerprint, user_errors
from tsattn.leaderboard.records import LABELS
from tsattn.leaderboard.suite import Mix, Suite, SuiteData, SuitePredictor, label
from tsattn.predictors import build_predictor, named_predictor, predictor_arguments
from tsattn.predictors.ensemble import TRAINING_OPTIONS, Ensemble, member_name
from tsattn.tuning import HeldData

_ATTENTION = f"{BACKBONE}.attention"
_HORIZON = "data.init_args.prediction_length"
_OPTIONS = {"context_length": "data.init_args.context_length", "max_steps": "trainer.max_steps"}  # others: of the model
_BLANK = {"data": {"class_path": "PublicDataModule", "init_args": {"name": "ETTh1"}}, "model": {}, "trainer": {}}


@dataclass(frozen=True)
class Entry:
    """A run of a suite with its labels; without an experiment, `reason` says why it does not apply."""

    dataset: str
    horizon: int
    predictor: str
    attention: str
    seed: int | None
    experiment: Experiment | None = None
    key: str = ""
    reason: str = ""
    members: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """The predictor with its attention, as tables name it."""
        return label(self.predictor, self.attention)

    @property
    def labels(self) -> dict[str, Any]:
        """The columns of a record that name the run."""
        return {name: getattr(self, name) for name in LABELS}

    def __str__(self) -> str:
        """``ETTh1 96: patchtst, mlr, seed 1``."""
        return f"{self.dataset} {self.horizon}: {self.model}{'' if self.seed is None else f', seed {self.seed}'}"


class Planner:
    """Plans suites; a later plan reuses the data and experiments that an earlier plan has read."""

    def __init__(self) -> None:
        self._held = HeldData()
        self._prints: dict[int, tuple[Any, str]] = {}  # holds the panel, so that no other object gets its id
        self._made: dict[str, Any] = {}

    def plan(self, suite: Suite) -> list[Entry]:
        """The runs of a suite, in its order; a combination that does not apply is one entry for all seeds."""
        self._check(suite)
        entries = [
            entry
            for data in suite.data.values()
            for horizon in suite.horizons
            for predictor in suite.predictors.values()
            for attention in self._attentions(suite, predictor)
            for entry in self._entries(suite, data, horizon, predictor, attention)
        ]
        orders: dict[str, Sequence[Any]] = {"dataset": [*suite.data], "horizon": suite.horizons}
        orders |= {"predictor": [*suite.predictors], "attention": ["", *suite.attentions]}

        def rank(entry: Entry) -> list[int]:
            ranks = {name: order.index(getattr(entry, name)) for name, order in orders.items()}
            ranks["seed"] = suite.first_seed if entry.seed is None else entry.seed
            return [ranks[name] for name in suite.order]

        return sorted(entries, key=rank)

    def entry(self, name: str, experiment: Experiment, number: int = 0) -> Entry:
        """The entry of a single experiment, its seed raised by `number`, or why it does not apply."""
        with user_errors():
            data = self._held.of(experiment)
        _, task, _ = data.contents
        blank = Entry(task.data, task.prediction_length, name, "", None)
        own = replace(experiment, seed=(1 if experiment.seed is None else experiment.seed) + number)
        try:
            seed = own.seed if _is_trained(own) else None
            return replace(blank, seed=seed, experiment=own, key=self.key(own))
        except UserError as error:
            return replace(blank, reason=str(error))

    def key(self, experiment: Experiment) -> str:
        """The key of an experiment; a `UserError` for what cannot be built for its data."""
        return str(self._once(f"key {_text(experiment.to_dict())}", lambda: self._new_key(experiment)))

    def _check(self, suite: Suite) -> None:
        """Refuse attentions and predictors that are invalid alone; a valid combination may still not apply."""
        for one in suite.attentions.values():
            for given in (one.description, *one.by_data.values()):
                for layer in given if isinstance(given, list) else [given]:
                    try:
                        complete_attention(layer)
                    except UserError as error:
                        raise UserError(f"the attention {one.name} of the suite {suite.name}: {error}") from error
        data, horizon = next(iter(suite.data.values())), suite.horizons[0]
        for predictor in suite.predictors.values():
            if predictor.mix is None:
                try:
                    self._experiment(suite, data, horizon, predictor, "")
                except UserError as error:
                    raise UserError(f"the predictor {predictor.name} of the suite {suite.name}: {error}") from error

    def _attentions(self, suite: Suite, predictor: SuitePredictor) -> list[str]:
        """The attentions that a predictor is combined with; an empty name if it has no slot."""
        parts = [predictor] if predictor.mix is None else [suite.predictors[name] for name in predictor.mix.of]
        has_slot = predictor.has_attentions and any(map(_has_slot, parts))
        return list(suite.attentions) if has_slot and suite.attentions else [""]

    def _entries(
        self, suite: Suite, data: SuiteData, horizon: int, predictor: SuitePredictor, attention: str
    ) -> Iterator[Entry]:
        """All seeds of a predictor with its attention, on a data set at a horizon."""
        seeds = suite.seeds_of(data.name, horizon, predictor.name, attention)
        if not seeds:
            return
        blank = Entry(data.name, horizon, predictor.name, attention, None)
        try:
            experiment = self._whole(suite, data, horizon, predictor, attention)
            self.key(experiment)
            members = member_experiments(experiment, self._parsed).values()
            is_drawn = _is_trained(experiment)
        except UserError as error:
            yield replace(blank, reason=str(error))
            return
        for seed in seeds if is_drawn else seeds[:1]:
            own = replace(experiment, seed=seed)
            shift = seed - suite.first_seed
            alone = [replace(one, seed=(one.seed or 0) + shift) for one in members]
            yield replace(
                blank,
                seed=seed if is_drawn else None,
                experiment=own,
                key=self.key(own),
                members=tuple(map(self.key, alone)),
            )

    def _whole(
        self, suite: Suite, data: SuiteData, horizon: int, predictor: SuitePredictor, attention: str
    ) -> Experiment:
        """The experiment of a mix or of a single predictor, with the first seed."""
        if predictor.mix is None:
            return self._experiment(suite, data, horizon, predictor, attention)
        mix = predictor.mix
        parts = {name: suite.predictors[name] for name in mix.of}
        experiments = {
            name: self._experiment(suite, data, horizon, part, attention if _has_slot(part) else "")
            for name, part in parts.items()
        }
        text = json.dumps([predictor.name, repr(mix), *(_text(one.to_dict()) for one in experiments.values())])
        made: Experiment = self._once(text, lambda: mixed(predictor.name, mix, experiments, self._parsed))
        return made

    def _experiment(
        self, suite: Suite, data: SuiteData, horizon: int, predictor: SuitePredictor, attention: str
    ) -> Experiment:
        """The experiment of a single predictor, with the first seed."""
        content = {
            "seed_everything": suite.first_seed,
            "data": {**data.data_module, "init_args": {**data.data_module["init_args"], "prediction_length": horizon}},
            "model": {"backbone": predictor.backbone},
            "trainer": {},
        }
        values = {**suite.values, **data.values, **predictor.values, **predictor.by_data.get(data.name, {})}
        if attention:
            one = suite.attentions[attention]
            values = {_ATTENTION: one.by_data.get(data.name, one.description), **values}
        return self._parsed(with_values(content, values))

    def _parsed(self, content: Mapping[str, Any]) -> Experiment:
        """Parse the data and the rest once each for all their combinations: parsing takes most of the time."""
        horizon, seed = get_at(content, _HORIZON), content["seed_everything"]
        text = _text(with_values(content["data"], {"init_args.prediction_length": None}))
        read: Experiment = self._once(text, lambda: Experiment.of({**_BLANK, "data": content["data"]}))
        rest = {**content, "data": _BLANK["data"]}
        parsed: Experiment = self._once(_text({**rest, "seed_everything": 1}), lambda: Experiment.of(rest))
        data = {**read.data, "init_args": {**read.data["init_args"], "prediction_length": horizon}}
        return replace(parsed, data=data, seed=seed)

    def _once(self, text: str, make: Callable[[], Any]) -> Any:
        if text not in self._made:
            try:
                with user_errors():
                    self._made[text] = make()
            except UserError as error:
                self._made[text] = error
        if isinstance(self._made[text], UserError):
            raise self._made[text]
        return self._made[text]

    def _new_key(self, experiment: Experiment) -> str:
        data = self._held.of(experiment)
        every_seed = _text(replace(experiment, seed=None).to_dict())
        self._once(f"fits {every_seed}", lambda: _check_fits(experiment, data))
        if id(data.panel) not in self._prints:
            self._prints[id(data.panel)] = data.panel, fingerprint(data)
        return experiment.key_with(data, self._prints[id(data.panel)][1])


def _check_fits(experiment: Experiment, data: ForecastDataModule) -> None:
    """Refuse a predictor that cannot be built for its data, and data without a window for it."""
    predictor = build_predictor(experiment.model["backbone"])
    predictor.build(data.contents[1], experiment.output, empty=True)
    for part in ("train", "val", "test"):
        data.windows(part, **predictor.cut)


def mixed(
    name: str,
    mix: Mix,
    parts: Mapping[str, Experiment],
    parse: Callable[[Mapping[str, Any]], Experiment],
) -> Experiment:
    """Return the experiment of a mix; a `UserError` names an option that its trained members do not share."""
    trained = [part for part in mix.of if _is_trained(parts[part])]
    first = (trained or mix.of)[0]
    base = parts[first]
    description: dict[str, Any] = {"members": [_member(parts[part], base) for part in mix.of], "seeds": mix.seeds}
    if mix.weights == "validation":
        description["kind"] = "auto"
    else:
        description |= {"kind": "ensemble", "weights": None if mix.weights is None else list(mix.weights)}
    whole = parse(with_values(base.to_dict(), {BACKBONE: description}))
    alone = member_experiments(whole, parse)
    for number, part in enumerate(mix.of):
        if part in trained:
            found = next(differences([alone[member_name(number, 0)].to_dict(), parts[part].to_dict()]), None)
            if found is not None:
                what = f"they differ in {found[0]}, which members share"
                raise UserError(f"the mix {name} cannot be made of {first} and {part}: {what}")
    return whole


def _has_slot(predictor: SuitePredictor) -> bool:
    if predictor.mix is not None or not predictor.has_attentions:
        return False
    kind, _, _ = named_predictor(predictor.backbone)
    return "attention" in predictor_arguments(kind)


def _is_trained(experiment: Experiment) -> bool:
    return build_predictor(experiment.model["backbone"]).is_trained


def _member(part: Experiment, base: Experiment) -> dict[str, Any]:
    """Describe a member, with its options that differ from `base`, the experiment of the ensemble."""
    member: dict[str, Any] = dict(part.model["backbone"])
    arguments, is_trained = predictor_arguments(member["kind"]), _is_trained(part)
    contents = part.to_dict(), base.to_dict()
    for option in TRAINING_OPTIONS if is_trained else ("context_length",):
        own, shared = (get_at(content, _OPTIONS.get(option, f"model.{option}")) for content in contents)
        # a trained member takes an option that is no argument of its kind, another an argument that it leaves open
        if own != shared and (option in arguments) != is_trained and member.get(option) is None:
            member[option] = own
    return member


def differences(contents: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    """The paths at which experiments differ, with their values; mappings differ by their values."""
    for path in dict.fromkeys(path for content in contents for path in paths(content)):
        values = [get_at(content, path, None) for content in contents]
        is_leaf = not all(value is None or isinstance(value, Mapping) for value in values)
        if is_leaf and any(value != values[0] for value in values):
            yield path, values


def _text(content: Any) -> str:
    return json.dumps(content, sort_keys=True, default=str)


def member_experiments(
    experiment: Experiment, parse: Callable[[Mapping[str, Any]], Experiment] = Experiment.of
) -> dict[str, Experiment]:
    """Experiments that fit each trained member of an ensemble alone, bit for bit as in it; empty without a seed."""
    ensemble, found = build_predictor(experiment.model["backbone"]), dict[str, Experiment]()
    if not isinstance(ensemble, Ensemble) or experiment.seed is None:
        return found
    seeds = range(experiment.seed, experiment.seed + ensemble.seeds)
    for number, member in ((number, one) for number, one in enumerate(ensemble.described) if one.is_trained):
        values = {_OPTIONS.get(name, f"model.{name}"): value for name, value in member.options.items()}
        values |= {"model.backbone": member.predictor, "seed_everything": seeds[-1]}  # the largest
        if experiment.model["calibrate"] is True:  # calibration changes no weight
            values["model.calibrate"] = False
        if "max_steps" in member.options:
            values |= {"trainer.max_epochs": None, "trainer.max_time": None}
        alone = parse(with_values(experiment.to_dict(), values))
        found |= {member_name(number, place): replace(alone, seed=seed) for place, seed in enumerate(seeds)}
    return found
