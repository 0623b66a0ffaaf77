"""Ridge regression with one map for all channels: the plainest linear model, and the baseline of earlier records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.errors import UserError, positive_number, whole_number
from tsattn.layers import InstanceNorm
from tsattn.predictors.base import last_context
from tsattn.predictors.ridge import ClosedForm
from tsattn.task import Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training


ALPHA = 1000.0


def normal_equations(batches: Iterable[Batch]) -> tuple[Tensor, Tensor]:
    """`X' X (L, L)` and `X' Y (L, T)` of all windows, float64; see `regression_rows`."""
    gram, moment = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for batch in batches:
        x, y = regression_rows(batch)
        gram = gram + x.T @ x
        moment = moment + x.T @ y
    return gram, moment


def solve_normal_equations(gram: Tensor, moment: Tensor, alpha: float) -> Tensor:
    """The ridge solution `(L, T)`: it minimises squared errors plus `alpha` times squared coefficients."""
    weight: Tensor = torch.linalg.solve(gram + alpha * torch.eye(len(gram), dtype=gram.dtype), moment)
    return weight


def regression_rows(batch: Batch) -> tuple[Tensor, Tensor]:
    """Centred contexts `(n, L)` and horizons `(n, T)`: a row for each window and channel with all targets known."""
    past, level = _centred(batch)
    target = (batch.known_target.double() - level).transpose(1, 2)
    x, y = past.transpose(1, 2).flatten(0, 1), target.flatten(0, 1)
    if batch.target_observed is not None:
        known = batch.target_observed.transpose(1, 2).flatten(0, 1).all(-1)
        x, y = x[known], y[known]
    if batch.target_weight is not None:
        weight = batch.target_weight.double().transpose(1, 2).flatten(0, 1)
        weight = weight if batch.target_observed is None else weight[known]
        counts = (weight > 0).all(-1)
        root = weight[counts].mean(-1, keepdim=True).sqrt()
        x, y = x[counts] * root, y[counts] * root
    return x, y


def apply_ridge(weight: Tensor, batch: Batch) -> Tensor:
    """The forecast `(B, T, C)`, float64, by a map `(L, T)` of windows with L steps of context."""
    past, level = _centred(batch)
    return (past.transpose(1, 2) @ weight).transpose(1, 2) + level


def _centred(batch: Batch) -> tuple[Tensor, Tensor]:
    """The contexts minus their levels, `(B, L, C)`, and the levels, `(B, 1, C)`, in float64."""
    norm = InstanceNorm(batch.past.double(), batch.past_observed)
    return norm.past - norm.level, norm.level


class SharedRidge(ClosedForm):
    """One linear map from context to horizon for all channels, each window centred by its mean; float64.

    It uses no covariates, and leaves them unread. A window counts by the mean weight of its targets, and not at all if
    a target has weight 0. `ridge` usually has a lower error.

    Args:
        alpha: penalty on the squared coefficients, on the scale of the data; or several.
        context_length: L, by default the task's; or several. The pair with the least squared error on the validation
            windows is taken.
    """

    def __init__(
        self, *, alpha: float | Sequence[float] = ALPHA, context_length: int | Sequence[int] | None = None
    ) -> None:
        several: dict[str, Any] = {"alpha": alpha, "context_length": context_length}
        several = {name: list(one) if isinstance(one, Sequence) else one for name, one in several.items()}
        super().__init__(**several)
        alphas, lengths = (one if isinstance(one, list) else [one] for one in several.values())
        self._alphas = [positive_number("alpha", one) for one in alphas]
        self._own = [whole_number("context_length", one) for one in lengths if one is not None]

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        super().build(task, output, empty=empty)
        # NaN before the fit, so that a forecast without a fit cannot be taken for one
        sizes = max(self._own, default=task.context_length), task.prediction_length
        unknown = torch.full(sizes, math.nan, dtype=torch.float64, device="meta" if empty else "cpu")
        self.register_buffer("weight", unknown)

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        """Solve for the training windows, with the ``chosen`` context and penalty if there are several."""
        member, chosen = training.member, training.choices.get(training.member)
        facts: dict[str, Any] = {"member": member} if member else {}
        pairs = [*product(self._own or [data.context_length], self._alphas)]
        if chosen is None:
            L, alpha = pairs[0] if len(pairs) == 1 else min(self._errors(data), key=itemgetter(1))[0]
            facts |= {"chosen": {"context_length": L, "alpha": alpha}} if len(pairs) > 1 else {}
        else:
            L, alpha = chosen["context_length"], chosen["alpha"]
        self.weight = solve_normal_equations(*normal_equations(data.eval_dataloader("train", L)), alpha)
        return facts

    def _errors(self, data: ForecastDataModule) -> Iterator[tuple[tuple[int, float], float]]:
        """Fit each context and penalty, and measure its squared error on all validation windows."""
        if "val" not in data.parts:
            one_each = "give one alpha and one context_length instead of lists"
            raise UserError(f"validation windows choose among several ridges, and the data has none; {one_each}")
        for L in dict.fromkeys(self._own or [data.context_length]):
            equations = normal_equations(data.eval_dataloader("train", L))
            # side by side, as one map of A T outputs
            flat = torch.cat([solve_normal_equations(*equations, alpha) for alpha in self._alphas], 1)
            squared, count = torch.zeros(len(self._alphas), dtype=torch.float64), 0.0
            for batch in data.eval_dataloader("val", L):
                forecast = apply_ridge(flat, batch).unflatten(1, (len(self._alphas), -1))  # type: ignore[no-untyped-call]
                error, observed = (forecast - batch.known_target.double()[:, None]).square(), batch.target_observed
                count += batch.known_target.numel() if observed is None else float(observed.sum())
                squared += (error if observed is None else error.masked_fill(~observed[:, None], 0.0)).sum((0, 2, 3))
            yield from zip(product([L], self._alphas), (squared / count).tolist(), strict=True)

    @override
    def forward(self, batch: Batch) -> Tensor:
        return apply_ridge(self.weight, last_context(batch, self.context_length))
