"""Ridge regression in closed form: a map for each channel, shrunk towards the map of all channels.

Shape letters: B windows, C channels, L context length, T prediction length, F columns of the calendar.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.backbones.linear_maps import LinearMaps
from tsattn.batch import Batch
from tsattn.errors import number_of, positive_number, whole_number
from tsattn.predictors.base import Predictor, last_context
from tsattn.ridge.closed_form import PENALTIES, possible_contexts, ridge_maps
from tsattn.ridge.window_products import Waves
from tsattn.task import Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training


def ridge_label(contexts: Iterable[int], name: str = "ridge") -> str:
    """Return a label that tells ridges apart in tables: ``ridge (context 104)``."""
    lengths = sorted(set(contexts))
    context = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    return f"{name} (context {context})"


class Ridge(LinearMaps, Predictor):
    """One linear map per channel, of the context minus its last value and the season's waves at the origin; float64.

    It is the mean of the maps of several context lengths: all whose squared error on validation windows is within a
    tenth of the lowest. For each length these windows choose two penalties: on the map that all channels
    share, and on a channel's distance from it. Series share the map of their channel.

    With fewer than 30 validation windows, blocks of training windows are left out in turn instead. Then all channels
    share one map, as they do where their own maps would have more than 16 million numbers.

    It uses no covariates, and leaves them unread. A window counts by the mean weight of its targets, and not at all if
    a target has weight 0 or is missing. In the package's tests of earlier windows, choosing the centre of a window or
    longer waves as well raised the error.

    Args:
        context_length: L; None tries several up to 1024, a quarter of the training rows at most.
        penalty: on the squared coefficients of the map that channels share, on the scale of the data; None tries
            several.
    """

    def __init__(self, *, context_length: int | None = None, penalty: float | None = None) -> None:
        super().__init__(context_length=context_length, penalty=penalty)
        self._own_length = None if context_length is None else whole_number("context_length", context_length)
        self._penalties = PENALTIES if penalty is None else (positive_number("penalty", penalty),)

    @property
    @override
    def label(self) -> str:
        return ridge_label([self.context_length])

    @property
    @override
    def context_length(self) -> int:
        return self.weight.shape[-2]

    @override
    def check_weights(self, data: ForecastDataModule) -> None:
        pass

    @override
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Ridge:
        # a precision for the networks of an ensemble does not suit a solution of equations
        super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)  # type: ignore[no-untyped-call]
        return self

    @override
    def with_context(self, context_length: int) -> Predictor:
        return self if self._own_length else type(self)(**{**self.arguments, "context_length": context_length})

    @property
    @override
    def num_parameters(self) -> int:
        return self.weight.numel() + self.waves.numel()

    @property
    @override
    def summary(self) -> str:
        return f"ridge (context {self._own_length or 'chosen'}), in closed form"

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        super().build(task, output, empty=empty)
        # NaN before the fit, so that a forecast without a fit cannot be taken for one
        C, T, device = task.num_channels, task.prediction_length, torch.device("meta" if empty else "cpu")
        sizes = {"weight": self._own_length or task.context_length, "waves": len(Waves(task.season_length))}
        for name, size in sizes.items():
            self.register_buffer(name, torch.full((C, size, T), math.nan, dtype=torch.float64, device=device))
        self.register_buffer("period", torch.zeros((), dtype=torch.int64, device=device))

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        """Solve for all training windows, the ``chosen`` maps with their validation errors."""
        member, chosen = training.member, training.choices.get(training.member)
        facts: dict[str, Any] = {"member": member} if member else {}
        lengths = [self._own_length] if self._own_length else possible_contexts(data)
        maps, solved = ridge_maps(data, lengths, self._penalties, None if chosen is None else chosen["maps"])
        self.weight, self.waves, self.period = solved
        if chosen is None:
            label = ridge_label(one["context_length"] for one in maps)
            line = f"{label}: mean of {number_of(len(maps), 'map')}, MSE {maps[0]['mse_scaled']:.4g} at best"
            training.say(f"{member}: {line}" if member else line)
            facts["chosen"] = {"maps": maps}
        return facts

    @override
    def forward(self, batch: Batch) -> Tensor:
        window = last_context(batch, self.context_length)
        return self.moves(window) + window.past[:, -1:].double()
