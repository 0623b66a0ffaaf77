"""From a suite to its plan: the experiment and key of every entry, with every data set read once."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tsattn.data import ForecastDataModule, Panel
from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.experiments.dotted import BACKBONE, with_values
from tsattn.experiments.fingerprint import fingerprint
from tsattn.experiments.members import member_experiments
from tsattn.experiments.schema import user_errors
from tsattn.leaderboard.longer_training import check_longer
from tsattn.leaderboard.mixtures import mixed
from tsattn.leaderboard.plan import Entry, Plan, StudyEntry, in_order
from tsattn.leaderboard.study_space import search_for
from tsattn.leaderboard.suite import Arm, Suite, SuiteData
from tsattn.predictors import build_predictor, named_predictor, predictor_arguments
from tsattn.predictors.ensemble import Ensemble
from tsattn.tuning import HeldData, comparable

__all__ = ["Planner", "takes_attention"]

_ATTENTION = f"{BACKBONE}.attention"
_HORIZON = "data.init_args.prediction_length"


@dataclass(frozen=True)
class _Part:
    """A predictor with one attention on one data set at one horizon, with the first seed.

    Attributes:
        experiment: of it; None as long as a study has not chosen its values.
        study: the name of the study; empty for none.
    """

    experiment: Experiment | None
    study: str = ""


class Planner:
    """Makes the plans of suites, the second one at little cost.

    Args:
        chosen: by the name of a study, the values that it chose, by their dotted paths; what is added later counts in
            the next plan.
        is_done: whether the experiment of a key is done. Seeds beyond those of a suite that are done stay in its plan.
    """

    def __init__(
        self, chosen: Mapping[str, Mapping[str, Any]], is_done: Callable[[str], bool] = lambda key: False
    ) -> None:
        self.chosen = chosen
        self.is_done = is_done
        self._held = HeldData()
        self._prints: dict[int, tuple[Panel, str]] = {}  # beside the panel, so that no other has its number
        self._made: dict[str, Experiment | UserError] = {}
        self._keys: dict[str, str | UserError] = {}

    def plan(self, suite: Suite) -> Plan:
        """Entries and studies of a suite.

        Raises:
            UserError: for a predictor or an attention that cannot be, whatever it is combined with.
        """
        self._check(suite)
        found: dict[str, StudyEntry] = {}
        # data set by data set, as few are held at once
        entries = [
            entry
            for data in suite.data.values()
            for horizon in suite.horizons
            for arm in suite.predictors.values()
            for attention in self._attentions(suite, arm)
            for entry in self._entries(suite, data, horizon, arm, attention, found)
        ]
        ordered = in_order(suite, entries)
        names = dict.fromkeys([*(name for entry in ordered for name in entry.studies), *found])
        return Plan(tuple(ordered), tuple(found[name] for name in names))

    def _check(self, suite: Suite) -> None:
        """Refuse what is wrong by itself: only what is wrong in combination does not apply."""
        for attention in suite.attentions.values():
            try:
                _ = attention.kinds
            except UserError as error:
                raise UserError(f"the attention {attention.name} of the suite {suite.name}: {error}") from error
        data, horizon = next(iter(suite.data.values())), suite.horizons[0]
        for arm in suite.predictors.values():
            if arm.mix is None:
                try:
                    self._begun(suite, data, horizon, arm, "", self._experiment(suite, data, horizon, arm, "", {}))
                except UserError as error:
                    raise UserError(f"the predictor {arm.name} of the suite {suite.name}: {error}") from error

    def _attentions(self, suite: Suite, arm: Arm) -> list[str]:
        """The names of the attentions that a predictor is combined with; an empty one if it has no slot for any."""
        parts = [arm] if arm.mix is None else [suite.predictors[name] for name in arm.mix.of]
        has_slot = arm.has_attentions and any(takes_attention(part) for part in parts)
        return list(suite.attentions) if has_slot and suite.attentions else [""]

    def _entries(
        self, suite: Suite, data: SuiteData, horizon: int, arm: Arm, attention: str, found: dict[str, StudyEntry]
    ) -> Iterator[Entry]:
        """All seeds of a predictor with an attention on a data set at a horizon."""
        limits = [data.limits, arm.limits, *([suite.attentions[attention].limits] if attention else [])]
        given = suite.seeds[horizon] if isinstance(suite.seeds, Mapping) else suite.seeds
        most = [one.most_seeds(horizon) for one in limits]
        count = min(number for number in (given, *most) if number is not None)
        if count < 1 or not all(one.allow(data.name, horizon, arm.name, attention) for one in limits):
            return
        blank = Entry(data.name, horizon, arm.name, attention, None, is_mix=arm.mix is not None)
        try:
            experiment, studies = self._whole(suite, data, horizon, arm, attention, found)
            blank = replace(blank, studies=studies)
            if experiment is None:  # only what is trained is searched for
                for seed in range(suite.first_seed, suite.first_seed + count):
                    yield replace(blank, seed=seed)
                return
            self.key(experiment)
            members = _members(experiment) or self._begun(suite, data, horizon, arm, attention, experiment)
            is_drawn = build_predictor(experiment.model["backbone"]).is_trained
        except UserError as error:
            yield replace(blank, reason=str(error))
            return
        for number in itertools.count() if is_drawn else range(1):
            own = _later(experiment, number)
            key = self.key(own)
            if number >= count and not self.is_done(key):
                break
            keys = tuple(self.key(_later(member, number)) for member in members)
            yield replace(blank, seed=own.seed if is_drawn else None, experiment=own, key=key, members=keys)

    def _whole(
        self, suite: Suite, data: SuiteData, horizon: int, arm: Arm, attention: str, found: dict[str, StudyEntry]
    ) -> tuple[Experiment | None, tuple[str, ...]]:
        """The experiment with the first seed, None as long as a study is to choose values of it, and its studies."""
        names = (arm.name,) if arm.mix is None else arm.mix.of
        parts = {}
        for name in names:
            part = suite.predictors[name]
            parts[name] = self._part(suite, data, horizon, part, attention if takes_attention(part) else "", found)
        studies = tuple(dict.fromkeys(part.study for part in parts.values() if part.study))
        experiments = {name: part.experiment for name, part in parts.items() if part.experiment is not None}
        if len(experiments) < len(parts):
            return None, studies
        if arm.mix is None:
            return experiments[arm.name], studies
        mix = arm.mix
        text = json.dumps([arm.name, repr(mix), *map(_text, experiments.values())])
        return self._remembered(text, lambda: mixed(arm.name, mix, experiments)), studies

    def _begun(
        self, suite: Suite, data: SuiteData, horizon: int, arm: Arm, attention: str, experiment: Experiment
    ) -> tuple[Experiment, ...]:
        """The shorter training that one goes on with, with the first seed, if it does and a part has it, too.

        Raises:
            UserError: where it does not begin as that does.
        """
        if arm.goes_on_with not in suite.predictors:
            return ()
        shorter = self._experiment(suite, data, horizon, suite.predictors[arm.goes_on_with], attention, {})
        check_longer(arm.name, experiment, shorter)
        return (shorter,)

    def _part(
        self, suite: Suite, data: SuiteData, horizon: int, arm: Arm, attention: str, found: dict[str, StudyEntry]
    ) -> _Part:
        study = self._study(suite, data, arm, attention)
        if study is None:
            return _Part(self._experiment(suite, data, horizon, arm, attention, {}))
        found[study.name] = study
        chosen = self.chosen.get(study.name)
        made = None if chosen is None else self._experiment(suite, data, horizon, arm, attention, chosen)
        return _Part(made, study.name)

    def _study(self, suite: Suite, data: SuiteData, arm: Arm, attention: str) -> StudyEntry | None:
        """The study that chooses the values of a predictor; None where there is none."""
        selection = suite.selection
        if selection is None or not arm.is_selected or self._is_ensemble(arm):
            return None
        if attention and selection.attentions == "first":
            attention = _first_attention(suite, data, arm)
        elif attention:
            attention = suite.attentions[attention].chosen_as or attention
        experiment = self._experiment(suite, data, selection.horizon, arm, attention, selection.values)
        if not build_predictor(experiment.model["backbone"]).is_trained:
            return None
        base = self._remembered(f"comparable {_text(experiment)}", lambda: comparable(experiment))
        search = search_for(selection.search, base)
        if search is None:
            return None
        identity = [self.key(base), search.content, list(search.parameters), selection.trials, selection.folds]
        sign = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
        shown = attention if selection.attentions == "each" else ""
        name = "-".join(filter(None, (data.name, arm.name, shown, sign)))
        return StudyEntry(
            name, data.name, arm.name, shown, base, search, trials=selection.trials, folds=selection.folds
        )

    def _experiment(
        self,
        suite: Suite,
        data: SuiteData,
        horizon: int,
        arm: Arm,
        attention: str,
        chosen: Mapping[str, Any],
    ) -> Experiment:
        """The experiment of a predictor that is no mix, with the first seed.

        Raises:
            UserError: for a value or a combination that is not valid.
        """
        content = {
            "seed_everything": suite.first_seed,
            "data": {**data.source, "init_args": {**data.source["init_args"], "prediction_length": horizon}},
            "model": {"backbone": arm.backbone},
            "trainer": {},
        }
        values = {**suite.values, **data.values, **arm.values, **arm.by_data.get(data.name, {}), **chosen}
        if attention:
            values = {_ATTENTION: suite.attentions[attention].on(data.name), **values}
        whole = with_values(content, values)
        asked = whole["data"]["init_args"]["prediction_length"]
        if not isinstance(asked, int) or isinstance(asked, bool):
            return self._remembered(_sorted(whole), lambda: Experiment.of(whole))
        # parsing takes most of the time of a plan, and horizons differ in one number of what is parsed
        first = with_values(whole, {_HORIZON: suite.horizons[0]})
        parsed = self._remembered(_sorted(first), lambda: Experiment.of(first))
        arguments = {**parsed.data["init_args"], "prediction_length": asked}
        return replace(parsed, data={**parsed.data, "init_args": arguments})

    def _remembered(self, text: str, make: Any) -> Experiment:
        if text not in self._made:
            try:
                with user_errors():
                    self._made[text] = make()
            except UserError as error:
                self._made[text] = error
        made = self._made[text]
        if isinstance(made, UserError):
            raise made
        return made

    def key(self, experiment: Experiment) -> str:
        """Its key.

        Raises:
            UserError: for what cannot be built for its data, or data that it has no window of.
        """
        text = _text(experiment)
        if text not in self._keys:
            try:
                self._keys[text] = self._new_key(experiment)
            except UserError as error:
                self._keys[text] = error
        known = self._keys[text]
        if isinstance(known, UserError):
            raise known
        return known

    def _new_key(self, experiment: Experiment) -> str:
        with user_errors():
            data = self._held.of(experiment)
            assert data.task is not None
            predictor = build_predictor(experiment.model["backbone"])
            predictor.build(data.task, experiment.output, empty=True)
            for part in ("train", "val", "test"):
                data.windows(part, predictor.context_length)
        return experiment.key_with(data, self._print(data))

    def _print(self, data: ForecastDataModule) -> str:
        """The fingerprint of the data, found once."""
        panel = data.panel
        assert panel is not None
        if id(panel) not in self._prints:
            self._prints[id(panel)] = panel, fingerprint(data)
        return self._prints[id(panel)][1]

    def _is_ensemble(self, arm: Arm) -> bool:
        _, cls, _ = named_predictor(arm.backbone)
        return issubclass(cls, Ensemble)


def _first_attention(suite: Suite, data: SuiteData, arm: Arm) -> str:
    """The first that the suite combines with a predictor."""
    for name, attention in suite.attentions.items():
        limits = [(one.predictors, arm.name) for one in (data.limits, attention.limits)]
        limits += [(one.attentions, name) for one in (data.limits, arm.limits)]
        if all(allowed is None or value in allowed for allowed, value in limits):
            return name
    return next(iter(suite.attentions))


def takes_attention(arm: Arm) -> bool:
    """Whether a predictor that is no mix takes an attention of the suite."""
    if arm.mix is not None or not arm.has_attentions:
        return False
    kind, _, _ = named_predictor(arm.backbone)
    return "attention" in predictor_arguments(kind)


def _members(experiment: Experiment) -> tuple[Experiment, ...]:
    return tuple(member_experiments(experiment).values())


def _later(experiment: Experiment, number: int) -> Experiment:
    """The same with a later seed."""
    assert experiment.seed is not None
    return replace(experiment, seed=experiment.seed + number)


def _text(experiment: Experiment) -> str:
    return _sorted(experiment.to_dict())


def _sorted(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, default=str)
