"""A weighted mean of forecasts whose members are each fitted on their own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_type_hints

from torch import Tensor, nn
from typing_extensions import override

from tsattn import descriptions
from tsattn.batch import Batch
from tsattn.errors import UserError, one_of, whole_number
from tsattn.predictors import (
    build_predictor,
    complete_predictor,
    named_predictor,
    predictor_arguments,
    predictor_kinds,
)
from tsattn.predictors.attending import Attending
from tsattn.predictors.base import Predictor
from tsattn.predictors.contexts import last_context
from tsattn.task import Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training

__all__ = ["TRAINING_OPTIONS", "Ensemble", "Member", "member_name"]

TRAINING_OPTIONS = (
    *("context_length", "loss", "learning_rate", "weight_decay"),
    *("warmup_steps", "mup", "selection", "max_steps"),
)
"""What the description of a trained member may say of its training; what it leaves out is as for the ensemble."""


_OPTION_TYPES = {
    **dict.fromkeys(("context_length", "max_steps"), int),
    **dict.fromkeys(("learning_rate", "weight_decay"), float),
    **{"loss": str | None, "warmup_steps": int | None, "mup": bool, "selection": str | None},
}


class Ensemble(Predictor):
    """The weighted mean of the forecasts of its members, level by level where they forecast quantiles.

    Each member is fitted by itself: on its own loss, to its own context. A member that is trained by gradients is
    trained `seeds` times, and the mean of these is the member.

    With covariates and static columns each member does what it does alone: a network uses them, or is refused if it
    cannot, a closed form leaves them unread.

    Args:
        members: descriptions of predictors. Beside the arguments of its kind, one that is trained may have those of
            `TRAINING_OPTIONS`.
        weights: one a member, at least 0; they are divided by their sum. None weighs all alike.
        seeds: how often a trained member is trained: from the seed of the training, the next, and so on.

    Attributes:
        described: the members, by their descriptions.
        weights: the share of each; they add up to 1.
        seeds: as it was given.

    Raises:
        UserError: for no member or one that is not valid, an ensemble among them, or weights that are none.
    """

    def __init__(self, *, members: Sequence[Any] = (), weights: Sequence[float] | None = None, seeds: int = 1) -> None:
        described = [Member.of(member) for member in members]
        given = None if weights is None else list(weights)
        super().__init__(members=[member.description for member in described], weights=given, seeds=seeds)
        if not described:
            raise UserError(f"an ensemble needs members, a list of descriptions: {one_of(_kinds())}")
        self.weights = _normalised(given, len(described))
        self.described = described
        times = self.seeds = whole_number("seeds", seeds)
        # by member and seed
        self.members = nn.ModuleList(
            nn.ModuleList(build_predictor(member.predictor) for _ in range(times if member.is_trained else 1))
            for member in described
        )
        copies = [copy for copies in self._copies for copy in copies]
        self.needs_fit = any(copy.needs_fit for copy in copies)
        self.is_trained = any(copy.is_trained for copy in copies)
        self.emits_quantiles = all(copy.emits_quantiles for copy in copies)
        self.uses_covariates = any(copy.uses_covariates for copy in copies)
        self.is_exportable = all(copy.is_exportable for copy in copies)

    @classmethod
    @override
    def complete(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        whole = super().complete(arguments)
        descriptions.check_types(whole, get_type_hints(cls.__init__), "predictor ensemble")
        weights = None if whole["weights"] is None else list(whole["weights"])
        members = [Member.of(member).description for member in whole["members"]]
        return {**whole, "members": members, "weights": weights}

    @override
    def with_context(self, context_length: int) -> Predictor:
        members = [
            {**build_predictor(member.predictor).with_context(context_length).description, **member.options}
            for member in self.described
        ]
        return type(self)(**{**self.arguments, "members": members})

    @property
    @override
    def context_length(self) -> int:
        """The longest that a member looks at; each takes the last steps that it needs."""
        return max(copy.context_length for copies in self._copies for copy in copies)

    @property
    @override
    def seasons(self) -> tuple[int, ...]:
        """Those of all members."""
        return tuple({season: None for copies in self._copies for copy in copies for season in copy.seasons})

    @override
    def repeated(self, batch: Batch, horizon: int) -> Tensor | None:
        """The values that a single member repeats; a mean of several is none."""
        copies = [copy for copies in self._copies for copy in copies]
        return copies[0].repeated(batch, horizon) if len(copies) == 1 else None

    @property
    @override
    def forecasts_counts(self) -> bool:
        """Whether all members forecast counts, so that their mean is rounded to one."""
        return all(copy.forecasts_counts for copies in self._copies for copy in copies)

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        super().build(task, output, empty=empty)
        for member, copies in zip(self.described, self._copies, strict=True):
            own = replace(task, context_length=member.options.get("context_length", task.context_length))
            for copy in copies:
                copy.build(own, output, empty=empty)

    @override
    def check_output(self, output: Output) -> None:
        for copies in self._copies:
            if output.distribution is not None:
                copies[0].check_output(output)
            if output.quantiles and not copies[0].emits_quantiles:
                raise UserError(f"member {copies[0].name} of the ensemble forecasts points only: it takes no quantiles")

    @override
    def pretraining(self, data: str) -> str:
        """The first that is true of a member: ``seen``, ``unknown``, ``unseen``."""
        found = {copies[0].pretraining(data) for copies in self._copies}
        return next((word for word in ("seen", "unknown", "unseen") if word in found), "")

    @override
    def attending(self) -> dict[str, Attending]:
        """By the names of members, see `member_name`."""
        return {
            member_name(number, seed): network
            for number, copies in enumerate(self._copies)
            for seed, copy in enumerate(copies)
            for network in copy.attending().values()
        }

    @property
    @override
    def num_parameters(self) -> int:
        return sum(copy.num_parameters for copies in self._copies for copy in copies)

    @override
    def check_fit(self, data: ForecastDataModule, training: Training) -> None:
        for parts in self._parts(data, training):
            copy, own_data, own = parts[0]  # the others differ in their seeds alone
            copy.check_fit(own_data, own)

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        """Fit each member in its turn; ``members`` says of each, by seed, what is known of its fit."""
        self.check_fit(data, training)  # before hours of training go into the first member
        known: list[list[dict[str, Any]]] = []
        for parts in self._parts(data, training):
            for copy, _, own in parts:
                if not copy.is_trained:
                    own.say(f"{own.member}: {copy.summary}")
            known.append([_fit(copy, own_data, own) for copy, own_data, own in parts])
        return {"members": known}

    @override
    def forward(self, batch: Batch) -> Tensor:
        batch = last_context(batch, self.context_length)
        parts = [
            weight / len(copies) * copy(batch)
            for weight, copies in zip(self.weights, self._copies, strict=True)
            for copy in copies
        ]
        total: Tensor = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def _parts(
        self, data: ForecastDataModule, training: Training
    ) -> Iterator[list[tuple[Predictor, ForecastDataModule, Training]]]:
        """By member and seed, a predictor, its data and its training."""
        for number, (member, copies) in enumerate(zip(self.described, self._copies, strict=True)):
            options = {name: value for name, value in member.options.items() if name != "context_length"}
            parts = []
            for seed, copy in enumerate(copies):
                assert copy.task is not None, "build(task, output) comes first"
                own = training.of_member(member_name(number, seed), seed, **options)
                parts.append((copy, data.with_context(copy.task.context_length), own))
            yield parts

    @property
    def _copies(self) -> list[list[Predictor]]:
        """The predictors of each member, by seed."""
        return [[*copies] for copies in self.members]  # type: ignore[misc]


def member_name(number: int, seed: int) -> str:
    """What the training of a member is called, by the place of its description and the number of its seed, from 0."""
    return f"member_{number}_seed_{seed}"


def _fit(predictor: Predictor, data: ForecastDataModule, training: Training) -> dict[str, Any]:
    """Fit a member, unless that was done before."""
    known = training.fitted(training.member, predictor)
    return predictor.fit(data, training) if known is None else known


@dataclass(frozen=True)
class Member:
    """A predictor, and how it is trained.

    Attributes:
        predictor: its complete description.
        options: those of `TRAINING_OPTIONS` that were given.
        is_trained: see `Predictor`.
    """

    predictor: dict[str, Any]
    options: dict[str, Any]
    is_trained: bool

    @property
    def description(self) -> dict[str, Any]:
        """Predictor and options, as they stand in the description of an ensemble."""
        return {**self.predictor, **self.options}

    @classmethod
    def of(cls, description: object) -> Member:
        """What the description of a member means.

        Raises:
            UserError: for a kind that cannot be a member, or an argument that is neither one of the kind nor an option
                of a training that it has.
        """
        kind, predictor, chosen = named_predictor(description, "member of the ensemble")
        if issubclass(predictor, Ensemble):
            raise UserError("an ensemble is no member of another: name its members instead")
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


def _normalised(weights: Sequence[float] | None, count: int) -> list[float]:
    """The share of each member."""
    if weights is None:
        return [1 / count] * count
    if len(weights) != count:
        raise UserError(f"weights must be as many as the members, {count}, not {len(weights)}")
    if not all(0 <= weight < math.inf for weight in weights) or not sum(weights):
        raise UserError(f"weights must be numbers of at least 0, not all 0, not {one_of(map(str, weights))}")
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _kinds() -> list[str]:
    return [kind for kind in predictor_kinds() if kind != "ensemble"]
