"""The thin LightningModule around a backbone that knows nothing of Lightning."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Self

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.plugins import MixedPrecision, Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim import Optimizer
from typing_extensions import override

from tsattn.backbones import BACKBONES, Backbone, backbone_class, build_backbone, complete_backbone, network_name
from tsattn.batch import Batch
from tsattn.checks import calibration_share
from tsattn.data.counts import check_distribution
from tsattn.descriptions import DEFAULT_BACKBONE, refuse_imports
from tsattn.errors import UserError, one_of
from tsattn.evaluation.reductions import ErrorTotals
from tsattn.evaluation.selection import selection_metric
from tsattn.layers import BlockStack
from tsattn.layers import distribution as output_distribution
from tsattn.optim import BETAS, cap_rms_, mup_init_
from tsattn.scaler import Scaler, Units
from tsattn.task import Output, Task
from tsattn.training.checkpoint_content import CheckpointContent, check_same, read_content
from tsattn.training.checkpoint_io import load_checkpoint
from tsattn.training.compilation import (
    check_compile_device,
    check_compile_mode,
    compiler_errors,
    hold_gradients,
    start_compiled,
    stop_compiled,
    uses_cuda_graphs,
)
from tsattn.training.losses import batch_loss, choose_loss, refuse_beside_own_loss
from tsattn.training.optimization import Optimization
from tsattn.training.stopping import check_stopping
from tsattn.training.weight_checks import check_weights

__all__ = ["ForecastingModule"]


_LOGGED = (
    *("mse_scaled", "mae_scaled", "mse_original", "mae_original", "windows"),
    *("crps_scaled", "crps_original", "wql"),
)


class ForecastingModule(LightningModule):
    """Lightning module that trains and measures a backbone.

    The backbone is built for the task of the datamodule when training starts, and for the saved task when a checkpoint
    is loaded: task, scaler, output and description travel inside the checkpoint as plain data. The attribute
    `backbone` is the network, None before.

    Args:
        backbone: description of the backbone: its kind, or ``{kind: transformer, attention: mlr, ...}``.
        learning_rate: peak learning rate of AdamW.
        weight_decay: weight decay of AdamW, on matrices only.
        warmup_steps: steps over which the learning rate rises. By default a tenth of all steps, and at most 100.
        loss: ``mse``, ``mae``, ``huber`` or ``frequency``, over observed targets on the scale of the data; by default
            ``mse``, and ``pinball`` with quantiles, which no other trains. A pretrained network is trained by its own.
        mup: follow the muP learning rules of `tsattn.optim`, under which one learning rate serves every width: each
            hidden weight learns at ``learning_rate * 768 / fan_in``, and starts anew with variance ``1 / fan_in``. Give
            the attention ``scaling: mup`` with it.
        quantiles: levels to forecast, rising, with 0.5 among them: the median is the point forecast, which MSE and MAE
            measure. By default a point forecast alone.
        activation_checkpointing: save memory in training: keep only the input of each encoder block, and compute the
            block anew in the backward pass. Losses and gradients are the same; a step takes about a third longer.
        compile_mode: compile the backbone with torch.compile while it is trained: ``default``, ``reduce-overhead``
            (CUDA graphs, for small models on a GPU), ``max-autotune`` (these, and the fastest of several kernels) or
            ``max-autotune-no-cudagraphs``. Each size of batch compiles once, in half a minute or more. By default the
            backbone is not compiled, nor is it outside `fit`.
        selection: the validation error by which the best weights are chosen: ``mse``, ``mae`` or ``crps``; by default
            that of what is trained, see `tsattn.evaluation.selection`.
        schedule: what the learning rate does after its warm-up: ``cosine``, it falls along a cosine to zero, or
            ``constant``, it stays.
        distribution: forecast a distribution instead of quantiles of their own: ``normal``, ``student_t``, or
            ``negative_binomial`` for counts, trained by the negative log-likelihood (``nll``). Its quantiles are exact;
            without `quantiles` its mean is forecast. By default none.
        betas: of AdamW: the share that its mean of past gradients, and that of their squares, keeps at each step.
        calibrate: whether a run calibrates intervals by the validation windows once the training is over, see
            `tsattn.predictors.conformal`; or the share of the rows for validation, the last ones, that does so alone.
        patience: validations without a lower error, after which training ends; by default 7 where nobody says how long
            to train, else training ends at its end.
        min_delta: how much lower a validation error must be for that.

    Attributes:
        output: what is asked of the model: a point forecast or quantiles.
        task: what it is built for; None before.
        scaler: of the data that it is built for; None before.
        starts_warm: whether its weights are those of an earlier training, set by `train`.

    Raises:
        UserError: for an argument out of its range, or a loss that does not train what is forecast.
    """

    def __init__(
        self,
        backbone: str | dict[str, Any] = DEFAULT_BACKBONE,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        warmup_steps: int | None = None,
        loss: str | None = None,
        mup: bool = False,
        quantiles: Sequence[float] = (),
        activation_checkpointing: bool = False,
        compile_mode: str | None = None,
        selection: str | None = None,
        schedule: str = "cosine",
        betas: Sequence[float] = BETAS,
        distribution: str | None = None,
        calibrate: bool | float = False,
        patience: int | None = None,
        min_delta: float = 0.0,
    ) -> None:
        super().__init__()
        calibration_share(calibrate)
        betas = list(betas)  # plain data, as all that is saved
        self.optimization = Optimization(learning_rate, weight_decay, warmup_steps, schedule, betas, mup)
        check_compile_mode(compile_mode)
        self.output = Output(tuple(quantiles), distribution)
        self.family = output_distribution(self.output)
        self.patience, self.min_delta = check_stopping(patience, min_delta)
        quantiles = list(self.output.quantiles)
        self.save_hyperparameters(logger=False)
        self.description = complete_backbone(backbone)
        self.loss = choose_loss(loss, quantiles, distribution)
        self.selection = selection_metric(self.loss, quantiles, selection)
        self.has_own_loss = backbone_class(self.description["kind"]).has_own_loss
        if self.has_own_loss:
            given = {"compile_mode": compile_mode, "activation_checkpointing": activation_checkpointing}
            refuse_beside_own_loss(self.description["kind"], loss=loss, mup=mup, **given)
        self.mup, self.compile_mode = mup, compile_mode
        self.activation_checkpointing = activation_checkpointing
        self._runs_compiled = self.starts_warm = False
        self.task: Task | None = None
        self.scaler: Scaler | None = None
        self.backbone: Backbone | None = None
        self.errors: ErrorTotals | None = None
        self.units: Units | None = None

    @property
    def name(self) -> str:
        """Kind of backbone and attention, e.g. ``transformer_mlr``: what tables and run folders call it."""
        return network_name(self.description)

    def build(self, task: Task, scaler: Scaler, backbone: Backbone | None = None) -> None:
        """Build the backbone for a task; once built, only the same sizes will do, and task and scaler stay.

        Args:
            task: the sizes to build for.
            scaler: of the data, which takes forecasts back to original units.
            backbone: built for the task already; None builds a new one.

        Raises:
            UserError: for other sizes, or a backbone whose activations cannot be computed anew, or not compiled.
        """
        if self.task is not None:
            if _sizes(self.task) != _sizes(task):
                raise UserError(f"the model is built for {_sizes(self.task)}; the data has {_sizes(task)}")
            return
        backbone = build_backbone(self.description, task, self.output) if backbone is None else backbone
        if self.activation_checkpointing:
            encoders = [part for part in backbone.modules() if isinstance(part, BlockStack)]
            if not encoders:
                raise UserError(
                    f"activation_checkpointing computes the blocks of an encoder anew, and backbone "
                    f"{self.description['kind']} has no encoder: leave it false"
                )
            if self.compile_mode is not None and any(encoder.counts for encoder in encoders):
                raise UserError(
                    "norm: batch counts tokens in the first pass alone, which no compiler follows: of norm: batch, "
                    "activation_checkpointing and compile_mode choose two"
                )
            for encoder in encoders:
                encoder.recompute = True
        if self.mup:
            mup_init_(backbone)
        self.backbone = backbone
        self.errors = ErrorTotals(task.num_channels, self.output.quantiles)
        self.units = scaler.units()
        self.task, self.scaler = task, scaler

    @override
    def setup(self, stage: str) -> None:
        """Build for the task of the datamodule, once the Trainer has set that up, and take the units of its series."""
        datamodule = getattr(self.trainer, "datamodule", None)
        if datamodule is not None:
            check_distribution(self.output, datamodule)
            self.build(datamodule.task, datamodule.scaler)
            self.units = datamodule.series.units
        elif self.task is None:
            raise UserError("a ForecastingModule learns its sizes from a datamodule: give the Trainer datamodule=...")
        if stage == "fit" and self.compile_mode is not None:
            assert self.backbone is not None
            self.check_device(self.trainer.strategy.root_device)
            start_compiled(self.backbone, self.compile_mode)
            self._runs_compiled = True

    def check_device(self, device: torch.device) -> None:
        """Refuse a device that the model cannot be trained on as asked.

        Raises:
            UserError: saying what can.
        """
        check_compile_device(self.compile_mode, device)

    @override
    def teardown(self, stage: str) -> None:
        """Compile no longer: what comes after a training are a few batches of other sizes, maybe elsewhere."""
        if self._runs_compiled:
            assert self.backbone is not None
            stop_compiled(self.backbone)
            self._runs_compiled = False

    @override
    def on_fit_start(self) -> None:
        """Let the backbone start from a closed-form solution, unless it starts from weights that were trained."""
        datamodule = getattr(self.trainer, "datamodule", None)
        if datamodule is not None and self.trainer.ckpt_path is None and not self.starts_warm:
            assert self.backbone is not None
            self.backbone.warm_start(datamodule.eval_dataloader("train", every=datamodule.thinning("train")))

    @override
    def forward(self, batch: Batch) -> Tensor:
        """The forecast `(B, T, C)` on the scale of the batch, `(B, T, C, Q)` with quantiles."""
        made = self._network(batch)
        return made if self.family is None else self.family.forecast(made, self.output.quantiles, batch)

    def _network(self, batch: Batch) -> Tensor:
        """What the backbone gives: the forecast, or the parameters of a distribution."""
        assert self.backbone is not None, "build(task, scaler) comes first"
        if self._runs_compiled and uses_cuda_graphs(self.compile_mode, batch.past.device):
            # an output lives in the memory of a graph until its next replay only
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with compiler_errors(self.compile_mode):
            out: Tensor = self.backbone(batch)
        return out

    @override
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss over the observed targets of a batch."""
        if self.has_own_loss:
            assert self.backbone is not None
            loss = self.backbone.own_loss(batch)
        else:
            loss = batch_loss(self.loss, self._network(batch), batch, self.output.quantiles, self.family)
        # not for the bar, see LossBar
        self.log("train_loss", self._of_all_processes(loss), batch_size=len(batch))
        return loss

    @override
    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """The backward pass, which may be compiled only now."""
        with compiler_errors(self.compile_mode):
            loss.backward(*args, **kwargs)  # type: ignore[no-untyped-call]

    @override
    def on_before_backward(self, loss: Tensor) -> None:
        """Keep what several batches add up to out of the memory of CUDA graphs."""
        if self.trainer.accumulate_grad_batches > 1 and uses_cuda_graphs(self.compile_mode, loss.device):
            assert self.backbone is not None
            hold_gradients(self.backbone)

    @override
    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """A step that holds the structured factors to muP's size before any callback may save them."""
        super().optimizer_step(*args, **kwargs)
        if self.mup and self.backbone is not None:
            cap_rms_(self.backbone)

    @override
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add a batch of validation windows to the errors."""
        self._measure(batch)

    @override
    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Add a batch of test windows to the errors."""
        self._measure(batch)

    @override
    def on_validation_epoch_end(self) -> None:
        """Log what `ErrorTotals` says of all validation windows, as ``val_mse_scaled`` and so on."""
        self._log_errors("val", prog_bar=True)

    @override
    def on_test_epoch_end(self) -> None:
        """Log what `ErrorTotals` says of all test windows, as ``test_mse_scaled`` and so on."""
        self._log_errors("test", prog_bar=False)

    @override
    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The forecast `(B, T, C)` in original units, `(B, T, C, Q)` with quantiles."""
        return self.original_units(self(batch), batch.series_id)

    def original_units(self, scaled: Tensor, series_id: Tensor | None = None) -> Tensor:
        """Values or forecasts `(B, T, C)` or `(B, T, C, Q)` of the scale of the batch, in original units, float64.

        Args:
            scaled: what a batch holds or the model gives.
            series_id: `(B,)` as in the batch; not needed where all series share one scale.
        """
        assert self.units is not None, "build(task, scaler) comes first"
        return self.units.restore(scaled, series_id)

    @override
    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW, and a schedule over the whole training."""
        assert self.backbone is not None
        steps = self.trainer.estimated_stepping_batches
        # a fused optimizer would unscale after the clipping
        optimizer, schedule = self.optimization.begin(self.backbone, steps, fused=not self._scales_loss)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    @override
    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip as in full precision where the loss is not scaled: Lightning refuses all fused optimizers in mixed."""
        plugin = self.trainer.precision_plugin
        if isinstance(plugin, MixedPrecision) and not self._scales_loss:
            algorithm = GradClipAlgorithmType(gradient_clip_algorithm or "norm")
            Precision.clip_gradients(plugin, optimizer, gradient_clip_val or 0.0, algorithm)
        else:
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    @classmethod
    @override
    def load_from_checkpoint(cls, checkpoint_path: Any, *args: Any, **options: Any) -> Self:
        """Load as Lightning does, but let the checkpoint import nothing and unpickle nothing.

        Args:
            checkpoint_path: of the file.
            *args: as Lightning has them.
            **options: as Lightning has them; `backbone` is needed for a class of your own, and for pretrained weights.

        Raises:
            UserError: for a checkpoint that cannot be read, is of another model, or needs `backbone`.
        """
        if "backbone" not in options:
            saved = read_content(load_checkpoint(checkpoint_path)).predictor
            if saved.get("kind") not in BACKBONES:
                raise UserError(f"{checkpoint_path} holds no backbone of tsattn alone: give its description, backbone=")
            refuse_imports(saved, str(checkpoint_path))
            options["backbone"] = saved
        return super().load_from_checkpoint(checkpoint_path, *args, **{**options, "weights_only": True})

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put what the model is built from into the checkpoint, as plain data."""
        assert self.task is not None
        assert self.scaler is not None
        CheckpointContent(self.task, self.scaler, self.output, self.description).write_to(checkpoint)

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Build for the task of the checkpoint, or refuse it if it belongs to another model.

        Raises:
            UserError: naming both models, or the weight that is not finite; see `read_content`, too.
        """
        saved = read_content(checkpoint)
        check_weights(checkpoint.get("state_dict", {}), "the checkpoint")
        check_same(saved.predictor, saved.output, self.description, self.output)
        self.build(saved.task, saved.scaler)

    @property
    def _scales_loss(self) -> bool:
        """Whether gradients are those of a scaled loss, as in float16."""
        plugin = self.trainer.precision_plugin
        return isinstance(plugin, MixedPrecision) and plugin.scaler is not None

    def _of_all_processes(self, loss: Tensor) -> Tensor:
        """The mean loss; Lightning's own way there would have the host wait for the devices in each step."""
        if self.trainer.world_size == 1:
            return loss
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        return mean / self.trainer.world_size

    def _measure(self, batch: Batch) -> None:
        assert self.errors is not None
        assert self.units is not None
        assert batch.target is not None, "a window beyond the end of the data has no target"
        forecast, target = (self.units.standardised(part, batch.series_id) for part in (self(batch), batch.target))
        self.errors.update(forecast, target, batch.target_observed, self.units.of(batch.series_id))

    def _log_errors(self, stage: str, prog_bar: bool) -> None:
        assert self.errors is not None
        scores = self.errors.scores()
        if math.isnan(scores["mae_scaled"]) and self.errors.compute().isfinite().all():
            raise UserError(f"the {stage} part has no observed value to score")
        logged = (*_LOGGED, *(name for name in scores if re.fullmatch(r"coverage_[\d.]+", name)))
        for name in (name for name in logged if name in scores):
            # the sums of several processes are one already; that Lightning takes their mean changes nothing
            shared = self.trainer.world_size > 1
            value = torch.tensor(float(scores[name]), device=self.device)
            self.log(f"{stage}_{name}", value, prog_bar=prog_bar and name == "mse_scaled", sync_dist=shared)
        self.errors.reset()


def _sizes(task: Task) -> str:
    sizes = f"context {task.context_length}, horizon {task.prediction_length}, {task.num_channels} channels"
    covariates = [*task.past_covariates, *task.future_covariates, *task.static]
    return f"{sizes}, covariates {one_of(covariates)}" if covariates else sizes
