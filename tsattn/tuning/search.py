"""The search space: which values of a configuration are tried, and in which combinations."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import Trial

from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.experiments.dotted import complete, get_at, with_values

__all__ = ["Parameter", "Search"]

_MOST_GRID = 10_000


@dataclass(frozen=True)
class Parameter:
    """One value that is searched for.

    Attributes:
        path: where it stands in the configuration.
        type: ``float``, ``int`` or ``categorical``.
        low: the least value of a number.
        high: the greatest, included.
        log: whether a number is drawn evenly on a logarithmic scale.
        step: distance of the values of a number, or None.
        choices: of a categorical one, the name of each option, as tables and the storage have it, and its value.
        when: by path of another parameter, the values (or names) of it for which this one is there.
    """

    path: str
    type: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float | None = None
    choices: Mapping[Any, Any] = field(default_factory=dict)
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def distribution(self) -> BaseDistribution:
        """What Optuna draws from."""
        if self.type == "float":
            return FloatDistribution(self.low, self.high, log=self.log, step=self.step)
        if self.type == "int":
            return IntDistribution(int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
        return CategoricalDistribution(list(self.choices))

    def suggest(self, trial: Trial) -> Any:
        """What a trial takes: a number, or the name of an option."""
        if self.type == "float":
            return trial.suggest_float(self.path, self.low, self.high, log=self.log, step=self.step)
        if self.type == "int":
            step = int(self.step or 1)
            return trial.suggest_int(self.path, int(self.low), int(self.high), log=self.log, step=step)
        return trial.suggest_categorical(self.path, list(self.choices))

    def value(self, taken: Any) -> Any:
        """The value in the configuration of what a trial took."""
        return self.choices[taken] if self.type == "categorical" else taken

    def values(self) -> list[Any] | None:
        """All that can be taken, or None of a number without steps."""
        if self.type == "categorical":
            return list(self.choices)
        if self.type == "int":
            return list(range(int(self.low), int(self.high) + 1, int(self.step or 1)))
        if self.step is None:
            return None
        steps = range(round((self.high - self.low) / self.step) + 1)
        return [min(self.low + i * self.step, self.high) for i in steps]  # rounding may lead above the end

    def probes(self) -> list[Any]:
        """What stands for all when the space is checked: every option, or the ends of a range and its middle."""
        if self.type == "categorical":
            return list(self.choices)
        if self.type == "int":
            return list(dict.fromkeys([int(self.low), int(self.high)]))
        middle = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        return list(dict.fromkeys([self.low, self.high, *([middle] if self.step is None else [])]))

    def takes(self, value: Any) -> bool:
        """Whether a trial can take this."""
        if self.type == "categorical":  # True is not 1 here
            return any(value == name and isinstance(value, bool) == isinstance(name, bool) for name in self.choices)
        if isinstance(value, bool) or not isinstance(value, int if self.type == "int" else int | float):
            return False
        steps = (value - self.low) / (self.step or 1)
        stepless = self.type == "float" and self.step is None
        return self.low <= value <= self.high and (stepless or abs(steps - round(steps)) < 1e-9)

    def draw(self, rng: random.Random) -> Any:
        """One of the values at random, to check combinations."""
        return rng.choice(self.values() or self.probes())


@dataclass(frozen=True)
class Search:
    """A search space and how it is searched; `tsattn.tuning.read_search` makes one.

    Attributes:
        file: where it was read from, for messages.
        parameters: by path, each after those that it depends on.
        objectives: what is made small.
        constraints: by name, the most that a trial may have (bytes of memory).
        sampler: ``tpe``, ``random`` or ``grid``.
        pruner: ``median`` or ``none``.
        content: the file's content as plain data, which tells searches apart.
    """

    file: str
    parameters: Mapping[str, Parameter]
    objectives: tuple[str, ...] = ("error",)
    constraints: Mapping[str, float] = field(default_factory=dict)
    sampler: str = "tpe"
    pruner: str = "median"
    content: Mapping[str, Any] = field(default_factory=dict)

    def taken(self, choose: Callable[[Parameter], Any]) -> dict[str, Any]:
        """What is taken of every parameter that is there, its conditions holding, when `choose` decides."""
        taken: dict[str, Any] = {}
        for path, parameter in self.parameters.items():
            if all(other in taken and taken[other] in values for other, values in parameter.when.items()):
                taken[path] = choose(parameter)
        return taken

    def suggest(self, trial: Trial) -> dict[str, Any]:
        """What a trial takes of every parameter that is there."""
        return self.taken(lambda parameter: parameter.suggest(trial))

    def applied(self, config: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of a configuration with what a trial took."""
        values = {path: self.parameters[path].value(what) for path, what in taken.items()}
        return with_values(config, values)

    def experiment(self, base: Experiment, taken: Mapping[str, Any]) -> Experiment:
        """The experiment that a trial runs.

        Raises:
            UserError: for a combination that is not valid.
        """
        return Experiment.of(self.applied(base.to_dict(), taken))

    def needed(self, path: str) -> dict[str, Any]:
        """What must be taken of other parameters for this one to be there; the first of several values."""
        needed: dict[str, Any] = {}
        for other, values in self.parameters[path].when.items():
            needed |= {**self.needed(other), other: values[0]}
        return needed

    def configured(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """What a trial would have to take to be the configuration as it is, or None if the space does not hold that.

        Args:
            config: complete, see `tsattn.experiments.dotted.complete`.
        """

        def choose(parameter: Parameter) -> Any:
            if parameter.type != "categorical":
                return get_at(config, parameter.path)
            return next(what for what in parameter.choices if self._is(config, {parameter.path: what}))

        try:
            taken = self.taken(choose)
        except (KeyError, StopIteration):
            return None
        fits = all(self.parameters[path].takes(what) for path, what in taken.items())
        return taken if fits and self._is(config, taken) else None

    def _is(self, config: Mapping[str, Any], taken: Mapping[str, Any]) -> bool:
        """Whether a configuration stays the same when this is taken."""
        try:
            return complete(self.applied(config, taken)) == config
        except UserError:
            return False

    def grid(self) -> list[dict[str, Any]]:
        """Every combination.

        Raises:
            UserError: if a number has no step, or there are more than ten thousand.
        """
        combinations: list[dict[str, Any]] = [{}]
        for path, parameter in self.parameters.items():
            values = parameter.values()
            if values is None:
                raise UserError(f"{self.file}: a grid needs a step or choices for {path}")
            longer: list[dict[str, Any]] = []
            for one in combinations:
                is_there = all(one.get(other) in needed for other, needed in parameter.when.items())
                longer += [{**one, path: value} for value in values] if is_there else [one]
            if len(longer) > _MOST_GRID:
                raise UserError(f"{self.file}: the grid has more than {_MOST_GRID} combinations; use sampler: tpe")
            combinations = longer
        return combinations
