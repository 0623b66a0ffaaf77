"""A sampler whose draws depend on how many trials have drawn, not on the process that makes one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState
from typing_extensions import override

from tsattn.tuning.worker import RETRY_OF

__all__ = ["SeededSampler"]


class SeededSampler(BaseSampler):
    """TPE or random draws, seeded anew for each trial by how many have drawn before it.

    One that runs again, as it was interrupted or its process died, counts as the one that it takes the place of. So a
    study that goes on draws what it would have drawn, and two processes that share a study never draw the same numbers.

    Args:
        name: ``tpe``, ``random`` or ``grid``, whose trials are queued beforehand.
        seed: of the study.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.seed = seed
        self._inner: BaseSampler = self._seeded(0)

    @override
    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._inner = self._seeded(_drawn_before(study, trial.number))
        self._inner.before_trial(study, trial)

    @override
    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._inner.infer_relative_search_space(study, trial)

    @override
    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._inner.sample_relative(study, trial, search_space)

    @override
    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    @override
    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._inner.after_trial(study, trial, state, values)

    def _seeded(self, drawn: int) -> BaseSampler:
        seed = (self.seed * 1_000_003 + drawn) % 2**32
        return TPESampler(seed=seed) if self.name == "tpe" else RandomSampler(seed=seed)


def _drawn_before(study: Study, number: int) -> int:
    """How many trials before this one are their own; of one that runs again, before the one that it repeats."""
    trials = study.get_trials(deepcopy=False)
    while RETRY_OF in trials[number].user_attrs:
        number = trials[number].user_attrs[RETRY_OF]
    return number - sum(RETRY_OF in other.user_attrs for other in trials[:number])
