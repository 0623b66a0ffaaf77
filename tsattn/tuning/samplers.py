"""A sampler whose draws depend on the number of the trial, not on the process that makes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

__all__ = ["SeededSampler"]


class SeededSampler(BaseSampler):
    """TPE or random draws, seeded anew for each trial by its number.

    A study that was interrupted and goes on draws what it would have drawn, and two processes that share a study never
    draw the same numbers.

    Args:
        name: ``tpe``, ``random`` or ``grid``, whose trials are queued beforehand.
        seed: of the study.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.seed = seed
        self._inner: BaseSampler = self._seeded(0)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Seed for this trial."""
        self._inner = self._seeded(trial.number)
        self._inner.before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """See `BaseSampler`, as all that follows."""
        return self._inner.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of the parameters that are drawn together."""
        return self._inner.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A value of a parameter that is drawn alone."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """What the sampler does at the end of a trial."""
        self._inner.after_trial(study, trial, state, values)

    def _seeded(self, number: int) -> BaseSampler:
        seed = (self.seed * 1_000_003 + number) % 2**32
        return TPESampler(seed=seed) if self.name == "tpe" else RandomSampler(seed=seed)
