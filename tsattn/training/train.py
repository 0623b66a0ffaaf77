"""The one way to train a network: a Trainer, what watches over it, and the weights that validation chose."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import Logger
from torch import Tensor, nn

from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.training.best_weights import BestCheckpoint, BestInMemory, load_best
from tsattn.training.checkpoint_io import AtomicCheckpointIO, load_checkpoint
from tsattn.training.curve import count_epochs, keep_curve
from tsattn.training.exact_resume import ExactResume
from tsattn.training.kept_checkpoints import KeptCheckpoints
from tsattn.training.kept_memory import memory_kept
from tsattn.training.loggers import attached_loggers
from tsattn.training.module import ForecastingModule
from tsattn.training.one_epoch import TrainingPlan, train_as_one_epoch
from tsattn.training.precision import FULL_PRECISION
from tsattn.training.quiet_lightning import quiet_lightning
from tsattn.training.save_progress import SaveProgress
from tsattn.training.stopping import FiniteLoss, StopAt, StopEarly
from tsattn.training.throughput import Throughput
from tsattn.training.trainer_options import TrainerOptions, build_trainer, listed

__all__ = ["Training", "TrainingFiles", "all_fits", "check_training", "chosen_lengths", "plan_training", "train"]

logger = logging.getLogger("tsattn")


class TrainingFiles(Protocol):
    """Where a training keeps what it would be lost without; a folder of a run is one.

    Attributes:
        path: the folder that the curve is written into, as ``metrics.csv``.
        checkpoints: the folder of the checkpoints.
        best: the checkpoint with the lowest validation error.
        last: the last checkpoint.
        curve: the curve.
    """

    path: Path
    checkpoints: Path
    best: Path
    last: Path
    curve: Path


@dataclass(frozen=True)
class Training:
    """How networks are trained in a run.

    Attributes:
        trainer: the arguments of Lightning's Trainer.
        options: those of `ForecastingModule` beside the backbone: learning rate, loss, quantiles and so on.
        seed: of the weights, the order of the windows and dropout; None draws from torch's generators as they are.
        open_files: makes the files of a training that is about to begin, given the name of its member, its device and
            its steps (None if time ends it); None keeps the best weights in memory alone.
        resumes: whether to go on from the last checkpoint in the files, if there is one.
        checkpoint: to go on from instead.
        callbacks: Lightning's, beside those of `trainer`.
        loggers: Lightning's, or their names, beside those of `trainer`.
        start: the state of a predictor whose weights the training starts from; None starts anew.
        bar: the one that shows progress; None shows nothing.
        say: takes lines about what is done.
        member: the name of the part of an ensemble that is trained; empty for the whole.
        lengths: by member, the optimizer steps after which to stop, along the learning rates of the whole training;
            None trains to the end.
        fitted: asked for a member before it is fitted: loads the state of an earlier fit into the predictor that it is
            given, and gives what is known of that; None where there was none.
        choices: by member, what a closed form chose in an earlier fit, such as ``alpha``, and takes as it is; those
            without an entry choose.
    """

    trainer: TrainerOptions
    options: Mapping[str, Any]
    seed: int | None = 1
    open_files: Callable[[str, str, int | None], TrainingFiles] | None = None
    resumes: bool = False
    checkpoint: Path | None = None
    callbacks: Sequence[Callback] = ()
    loggers: Sequence[Logger | str] = ()
    start: Mapping[str, Tensor] | None = None
    bar: Callback | None = None
    say: Callable[[str], None] = field(default=logger.info)
    member: str = ""
    lengths: Mapping[str, int] | None = None
    fitted: Callable[[str, nn.Module], dict[str, Any] | None] = field(default=lambda member, predictor: None)
    choices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def of_member(self, name: str, seed_offset: int = 0, **options: Any) -> Training:
        """The training of a part: with files, a seed and options of its own.

        Args:
            name: of the part, a name of a folder; that of a part of a part has both, with a dot between them.
            seed_offset: added to the seed.
            **options: take the place of `options`; ``max_steps`` that of the Trainer's.
        """
        steps = options.pop("max_steps", None)
        trainer = self.trainer.fresh()
        trainer = trainer if steps is None else trainer.with_max_steps(steps)
        seed = None if self.seed is None else self.seed + seed_offset
        member = f"{self.member}.{name}" if self.member else name
        return replace(self, trainer=trainer, options={**self.options, **options}, seed=seed, member=member)

    def at_length(self, facts: Mapping[str, Any]) -> Training:
        """The same, which stops where validation had its least error in an earlier fit, with what closed forms chose.

        Args:
            facts: what that fit gave: ``best_step`` or ``chosen``, or those of the members of an ensemble under
                ``members``.
        """
        choices = {fit.get("member", ""): fit["chosen"] for fit in all_fits(facts) if "chosen" in fit}
        return replace(self, lengths=chosen_lengths(facts), choices=choices)


def chosen_lengths(facts: Mapping[str, Any]) -> dict[str, int]:
    """By member, empty for the whole, the optimizer step that validation chose in a fit.

    Args:
        facts: what the fit gave: ``best_step``, or those of the members of an ensemble under ``members``.
    """
    return {fit.get("member", ""): fit["best_step"] for fit in all_fits(facts) if "best_step" in fit}


def all_fits(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The facts of each fit: of the members of an ensemble, by seed, of what these are made of, or of the whole."""
    if "members" not in facts:
        return [facts]
    return [one for fits in facts["members"] for fit in fits for one in all_fits(fit)]


def train(module: ForecastingModule, data: ForecastDataModule, training: Training) -> dict[str, Any]:
    """Train a network; it is left with the weights of the lowest validation error, on the CPU and in eval mode.

    Where no series is long enough to hold a part out, the weights of the last step stay, which is logged.

    Args:
        module: built for the task of the data.
        data: set up.
        training: how.

    Returns:
        ``best_step``, ``selected_by`` (the name of the validation error), ``validation_error``, ``validation_windows``,
        ``parameters`` and ``training``: ``steps``, ``seconds``, ``windows_per_second`` and ``peak_memory_bytes``.

    Raises:
        UserError: if it diverges, or the device has not the memory; what was saved before stays.
        KeyboardInterrupt: if it is interrupted.
    """
    metric = f"val_{module.selection}"
    has_validation = "val" in data.parts
    keeps_files = training.open_files is not None and not training.trainer.arguments["fast_dev_run"]
    stopping, throughput = StopEarly(metric, module.min_delta), Throughput()
    module.starts_warm = training.start is not None
    stops_early = training.trainer.chooses_steps or module.patience is not None
    saving: list[Callback] = []
    plugins = listed(training.trainer.arguments["plugins"])
    if keeps_files:
        best_file, progress = BestCheckpoint(Path(), metric), SaveProgress(Path())
        saving = [best_file, progress, ExactResume()]
        plugins.append(AtomicCheckpointIO())
    elif training.checkpoint is not None or any(isinstance(one, KeptCheckpoints) for one in training.callbacks):
        saving = [ExactResume()]
        plugins.append(AtomicCheckpointIO())
    best_weights = None if keeps_files or not has_validation else BestInMemory(metric)
    # Lightning calls those that write checkpoints last, wherever they stand: what is saved has counted its validation
    watching = [
        *([stopping] if stops_early and has_validation else []),
        *saving,
        *([best_weights] if best_weights is not None else []),
        *(FiniteLoss(), throughput),
        *([] if training.lengths is None else [StopAt(training.lengths[training.member])]),
        *training.callbacks,
        *([training.bar] if training.bar is not None else []),
    ]
    with quiet_lightning():
        saves = keeps_files or any(isinstance(one, ModelCheckpoint) for one in training.callbacks)
        trainer = _trainer(training, data, watching, plugins, keeps_files=keeps_files, saves=saves)
        plan = _planned(trainer, data, training)
        if module.patience is not None:
            plan = replace(plan, patience=module.patience)
        stopping.patience = plan.patience
        parameters = sum(p.numel() for p in module.parameters() if p.requires_grad)
        module.check_device(trainer.strategy.root_device)
        is_chosen = stops_early or training.trainer.chooses_validation
        _say_plan(training, trainer, module.name, parameters, plan if is_chosen else None)
        checkpoint, files = training.checkpoint, None
        if keeps_files:
            assert training.open_files is not None
            files = training.open_files(training.member, device_name(trainer), plan.steps)
            if training.resumes and files.last.exists():
                checkpoint = files.last
            best_file.dirpath, progress.path = str(files.checkpoints), files.last
        _attach_loggers(trainer, data, files, training, checkpoint)
        started = time.perf_counter()
        keeping = memory_kept() if trainer.strategy.root_device.type == "cpu" else contextlib.nullcontext()
        listening = progress.listening() if keeps_files else contextlib.nullcontext()
        with _explained(training, data, files), keeping, listening:
            trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
            # one that comes after the last step ends nothing by itself
            if trainer.interrupted or trainer.received_sigterm or (keeps_files and progress.is_asked):
                raise KeyboardInterrupt
        seconds = time.perf_counter() - started
        trainer.strategy.barrier()  # whoever is first reads what all have written
    chosen: dict[str, Any] = {}
    if has_validation:
        chosen = load_best(module, trainer, best_weights or best_file, checkpoint)
    elif training.lengths is None:
        logger.warning(
            "no series has the rows to hold a part out for validation; the weights of the last of %d steps stay",
            trainer.global_step,
        )
    module.to("cpu").eval()
    data.trainer = None  # with its optimizer it would stay as long as the data
    speed = throughput.windows_per_second
    return {
        **({"member": training.member} if training.member else {}),
        **{"best_step": trainer.global_step, "selected_by": module.selection, **chosen},
        "validation_windows": plan.scored,
        "parameters": parameters,
        "training": {
            "steps": trainer.global_step,
            "seconds": round(seconds, 1),
            "windows_per_second": None if speed is None else round(speed, 1),
            "peak_memory_bytes": throughput.peak_memory_bytes,
        },
    }


def check_training(module: ForecastingModule, data: ForecastDataModule, training: Training) -> None:
    """Refuse what `train` would refuse before its first step.

    Args:
        module: built for the task of the data.
        data: set up; what is planned is noted in them.
        training: how.

    Raises:
        UserError: for a Trainer that cannot be made, a training of no steps, validation in the middle of a step, or a
            device that the module cannot be trained on as asked.
    """
    with quiet_lightning():
        trainer = _trainer(training, data, [], listed(training.trainer.arguments["plugins"]))
        _planned(trainer, data, training)
        if module.patience is not None and "val" not in data.parts and training.lengths is None:
            raise UserError(
                "patience ends a training by its validation error, and no series has the rows to hold a part out for "
                "validation: leave patience out, or give longer series"
            )
        module.check_device(trainer.strategy.root_device)


def plan_training(data: ForecastDataModule, training: Training) -> TrainingPlan:
    """How long a training would be, and how often validated, for what is trained by others.

    Args:
        data: set up; the plan is noted in them.
        training: how.

    Raises:
        UserError: for a Trainer that cannot be made, or a training of no steps.
    """
    with quiet_lightning():
        trainer = _trainer(training, data, [], listed(training.trainer.arguments["plugins"]))
        return _planned(trainer, data, training)


def _trainer(
    training: Training,
    data: ForecastDataModule,
    watching: Sequence[Callback],
    plugins: list[Any],
    *,
    keeps_files: bool = False,
    saves: bool = False,
) -> Trainer:
    """The Trainer of a training, or of a look at what it would be.

    Without files it has no checkpoints either, whatever the arguments say, unless the caller of the training has asked
    for some.
    """
    given = (training.trainer if keeps_files else training.trainer.without_files()).arguments
    return build_trainer(
        given,
        watching,
        logger=False,  # until there is a folder
        plugins=plugins,
        enable_checkpointing=saves,
        enable_progress_bar=training.bar in watching,
        enable_model_summary=bool(given["enable_model_summary"]),
        **({} if "val" in data.parts else {"limit_val_batches": 0}),
    )


def _planned(trainer: Trainer, data: ForecastDataModule, training: Training) -> TrainingPlan:
    """Let a Trainer train as the training says, and the data choose what that leaves open."""
    return train_as_one_epoch(
        trainer,
        data,
        choose_steps=training.trainer.chooses_steps,
        choose_validation=training.trainer.chooses_validation,
    )


def device_name(trainer: Trainer) -> str:
    """What a Trainer computes on: ``cpu``, or the name of the GPU."""
    device = trainer.strategy.root_device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _say_plan(training: Training, trainer: Trainer, name: str, parameters: int, plan: TrainingPlan | None) -> None:
    devices = f" x {trainer.world_size}" if trainer.world_size > 1 else ""
    precision = "" if trainer.precision == FULL_PRECISION else f", {trainer.precision}"
    part = f"{training.member}: " if training.member else ""
    training.say(f"{part}{name}: {parameters:,} parameters, on {device_name(trainer)}{devices}{precision}")
    if plan is not None:
        training.say(f"training: {plan}")


def _attach_loggers(
    trainer: Trainer, data: ForecastDataModule, files: TrainingFiles | None, training: Training, checkpoint: Path | None
) -> None:
    """Let the Trainer write its curve, in a folder after the steps of a checkpoint."""
    given = training.trainer.arguments["logger"]
    if given is not False and not training.trainer.arguments["fast_dev_run"]:
        run, root = None if files is None else files.path, training.trainer.arguments["default_root_dir"]
        trainer.loggers = attached_loggers([*listed(given), *training.loggers], run, root)
    if not trainer.loggers:
        return
    batches = data.train_dataloader().batches.epoch_length  # type: ignore[attr-defined]  # a TrainingLoader
    count_epochs(trainer.loggers, batches / trainer.accumulate_grad_batches)
    if files is not None and training.resumes and trainer.is_global_zero:
        keep_curve(
            trainer.loggers, files.curve, 0 if checkpoint is None else load_checkpoint(checkpoint)["global_step"]
        )


@contextlib.contextmanager
def _explained(training: Training, data: ForecastDataModule, files: TrainingFiles | None) -> Iterator[None]:
    """The errors of a training, with what to do about them."""
    try:
        yield
    except SystemExit as stop:  # how Lightning ends a fit on Ctrl-C and on SIGTERM
        raise KeyboardInterrupt from stop
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"the device has not the memory for batches of {data.batch_size} windows: try "
            f"--data.batch_size {max(1, data.batch_size // 2)} with "
            "--trainer.accumulate_grad_batches 2, --model.activation_checkpointing true, --trainer.precision "
            "bf16-mixed, --data.resident_gb 0, or a smaller model"
        ) from error
    except UserError as error:
        if files is None or not files.best.exists():
            raise
        raise type(error)(f"{error}; the best weights so far are in {files.best}") from error
