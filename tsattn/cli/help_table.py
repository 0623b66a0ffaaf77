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
        "fit --resume DIR [--trainer.max_steps N] [--refit]",
    ),
    "validate": ("validate --run DIR [options]", "validate --config NAME --ckpt_path FILE [options]"),
    "test": ("test --run DIR [options]", "test --config NAME --ckpt_path FILE [options]"),
    "predict": (
        "predict --run DIR [options]",
        "predict --run DIR --input FOLDER --output FOLDER [--ray ADDRESS] [options]",
        "predict --config NAME --ckpt_path FILE [options]",
    ),
    "attention": ("attention --run DIR [options]", "attention --config NAME --ckpt_path FILE [options]"),
}

GROUPS = (
    Group(
        "what to run",
        (
            Option("--config", "NAME", "a configuration: a file, or the name of one that comes along"),
            Option("--run", "DIR", "the new run folder (default: runs/DATA/MODEL/TIME)"),
            Option("--run", "DIR", "the folder of a finished run, which brings all it needs", commands=_REUSES),
            Option("--config", "NAME", "instead: a configuration, with --ckpt_path", commands=_REUSES),
            Option("--ckpt_path", "FILE", "another checkpoint than that of the run", commands=_REUSES),
            Option("--start", "DIR", "start from the weights of the run in this folder"),
            Option("--resume", "DIR", "go on with the run in this folder"),
            Option("--refit", "", "fit once more at the end, to all rows; predict then uses that"),
            Option("--seed_everything", "N", "of weights, order of the windows and dropout", "1"),
        ),
    ),
    Group(
        "forecasts",
        (
            Option("--input", "FILE", "forecast beyond the end of this file instead", commands=("predict",)),
            Option("--future", "FILE", "of future covariates; several times for scenarios", commands=("predict",)),
            Option("--horizon", "N", "steps to forecast (default: those it was fitted for)", commands=("predict",)),
            Option("--level", "PERCENT", 'as "[80, 95]": intervals of a calibrated model', commands=("predict",)),
            Option("--output", "FILE", "a .csv or .parquet file (default: in the run folder)", commands=("predict",)),
            Option("--ray", "ADDRESS", "of a Ray cluster, or local: forecast a folder there", commands=("predict",)),
            Option("--figure", "FILE", "a figure beside it; false for none", "true", ("predict",)),
            Option("--overwrite", "", "replace files that are there", commands=("predict",)),
        ),
    ),
    Group(
        "scores",
        (
            Option("--by", "NAME", "scores by series, step (of the horizon) or origin, too", commands=_MEASURES),
            Option("--output", "FILE", "a .csv or .parquet file for all of these", commands=_MEASURES),
            Option("--figure", "FILE", "a .png, .pdf or .svg file to draw the residuals into", commands=_MEASURES),
            Option("--overwrite", "", "replace files that are there", commands=_MEASURES),
        ),
    ),
    Group(
        "what to look at",
        (
            Option("--window", "N", "of the test part (default: the context that predict starts from)", "", _LOOKS),
            Option("--part", "NAME", "that the window is of: test or val", "test", _LOOKS),
            Option("--input", "FILE", "look at the end of the series in this file instead", "", _LOOKS),
            Option("--series", "ID", "the id of a series (default: the first)", "", _LOOKS),
            Option("--channel", "NAME", "where attention sees each by itself (default: the first)", "", _LOOKS),
            Option("--layer", "NUMBERS", "all, or numbers as 0,2", "all", _LOOKS),
            Option("--head", "NUMBERS", "all, mean of all in one map, or numbers as 0,2", "all", _LOOKS),
            Option("--level", "NUMBERS", "draw what levels add to the score: all, or numbers as 1,2", "", _LOOKS),
            Option("--output", "FILE", ".png, .pdf, .svg, or a .parquet or .csv table", "", _LOOKS),
            Option("--overwrite", "", "replace files that are there", "", _LOOKS),
        ),
    ),
    Group(
        "data (of a file of your own; `--data.help CLASS` lists the options of another class)",
        (
            Option("--data", "CLASS", "CSVDataModule, PublicDataModule, CO2DataModule or MappedDataModule"),
            Option("--data.path", "FILE", "your own .csv, .csv.gz or .parquet file", commands=_ALL),
            Option("--data.context_length", "N", "past steps that a model sees", "336"),
            Option("--data.prediction_length", "N", "steps that it forecasts", "96"),
            Option("--data.target", "NAMES", "columns to forecast (default: y, target, or all of a wide table)"),
            Option("--data.id_column", "NAMES", "of the series (default: unique_id or item_id)"),
            Option("--data.time_column", "NAME", "of the time stamps (default: ds, timestamp or date)"),
            Option("--data.past_covariates", "NAMES", "columns known for the past only"),
            Option("--data.future_covariates", "NAMES", "columns known for the future too"),
            Option("--data.static", "NAMES", "columns of categories, constant within a series"),
            Option("--data.transform", "KIND", "of the targets: log, log1p or box_cox, for positive forecasts"),
            Option("--data.weight_column", "NAME", "of weights in the training: 0 leaves a row out"),
            Option("--data.val_rows", "N", "rows for validation; with --data.test_rows (default: shares)"),
            Option("--data.test_rows", "N", "rows for testing, the last ones"),
            Option("--data.batch_size", "N", "windows in a training batch", "32"),
            Option("--data.eval_batch_size", "N", "windows at once outside of training", "128", _ALL),
        ),
    ),
    Group(
        "model",
        (
            Option("--model.backbone", "KIND", "or {kind: patchtst, d_model: 64}", "a small patchtst beside the ridge"),
            Option("--model.backbone.ARGUMENT", "VALUE", "one argument of it"),
            Option("--attention", "KIND", "or a description: {kind: mlr, ranks: [4, 2, 2]}", "standard"),
            Option("--attention.ARGUMENT", "VALUE", "one argument of it"),
            Option("--model.quantiles", "LEVELS", 'as "[0.1, 0.5, 0.9]" (default: a point forecast)'),
            Option("--model.distribution", "NAME", "normal, student_t or negative_binomial, whose quantiles these are"),
            Option("--model.calibrate", "B", "calibrate intervals by validation windows, or a share of them", "false"),
            Option("--model.learning_rate", "RATE", "the highest of the training", "0.001"),
            Option("--model.loss", "NAME", "mse, mae, huber or frequency; pinball of quantiles, nll of distributions"),
            Option("--model.weight_decay", "RATE", "of AdamW, on matrices only", "0.01"),
            Option("--model.warmup_steps", "N", "until the highest rate (default: a tenth of all, at most 100)"),
            Option("--model.schedule", "NAME", "of the rate from then: cosine, down to 0, or constant", "cosine"),
        ),
    ),
    Group(
        "training",
        (
            Option("--trainer.max_steps", "N", "optimizer steps (default: chosen by the number of windows)"),
            Option("--trainer.max_epochs", "N", "instead: how often every window is seen"),
            Option("--trainer.max_time", "D:H:M:S", "instead: days, hours, minutes and seconds"),
            Option("--trainer.val_check_interval", "N", "steps between validations (default: chosen)"),
            Option("--trainer.accumulate_grad_batches", "N", "batches in a step", "1"),
            Option("--trainer.gradient_clip_val", "NORM", "0 for no clipping", "1.0"),
        ),
    ),
    Group(
        "machine",
        (
            Option("--trainer.accelerator", "NAME", "auto, cpu, cuda or mps", "auto", _ALL),
            Option("--trainer.precision", "NAME", "such as 32-true or bf16-mixed (default: by device)"),
            Option("--trainer.precision", "NAME", "such as 32-true (default: that of the run)", commands=_REUSES),
            Option("--trainer.devices", "N", "devices that train as one", "1"),
            Option("--model.activation_checkpointing", "B", "less memory, a third more time", "false"),
            Option("--model.compile_mode", "NAME", "of torch.compile: default, reduce-overhead, ... (default: none)"),
        ),
    ),
)
