"""Training on series held in memory, the newest part of each held out to choose the best weights."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from tsattn.checks import check_accelerator, whole_number
from tsattn.data import ForecastDataModule, PanelDataModule
from tsattn.errors import UserError, number_of
from tsattn.training.callbacks import StopEarly
from tsattn.training.length import choose_interval, choose_length, scored_windows
from tsattn.training.module import ForecastingModule
from tsattn.training.precision import default_precision
from tsattn.training.progress import StepsBar
from tsattn.training.random_state import own_random_state

__all__ = ["TrainingOptions", "TrainingPlan", "fit_to_panel", "quiet_lightning", "train_as_one_epoch"]

logger = logging.getLogger("tsattn")

_NOISE = (
    r".*does not have many workers.*",
    r".*The number of training batches.*",
    r".*Experiment logs directory.*",
    r".*Checkpoint directory .* exists and is not empty.*",
    r".*LeafSpec.*",
    r".*isinstance\(treespec.*",
    r".*callbacks used to create the checkpoint need to be provided.*",
    r".*lr_scheduler.step\(\).*",
    r".*GPU available but not used.*",
    r".*`srun` command is available.*",  # on every machine of a cluster
    r".*LightningCLI's args parameter.*",  # the words of a subprocess are those of this process
)
_ENDLESS = 10**12  # batches, where time alone ends a training


@contextlib.contextmanager
def quiet_lightning() -> Iterator[None]:
    """Without what Lightning says of its own workings."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [one.level for one in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="lightning")
        for pattern in _NOISE:
            warnings.filterwarnings("ignore", pattern)
        try:
            for one in loggers:
                one.setLevel(logging.WARNING)
            yield
        finally:
            for one, level in zip(loggers, levels, strict=True):
                one.setLevel(level)


@dataclass(frozen=True)
class TrainingPlan:
    """What a training will do.

    Attributes:
        steps: optimizer steps, at most; None where time alone ends it.
        interval: steps from one validation to the next.
        scored: validation windows that each of them scores.
        patience: validations without a lower error, after which it ends; None trains all steps.
    """

    steps: int | None
    interval: int
    scored: int
    patience: int | None

    def __str__(self) -> str:
        steps = "" if self.steps is None else f"{'up to ' if self.patience else ''}{number_of(self.steps, 'step')}, "
        often = f"validation every {number_of(self.interval, 'step')} on {number_of(self.scored, 'window')}"
        return f"{steps}{often}" + (f", ending after {self.patience} without improvement" if self.patience else "")


def train_as_one_epoch(
    trainer: Trainer, data: ForecastDataModule, *, choose_steps: bool = False, choose_validation: bool = False
) -> TrainingPlan:
    """Let a Trainer see all its epochs as one, whose loader begins anew behind each; call it before `fit`.

    Its validation, which Lightning counts in epochs too, comes after the same batches. Without the ends of epochs in
    between, every checkpoint is one of the middle of an epoch, from which Lightning goes on exactly.

    Args:
        trainer: its `max_epochs`, `max_steps`, `limit_train_batches`, `val_check_interval` and
            `check_val_every_n_epoch` are obeyed and replaced.
        data: set up.
        choose_steps: train as long as `tsattn.training.length` has it, not as the Trainer says; that
            patience ends it is left to the caller.
        choose_validation: validate as often as it has it.

    Raises:
        UserError: if there is nothing to train, or validation would come in the middle of a step.
    """
    data.training_batches, data.trainer = None, trainer  # of several devices each has its share of a batch
    limit, every = trainer.limit_train_batches, trainer.accumulate_grad_batches
    if every < 1:
        raise UserError(f"accumulate_grad_batches must be at least 1, not {every}")
    whole = len(data.train_dataloader())
    epoch = min(whole, limit) if isinstance(limit, int) else max(1, int(whole * limit)) if limit else 0
    windows_a_batch = data.batch_size * trainer.world_size
    windows = len(data.windows("train"))
    length = choose_length(windows, windows_a_batch * every) if choose_steps else None
    totals = [_ENDLESS if length is None else length.steps * every]
    if trainer.max_epochs not in (None, -1):
        totals.append(trainer.max_epochs * epoch)
    if trainer.max_steps != -1:
        totals.append(trainer.max_steps * every)
    total = min(totals)
    if total == 0 or epoch == 0:
        raise UserError("there is nothing to train: max_epochs, max_steps and limit_train_batches must be above 0")
    available = len(data.windows("val")) if "val" in data.parts else 0
    interval = trainer.val_check_interval
    if choose_validation and total < _ENDLESS:
        interval = choose_interval(total // every, windows_a_batch * every, available) * every
    elif not isinstance(interval, int):
        interval = int(epoch * interval * (trainer.check_val_every_n_epoch or 1))
        interval = max(1, interval // every) * every
    elif interval % every and interval < total:
        raise UserError(
            f"val_check_interval {interval} must be a multiple of accumulate_grad_batches {every}: validation comes "
            "behind a whole step"
        )
    interval = min(interval, total)
    trainer.val_check_interval, trainer.check_val_every_n_epoch = interval, None
    trainer.limit_train_batches = 1.0
    trainer.fit_loop.max_epochs = 1
    data.training_batches = total
    # of windows that the user limits, all are scored
    is_limited = trainer.limit_val_batches not in (None, 1.0)
    data.scored_windows = None if is_limited else scored_windows(interval * windows_a_batch, available)
    return TrainingPlan(
        steps=None if total == _ENDLESS else total // every,
        interval=interval // every,
        scored=data.num_scored(available),
        patience=None if length is None else length.patience,
    )


@dataclass(frozen=True)
class TrainingOptions:
    """How long and with what a model is trained.

    Attributes:
        max_steps: optimizer steps; None trains as long as `tsattn.training.length` has it.
        batch_size: windows in a batch.
        seed: of the weights, the order of the windows and dropout.
        accelerator: ``auto``, ``cpu``, ``gpu``, ``cuda`` or ``mps``, as Lightning's Trainer has it.
        progress: whether a bar is shown.

    Raises:
        UserError: for one that is out of its range, or an accelerator that is not there.
    """

    max_steps: int | None = None
    batch_size: int = 32
    seed: int = 1
    accelerator: str = "auto"
    progress: bool = False

    def __post_init__(self) -> None:
        if self.max_steps is not None:
            whole_number("max_steps", self.max_steps)
        whole_number("batch_size", self.batch_size)
        whole_number("seed", self.seed, least=0, most=2**63 - 1)
        check_accelerator(self.accelerator)


def fit_to_panel(model: ForecastingModule, data: PanelDataModule, options: TrainingOptions) -> None:
    """Train a model on the series of a panel; it is left with the weights of the lowest validation error.

    That is the CRPS for a model of quantiles, else the MSE. Where no series is long enough to hold a part out, the
    weights of the last step stay, which is logged. The state of torch's random generator is left as it was.
    """
    metric = "val_crps" if model.quantiles else "val_mse"
    has_validation = "val" in data.parts
    data.setup("fit")
    with own_random_state(options.seed), quiet_lightning(), tempfile.TemporaryDirectory() as folder:
        stopping = StopEarly(metric)
        checkpoint = ModelCheckpoint(folder, "best", monitor=metric, save_weights_only=True)
        watching: list[Callback] = [checkpoint, stopping] if has_validation else []
        trainer = Trainer(
            accelerator=options.accelerator,
            devices=1,
            precision=default_precision(options.accelerator, devices=1),
            max_steps=-1 if options.max_steps is None else options.max_steps,
            max_epochs=-1,
            limit_val_batches=None if has_validation else 0,
            gradient_clip_val=1.0,
            logger=False,
            enable_progress_bar=options.progress,
            enable_model_summary=False,
            enable_checkpointing=has_validation,
            callbacks=[*watching, *([StepsBar(metric)] if options.progress else [])],
            num_sanity_val_steps=0,
        )
        chooses = options.max_steps is None
        plan = train_as_one_epoch(trainer, data, choose_steps=chooses, choose_validation=True)
        stopping.patience = plan.patience
        logger.info("%s", plan)
        trainer.fit(model, datamodule=data)
        if trainer.interrupted:
            raise KeyboardInterrupt
        if has_validation:
            if checkpoint.best_model_score is None or not torch.isfinite(checkpoint.best_model_score):
                raise UserError("training diverged: no validation error was finite; try a lower learning_rate")
            weights = torch.load(checkpoint.best_model_path, map_location="cpu", weights_only=True)
            model.load_state_dict(weights["state_dict"])
        else:
            logger.warning(
                "no series has the rows to hold a part out for validation; the weights of the last of %d steps stay",
                trainer.global_step,
            )
    model.eval()
