"""What every peer is: a predictor whose work is done by the model of another library, in another process."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.peers.exchange import read_forecasts, write_windows
from tsattn.peers.peer_process import PeerProcess, peer_process
from tsattn.predictors.base import Predictor, last_context

__all__ = ["PeerPredictor"]


class PeerPredictor(Predictor):
    """Forecasts by a model of another library, which is asked in the process of the peers.

    Channels go there on the scale of the batch. Covariates and static columns are left unread, as are time stamps:
    peers see steps. Quantiles that a peer forecasts each by itself are sorted, so that they cannot cross.

    Args:
        model: the name of its class in the library.
        arguments: of that class, as plain data; what the task decides, such as the horizon, is not among them.
        **more: other arguments of the subclass.

    Raises:
        UserError: for a model that cannot be the name of a class.
    """

    library: ClassVar[str]
    emits_quantiles = True

    def __init__(self, model: str, arguments: Mapping[str, Any] | None, **more: Any) -> None:
        super().__init__(model=model, arguments=None if arguments is None else dict(arguments), **more)
        if not model.isidentifier():
            raise UserError(f"model must be the name of a class of {self.library}, not {model!r}")
        self.model = model

    @property
    @override
    def name(self) -> str:
        """Kind and model, e.g. ``neuralforecast_PatchTST``."""
        return f"{self.description['kind']}_{self.model}"

    @override
    def check_export(self) -> None:
        self.refuse_export()

    def _process(self) -> PeerProcess:
        return peer_process(f"predictor {self.name}")

    def _request(self, what: str, **more: Any) -> dict[str, Any]:
        """What the worker is asked, but for files; the arguments are fields that take the place of others."""
        return {
            "do": what,
            "library": self.library,
            "model": self.model,
            "arguments": self.arguments["arguments"] or {},
            "options": {},
            "h": self.task.prediction_length,
            "input_size": self.context_length,
            "channels": self.task.num_channels,
            "season_length": self.task.season_length,
            "quantiles": list(self.output.quantiles),
            "seed": 1,
            **more,
        }

    def _forecast(self, batch: Batch, *, cut_fronts: bool = False, **more: Any) -> Tensor:
        """The forecast of each window, asked of the worker; ``more`` are fields of the request."""
        process, windows = self._process(), last_context(batch, self.context_length)
        name = uuid.uuid4().hex
        table, forecasts = process.folder / f"{name}.parquet", process.folder / f"{name}-forecasts.parquet"
        try:
            write_windows(table, windows, cut_fronts=cut_fronts)
            process.ask(self._request("forecast", table=str(table), forecasts=str(forecasts), **more))
            sizes = len(windows), self.task.num_channels, self.task.prediction_length
            made = read_forecasts(forecasts, *sizes, self.output.quantiles)
        finally:
            for file in (table, forecasts):
                file.unlink(missing_ok=True)
        return made.to(batch.past.dtype).to(batch.past.device)
