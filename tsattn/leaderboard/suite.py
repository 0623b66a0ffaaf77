"""A suite: what is compared on what, how often, and in which order; `tsattn.leaderboard.suite_file` reads one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from tsattn.attention import KINDS, complete_attention
from tsattn.data.public.cards import CARDS
from tsattn.descriptions import Description
from tsattn.errors import UserError, one_of
from tsattn.experiments.dotted import did_you_mean
from tsattn.predictors import predictor_kinds

__all__ = ["ORDER", "Arm", "AttentionArm", "Limits", "Mix", "Selection", "Suite", "SuiteData"]

ORDER = ("seed", "horizon", "dataset", "predictor", "attention")
"""By what entries are put in order unless a suite says otherwise, what changes least first."""


@dataclass(frozen=True)
class Limits:
    """What a data set, a predictor or an attention is restricted to; None restricts nothing.

    Attributes:
        horizons: those that it is run at.
        seeds: how many, at most: a number, or one for each horizon.
        data: names of data sets.
        predictors: names of predictors.
        attentions: names of attentions, for predictors that have a slot for one.
    """

    horizons: tuple[int, ...] | None = None
    seeds: int | Mapping[int, int] | None = None
    data: tuple[str, ...] | None = None
    predictors: tuple[str, ...] | None = None
    attentions: tuple[str, ...] | None = None

    def allow(self, dataset: str, horizon: int, predictor: str, attention: str) -> bool:
        """Whether it takes part in this; of a predictor without an attention that is empty."""
        pairs = (
            (self.horizons, horizon),
            (self.data, dataset),
            (self.predictors, predictor),
            (self.attentions if attention else None, attention),
        )
        return all(allowed is None or value in allowed for allowed, value in pairs)

    def most_seeds(self, horizon: int) -> int | None:
        """How many seeds it is run with at most; None for any number."""
        return self.seeds.get(horizon, 0) if isinstance(self.seeds, Mapping) else self.seeds


@dataclass(frozen=True)
class SuiteData:
    """A data set.

    Attributes:
        name: what tables call it.
        source: ``class_path`` and ``init_args`` of its DataModule.
        values: of all experiments on it, by their dotted paths.
        limits: what it is restricted to.
    """

    name: str
    source: Mapping[str, Any]
    values: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = Limits()


@dataclass(frozen=True)
class Mix:
    """A weighted mean of predictors of the suite.

    Attributes:
        of: their names.
        weights: one each; None weighs all alike.
        seeds: of how many seeds each trained one is the mean.
    """

    of: tuple[str, ...]
    weights: tuple[float, ...] | None = None
    seeds: int = 1


@dataclass(frozen=True)
class Arm:
    """A predictor and how it is trained.

    Attributes:
        name: what tables call it.
        backbone: its description; None for a mix.
        values: of its experiments, by their dotted paths.
        by_data: those that take their place on a data set, by its name.
        mix: of which others it is the mean; None for none.
        goes_on_with: the predictor whose shorter training its own goes on with; empty for none.
        has_attentions: whether it is run with each attention, if it has a slot for one.
        is_selected: whether the values that the suite searches for are searched for it.
        limits: what it is restricted to.
    """

    name: str
    backbone: Description | None
    values: Mapping[str, Any] = field(default_factory=dict)
    by_data: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    mix: Mix | None = None
    goes_on_with: str = ""
    has_attentions: bool = True
    is_selected: bool = True
    limits: Limits = Limits()


@dataclass(frozen=True)
class AttentionArm:
    """An attention.

    Attributes:
        name: what tables call it.
        description: of it.
        by_data: descriptions that take its place on a data set, by its name, as for models of another width.
        chosen_as: the attention whose searched values it takes; empty for a search of its own.
        limits: what it is restricted to.
    """

    name: str
    description: Description
    by_data: Mapping[str, Description] = field(default_factory=dict)
    chosen_as: str = ""
    limits: Limits = Limits()

    def on(self, dataset: str) -> Description:
        """Its description on a data set."""
        return self.by_data.get(dataset, self.description)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Those of its layers, on any data set, each once."""
        names = {path: kind for kind, path in KINDS.items()}
        given = [str(complete_attention(one)["kind"]) for one in self._layers]
        return tuple(dict.fromkeys(names.get(kind, kind) for kind in given))

    @property
    def _layers(self) -> list[Any]:
        parts = (self.description, *self.by_data.values())
        return [layer for part in parts for layer in (part if isinstance(part, list) else [part])]


@dataclass(frozen=True)
class Selection:
    """How values are chosen, by validation alone.

    Attributes:
        search: the name of the search space.
        trials: of each study.
        folds: rolling origins; 0 for the validation part.
        horizon: at which they are chosen, for all.
        attentions: ``each`` has a study of its own, or all take the values of the ``first``.
        values: of the trials alone, by their dotted paths, such as fewer steps.
    """

    search: str
    trials: int
    folds: int
    horizon: int
    attentions: str = "each"
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """What is compared.

    Attributes:
        name: of the suite.
        data: the data sets, by name.
        horizons: steps ahead, in order of worth.
        seeds: how many, or how many at each horizon.
        predictors: by name.
        attentions: by name.
        values: of all experiments, by their dotted paths.
        first_seed: the seeds are this one and those after it.
        order: a permutation of `ORDER`.
        selection: how values are chosen; None takes them as they are written.
        fresh_seeds: those that have no part in what reports find, and confirm it.
        caveats: sentences that reports print.
    """

    name: str
    data: Mapping[str, SuiteData]
    horizons: tuple[int, ...]
    seeds: int | Mapping[int, int]
    predictors: Mapping[str, Arm]
    attentions: Mapping[str, AttentionArm] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    first_seed: int = 1
    order: tuple[str, ...] = ORDER
    selection: Selection | None = None
    fresh_seeds: tuple[int, ...] = ()
    caveats: tuple[str, ...] = ()

    def narrowed(
        self,
        *,
        data: Sequence[str] | None = None,
        predictors: Sequence[str] | None = None,
        attentions: Sequence[str] | None = None,
        horizons: Sequence[int] | None = None,
        seeds: int | None = None,
    ) -> Self:
        """The same with these alone, in the order given; None leaves all.

        A public data set, a kind of predictor or a kind of attention that the suite has not is added to it. Predictors
        that a mix is made of come along with it. Seeds that are asked for are those of every data set; what a predictor
        or an attention is restricted to holds.

        Raises:
            UserError: for a name that is none; the message lists the valid ones.
        """
        chosen: dict[str, Any] = {}
        if data is not None:
            chosen["data"] = {name: self._data(name) for name in data}
        if predictors is not None:
            chosen["predictors"] = {}
            for name in predictors:
                arm = self._predictor(name)
                for part in arm.mix.of if arm.mix is not None else ():
                    chosen["predictors"].setdefault(part, self.predictors[part])
                chosen["predictors"][name] = arm
        if attentions is not None:
            chosen["attentions"] = {name: self._attention(name) for name in attentions}
        if horizons is not None:
            chosen["horizons"] = tuple(horizons)
            if seeds is None and isinstance(self.seeds, Mapping):
                lacking = [horizon for horizon in horizons if horizon not in self.seeds]
                if lacking:
                    raise UserError(f"the suite {self.name} says no number of seeds at horizon {lacking[0]}: --seeds")
        if seeds is not None:
            chosen["seeds"] = seeds
            chosen["data"] = {
                name: replace(one, limits=replace(one.limits, seeds=None))
                for name, one in chosen.get("data", self.data).items()
            }
        return replace(self, **chosen)

    def _data(self, name: str) -> SuiteData:
        if name in self.data:
            return self.data[name]
        public = [card for card, one in CARDS.items() if one.file]
        if name not in public:
            raise _unknown("data set", name, [*self.data, *public])
        return SuiteData(name, {"class_path": "PublicDataModule", "init_args": {"name": name}})

    def _predictor(self, name: str) -> Arm:
        if name in self.predictors:
            return self.predictors[name]
        kinds = [kind for kind in predictor_kinds() if kind != "ensemble"]
        if name not in kinds:
            raise _unknown("predictor", name, [*self.predictors, *kinds])
        return Arm(name, name)

    def _attention(self, name: str) -> AttentionArm:
        if name in self.attentions:
            return self.attentions[name]
        if name not in KINDS:
            raise _unknown("attention", name, [*self.attentions, *KINDS])
        return AttentionArm(name, name)


def _unknown(what: str, name: str, valid: list[str]) -> UserError:
    known = list(dict.fromkeys(valid))
    return UserError(f"no {what} {name!r}{did_you_mean(name, known)}; valid: {one_of(known)}")
