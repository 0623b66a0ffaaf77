"""The options that people use, command by command, as the short help lists them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["GROUPS", "USAGES", "Group", "Option"]

_FITS, _MEASURES = ("fit",), ("validate", "test")
_REUSES = (*_MEASURES, "predict", "attention")
_ALL = (*_FITS, *_REUSES)
_LOOKS = ("attention",)


class Option(NamedTuple):
    """An option.

    Attributes:
        name: as it is typed.
        value: what stands in the place of its value; empty for one that takes none.
        what: says what it does, in a few words.
        default: as YAML has it; empty where that is nothing, or `what` says what it comes to.
        commands: that it is listed for.
    """

    name: str
    value: str
    what: str
    default: str = ""
    commands: tuple[str, ...] = _FITS


class Group(NamedTuple):
    """Options of one purpose, under a title."""

    title: str
    options: tuple[Option, ...]


USAGES: dict[str, tuple[str, ...]] = {
    "fit": (
        "fit --config NAME [options]",
        "fit --data CSVDataModule --data.path FILE [options]",
        "fit --start DIR [--data.path FILE] [options]",
        "fit --resume DIR [--trainer.max_steps N] [--refit] [--detail]",
    ),
    "validate": ("validate --run DIR [options]", "validate --config NAME --ckpt_path FILE [options]"),
    "test": ("test --run DIR [options]", "test --config NAME --ckpt_path FILE [options]"),
    "predict": (
        "predict --run DIR [options]",
        "predict --config NAME --ckpt_path FILE [options]",
    ),
    "attention": ("attention --run DIR [options]", "attention --config NAME --ckpt_path FILE [options]"),
}

GROUPS = (
    Group(
        "run",
        (
            Option("--config", "NAME", "configuration: a file, or the name of an included one"),
            Option("--run", "DIR", "folder of the new run (default: runs/DATA/MODEL/TIME)"),
            Option("--run", "DIR", "folder of a finished run, which has all that is needed", commands=_REUSES),
            Option("--config", "NAME", "configuration, instead of a run; needs --ckpt_path", commands=_REUSES),
            Option("--ckpt_path", "FILE", "checkpoint to use instead of the best one of the run", commands=_REUSES),
            Option("--start", "DIR", "start from the weights of this run"),
            Option("--resume", "DIR", "resume this run"),
            Option("--refit", "", "refit on all rows at the end; predict uses that model"),
            Option("--seed_everything", "N", "random seed", "1"),
        ),
    ),
    Group(
        "forecasts",
        (
            Option("--input", "FILE", "forecast beyond the end of this file", commands=("predict",)),
            Option("--future", "FILE", "future covariates; repeat the option for scenarios", commands=("predict",)),
            Option("--horizon", "N", "steps to forecast (default: the trained horizon)", commands=("predict",)),
            Option("--level", "PERCENT", 'intervals of a calibrated model: "[80, 95]"', commands=("predict",)),
            Option("--output", "FILE", ".csv or .parquet file (default: in the run folder)", commands=("predict",)),
            Option("--figure", "FILE", "figure of the forecast; false for none", "true", ("predict",)),
            Option("--overwrite", "", "replace existing files", commands=("predict",)),
        ),
    ),
    Group(
        "scores",
        (
            Option("--detail", "", "add scores in original units, sMAPE, WAPE and WQL", commands=(*_FITS, *_MEASURES)),
            Option("--by", "NAME", "add scores by series, step (of the horizon) or origin", commands=_MEASURES),
            Option("--output", "FILE", ".csv or .parquet file for the scores of --by", commands=_MEASURES),
            Option("--figure", "FILE", ".png, .pdf or .svg file for a plot of the residuals", commands=_MEASURES),
            Option("--overwrite", "", "replace existing files", commands=_MEASURES),
        ),
    ),
    Group(
        "view",
        (
            Option("--window", "N", "number of a test window (default: the context of predict)", "", _LOOKS),
            Option("--part", "NAME", "part of --window: test or val", "test", _LOOKS),
            Option("--input", "FILE", "look at the end of the series in this file", "", _LOOKS),
            Option("--series", "ID", "series id (default: the first)", "", _LOOKS),
            Option("--channel", "NAME", "channel, where each is seen alone (default: the first)", "", _LOOKS),
            Option("--layer", "NUMBERS", "layers to draw: all, or numbers as 0,2", "all", _LOOKS),
            Option("--head", "NUMBERS", "heads to draw: all, mean, or numbers as 0,2", "all", _LOOKS),
            Option("--level", "NUMBERS", "draw scores of levels instead: all, or numbers as 1,2", "", _LOOKS),
            Option("--output", "FILE", "figure (.png, .pdf, .svg) or table (.csv, .parquet)", "", _LOOKS),
            Option("--overwrite", "", "replace existing files", "", _LOOKS),
        ),
    ),
    Group(
        "data (your own file; `--data.help CLASS` lists the options of another class)",
        (
            Option("--data", "CLASS", "CSVDataModule, PublicDataModule, CO2DataModule or MappedDataModule"),
            Option("--data.path", "FILE", "your own .csv, .csv.gz or .parquet file", commands=_ALL),
            Option("--data.context_length", "N", "past steps that the model sees", "336"),
            Option("--data.prediction_length", "N", "steps to forecast", "96"),
            Option("--data.target", "NAMES", "columns to forecast (default: y, target, or all of a wide table)"),
            Option("--data.id_column", "NAMES", "column with the series id (default: unique_id or item_id)"),
            Option("--data.time_column", "NAME", "column with the time stamps (default: ds, timestamp or date)"),
            Option("--data.past_covariates", "NAMES", "columns known only in the past"),
            Option("--data.future_covariates", "NAMES", "columns known in the future, too"),
            Option("--data.static", "NAMES", "categorical columns, constant within a series"),
            Option(
                "--data.transform", "KIND", "transform the targets: log, log1p or box_cox; keeps forecasts positive"
            ),
            Option("--data.weight_column", "NAME", "column with training weights; 0 ignores the row"),
            Option("--data.val_rows", "N", "validation rows; needs --data.test_rows (default: by share)"),
            Option("--data.test_rows", "N", "test rows, the last ones"),
            Option("--data.batch_size", "N", "windows in a training batch", "32"),
            Option("--data.eval_batch_size", "N", "windows in a batch outside training", "128", _ALL),
        ),
    ),
    Group(
        "model",
        (
            Option(
                "--model.backbone",
                "KIND",
                "model, or {kind: patchtst, d_model: 64}",
                "a small patchtst and a ridge",
            ),
            Option("--model.backbone.ARGUMENT", "VALUE", "set one argument of the model"),
            Option("--attention", "KIND", "kind of attention, or {kind: mlr, ranks: [4, 2, 2]}", "standard"),
            Option("--attention.ARGUMENT", "VALUE", "set one argument of the attention"),
            Option("--model.quantiles", "LEVELS", 'quantile levels: "[0.1, 0.5, 0.9]" (default: point forecast)'),
            Option("--model.distribution", "NAME", "distribution to forecast: normal, student_t or negative_binomial"),
            Option("--model.calibrate", "B", "calibrate intervals on validation windows, or a share of them", "false"),
            Option("--model.learning_rate", "RATE", "highest learning rate", "0.001"),
            Option(
                "--model.loss", "NAME", "loss: mse, mae, huber or frequency; pinball (quantiles), nll (distributions)"
            ),
            Option("--model.weight_decay", "RATE", "AdamW weight decay (matrices only)", "0.01"),
            Option(
                "--model.warmup_steps", "N", "steps up to the highest learning rate (default: a tenth, at most 100)"
            ),
            Option("--model.schedule", "NAME", "learning rate after warm-up: cosine (down to 0) or constant", "cosine"),
        ),
    ),
    Group(
        "training",
        (
            Option("--trainer.max_steps", "N", "optimizer steps (default: by the number of windows)"),
            Option("--trainer.max_epochs", "N", "passes over all windows, instead of steps"),
            Option("--trainer.max_time", "D:H:M:S", "time limit, instead of steps"),
            Option("--trainer.val_check_interval", "N", "steps between validations (default: automatic)"),
            Option("--trainer.accumulate_grad_batches", "N", "batches in an optimizer step", "1"),
            Option("--trainer.gradient_clip_val", "NORM", "largest norm of the gradient; 0 for no clipping", "1.0"),
        ),
    ),
    Group(
        "machine",
        (
            Option("--trainer.accelerator", "NAME", "device: auto, cpu, cuda or mps", "auto", _ALL),
            Option("--trainer.precision", "NAME", "precision: 32-true, bf16-mixed, ... (default: by device)"),
            Option("--trainer.precision", "NAME", "precision: 32-true, ... (default: as in the run)", commands=_REUSES),
            Option("--trainer.devices", "N", "number of devices to train on", "1"),
            Option("--model.activation_checkpointing", "B", "save memory; training takes a third longer", "false"),
            Option("--model.compile_mode", "NAME", "torch.compile mode: default, reduce-overhead, ... (default: none)"),
        ),
    ),
)
