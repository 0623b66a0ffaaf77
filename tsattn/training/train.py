"""The one way to train a network: a Trainer, callbacks that watch it, and the weights that validation chose."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback, Checkpoint, ModelCheckpoint
from lightning.pytorch.loggers import Logger
from torch import Tensor, nn

from tsattn.backbones.task_network import load_checkpoint
from tsattn.data import ForecastDataModule
from tsattn.data.splits import ByCount
from tsattn.errors import UserError
from tsattn.training import callbacks
from tsattn.training.callbacks import BestCheckpoint, BestInMemory, SaveProgress, load_best
from tsattn.training.execution import quiet_lightning
from tsattn.training.length import TrainingPlan, train_as_one_epoch
from tsattn.training.loggers import attached_loggers, keep_curve
from tsattn.training.module import ForecastingModule, check_compile_device
from tsattn.training.trainer_options import FULL_PRECISION, TrainerOptions, as_list, build_trainer

logger = logging.getLogger("tsattn")


class TrainingFiles(Protocol):
    """Files of a training, as a run folder has them."""

    path: Path
    checkpoints: Path
    best: Path
    last: Path
    curve: Path  # in `path`


@dataclass(frozen=True)
class Training:
    """How networks are trained in a run."""

    trainer: TrainerOptions
    options: Mapping[str, Any]  # of `ForecastingModule`, without the backbone
    seed: int | None = 1  # of weights, order and dropout; None draws from torch's generators as they are
    # makes the files of a member, given its device and steps (None if time ends it); None keeps the best in memory
    open_files: Callable[[str, str, int | None], TrainingFiles] | None = None
    resumes: bool = False  # the last checkpoint in the files, if there is one
    checkpoint: Path | None = None  # to resume instead
    callbacks: Sequence[Callback] = ()  # added to the Trainer's
    loggers: Sequence[Logger | str] = ()  # or their names, added to the Trainer's
    start: Mapping[str, Tensor] | None = None  # state of the predictor that it starts from; None: from scratch
    bar: Callback | None = None  # shows progress
    say: Callable[[str], None] = field(default=logger.info)  # takes lines about progress
    member: str = ""  # of an ensemble; empty for the whole
    lengths: Mapping[str, int] | None = None  # by member, steps to stop after, at the rates of the whole training
    # asked before a member is fitted: loads an earlier fit into the given predictor, and returns its facts if any
    load_earlier_fit: Callable[[str, nn.Module], dict[str, Any] | None] = field(default=lambda member, predictor: None)
    # by member, what a closed form chose in an earlier fit, such as ``alpha``; it is not chosen again
    choices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def keeps_files(self) -> bool:
        """Whether checkpoints are written."""
        return self.open_files is not None and not self.trainer.arguments["fast_dev_run"]

    def of_member(self, name: str, seed_offset: int = 0, **options: Any) -> Training:
        """Return the training of a part: its files, seed, options and callbacks; ``max_steps`` is its Trainer's."""
        steps = options.pop("max_steps", None)
        trainer = self.trainer.fresh() if steps is None else self.trainer.fresh().with_max_steps(steps)
        seed = None if self.seed is None else self.seed + seed_offset
        member = f"{self.member}.{name}" if self.member else name
        own = {**self.options, **options}
        callbacks = copy.deepcopy(self.callbacks)
        return replace(self, trainer=trainer, options=own, seed=seed, member=member, callbacks=callbacks)

    def unwatched(self, trainer: TrainerOptions) -> Training:
        """Return a training of other rows by a new Trainer, without files, callbacks and earlier fits of members."""
        shown: dict[str, Any] = {"start": self.start, "bar": self.bar, "say": self.say}
        return Training(trainer.fresh().without_files(), self.options, self.seed, **shown)

    def at_length(self, facts: Mapping[str, Any]) -> Training:
        """Return this training, stopped where validation chose in an earlier fit, with its choices of closed forms."""
        choices = {fit.get("member", ""): fit["chosen"] for fit in all_fits(facts) if "chosen" in fit}
        return replace(self, lengths=chosen_lengths(facts), choices=choices)


def chosen_lengths(facts: Mapping[str, Any]) -> dict[str, int]:
    """Return by member, empty for the whole, the optimizer step that validation chose in a fit."""
    return {fit.get("member", ""): fit["best_step"] for fit in all_fits(facts) if "best_step" in fit}


def all_fits(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the facts of each fit: of an ensemble's ``members``, of their parts, or of the whole, which may choose."""
    parts = [one for fits in facts.get("members", ()) for fit in fits for one in all_fits(fit)]
    return [*parts, *([facts] if "chosen" in facts or "members" not in facts else [])]


def train(module: ForecastingModule, data: ForecastDataModule, training: Training) -> dict[str, Any]:
    """Train a network; it is left with the weights of the lowest validation error, on the CPU and in eval mode.

    If no series is long enough to hold a part out, the weights of the last step stay, and a warning is logged.

    Returns:
        ``best_step``, ``selected_by`` (the name of the validation error), ``validation_error``, ``validation_windows``,
        ``parameters`` and ``training``: ``steps``, ``seconds``, of these ``earlier_seconds`` up to the checkpoint that
        was resumed, ``windows_per_second`` and ``peak_memory_bytes``.

    Raises:
        UserError: if the training cannot begin, diverges, or runs out of memory.
        KeyboardInterrupt: if it is interrupted.
    """
    with quiet_lightning():
        trainer, plan, planned = _begun(data, training, module, callbacks.FiniteLoss())
        root, parameters = trainer.strategy.root_device, sum(p.numel() for p in module.parameters() if p.requires_grad)
        device = torch.cuda.get_device_name(root) if root.type == "cuda" else root.type
        devices = f" x {trainer.world_size}" if trainer.world_size > 1 else ""
        precision = "" if trainer.precision == FULL_PRECISION else f", {trainer.precision}"
        part = f"{training.member}: " if training.member else ""
        training.say(f"{part}{module.name}: {parameters:,} parameters, on {device}{devices}{precision}")
        if training.trainer.chooses_steps or training.trainer.chooses_validation or module.patience is not None:
            training.say(f"training: {plan}")
        checkpoint, files = training.checkpoint, None
        if training.open_files is not None and training.keeps_files:
            files = training.open_files(training.member, device, plan.steps)
            if training.resumes and files.last.exists():
                checkpoint = files.last
        kept, progress = _keep(module, trainer, training, plan, files)
        _attach_loggers(trainer, planned, files, training, checkpoint)
        trainer.callbacks.append(throughput := callbacks.Throughput())  # type: ignore[attr-defined]
        with _explained(data, files), contextlib.nullcontext() if progress is None else progress.listening():
            if checkpoint is None:  # before callbacks copy the module, as averages of weights do
                module.warm_start(planned, training.choices.get(training.member, {}).get("maps"))
            trainer.fit(module, datamodule=planned, ckpt_path=checkpoint, weights_only=True)
            # an interrupt after the last step ends nothing by itself
            if trainer.interrupted or trainer.received_sigterm or (progress is not None and progress.is_asked):
                raise KeyboardInterrupt
        spent = throughput.state_dict()
        trainer.strategy.barrier()  # the first process reads what all have written
    chosen: dict[str, Any] = {}
    if kept is not None and plan.scored:
        chosen = load_best(module, trainer, kept, checkpoint)
    elif training.lengths is None:
        why = "val_rows is 0" if isinstance(data.rule, ByCount) else "no series is long enough for validation rows"
        logger.warning("%s; the weights of the last of %d steps are kept", why, trainer.global_step)
    module.to("cpu").eval()
    return {
        **({"member": training.member} if training.member else {}),
        **{"best_step": trainer.global_step, "selected_by": module.selection, **chosen},
        "validation_windows": plan.scored,
        "parameters": parameters,
        "training": {"steps": trainer.global_step, **spent},
    }


def plan_training(
    data: ForecastDataModule, training: Training, module: ForecastingModule | None = None
) -> TrainingPlan:
    """Return how long a training would be, and how often validated; refuse what `train` would refuse at once."""
    with quiet_lightning():
        return _begun(data, training, module)[1]


def _begun(
    data: ForecastDataModule, training: Training, module: ForecastingModule | None = None, *watching: Callback
) -> tuple[Trainer, TrainingPlan, ForecastDataModule]:
    """Build the Trainer, the plan and its data; without files it writes no checkpoints unless asked."""
    options = training.trainer
    given = (options if training.keeps_files else options.without_files()).arguments
    own = [*watching, *training.callbacks, *([] if training.bar is None else [training.bar])]
    trainer = build_trainer(
        given,
        own,
        logger=False,  # until there is a folder
        plugins=[*as_list(given["plugins"]), callbacks.AtomicCheckpointIO()],
        enable_checkpointing=any(isinstance(one, ModelCheckpoint) for one in [*as_list(given["callbacks"]), *own]),
        enable_progress_bar=training.bar is not None,
        enable_model_summary=bool(given["enable_model_summary"]),
        **({} if "val" in data.parts else {"limit_val_batches": 0}),
    )
    chooses = {"choose_steps": options.chooses_steps, "choose_validation": options.chooses_validation}
    plan, planned = train_as_one_epoch(trainer, data, **chooses)
    if module is None:
        return trainer, plan, planned
    check_compile_device(module.compile_mode, trainer.strategy.root_device)
    if module.patience is not None and "val" not in data.parts and training.lengths is None:
        lacks = "no series is long enough for validation rows: leave patience out, or give longer series"
        raise UserError(f"patience needs a validation error, and {lacks}")
    if module.patience is not None:
        plan = replace(plan, patience=module.patience, tolerance=0.0)
    return trainer, plan, planned


def _keep(
    module: ForecastingModule, trainer: Trainer, training: Training, plan: TrainingPlan, files: TrainingFiles | None
) -> tuple[BestCheckpoint | BestInMemory | None, SaveProgress | None]:
    """Add the callbacks that end the training and keep its weights, now that plan and folder are known."""
    metric = f"val_{module.selection}"
    kept: BestCheckpoint | BestInMemory | None = BestInMemory(metric) if plan.scored else None
    progress = None
    watching: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    if plan.patience and plan.scored:
        limits = plan.steps, str(training.trainer.arguments["max_time"])
        watching.append(callbacks.StopEarly(metric, module.min_delta, plan.patience, plan.tolerance, limits))
    if training.lengths is not None:
        watching.append(callbacks.stop_at(training.lengths[training.member]))
    if files is not None:
        kept, progress = BestCheckpoint(files.checkpoints, metric), SaveProgress(files.last)
    watching += [one for one in (progress, kept) if one is not None]
    if training.checkpoint is not None or any(isinstance(one, Checkpoint) for one in watching):
        watching.append(callbacks.ExactResume())
    watching.sort(key=lambda one: isinstance(one, Checkpoint))  # checkpoints come last, to include the validation
    return kept, progress


def _attach_loggers(
    trainer: Trainer, data: ForecastDataModule, files: TrainingFiles | None, training: Training, checkpoint: Path | None
) -> None:
    given = training.trainer.arguments["logger"]
    run, root = None if files is None else files.path, training.trainer.arguments["default_root_dir"]
    wanted = [*as_list(given), *training.loggers]
    if given is False or training.trainer.arguments["fast_dev_run"] or not (run or wanted):
        return
    batches = data.train_dataloader().batches.epoch_length  # type: ignore[attr-defined]  # a TrainingLoader
    trainer.loggers = attached_loggers(wanted, run, root, batches / trainer.accumulate_grad_batches)
    if files is not None and training.resumes and trainer.is_global_zero:
        step = 0 if checkpoint is None else load_checkpoint(checkpoint)["global_step"]
        keep_curve(trainer.loggers, files.curve, step)


@contextlib.contextmanager
def _explained(data: ForecastDataModule, files: TrainingFiles | None) -> Iterator[None]:
    try:
        yield
    except SystemExit as stop:  # how Lightning ends a fit on Ctrl-C and on SIGTERM
        raise KeyboardInterrupt from stop
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"out of device memory for batches of {data.batch_size} windows: try "
            f"--data.batch_size {max(1, data.batch_size // 2)} with "
            "--trainer.accumulate_grad_batches 2, --model.activation_checkpointing true, --trainer.precision "
            "bf16-mixed, --data.resident_gb 0, or a smaller model"
        ) from error
    except UserError as error:
        if files is None or not files.best.exists():
            raise
        raise type(error)(f"{error}; the best weights so far are in {files.best}") from error
