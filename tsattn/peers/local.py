"""Models of statsforecast, which are fitted to each window by itself, in the environment of the peers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.errors import number_of, whole_number
from tsattn.peers.base import PeerPredictor

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training

__all__ = ["StatsForecast"]

_LONG = 120  # seconds, above which it is said how long a test takes


class StatsForecast(PeerPredictor):
    """A local model of statsforecast: AutoETS, AutoARIMA, Theta and so on.

    It is fitted to each channel of each window when that is forecast, so nothing is learnt from the training rows, and
    a test costs as many fits as there are windows and channels. With seasons of a day an AutoETS takes a tenth of a
    second for 96 hours and a quarter for 512, so a test of ETTh1 an hour; `context_length` bounds that. Missing values
    in a context are imputed, those before its first observed value left out. Values come as they are scaled, below 0
    too, so that multiplicative models do not apply. Quantiles are the ends of its prediction intervals.

    Args:
        model: the name of a class of ``statsforecast.models``.
        arguments: of that class; ``season_length`` is that of the task by default.
        context_length: L, the steps that it is fitted to; those of the task by default.

    Raises:
        UserError: for a model that cannot be the name of a class, or a context of no step.
    """

    library = "statsforecast"
    needs_fit = False

    def __init__(
        self, *, model: str = "AutoETS", arguments: Mapping[str, Any] | None = None, context_length: int | None = None
    ) -> None:
        super().__init__(model, arguments, context_length=context_length)
        self._own_length = None if context_length is None else whole_number("context_length", context_length)

    @property
    @override
    def context_length(self) -> int:
        return super().context_length if self._own_length is None else self._own_length

    @property
    @override
    def summary(self) -> str:
        return f"{self.name}: fitted to each channel of each window, {self.context_length} steps, as it forecasts"

    @override
    def check_fit(self, data: ForecastDataModule, training: Training) -> None:
        super().check_fit(data, training)
        self._process().ask(self._request("check"))
        if "val" not in data.parts:
            return
        windows = data.windows("val", self.context_length)
        started = time.perf_counter()
        self(windows[0])  # which finds what the model cannot do, and what it costs
        seconds = time.perf_counter() - started
        count = len(windows) + (len(data.windows("test", self.context_length)) if "test" in data.parts else 0)
        if count * seconds > _LONG:
            minutes = number_of(round(count * seconds / 60), "minute")
            training.say(f"{self.name}: a window takes {seconds:.2g} s, all {count:,} to score about {minutes}")

    @override
    def fit(self, data: ForecastDataModule, training: Training | None = None) -> dict[str, Any]:
        return {}

    @override
    def forward(self, batch: Batch) -> Tensor:
        return self._forecast(batch, cut_fronts=True)
