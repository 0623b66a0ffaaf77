"""Where, and in which precision, a trained module forecasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from lightning.pytorch.plugins import Precision
from torch import Tensor, nn

from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.training.precision import FULL_PRECISION
from tsattn.training.quiet_lightning import quiet_lightning
from tsattn.training.trainer_options import TrainerOptions, build_trainer

__all__ = ["Execution"]


class Execution:
    """A device and a precision, as Lightning's Trainer has them.

    Args:
        trainer: the arguments of the Trainer; of them, those that say how to compute are obeyed, on one device.

    Attributes:
        options: these arguments.
        device: where batches are computed.

    Raises:
        UserError: for an accelerator that is not there, or a precision that it lacks.
    """

    _OBEYED = ("accelerator", "precision", "plugins", "deterministic", "benchmark")

    def __init__(self, trainer: TrainerOptions) -> None:
        self.options = trainer
        self.device, self._precision = _plain(trainer.arguments) or self._of_trainer(trainer)

    def _of_trainer(self, trainer: TrainerOptions) -> tuple[torch.device, Precision]:
        obeyed = {name: trainer.arguments[name] for name in self._OBEYED}
        with quiet_lightning():
            made = build_trainer(
                {**obeyed, "callbacks": None},
                devices=1,
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
            )
        # its loops compute by three calls of this plugin, and so does `forecaster`: no loop is needed for that
        device: torch.device = made.strategy.root_device
        return device, made.precision_plugin

    @classmethod
    def exact(cls, options: TrainerOptions) -> Execution:
        """On the host, in the precision that the weights have, whatever the options say."""
        made = cls.__new__(cls)
        made.options, made.device, made._precision = options, torch.device("cpu"), Precision()
        return made

    def forecaster(
        self, module: nn.Module, forecast: Callable[[Batch], Tensor] | None = None
    ) -> Callable[[Batch], Tensor]:
        """What forecasts a batch with a module in eval mode, moved to the device; the forecast comes back to the CPU.

        A module without parameters was not trained in the precision, and keeps its own.

        Args:
            module: from a batch to a forecast.
            forecast: calls the module, if another form of call is wanted.
        """
        is_trained = next(module.parameters(), None) is not None
        precision = self._precision if is_trained else Precision()
        module = precision.convert_module(module.to(self.device)).eval()
        call = module if forecast is None else forecast

        @torch.inference_mode()
        def on_device(batch: Batch) -> Tensor:
            there = precision.convert_input(batch.to(self.device, non_blocking=True))
            try:
                with precision.forward_context():
                    out: Tensor = call(there)
            except torch.OutOfMemoryError as error:
                raise UserError(
                    f"the device has not the memory to forecast {len(batch)} windows at once: try "
                    f"--data.eval_batch_size {max(1, len(batch) // 2)}"
                ) from error
            return out.cpu()

        return on_device


def _plain(given: Mapping[str, Any]) -> tuple[torch.device, Precision] | None:
    """A CPU in full precision, where nothing else is asked for or there: no Trainer need be made for that."""
    has_others = torch.cuda.is_available() or torch.backends.mps.is_available()
    is_cpu = given["accelerator"] == "cpu" or (given["accelerator"] == "auto" and not has_others)
    asked = [given[name] for name in ("plugins", "deterministic", "benchmark")]
    is_full = given["precision"] in (None, FULL_PRECISION)
    return (torch.device("cpu"), Precision()) if is_cpu and is_full and not any(asked) else None
