"""The weighted mean of several predictors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from typing_extensions import override

from tsattn import descriptions
from tsattn.batch import Batch
from tsattn.errors import UserError, one_of, whole_number
from tsattn.predictors import build_predictor, complete_predictor, named_predictor, predictor_arguments, predictor_kinds
from tsattn.predictors.base import Attending, Predictor, last_context
from tsattn.task import Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training

_OPTION_TYPES = {
    **{"context_length": int, "loss": str | None, "learning_rate": float, "weight_decay": float},
    **{"warmup_steps": int | None, "mup": bool, "selection": str | None, "max_steps": int},
}
TRAINING_OPTIONS = tuple(_OPTION_TYPES)
"""Training options in the description of a trained member; by default the options of the ensemble."""


class Ensemble(Predictor):
    """The weighted mean of the forecasts of its members, level by level where they forecast quantiles.

    Each member is fitted by itself: on its own loss, to its own context. A member that is trained by gradients is
    trained `seeds` times, and the mean of these trainings is the member. A network uses covariates, or is refused if it
    cannot; a closed form leaves them unread.

    Args:
        members: descriptions of predictors, except ensembles. Besides the arguments of its kind, a trained member may
            have `TRAINING_OPTIONS`.
        weights: one per member, at least 0; they are divided by their sum. None weighs all equally.
        seeds: how often a trained member is trained: from the seed of the training, the next, and so on.
    """

    def __init__(self, *, members: Sequence[Any] = (), weights: Sequence[float] | None = None, seeds: int = 1) -> None:
        described = [Member.of(member) for member in members]
        given = None if weights is None else list(weights)
        members = [{**member.predictor, **member.options} for member in described]
        super().__init__(members=members, weights=given, seeds=seeds)
        if not described:
            kinds = one_of(kind for kind in predictor_kinds() if kind not in ("ensemble", "auto"))
            raise UserError(f"an ensemble needs members, a list of descriptions: {kinds}")
        shares = [1.0] * len(described) if given is None else given
        if len(shares) != len(described):
            raise UserError(f"give one weight for each of the {len(described)} members, not {len(shares)} weights")
        if not all(0 <= share < math.inf for share in shares) or not sum(shares):
            raise UserError(f"weights must be numbers of at least 0, not all 0, not {one_of(map(str, shares))}")
        self.described, self.weights = described, [share / math.fsum(shares) for share in shares]
        self.seeds = whole_number("seeds", seeds)
        self.members = nn.ModuleList(  # by member and seed
            nn.ModuleList(build_predictor(member.predictor) for _ in range(self.seeds if member.is_trained else 1))
            for member in described
        )
        self.needs_fit = any(copy.needs_fit for copy in self._all)
        self.is_trained = any(copy.is_trained for copy in self._all)
        self.emits_quantiles = all(copy.emits_quantiles for copy in self._all)

    @property
    def _copies(self) -> list[list[Predictor]]:
        return [[*copies] for copies in self.members]  # type: ignore[misc]

    @property
    def _all(self) -> list[Predictor]:
        return [copy for copies in self._copies for copy in copies]

    @override
    def with_context(self, context_length: int) -> Predictor:
        members = [build_predictor(member.predictor).with_context(context_length) for member in self.described]
        pairs = zip(members, self.described, strict=True)
        described = [{**predictor.description, **member.options} for predictor, member in pairs]
        return type(self)(**{**self.arguments, "members": described})

    @property
    @override
    def context_length(self) -> int:
        return max(copy.context_length for copy in self._all)

    @property
    @override
    def seasons(self) -> tuple[int, ...]:
        return tuple({season: None for copy in self._all for season in copy.seasons})

    @override
    def repeated(self, batch: Batch, horizon: int) -> Tensor | None:
        return self._all[0].repeated(batch, horizon) if len(self._all) == 1 else None

    @property
    @override
    def uses_covariates(self) -> bool:  # type: ignore[override]  # a Chronos member knows once its weights are read
        return any(copy.uses_covariates for copy in self._all)

    @property
    @override
    def forecasts_counts(self) -> bool:
        return all(copy.forecasts_counts for copy in self._all)

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        super().build(task, output, empty=empty)
        for member, copies in zip(self.described, self._copies, strict=True):
            own = replace(task, context_length=member.options.get("context_length", task.context_length))
            for copy in copies:
                copy.build(own, output if copy.emits_quantiles else replace(output, quantiles=()), empty=empty)
        longer = [copy for copy in self._all if copy.context_length > task.context_length]
        self.reads_short = bool(longer) and all(copy.reads_short for copy in longer)

    @override
    def check_output(self, output: Output) -> None:
        for first, *_ in self._copies:
            if output.distribution is not None:
                first.check_output(output)
            if output.quantiles and not first.emits_quantiles:
                raise UserError(f"member {first.name} of the ensemble forecasts points only: leave quantiles out")

    @override
    def check_export(self) -> None:
        for copy in self._all:
            copy.check_export()

    @override
    def pretraining(self, data: str) -> str:
        found = {copy.pretraining(data) for copy in self._all}
        return next((word for word in ("seen", "unknown", "unseen") if word in found), "")

    @override
    def attending(self) -> dict[str, Attending]:
        return {
            member_name(number, seed): network
            for number, copies in enumerate(self._copies)
            for seed, copy in enumerate(copies)
            for network in copy.attending().values()
        }

    @property
    @override
    def num_parameters(self) -> int:
        return sum(copy.num_parameters for copy in self._all)

    @override
    def check_fit(self, data: ForecastDataModule, training: Training) -> None:
        for (copy, own_data, own), *_ in self._parts(data, training):  # the others differ in their seeds alone
            copy.check_fit(own_data, own)

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        """Fit each member in its turn; ``members`` has the facts of each fit, by seed."""
        facts: list[list[dict[str, Any]]] = []
        for parts in self._parts(data, training):
            facts.append([])
            for copy, own_data, own in parts:
                if not copy.is_trained:
                    own.say(f"{own.member}: {copy.summary}")
                earlier = own.load_earlier_fit(own.member, copy)
                facts[-1].append(copy.fit(own_data, own) if earlier is None else earlier)
        return {"members": facts}

    @override
    def forward(self, batch: Batch) -> Tensor:
        batch = last_context(batch, self.context_length)
        pairs = zip(self.weights, self._copies, strict=True)
        parts: list[Tensor] = [weight / len(copies) * copy(batch) for weight, copies in pairs for copy in copies]
        return reduce(add, parts)

    def _parts(
        self, data: ForecastDataModule, training: Training
    ) -> Iterator[list[tuple[Predictor, ForecastDataModule, Training]]]:
        """Yield by member, and list by seed, a predictor, its data and its training."""
        for number, (member, copies) in enumerate(zip(self.described, self._copies, strict=True)):
            options = {name: value for name, value in member.options.items() if name != "context_length"}
            own = [training.of_member(member_name(number, seed), seed, **options) for seed in range(len(copies))]
            yield [
                (copy, data.with_context(copy.task.context_length), one) for copy, one in zip(copies, own, strict=True)
            ]


def member_name(number: int, seed: int) -> str:
    """Return the name of a member's training, by the place of its description and the number of its seed, from 0."""
    return f"member_{number}_seed_{seed}"


@dataclass(frozen=True)
class Member:
    """Predictor of an ensemble, and how it is trained."""

    predictor: dict[str, Any]  # complete description
    options: dict[str, Any]  # of `TRAINING_OPTIONS`
    is_trained: bool

    @classmethod
    def of(cls, description: object) -> Member:
        """Parse the description of a member."""
        kind, predictor, chosen = named_predictor(description, "member of the ensemble")
        if issubclass(predictor, Ensemble):
            raise UserError("an ensemble cannot be a member of another: list its members instead")
        arguments = predictor_arguments(kind)
        options = [name for name in TRAINING_OPTIONS if predictor.is_trained and name not in arguments]
        descriptions.check_names(chosen, [*arguments, *options], f"member {kind} of the ensemble")
        own = {name: value for name, value in chosen.items() if name in arguments}
        given = {name: chosen[name] for name in options if name in chosen}
        descriptions.check_types(given, _OPTION_TYPES, f"member {kind} of the ensemble")
        for name in ("context_length", "max_steps"):
            if name in given:
                given[name] = whole_number(name, given[name])
        return cls(complete_predictor({"kind": kind, **own}), given, predictor.is_trained)
