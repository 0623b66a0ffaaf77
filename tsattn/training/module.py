"""LightningModule that trains and measures a network; the backbone knows nothing of Lightning."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.plugins import MixedPrecision, Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import override

from tsattn.backbones import BACKBONES, Backbone, backbone_class, complete_backbone, network_name, task_network
from tsattn.backbones.task_network import CheckpointContent, Network, read_content, refuse_imports
from tsattn.batch import Batch
from tsattn.descriptions import DEFAULT_BACKBONE
from tsattn.errors import UserError, is_number, one_of
from tsattn.evaluation.reductions import ErrorTotals
from tsattn.evaluation.selection import selection_metric
from tsattn.layers import BlockStack
from tsattn.layers.optim import BETAS, Optimization, cap_rms_, mup_init_
from tsattn.ridge.closed_form import Maps, possible_contexts, ridge_maps
from tsattn.scaler import Scaler, Units
from tsattn.task import Output, Task, calibration_share
from tsattn.training.losses import batch_loss, choose_loss

COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_LOGGED = ("mse_scaled", "mae_scaled", "mse_original", "mae_original", "windows", "crps_scaled", "crps_original", "wql")


class ForecastingModule(LightningModule):
    """Lightning module that trains and measures a backbone.

    The network is built for the task of the datamodule when training starts, and for the saved task when a checkpoint
    is loaded. Task, scaler, output and description are saved in the checkpoint, as plain data.

    Args:
        backbone: description of the backbone: its kind, or ``{kind: transformer, attention: mlr, ...}``.
        learning_rate: peak learning rate of AdamW.
        weight_decay: weight decay of AdamW, on matrices only.
        warmup_steps: steps over which the learning rate rises. By default a tenth of all steps, and at most 100.
        loss: ``mse``, ``mae``, ``huber`` or ``frequency``, over observed targets on the scale of the data; ``mse`` by
            default. Quantiles need ``pinball``, their default. A pretrained network is trained by its own loss.
        mup: follow the muP rules of `tsattn.layers.optim`: one learning rate then serves every width. Each hidden
            weight learns at ``learning_rate * 768 / fan_in``, and is drawn again with variance ``1 / fan_in``. Also
            give the attention ``scaling: mup``.
        quantiles: rising levels to forecast, including 0.5: the median is the point forecast, which MSE and MAE
            measure. By default only a point forecast.
        activation_checkpointing: save memory in training: keep only the input of each encoder block, and compute the
            block again in the backward pass. Losses and gradients are equal; a step takes about a third longer.
        compile_mode: compile the backbone with torch.compile while it is trained: ``default``, ``reduce-overhead``
            (CUDA graphs, for small models on a GPU), ``max-autotune`` (these, and the fastest of several kernels) or
            ``max-autotune-no-cudagraphs``. Each size of batch compiles once, in half a minute or more.
        selection: the validation error by which the best weights are chosen: ``mse``, ``mae`` or ``crps``; by default
            the error of the loss, see `tsattn.evaluation.selection`.
        schedule: course of the learning rate after its warm-up: ``cosine``, falling along a cosine to zero, or
            ``constant``.
        distribution: forecast a distribution instead of separate quantiles: ``normal``, ``student_t``, or
            ``negative_binomial`` for counts, trained by the negative log-likelihood (``nll``). Its quantiles are exact;
            without `quantiles` its mean is forecast. By default none.
        betas: of AdamW: the shares that its running means of gradients and of squared gradients keep at each step.
        calibrate: whether a run calibrates intervals by the validation windows after training, see
            `tsattn.predictors.calibrated`; or a share: the last validation rows, which then only calibrate.
        patience: validations without a lower error, after which training ends. By default, if no length is given, 7
            validations whose error is more than 10 % above the lowest; else training runs to its end.
        min_delta: how much lower a validation error must be to count as lower.

    Raises:
        UserError: for an argument out of its range, or a loss that does not train this output.
    """

    network: Network  # these are there once it is built
    scaler: Scaler
    units: Units  # of the series that are measured
    errors: ErrorTotals
    maps: Maps | None = None  # of a linear path that starts from the ridge

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
        betas = [] if betas is None else [*betas]  # plain data, as everything that is saved
        self.optimization = Optimization(learning_rate, weight_decay, warmup_steps, schedule, betas, mup)
        if compile_mode not in (None, *COMPILE_MODES):
            valid = f"one of {one_of(COMPILE_MODES)}, or null for none"
            raise UserError(f"compile_mode must be {valid}, not {compile_mode!r}")
        self.output = Output(tuple(quantiles), distribution)
        if patience is not None and patience < 1:
            raise UserError(f"patience must be at least 1 validation, not {patience}")
        if not (is_number(min_delta) and 0 <= min_delta < math.inf):
            raise UserError(f"min_delta must be a number of at least 0, not {min_delta}")
        quantiles = list(self.output.quantiles)
        self.save_hyperparameters(logger=False)
        self.patience, self.min_delta, self.mup, self.compile_mode = patience, min_delta, mup, compile_mode
        self.description = complete_backbone(backbone)
        self.loss = choose_loss(loss, quantiles, distribution)
        self.selection = selection_metric(self.loss, quantiles, selection)
        kind, cls = self.description["kind"], backbone_class(self.description["kind"])
        self.has_own_loss = cls.has_own_loss
        options = {"compile_mode": compile_mode, "activation_checkpointing": activation_checkpointing}
        for name, value in {"loss": loss, "mup": mup, **options}.items():
            if value and (cls.has_own_loss or (cls.is_pretrained and name == "mup")):
                raise UserError(f"{kind} starts from pretrained weights: leave {name} out")
        self.activation_checkpointing = activation_checkpointing
        self._runs_compiled = self._starts_warm = False

    @property
    def name(self) -> str:
        """Kind of backbone and attention, e.g. ``transformer_mlr``, as tables and run folders show it."""
        return network_name(self.description)

    @property
    def backbone(self) -> Backbone:
        """Backbone of the network, once built."""
        return self.network.backbone

    @property
    def task(self) -> Task:
        """Sizes and columns of the network, once built."""
        return self.network.task

    def build(self, task: Task, scaler: Scaler, network: Network | None = None) -> None:
        """Build the network for a task; if it was built already, task and scaler stay."""
        if hasattr(self, "network"):
            if _sizes(self.task) != _sizes(task):
                raise UserError(f"the model was built for {_sizes(self.task)}, but the data has {_sizes(task)}")
            return
        network = Network(self.description, task, self.output) if network is None else network
        if self.activation_checkpointing:
            self._recompute_blocks(network.backbone)
        if self.mup:
            mup_init_(network.backbone)
        self.network, self.scaler, self.units = network, scaler, scaler.units()
        self.errors = ErrorTotals(task.num_channels, self.output.quantiles)

    def _recompute_blocks(self, backbone: Backbone) -> None:
        encoders = [part for part in backbone.modules() if isinstance(part, BlockStack)]
        if not encoders:
            lacks = f"backbone {self.description['kind']} has no encoder: leave it false"
            raise UserError(f"activation_checkpointing works on the blocks of an encoder, but {lacks}")
        for encoder in encoders:
            if self.compile_mode is not None and encoder.counts:
                together = "norm: batch, activation_checkpointing and compile_mode do not work together"
                raise UserError(f"{together}: leave one of them out")
            encoder.recompute = True

    def start_from(self, state: Mapping[str, Tensor]) -> None:
        """Take over the weights of an earlier training, so that the backbone does not warm-start."""
        self.load_state_dict(state)
        self._starts_warm = True

    def warm_start(self, data: Any, chosen: Maps | None = None) -> None:
        """Let a backbone that is not trained yet start from the ridge of the training windows, with the chosen maps."""

        def solved(longest: int) -> tuple[Tensor, Tensor, Tensor]:
            self.maps, solution = ridge_maps(data, possible_contexts(data, longest), chosen=chosen)
            return solution

        if not self._starts_warm:
            self.backbone.warm_start(solved)
        self._starts_warm = True

    @override
    def setup(self, stage: str) -> None:
        datamodule = getattr(self.trainer, "datamodule", None)
        if datamodule is not None:
            datamodule.check_distribution(self.output)
            self.build(datamodule.task, datamodule.scaler)
            self.units = datamodule.series.units
        elif not hasattr(self, "network"):
            raise UserError("a ForecastingModule takes its sizes from the data: give the Trainer datamodule=...")
        if stage == "fit" and self.compile_mode is not None:
            check_compile_device(self.compile_mode, self.trainer.strategy.root_device)
            start_compiled(self.backbone, self.compile_mode)
            self._runs_compiled = True

    @override
    def teardown(self, stage: str) -> None:
        if self._runs_compiled:
            self.backbone._compiled_call_impl = None
        self._runs_compiled = False

    @override
    def on_fit_start(self) -> None:
        if (data := getattr(self.trainer, "datamodule", None)) is not None:
            self.warm_start(data)

    @override
    def forward(self, batch: Batch) -> Tensor:
        return self.network.forecast_of(self._made(batch), batch)

    def _made(self, batch: Batch) -> Tensor:
        """Return the backbone's output: a forecast, or the parameters of a distribution."""
        if self._runs_compiled and self._has_graphs(batch.past):
            # an output lives in the memory of a graph only until its next replay
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with compiler_errors(self.compile_mode):
            made: Tensor = self.network.backbone(batch)
        return made

    @override
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        if self.has_own_loss:
            loss = self.network.backbone.own_loss(batch)
        else:
            loss = batch_loss(self.loss, self._made(batch), batch, self.output.quantiles, self.network.family)
        shown = loss
        if self.trainer.world_size > 1:  # Lightning's own mean would have the host wait for the devices in each step
            shown = loss.detach() / self.trainer.world_size
            torch.distributed.all_reduce(shown)
        self.log("train_loss", shown, batch_size=len(batch))  # not for the bar, see Progress
        return loss

    @override
    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        with compiler_errors(self.compile_mode):
            loss.backward(*args, **kwargs)  # type: ignore[no-untyped-call]

    @override
    def on_before_backward(self, loss: Tensor) -> None:
        if self.trainer.accumulate_grad_batches > 1 and self._has_graphs(loss):
            hold_gradients(self.backbone)

    @override
    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)
        if self.mup:
            cap_rms_(self.backbone)

    @override
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        pair = self(batch), batch.known_target
        forecast, target = (self.units.standardised(part, batch.series_id) for part in pair)
        self.errors.update(forecast, target, batch.target_observed, self.units.of(batch.series_id))

    test_step = validation_step

    @override
    def on_validation_epoch_end(self) -> None:
        stage, scores = "test" if self.trainer.testing else "val", self.errors.scores()
        if math.isnan(scores["mae_scaled"]) and self.errors.compute().isfinite().all():
            raise UserError(f"all target values of the {stage} part are missing: choose another split")
        shared = self.trainer.world_size > 1  # the sums are shared already: Lightning's mean of them changes nothing
        for name in [*_LOGGED, *(name for name in scores if re.fullmatch(r"coverage_[\d.]+", name))]:
            if name in scores:
                value = torch.tensor(float(scores[name]), device=self.device)
                self.log(f"{stage}_{name}", value, prog_bar=(stage, name) == ("val", "mse_scaled"), sync_dist=shared)
        self.errors.reset()

    on_test_epoch_end = on_validation_epoch_end

    @override
    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self.units.restore(self(batch), batch.series_id)

    @override
    def configure_optimizers(self) -> OptimizerLRScheduler:
        steps = self.trainer.estimated_stepping_batches
        # a fused optimizer would unscale after the clipping
        optimizer, schedule = self.optimization.begin(self.backbone, steps, fused=not self._scales_loss)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    @override
    def configure_gradient_clipping(
        self, optimizer: Optimizer, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
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

        Give `backbone` for a class of your own, and for pretrained weights.
        """
        if "backbone" not in options:
            saved = read_content(task_network.load_checkpoint(checkpoint_path)).predictor
            if saved.get("kind") not in BACKBONES:
                raise UserError(f"{checkpoint_path} does not describe its backbone: give backbone=DESCRIPTION")
            refuse_imports(saved, str(checkpoint_path))
            options["backbone"] = saved
        return super().load_from_checkpoint(checkpoint_path, *args, **{**options, "weights_only": True})

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        CheckpointContent(self.network.task, self.scaler, self.output, self.description).write_to(checkpoint)
        checkpoint["maps"] = self.maps

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Build for the task of the checkpoint, or refuse it if it belongs to another model."""
        saved = read_content(checkpoint)
        self.maps, self._starts_warm = checkpoint.get("maps"), True
        task_network.check_weights(checkpoint.get("state_dict", {}), "the checkpoint")
        task_network.check_same(saved.predictor, saved.output, self.description, self.output)
        self.build(saved.task, saved.scaler)

    def _has_graphs(self, tensor: Tensor) -> bool:
        return tensor.is_cuda and self.compile_mode in ("reduce-overhead", "max-autotune")

    @property
    def _scales_loss(self) -> bool:  # as in float16
        plugin = self.trainer.precision_plugin
        return isinstance(plugin, MixedPrecision) and plugin.scaler is not None


def check_compile_device(mode: str | None, device: torch.device) -> None:
    """Refuse a mode of torch.compile that does nothing on a device."""
    if mode == "reduce-overhead" and device.type != "cuda":
        needs = f"which need a CUDA device, not {device.type}"
        raise UserError(f"compile_mode reduce-overhead uses CUDA graphs, {needs}: give compile_mode default")


def hold_gradients(backbone: nn.Module) -> None:
    """Give parameters gradients to add to: the next replay of a CUDA graph overwrites its outputs."""
    for parameter in backbone.parameters():
        if parameter.requires_grad and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def start_compiled(backbone: nn.Module, mode: str) -> None:
    """Compile a backbone when it is first called, once for each size of batch."""
    torch.compiler.reset()  # torch compiles a method at most 8 times in all, then silently runs uncompiled
    backbone.compile(mode=mode, dynamic=False)


@contextlib.contextmanager
def compiler_errors(mode: str | None) -> Iterator[None]:
    """Turn an error of the compiler into a `UserError`, in a forward or backward pass."""
    try:
        yield
    except RuntimeError as error:
        from torch._dynamo.exc import BackendCompilerFailed

        if not isinstance(error, BackendCompilerFailed):
            raise
        why = error.inner_exception
        reason = f"{type(why).__name__}: {' '.join(str(why).split())[-200:]}"  # a loader's reason follows its path
        if type(why).__name__ == "InvalidCxxCompiler":
            reason = "no C++ compiler works here (install g++, or set CXX)"
        raise UserError(f"torch cannot compile the backbone: {reason}; leave compile_mode {mode} out") from error


def _sizes(task: Task) -> str:
    sizes = f"context {task.context_length}, horizon {task.prediction_length}, {task.num_channels} channels"
    covariates = [*task.past_covariates, *task.future_covariates, *task.static]
    return f"{sizes}, covariates {one_of(covariates)}" if covariates else sizes
