"""fit, validate, test and predict: a LightningCLI whose runs live in folders."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import pydoc
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from inspect import signature
from pathlib import Path
from typing import Any, NoReturn

import torch
import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.plugins import Precision
from lightning.pytorch.utilities import rank_zero_only

from tsattn.checks import whole_number
from tsattn.cli.drawing import draw, figure_path, span
from tsattn.cli.extension import check_longer, has_another_end, is_longer
from tsattn.cli.messages import sentence, under_key
from tsattn.cli.output import say
from tsattn.data import (
    CO2DataModule,  # noqa: F401  (by its name)
    CSVDataModule,  # noqa: F401
    ForecastDataModule,
    FrameDataModule,
    MappedDataModule,  # noqa: F401
    Panel,
    PanelDataModule,
    PublicDataModule,  # noqa: F401
)
from tsattn.errors import UserError, find_user_error, number_of
from tsattn.evaluation import Score, baseline_scores, score_table
from tsattn.experiments.run_folder import RunFolder, versions
from tsattn.figures import plot_test_forecasts
from tsattn.forecaster import future_frame
from tsattn.forecaster.frames import check_output, write_frame
from tsattn.task import Task
from tsattn.training import ForecastingModule
from tsattn.training.callbacks import BestCheckpoint, ExactResume, FiniteLoss, SaveProgress, StopEarly
from tsattn.training.checkpoint_io import AtomicCheckpointIO
from tsattn.training.curve import count_epochs, curve_loggers, keep_curve
from tsattn.training.fitting import quiet_lightning, train_as_one_epoch
from tsattn.training.precision import FULL_PRECISION, default_precision
from tsattn.training.progress import LossBar
from tsattn.training.rolling import beyond_training
from tsattn.training.throughput import Throughput
from tsattn.training.trainer_checks import check_seed, check_trainer, class_problem

__all__ = ["TrainerCLI", "run", "session", "user_errors"]

_DESCRIPTION = """
--attention KIND (or a description, as {kind: mlr, ranks: [4, 2, 2]}) switches the attention of the backbone;
--attention.ARGUMENT and --model.backbone.ARGUMENT set one argument of it. --debug shows the traceback of an error.
"""

_TRAINER_DEFAULTS = {"devices": 1, "gradient_clip_val": 1.0, "log_every_n_steps": 10, "num_sanity_val_steps": 0}

# options of the Trainer under which a table would not say what it seems to
_REFUSED = {
    "limit_test_batches": "test errors are always over all windows",
    "limit_predict_batches": "every series is forecast",
    "overfit_batches": "test errors are always over all windows",
    "barebones": "a run writes its curve and checkpoints",
}

_NOT_TYPED = ("frame", "options", "sizes")  # of the arguments of data sets

_DIVERGED = "training diverged; a lower --model.learning_rate or more --model.warmup_steps may help"


def _is_first_process() -> bool:
    return bool(rank_zero_only.rank == 0)  # type: ignore[attr-defined]


@rank_zero_only
def _say(text: str) -> None:
    say(text)


class _Parser(LightningArgumentParser):
    """Raises a `UserError` of one sentence where argparse would print its usage and exit."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        found = find_user_error(ex)
        if found is not None:  # a mistake found while building something keeps its own sentence
            raise UserError(under_key(str(found), message)) from found
        in_memory = FrameDataModule, PanelDataModule  # cannot be typed
        data_sets = {cls.__name__: cls for cls in _subclasses(ForecastDataModule) if cls not in in_memory}
        options = [option for action in self._actions for option in action.option_strings]
        if "--data" in options:  # whose arguments are those of a class, which is not known yet
            arguments = [name for cls in (*data_sets.values(), FrameDataModule) for name in signature(cls).parameters]
            options += [f"--data.{name}" for name in dict.fromkeys(arguments) if name not in _NOT_TYPED]
        raise UserError(sentence(message, options=options, data_sets=sorted(data_sets))) from ex


class TrainerCLI(LightningCLI):
    """The LightningCLI of tsattn: `fit` makes a run folder, the other commands read one.

    Args:
        args: the command and its words, prepared for the parser.
        typed: the words as they were typed.
    """

    def __init__(self, args: list[str], typed: list[str]) -> None:
        self.run_folder: RunFolder | None = None
        self.typed = typed
        self.throughput = Throughput()
        self.stopping = StopEarly("val_mse")
        try:
            super().__init__(
                ForecastingModule,
                ForecastDataModule,
                subclass_mode_data=True,
                save_config_callback=None,  # the run folder saves the configuration
                seed_everything_default=1,
                trainer_defaults=_TRAINER_DEFAULTS,
                parser_class=_Parser,
                parser_kwargs={
                    "prog": "python -m tsattn",
                    "allow_abbrev": False,
                    **{name: {"description": _DESCRIPTION} for name in self.subcommands()},
                },
                auto_configure_optimizers=False,
                args=args,
            )
        finally:
            if self.run_folder is not None:
                self.run_folder.release()

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """The commands, with the arguments of the Trainer's methods that are filled in here."""
        loaders = {"model", "dataloaders", "datamodule", "weights_only", "verbose", "return_predictions"}
        return {
            "fit": {"model", "train_dataloaders", "val_dataloaders", "datamodule", "weights_only"},
            "validate": loaders,
            "test": loaders,
            "predict": loaders,
        }

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """`--run`, of every command."""
        parser.add_argument(
            "--run",
            type=str | None,
            default=None,
            help="the run folder: of a finished run, or for fit a new one (default: runs/DATA/NAME/TIME)",
        )

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        parser: LightningArgumentParser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
        if subcommand == "fit":
            parser.add_argument(
                "--resume", type=str | None, default=None, help="go on with the unfinished run in this folder"
            )
        if subcommand == "predict":
            parser.add_argument(
                "--input", type=str | None, default=None, help="forecast beyond the end of this CSV file"
            )
            parser.add_argument(
                "--horizon", type=int | None, default=None, help="steps to forecast (default: those trained for)"
            )
            parser.add_argument("--output", type=str | None, default=None, help="a .csv or .parquet file to write")
            parser.add_argument(
                "--figure",
                type=bool | str,
                default=True,
                help="a .png, .pdf or .svg file to draw the forecast into (default: beside the output; false: none)",
            )
            parser.add_argument("--overwrite", action="store_true", help="replace the output if it exists")
        return parser

    def _parse_ckpt_path(self) -> None:
        """Lightning would let a checkpoint silently override the command line; `on_load_checkpoint` refuses instead."""

    def _set_seed(self) -> None:
        check_seed(self._get(self.config, "seed_everything"))
        super()._set_seed()

    def before_instantiate_classes(self) -> None:
        """Refuse what would make a result mean less than it says; fill in how long to train."""
        trainer = self.config[self.subcommand].trainer
        check_trainer(trainer)
        for name, reason in _REFUSED.items():
            if trainer[name] not in (None, False, 0.0):
                raise UserError(f"--trainer.{name} cannot be set: {reason}")
        if self.subcommand != "fit" and (trainer.devices not in (1, "1", "auto", [0]) or trainer.num_nodes != 1):
            raise UserError(
                f"{self.subcommand} runs on one device, so that no window counts twice: --trainer.devices must be 1, "
                f"not {trainer.devices}"
            )
        if self.subcommand == "fit" and trainer.limit_val_batches == 0:
            raise UserError("--trainer.limit_val_batches must be above 0: validation chooses the checkpoint")
        counts_epochs = trainer.max_epochs not in (None, -1)
        is_bounded = counts_epochs or trainer.max_steps not in (None, -1) or trainer.max_time is not None
        self.chooses_steps = not is_bounded
        # epochs that are asked for are validated one by one
        is_timed = trainer.val_check_interval is not None or trainer.check_val_every_n_epoch != 1
        self.chooses_validation = not counts_epochs and not is_timed
        if isinstance(trainer.val_check_interval, int):
            trainer.check_val_every_n_epoch = None  # an interval in steps counts across epochs
        if trainer.precision is None and not _sets_precision(trainer.plugins):
            # a run from before there was a default, or weights without a run, were trained in full precision
            is_new = self.subcommand == "fit" and not self.config[self.subcommand].resume
            trainer.precision = default_precision(trainer.accelerator, trainer.devices) if is_new else FULL_PRECISION
        trainer.use_distributed_sampler = False  # the loaders share windows out themselves

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """The Trainer, which will write its curve and checkpoints into the run folder."""
        given = self._get(self.config_init, "trainer")
        callbacks = _listed(given.callbacks)
        if given.max_epochs is None:
            kwargs["max_epochs"] = -1  # none: see `_check_steps`
        if self.subcommand == "fit" and not given.fast_dev_run:
            self.run_folder = self._new_run_folder()
            kwargs["logger"] = False  # until there is a folder, see `_write_into`
            self.best = BestCheckpoint(self.run_folder.checkpoints, "val_mse")
            self.progress = SaveProgress(self.run_folder.last)
            stopping = [self.stopping] if self.chooses_steps else []
            callbacks += [*stopping, self.best, self.progress, ExactResume(), FiniteLoss(), self.throughput]
            kwargs["plugins"] = [*_listed(given.plugins), AtomicCheckpointIO()]
        else:
            kwargs["logger"] = False
        if given.enable_model_summary is None:
            kwargs["enable_model_summary"] = False
        self.shows_bar = sys.stdout.isatty() and given.enable_progress_bar is not False
        kwargs["enable_progress_bar"] = self.shows_bar
        kwargs["callbacks"] = [*callbacks, *_bar(self.shows_bar)]
        try:
            return super().instantiate_trainer(**kwargs)
        except (ValueError, TypeError, ImportError, MisconfigurationException) as error:
            raise UserError(f"the trainer cannot be made: {' '.join(str(error).split())}") from error

    def before_fit(self) -> None:
        """Read data and build the model, so that a mistake shows before a folder is made; then make it."""
        self._set_up("fit", self.config[self.subcommand].ckpt_path)
        self._check_steps()
        parameters = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        task = self._task
        _say(
            f"{task.data}: {self._extent}, context {task.context_length}, "
            f"horizon {task.prediction_length}, {len(self.datamodule.windows('train'))} training windows"
        )
        devices = f" x {self.trainer.world_size}" if self.trainer.world_size > 1 else ""
        self.model.check_device(self.trainer.strategy.root_device)
        precision = "" if self.trainer.precision == FULL_PRECISION else f", {self.trainer.precision}"
        _say(f"{self.model.name}: {parameters:,} parameters, on {self._device}{devices}{precision}")
        if self.chooses_steps or self.chooses_validation:
            _say(f"training: {self.plan}")
        run = self.run_folder
        if run is None:
            return
        resumed, is_first = self.config[self.subcommand].resume, _is_first_process()
        if is_first and not resumed:
            run = self.run_folder = run.create()
        with run.removed_if_it_fails() if is_first and not resumed else contextlib.nullcontext():
            self._write_into(run)
            if is_first and not resumed:
                run.config.write_text(self._config_text())
                run.write_json(run.versions, versions(["python", "-m", "tsattn", *self.typed], self._device))
                _say(f"run folder: {run.path}")
        if is_first and resumed:
            checkpoint = self.config[self.subcommand].ckpt_path
            step = 0 if checkpoint is None else _load(checkpoint)["global_step"]
            if is_longer(self.config[self.subcommand].trainer, run):
                check_longer(self.datamodule.training_batches // self.trainer.accumulate_grad_batches, step, run)
                run.extend(self._config_text(), step, ["python", "-m", "tsattn", *self.typed])
            keep_curve(self.trainer.loggers, run.curve, step)
            run.begin()
            _say(f"going on with {run.path} behind step {step}")

    def fit(self, **kwargs: Any) -> None:
        """Train; an interruption leaves the checkpoints so far, and says how to go on."""
        started = time.perf_counter()
        try:
            with self._left_if_begun():
                self.trainer.fit(**kwargs, weights_only=True)
        except SystemExit as stop:  # how Lightning ends a fit on Ctrl-C and on SIGTERM
            raise KeyboardInterrupt(self._how_to_go_on()) from stop
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"the device has not the memory for batches of {self.datamodule.batch_size} windows: try "
                f"--data.batch_size {max(1, self.datamodule.batch_size // 2)} with "
                "--trainer.accumulate_grad_batches 2, --model.activation_checkpointing true, --trainer.precision "
                "bf16-mixed, --data.resident_gb 0, or a smaller model"
            ) from error
        except UserError as error:
            run = self.run_folder
            if run is None or not run.best.exists():
                raise
            raise UserError(f"{error}; the best weights so far are in {run.best}") from error
        self.seconds = time.perf_counter() - started

    def after_fit(self) -> None:
        """Test the best checkpoint once, beside the baselines."""
        run = self.run_folder
        if run is None or not self._is_left_alone():
            return
        if not run.best.exists():
            raise UserError(f"no validation error was finite, so {run.path} has no best checkpoint: {_DIVERGED}")
        checkpoint = torch.load(run.best, map_location="cpu", weights_only=True)
        score = self._measure("test", str(run.best))
        scores = {self.model.name: score, **baseline_scores(self.datamodule)}
        speed = self.throughput.windows_per_second
        rate = "" if speed is None else f", {speed:,.0f} windows a second"
        _say(f"\ntrained in {self.seconds:.0f} s{rate}; best checkpoint: step {checkpoint['global_step']}\n")
        _say(score_table(self._title(score), scores))
        task = self._task
        run.write_json(
            run.metrics,
            {
                "data": task.data,
                "context_length": task.context_length,
                "prediction_length": task.prediction_length,
                "test_windows": score.windows,
                "test": {name: line.to_dict() for name, line in scores.items()},
                "best_step": checkpoint["global_step"],
                "validation_mse": float(self._best_validation()),
                "validation_windows": self.plan.scored,
                "parameters": sum(p.numel() for p in self.model.parameters()),
                "seed": self._get(self.config, "seed_everything"),
                "training": {
                    "steps": self.trainer.global_step,
                    "seconds": round(self.seconds, 1),
                    "windows_per_second": None if speed is None else round(speed, 1),
                    "peak_memory_bytes": self.throughput.peak_memory_bytes,
                },
            },
        )
        plot_test_forecasts(self.model, self.datamodule, f"{self.model.name} on {task.data}").savefig(
            run.figure, dpi=130
        )
        run.seal()
        _say(f"\n* lowest scaled MSE\nresults: {run.path}")

    def validate(self, **kwargs: Any) -> None:
        """Measure the checkpoint on the validation windows."""
        self._report("val", kwargs["ckpt_path"])

    def test(self, **kwargs: Any) -> None:
        """Measure the checkpoint on the test windows, beside the baselines."""
        self._report("test", kwargs["ckpt_path"])

    def predict(self, **kwargs: Any) -> None:
        """Forecast beyond the end of the data and write the frame."""
        config = self.config[self.subcommand]
        folder = RunFolder(config.run).forecast if config.run else Path("forecast.csv")
        output = Path(config.output) if config.output else folder
        check_output(output, config.overwrite)
        figure = figure_path(config.figure, output, config.overwrite)
        if config.input:
            self.datamodule.forecast_from(config.input)
        self.datamodule.horizon = None if config.horizon is None else whole_number("--horizon", config.horizon)
        self._set_up("predict", kwargs["ckpt_path"])
        horizon = self.datamodule.horizon or self._task.prediction_length
        if (told := beyond_training(self._task, horizon)) is not None:
            logging.getLogger("tsattn").warning(told)
        forecasts: Any = self.trainer.predict(
            self.model, self.datamodule, ckpt_path=kwargs["ckpt_path"], weights_only=True
        )
        panel: Panel = self.datamodule.panel
        frame = future_frame(forecasts, self._task, panel)
        write_frame(frame, output)
        _say(f"{output}: {number_of(horizon, 'step')} of {self._extent}, {span(frame.iloc[:, 1])}, in original units")
        if figure is not None:
            _say(draw(frame, panel, self._task, figure))

    @property
    def _task(self) -> Task:
        task: Task | None = self.model.task
        assert task is not None
        return task

    @property
    def _extent(self) -> str:
        """How many channels of one series, or series, the data hold."""
        panel: Panel = self.datamodule.panel
        return number_of(self._task.num_channels, "channel") if panel.is_wide else f"{len(panel)} series"

    @property
    def _device(self) -> str:
        device = self.trainer.strategy.root_device
        return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type

    def _new_run_folder(self) -> RunFolder:
        config = self.config[self.subcommand]
        if config.resume:
            run = RunFolder(config.resume)
            if _is_first_process():
                run.hold()
                # it may have come to its end before it was left
                run.check_resumable(run.config.exists() and has_another_end(config.trainer, run))
            if config.ckpt_path is None and run.last.exists():  # written since the words were read
                config.ckpt_path = self.config_init[self.subcommand].ckpt_path = str(run.last)
            return run
        run = RunFolder(config.run) if config.run else RunFolder.dated("runs", self.datamodule.name, self.model.name)
        if _is_first_process():
            run.check_new()
        return run

    def _left_if_begun(self) -> AbstractContextManager[None]:
        """Removes a new run folder again where an error leaves neither a checkpoint nor a curve that explains it."""
        run, resumed = self.run_folder, self.config[self.subcommand].resume
        if run is None or resumed or not _is_first_process():
            return contextlib.nullcontext()
        return run.removed_if_it_fails(
            lambda error: self.trainer.global_step == 0 or not (run.has_checkpoint or isinstance(error, UserError))
        )

    def _write_into(self, run: RunFolder) -> None:
        """Let the Trainer write its curve and checkpoints into a folder."""
        self.best.dirpath, self.progress.path = str(run.checkpoints), run.last
        given = self._get(self.config_init, "trainer").logger
        self.trainer.loggers = [] if given is False else [*curve_loggers(run.path), *_listed(given)]
        batches = self.datamodule.train_dataloader().batches.epoch_length
        count_epochs(self.trainer.loggers, batches / self.trainer.accumulate_grad_batches)

    def _is_left_alone(self) -> bool:
        """Whether this is the one process that tests: of several, all others are done when training is."""
        if self.trainer.world_size == 1:
            return True
        self.trainer.strategy.barrier()
        is_first = self.trainer.is_global_zero
        torch.distributed.destroy_process_group()  # or the metrics of the test would wait for the others
        return is_first

    def _set_up(self, stage: str, checkpoint: str | None = None) -> None:
        """Set up data and model; with a checkpoint, for its task: sizes, channels and scaler are those saved."""
        if checkpoint is not None:
            self.model.on_load_checkpoint(_load(checkpoint))
            self.datamodule.task = self.model.task
        self.datamodule.prepare_data()
        self.datamodule.setup(stage)
        self.model.build(self.datamodule.task)

    def _check_steps(self) -> None:
        """Find how long to train and when to validate; refuse a training of no steps."""
        choices = {"choose_steps": self.chooses_steps, "choose_validation": self.chooses_validation}
        self.plan = train_as_one_epoch(self.trainer, self.datamodule, **choices)
        self.stopping.patience = self.plan.patience

    def _how_to_go_on(self) -> str:
        run = self.run_folder
        if run is None:
            return "nothing was to be saved"
        return f"go on with `python -m tsattn fit --resume {run.path}`"

    def _measure(self, part: str, checkpoint: str) -> Score:
        """Errors of a checkpoint over all windows of a part, on one device so that no window counts twice."""
        trainer = Trainer(
            accelerator=self._get(self.config_init, "trainer.accelerator", "auto"),
            devices=1,
            precision=self.trainer.precision,
            logger=False,
            enable_progress_bar=self.shows_bar,
            callbacks=_bar(self.shows_bar),
            enable_model_summary=False,
        )
        loop = trainer.validate if part == "val" else trainer.test
        try:
            loop(self.model, datamodule=self.datamodule, ckpt_path=checkpoint, verbose=False, weights_only=True)
        except torch.OutOfMemoryError as error:
            size = self.datamodule.eval_batch_size
            raise UserError(
                f"the device has not the memory to measure {size} windows at once: try --data.eval_batch_size "
                f"{max(1, size // 2)} or --data.resident_gb 0"
            ) from error
        values = {name.removeprefix(f"{part}_"): float(value) for name, value in trainer.callback_metrics.items()}
        score = Score.from_values(values)
        if not math.isfinite(score.mse):
            raise UserError(f"the {part} errors are not finite: {_DIVERGED}")
        if score.windows != len(self.datamodule.windows(part)):
            raise RuntimeError(f"{score.windows} windows were scored, not all {len(self.datamodule.windows(part))}")
        return score

    def _report(self, part: str, checkpoint: str) -> None:
        self._set_up("test" if part == "test" else "validate", checkpoint)
        score = self._measure(part, checkpoint)
        scores = {self.model.name: score, **baseline_scores(self.datamodule, part)}
        _say(score_table(self._title(score, part), scores))
        _say("\n* lowest scaled MSE")

    def _title(self, score: Score, part: str = "test") -> str:
        task = self._task
        word = {"test": "test", "val": "validation"}[part]
        windows = f"{score.windows} {word} windows, {self._extent}"
        return f"{task.data}, horizon {task.prediction_length}: {windows}"

    def _best_validation(self) -> torch.Tensor:
        checkpoints = self.trainer.checkpoint_callbacks  # the configuration may have others
        best = next(one.best_model_score for one in checkpoints if isinstance(one, BestCheckpoint))
        assert best is not None
        return best

    def _config_text(self) -> str:
        """The complete configuration, as `fit --config` takes it: without the folder, which must be a new one."""
        text = self._parser(self.subcommand).dump(self.config[self.subcommand], skip_none=False)
        config = yaml.safe_load(text)
        config["model"]["backbone"] = self.model.description
        # the folder is read from anywhere
        files = config["data"]["init_args"]
        files.update(
            {name: str(Path(files[name]).absolute()) for name in ("path", "root", "folder") if files.get(name)}
        )
        for name in ("run", "resume", "config", "ckpt_path"):
            config.pop(name, None)
        dumped: str = yaml.safe_dump(config, sort_keys=False)
        return dumped


def run(words: list[str], typed: list[str]) -> int:
    """Run one of the commands; the exit code is 0, or a `UserError` is raised.

    Args:
        words: the command and its words, prepared for the parser.
        typed: the words as they were typed.
    """
    with session():
        TrainerCLI(words, typed)
    return 0


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Lightning's own words kept away, warnings shown as lines, and errors as `user_errors` has them."""
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # Lightning's, not the user's
    told = logging.StreamHandler(sys.stderr)  # what is done to the data beyond reading them
    told.setFormatter(logging.Formatter("warning: %(message)s"))
    told.setLevel(logging.WARNING)
    logging.getLogger("tsattn").addHandler(told)
    try:
        with quiet_lightning(), user_errors():
            yield
    finally:
        logging.getLogger("tsattn").removeHandler(told)


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """What a user can mend, raised as `UserError`, whatever the libraries make of it."""
    try:
        yield
    except MisconfigurationException as error:
        raise UserError(" ".join(str(error).split())) from error
    except (ValueError, ImportError) as error:  # the parser wraps what a class says of its arguments
        found = find_user_error(error)
        reason = class_problem(error)
        if found is None and reason is None:
            raise
        raise found or UserError(reason) from error
    except RuntimeError as error:  # of EarlyStopping, once there is a metric
        if "conditioned on metric" not in str(error):
            raise
        raise UserError(" ".join(str(error).split())) from error


def _load(checkpoint: str) -> dict[str, Any]:
    try:
        content: dict[str, Any] = torch.load(checkpoint, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UserError(f"the checkpoint {checkpoint} is not there") from error
    except Exception as error:  # torch.load raises many kinds for a file that is no checkpoint
        raise UserError(f"{checkpoint} is not a readable checkpoint ({type(error).__name__})") from error
    return content


def _listed(value: Any) -> list[Any]:
    """One object, several, or none (None, True, False) as a list."""
    if value is None or isinstance(value, bool):
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _sets_precision(plugins: Any) -> bool:
    """Whether one of the configured plugins of a Trainer is its precision."""
    classes = [pydoc.locate(plugin.class_path) for plugin in _listed(plugins)]
    return any(isinstance(cls, type) and issubclass(cls, Precision) for cls in classes)


def _bar(shown: bool) -> list[Callback]:
    return [LossBar()] if shown else []


def _subclasses(cls: type[Any]) -> list[type[Any]]:
    return [c for child in cls.__subclasses__() for c in (child, *_subclasses(child))]
