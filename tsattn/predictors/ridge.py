"""Ridge regression in closed form, with a context and a penalty that may be chosen from several.

Shape letters: L context length, T prediction length, A penalties.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.backbones import ridge_solution
from tsattn.backbones.ridge_solution import ALPHA, apply_ridge, normal_equations, regression_rows, ridge_maps
from tsattn.batch import Batch
from tsattn.errors import UserError, number_of, one_of, whole_number
from tsattn.predictors.base import Predictor, last_context
from tsattn.task import Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training

_SELECTORS = ("validation", "leave_block_out")
_NUM_BLOCKS = 10


def ridge_label(contexts: Iterable[int], alpha: float | Sequence[float], name: str = "ridge") -> str:
    """Return a label that tells ridges apart in tables: ``ridge (context 104, alpha 10)``, without a default alpha."""
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
        context_length: L, by default the task's; or several, of which one is chosen. It looks at the longest of
            them, whichever is chosen.
        select: how one of several is chosen, by mean squared error: ``validation``, on the validation windows; or
            ``leave_block_out``, on the training windows alone, see `leave_block_out_errors`. The chosen one is
            fitted as if it had been the only one.
    """

    weight: Tensor

    def __init__(
        self,
        *,
        alpha: float | Sequence[float] = ALPHA,
        context_length: int | Sequence[int] | None = None,
        select: str = _SELECTORS[0],
    ) -> None:
        super().__init__(alpha=_plain(alpha), context_length=_plain(context_length), select=select)
        self.alphas = _several("alpha", alpha)
        for value in (value for value in self.alphas if not 0 < value < math.inf):
            raise UserError(f"alpha must be a number above 0, not {value}")
        own = [] if context_length is None else _several("context_length", context_length)
        self._own_lengths = [whole_number("context_length", length) for length in own]
        if select not in _SELECTORS:
            raise UserError(f"select must be one of {one_of(_SELECTORS)}, not {select!r}")
        if select != _SELECTORS[0] and not self.chooses:
            raise UserError(f"select: {select} needs a list to choose from: several of alpha or of context_length")
        self.select = select
        self._fixed_length: int | None = None

    @override
    def check_weights(self, data: ForecastDataModule) -> None:
        pass

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
        chosen = self._fixed_length or (self.chooses and int(self.get_buffer("chosen_context")))
        return chosen or self.context_length

    def fix_length(self) -> None:
        """Keep the context that was chosen as a number, which a graph needs: no fit changes it any more."""
        self._fixed_length = self.fitted_length

    @property
    @override
    def num_parameters(self) -> int:
        is_open = self.chooses and self.get_buffer("chosen_context").is_meta
        return (self.context_length if is_open else self.fitted_length) * self.task.prediction_length

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
        # not a number before it is fitted: a forecast of it cannot be taken for one
        unknown = torch.full((self.context_length, task.prediction_length), math.nan, dtype=torch.float64)
        self.register_buffer("weight", unknown.to("meta") if empty else unknown)
        self._note(self.context_length, self.alphas[0])

    @override
    def fit(self, data: ForecastDataModule, training: Training | None = None) -> dict[str, Any]:
        """Solve for ``every`` k-th training window, with the ``chosen`` context and penalty of the ``candidates``."""
        if not self.chooses:
            return {"every": self._solve(data, self.context_length, self.alphas[0])}
        member = "" if training is None else training.member

        def say(line: str) -> None:
            if training is not None:
                training.say(f"{member}: {line}" if member else line)

        facts: dict[str, Any] = {"member": member} if member else {}
        chosen = None if training is None else training.choices.get(member)
        if chosen is None:
            errors = validation_errors if self.select == _SELECTORS[0] else leave_block_out_errors
            candidates = errors(data, self._lengths, self.alphas, say)
            best = least(candidates)
            chosen = {"context_length": best["context_length"], "alpha": best["alpha"]}
            facts |= {"chosen": chosen, "candidates": candidates}
        return {"every": self._solve(data, chosen["context_length"], chosen["alpha"]), **facts}

    def _solve(self, data: ForecastDataModule, L: int, alpha: float) -> int:
        """Take the map of a context and penalty; return k where each k-th window was taken."""
        every = data.thinning("train", L)
        weight = ridge_solution.solve_ridge(data.eval_dataloader("train", L, every), alpha)
        device = torch.device("cpu") if self.weight.is_meta else self.weight.device
        # steps before the context that was chosen have no weight
        whole = weight.new_zeros(self.context_length, weight.shape[1])
        whole[self.context_length - L :] = weight
        self.weight = whole.to(device)
        self._note(L, alpha)
        return every

    def _note(self, L: int, alpha: float) -> None:
        if self.chooses:
            self.register_buffer("chosen_context", torch.tensor(L, device=self.weight.device))
            chosen = torch.tensor(alpha, dtype=torch.float64, device=self.weight.device)
            self.register_buffer("chosen_alpha", chosen)

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
    plain = _plain(given)
    values = plain if isinstance(plain, list) else [plain]
    if not values:
        raise UserError(f"{name} must be a number or a list of numbers to choose from, not {given!r}")
    repeated = next((value for place, value in enumerate(values) if value in values[:place]), None)
    if repeated is not None:
        raise UserError(f"{name} lists {repeated} twice")
    return values


def _plain(given: Any) -> Any:
    return list(given) if isinstance(given, Sequence) and not isinstance(given, str) else given


def least(candidates: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the candidate (``context_length``, ``alpha``, ``mse_scaled``) of the least error, the first of several."""
    return min(candidates, key=itemgetter("mse_scaled"))


def validation_errors(
    data: ForecastDataModule, contexts: Sequence[int], alphas: Sequence[float], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Fit each context and penalty to its training windows, and measure it on all validation windows."""
    if "val" not in data.parts:
        raise UserError(
            "a ridge of several alphas or contexts is chosen by validation windows, and the data has none; give one of "
            "each, or select: leave_block_out"
        )
    found: list[dict[str, Any]] = []
    for context in contexts:
        equations = normal_equations(data.eval_dataloader("train", context, data.thinning("train", context)))
        # side by side, as one map of A T outputs
        flat = ridge_maps(*equations, alphas).permute(1, 0, 2).flatten(1)
        squared, count = torch.zeros(len(alphas), dtype=torch.float64), 0.0
        for batch in data.eval_dataloader("val", context):
            forecast = apply_ridge(flat, batch).unflatten(1, (len(alphas), -1))  # type: ignore[no-untyped-call]
            error, observed = (forecast - batch.known_target.double()[:, None]).square(), batch.target_observed
            count += batch.known_target.numel() if observed is None else float(observed.sum())
            squared += (error if observed is None else error.masked_fill(~observed[:, None], 0.0)).sum((0, 2, 3))
        found += _candidates(context, alphas, squared / count, "validation MSE", say)
    return found


def leave_block_out_errors(
    data: ForecastDataModule, contexts: Sequence[int], alphas: Sequence[float], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Measure each context and penalty on blocks of training windows that are left out in turn.

    The windows, in the order of series and time, are cut into ten blocks. Each is forecast by the map of all others but
    itself and its two neighbours, whose nearest windows share rows with its own. All contexts are compared on the
    windows that the longest leaves, in one pass. Source: Racine, *Consistent cross-validatory model-selection for
    dependent data: hv-block cross-validation* (Journal of Econometrics, 2000).
    """
    longest = max(contexts)
    every = data.thinning("train", longest)
    windows = -(-len(data.windows("train", longest)) // every)
    if windows < _NUM_BLOCKS:
        raise UserError(f"leave_block_out needs {_NUM_BLOCKS} training windows or more, and there are {windows}")
    say(f"ridge: {windows} training windows in {_NUM_BLOCKS} blocks, for {number_of(len(contexts), 'context')}")
    blocks = {context: [_Block(context, data.prediction_length) for _ in range(_NUM_BLOCKS)] for context in contexts}
    bounds = [-(-windows * number // _NUM_BLOCKS) for number in range(_NUM_BLOCKS + 1)]
    first = 0
    for batch in data.eval_dataloader("train", longest, every):
        for place, (start, end) in enumerate(pairwise(bounds)):
            part = batch.rows(max(0, start - first), max(0, end - first))
            if len(part):
                for context in contexts:
                    blocks[context][place].add(last_context(part, context))
        first += len(batch)
    found: list[dict[str, Any]] = []
    for context in contexts:
        squared, count = torch.zeros(len(alphas), dtype=torch.float64), 0
        for place, block in enumerate(blocks[context]):
            rest = [one for other, one in enumerate(blocks[context]) if abs(other - place) > 1 and one.count]
            if block.count and rest:
                gram, moment = (torch.stack([getattr(r, n) for r in rest]).sum(0) for n in ("gram", "moment"))
                squared += block.squared_errors(ridge_maps(gram, moment, alphas))
                count += block.count
        if not count:
            raise UserError("leave_block_out needs training windows with known targets in more than one block of them")
        found += _candidates(context, alphas, squared / count, "MSE of blocks left out", say)
    return found


class _Block:
    """Normal equations of a block of windows, from which the squared error of any map follows."""

    def __init__(self, context_length: int, prediction_length: int) -> None:
        self.gram = torch.zeros(context_length, context_length, dtype=torch.float64)
        self.moment = torch.zeros(context_length, prediction_length, dtype=torch.float64)
        self.targets = torch.zeros((), dtype=torch.float64)
        self.count = 0

    def add(self, batch: Batch) -> None:
        x, y = regression_rows(batch)
        self.gram += x.T @ x
        self.moment += x.T @ y
        self.targets += y.square().sum()
        self.count += y.numel()

    def squared_errors(self, maps: Tensor) -> Tensor:
        """Return `(A,)` of the maps `(A, L, T)`: `|Y|^2 - 2 <W, X' Y> + <W, X' X W>`."""
        return self.targets + ((self.gram @ maps - 2 * self.moment) * maps).sum((1, 2))


def _candidates(
    context: int, alphas: Sequence[float], errors: Tensor, what: str, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    pairs = zip(alphas, errors.tolist(), strict=True)
    found = [{"context_length": context, "alpha": alpha, "mse_scaled": mse} for alpha, mse in pairs]
    best = least(found)
    say(f"ridge (context {context}): {what} {best['mse_scaled']:.4g}, with alpha {best['alpha']:g}")
    return found
