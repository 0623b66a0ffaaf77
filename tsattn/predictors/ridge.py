"""Ridge regression in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.backbones.ridge_solution import ALPHA, apply_ridge, solve_ridge
from tsattn.batch import Batch
from tsattn.errors import UserError, one_of, whole_number
from tsattn.predictors.base import Predictor
from tsattn.predictors.contexts import last_context
from tsattn.predictors.ridge_choice import SELECTORS, least, leave_block_out_errors, validation_errors
from tsattn.task import Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training

__all__ = ["Ridge", "ridge_label"]


def ridge_label(contexts: Iterable[int], alpha: float | Sequence[float], name: str = "ridge") -> str:
    """Label that tells ridges apart in tables, ``ridge (context 104, alpha 10)``; without alpha it is the default.

    Args:
        contexts: lengths of the maps that the label stands for.
        alpha: penalty; several, where validation chose one that is not known here.
        name: of the predictor.
    """
    lengths = sorted(set(contexts))
    context = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    penalty = "" if alpha == ALPHA else f", alpha {alpha:g}" if isinstance(alpha, int | float) else ", alpha chosen"
    return f"{name} (context {context}{penalty})"


class Ridge(Predictor):
    """One linear map from context to horizon for all channels, each window centred by its mean; float64.

    It uses no covariates, and leaves them unread. A window counts by the mean weight of its targets, and not at all
    where one has weight 0; the penalty is held against the mean weight of all targets.

    Args:
        alpha: penalty on the squared coefficients, on the scale of the data; or several, of which one is chosen.
        context_length: L, that of the task by default; or several, of which one is chosen. It looks at the longest of
            them, whichever is chosen.
        select: how one of several is chosen, by mean squared error: ``validation``, on the validation windows; or
            ``leave_block_out``, on the training windows alone, see `leave_block_out_errors`. What is chosen is fitted
            as it would be if it had been the only one.

    Raises:
        UserError: for a penalty that is not above 0, a context of no step, or a `select` that is unknown or has nothing
            to choose from.
    """

    uses_weights = True

    weight: Tensor

    def __init__(
        self,
        *,
        alpha: float | Sequence[float] = ALPHA,
        context_length: int | Sequence[int] | None = None,
        select: str = SELECTORS[0],
    ) -> None:
        super().__init__(alpha=_plain(alpha), context_length=_plain(context_length), select=select)
        self.alphas = _several("alpha", alpha)
        for value in self.alphas:
            if not 0 < value < math.inf:
                raise UserError(f"alpha must be a number above 0, not {value}")
        own = [] if context_length is None else _several("context_length", context_length)
        self._own_lengths = [whole_number("context_length", length) for length in own]
        if select not in SELECTORS:
            raise UserError(f"select must be one of {one_of(SELECTORS)}, not {select!r}")
        if select != SELECTORS[0] and not self.chooses:
            raise UserError(f"select: {select} needs a list to choose from: several of alpha or of context_length")
        self.select = select
        self._fixed_length: int | None = None

    @classmethod
    @override
    def complete(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _plain(value) for name, value in super().complete(arguments).items()}

    @property
    def chooses(self) -> bool:
        """Whether there are several penalties or contexts."""
        return len(self.alphas) > 1 or len(self._own_lengths) > 1

    @property
    @override
    def context_length(self) -> int:
        return max(self._own_lengths, default=0) or super().context_length

    @property
    def fitted_length(self) -> int:
        """L of the map: the context that was chosen, the longest before."""
        if self._fixed_length is not None:
            return self._fixed_length
        return int(self.get_buffer("chosen_context")) if self.chooses else self.context_length

    def fix_length(self) -> None:
        """Keep the context that was chosen as a number, which a graph needs: no fit changes it any more."""
        self._fixed_length = self.fitted_length

    @property
    @override
    def num_parameters(self) -> int:
        assert self.task is not None, "build(task, output) comes first"
        is_known = not self.chooses or not self.get_buffer("chosen_context").is_meta
        return (self.fitted_length if is_known else self.context_length) * self.task.prediction_length

    @property
    @override
    def label(self) -> str:
        alpha = float(self.get_buffer("chosen_alpha")) if self.chooses else self.alphas[0]
        return ridge_label([self.fitted_length], alpha)

    @property
    @override
    def summary(self) -> str:
        if not self.chooses:
            return f"{self.label}: {self.num_parameters:,} parameters, in closed form"
        contexts = one_of(map(str, self._lengths))
        alphas = one_of(f"{alpha:g}" for alpha in self.alphas)
        return f"ridge (context {contexts}; alpha {alphas}), chosen by {self.select}, in closed form"

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        super().build(task, output, empty=empty)
        device = "meta" if empty else None
        shape = self.context_length, task.prediction_length
        # not a number before it is fitted: a forecast of it cannot be taken for one
        self.register_buffer("weight", torch.full(shape, math.nan, dtype=torch.float64, device=device))
        if self.chooses:
            self.register_buffer("chosen_context", torch.tensor(self.context_length, device=device))
            self.register_buffer("chosen_alpha", torch.tensor(self.alphas[0], dtype=torch.float64, device=device))

    @override
    def fit(self, data: ForecastDataModule, training: Training | None = None) -> dict[str, Any]:
        """Solve for the training windows, with what is chosen where there is a choice.

        Returns:
            ``every``: that each k-th of very many windows was taken, 1 that all were. Where there is a choice also
            ``chosen`` (``context_length`` and ``alpha``), ``candidates`` with their errors, and ``member``, the name of
            the part of an ensemble.

        Raises:
            UserError: where nothing can be chosen, see `validation_errors` and `leave_block_out_errors`.
        """
        if not self.chooses:
            return {"every": self._solve(data, self.context_length, self.alphas[0])}
        member = "" if training is None else training.member
        facts: dict[str, Any] = {"member": member} if member else {}
        chosen = None if training is None else training.choices.get(member)
        if chosen is None:
            errors = validation_errors if self.select == SELECTORS[0] else leave_block_out_errors
            candidates = errors(data, self._lengths, self.alphas, _teller(training, member))
            best = least(candidates)
            chosen = {"context_length": best.context_length, "alpha": best.alpha}
            facts |= {"chosen": chosen, "candidates": [candidate.facts for candidate in candidates]}
        return {"every": self._solve(data, chosen["context_length"], chosen["alpha"]), **facts}

    def _solve(self, data: ForecastDataModule, L: int, alpha: float) -> int:
        """Take the map of a context and penalty; of very many windows each k-th, the k that is given back."""
        every = data.thinning("train", L)
        weight = solve_ridge(data.eval_dataloader("train", L, every), alpha)
        device = torch.device("cpu") if self.weight.is_meta else self.weight.device
        # steps before the context that was chosen have no weight
        whole = weight.new_zeros(self.context_length, weight.shape[1])
        whole[self.context_length - L :] = weight
        self.weight = whole.to(device)
        if self.chooses:
            self.register_buffer("chosen_context", torch.tensor(L, device=device))
            self.register_buffer("chosen_alpha", torch.tensor(alpha, dtype=torch.float64, device=device))
        return every

    @property
    def _lengths(self) -> list[int]:
        return self._own_lengths or [self.context_length]

    @override
    def forward(self, batch: Batch) -> Tensor:
        window = last_context(batch, self.context_length)  # which has so many steps
        L = self.fitted_length
        return apply_ridge(self.weight[self.context_length - L :], last_context(window, L))

    @override
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Ridge:
        # a precision that is right for the networks beside it in an ensemble is not for a solution of equations
        super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)  # type: ignore[no-untyped-call]
        return self


def _several(name: str, given: Any) -> list[Any]:
    """The values that are given, one or a list."""
    values = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    if not values:
        raise UserError(f"{name} must be a number or a list of numbers to choose from, not {given!r}")
    repeated = next((value for place, value in enumerate(values) if value in values[:place]), None)
    if repeated is not None:
        raise UserError(f"{name} lists {repeated} twice")
    return values


def _plain(given: Any) -> Any:
    """A list where a sequence was given."""
    return list(given) if isinstance(given, Sequence) and not isinstance(given, str) else given


def _teller(training: Training | None, member: str) -> Callable[[str], None]:
    """What takes lines about the choice."""
    if training is None:
        return lambda line: None
    say = training.say
    return say if not member else lambda line: say(f"{member}: {line}")
