"""Networks of neuralforecast, trained and asked in the environment of the peers."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.errors import UserError, number_of, one_of
from tsattn.evaluation import selection_metric
from tsattn.peers.base import PeerPredictor
from tsattn.peers.exchange import write_series
from tsattn.peers.peer_process import PeerProcess
from tsattn.task import Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training

__all__ = ["NeuralForecast"]

logger = logging.getLogger("tsattn")

_LOSSES = {"mse": "MSE", "mae": "MAE", "huber": "HuberLoss", "pinball": "MQLoss"}
_SELECTION = {"mse_scaled": "MSE", "mae_scaled": "MAE", "crps_scaled": "MQLoss"}
_WITHOUT_EFFECT = ("mup", "compile_mode", "activation_checkpointing")


class NeuralForecast(PeerPredictor):
    """A network of neuralforecast: PatchTST, iTransformer, DLinear, NHITS and so on.

    It is trained once, on the scaled training rows, with the validation rows held out, and keeps the weights of the
    lowest validation loss. What `arguments` leave out is as for networks of our own where both have it: how long
    (`max_steps` or `max_epochs` of the Trainer, else the length and the early stopping of `tsattn.training.length`) and
    how often to validate, `learning_rate`, `loss` and `selection`, seed, precision and accelerator, and the windows in
    a batch (``windows_batch_size``: `batch_size` windows, of each of their channels where a model forecasts channels
    one by one). All else is the default of neuralforecast: Adam without weight decay, a constant rate, no clipping.

    Missing values are imputed, and masked in its loss (``available_mask``). Models of several series at once
    (iTransformer, TSMixer) take all channels of one series together; models that forecast step by step are refused.

    Args:
        model: the name of a class of ``neuralforecast.models``.
        arguments: of that class; ``loss`` and ``valid_loss`` by the names of their classes.

    Raises:
        UserError: for a model that cannot be the name of a class.
    """

    library = "neuralforecast"
    is_trained = True
    fitted: Tensor

    def __init__(self, *, model: str = "PatchTST", arguments: Mapping[str, Any] | None = None) -> None:
        super().__init__(model, arguments)

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        super().build(task, output, empty=empty)
        # the weights as a file of safetensors, whose length is known once there are some
        self.register_buffer("fitted", torch.empty(0, dtype=torch.uint8, device="meta" if empty else None))

    @property
    @override
    def num_parameters(self) -> int:
        """The weights that were trained; 0 before a fit, as neuralforecast alone knows how many there will be."""
        if not self.fitted.numel() or self.fitted.is_meta:
            return 0
        content = self.fitted.cpu().numpy().tobytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return int(header["__metadata__"]["parameters"])

    @override
    def check_fit(self, data: ForecastDataModule, training: Training) -> None:
        super().check_fit(data, training)
        self._checked(self._process(), data, training)

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        process = self._process()
        request, facts, plan = self._checked(process, data, training)
        part = f"{training.member}: " if training.member else ""
        training.say(f"{part}{self.name}: {facts['parameters']:,} parameters, by {facts['version']}")
        training.say(f"training: {plan}{', anew' if training.resumes else ''}")  # there is nothing to go on from
        table, weights = process.folder / "series.parquet", process.folder / "fitted.safetensors"
        try:
            rows = write_series(table, data)
            if not rows:
                request["options"] |= {"early_stop_patience_steps": -1}
                if "val" in data.parts:
                    logger.warning("no series has the rows to hold a part out; the weights of the last step stay")
            trained = process.ask(
                {**request, "do": "fit", "table": str(table), "state": str(weights), "val_rows": rows}
            )
            content = np.fromfile(weights, np.uint8)
        finally:
            for file in (table, weights):
                file.unlink(missing_ok=True)
        self.fitted = torch.from_numpy(content)
        return {
            **({"member": training.member} if training.member else {}),
            "best_step": trained["best_step"],
            "library": facts["version"],
            "parameters": facts["parameters"],
            "training": {
                "steps": trained["steps"],
                "seconds": trained["seconds"],
                "windows_per_second": None,
                "peak_memory_bytes": None,
            },
        }

    @override
    def forward(self, batch: Batch) -> Tensor:
        if not self.fitted.numel():
            raise UserError(f"{self.name} is not fitted yet")
        return self._forecast(batch, state=str(self._file_of_weights(self._process())))

    def _file_of_weights(self, process: PeerProcess) -> Path:
        """The weights where the worker reads them, written once."""
        content = self.fitted.cpu().numpy().tobytes()
        file = process.folder / f"{hashlib.sha256(content).hexdigest()}.safetensors"
        if not file.exists():
            file.write_bytes(content)
        return file

    def _checked(
        self, process: PeerProcess, data: ForecastDataModule, training: Training
    ) -> tuple[dict[str, Any], dict[str, Any], str]:
        """The request of a fit, what the worker says to it, and what is planned; refused where either cannot be."""
        from tsattn.training.losses import choose_loss  # what is only loaded needs no Lightning
        from tsattn.training.train import plan_training
        from tsattn.training.trainer_options import check_one_device

        given, levels = training.options, self.output.quantiles
        for name in _WITHOUT_EFFECT:
            if given.get(name):
                raise UserError(f"{name} has no effect on {self.name}: leave it out")
        check_one_device(training.trainer.arguments, f"{self.name} is trained on one device")
        own = self.arguments["arguments"] or {}
        planned = training
        if "max_steps" in own:
            planned = replace(training, trainer=training.trainer.fresh().with_max_steps(own["max_steps"]))
        plan = plan_training(data.with_context(data.context_length), planned)
        if plan.steps is None:
            raise UserError(
                f"{self.name} is trained for so many steps: give max_steps or max_epochs, not max_time alone"
            )
        loss = choose_loss(given.get("loss"), levels)
        if loss not in _LOSSES:
            raise UserError(f"{self.name} is trained by one of {one_of(_LOSSES)}, not {loss}")
        trainer = training.trainer.arguments
        options = {
            "max_steps": plan.steps,
            "val_check_steps": plan.interval,
            "early_stop_patience_steps": plan.patience or -1,
            "loss": _LOSSES[loss],
            "valid_loss": _SELECTION[selection_metric(loss, levels, given.get("selection"))],
            "windows_batch_size": data.batch_size * trainer["accumulate_grad_batches"],
            "accelerator": trainer["accelerator"],
            **({"learning_rate": given["learning_rate"]} if "learning_rate" in given else {}),
            **({"precision": trainer["precision"]} if trainer["precision"] is not None else {}),
        }
        if levels and options["valid_loss"] != "MQLoss":
            raise UserError(f"{self.name} of quantiles is selected by crps alone: leave selection out")
        seed = int(torch.randint(2**31, ())) if training.seed is None else training.seed
        stop_at = None if training.lengths is None else training.lengths[training.member]
        request = self._request("check", options=options, seed=seed, stop_at=stop_at)
        facts = process.ask(request)
        if facts["is_multivariate"] and len(data.series) > 1:
            raise UserError(
                f"{self.model} of neuralforecast forecasts all channels of one series together, and the data have "
                f"{len(data.series)} series: name another model"
            )
        ending = f", ending after {plan.patience} without improvement" if plan.patience else ""
        steps, often = number_of(plan.steps, "step"), number_of(plan.interval, "step")
        return request, facts, f"{'up to ' if plan.patience else ''}{steps}, validation every {often}{ending}"

    @override
    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        found = state_dict.get(f"{prefix}fitted")
        if isinstance(found, Tensor):  # of another length than the empty one
            self.fitted = torch.empty_like(found)
        super()._load_from_state_dict(state_dict, prefix, *others)
