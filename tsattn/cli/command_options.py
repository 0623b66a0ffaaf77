"""The options of the commands that take an experiment, as their help lists them: one table, one short help.

A line of the table is the commands that have the option, by their first letters; the option, with a word for its value;
what it does; and its default.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml

from tsattn.attention import KINDS
from tsattn.errors import UserError, one_of
from tsattn.predictors import predictor_kinds

__all__ = ["GROUPS", "USAGES", "Option", "own_options", "short_help"]

_TABLE = """
run
  f      --config NAME      configuration: a file, or the name of an included one
  f      --run DIR          folder of the new run (default: runs/DATA/MODEL/TIME)
   vtpa  --run DIR          folder of a finished run, which has all that is needed
   vtpa  --config NAME      configuration, instead of a run; needs --ckpt_path
   vtpa  --ckpt_path FILE   checkpoint to use instead of the best one of the run
  f      --ckpt_path FILE   resume from this checkpoint
  f      --start DIR        start from the weights of this run
  f      --resume DIR       resume this run
  f      --refit            refit on all rows at the end; predict uses that model
  f      --seed_everything N  random seed == 1

forecasts
     p   --input FILE       forecast beyond the end of this file
     p   --future FILE      future covariates; repeat the option for scenarios
     p   --horizon N        steps to forecast (default: the trained horizon)
     p   --level PERCENT    intervals of a calibrated model: "[80, 95]"
     p   --output FILE      .csv or .parquet file (default: in the run folder)
     p   --figure FILE      figure of the forecast; false for none == true
     p   --overwrite        replace existing files

scores
  fvt    --detail           add scores in original units, sMAPE, WAPE and WQL
   vt    --by NAME          add scores by series, step (of the horizon) or origin
   vt    --output FILE      .csv or .parquet file for the scores of --by
   vt    --figure FILE      .png, .pdf or .svg file for a plot of the residuals
   vt    --overwrite        replace existing files

view
      a  --window N         number of a test window (default: the context of predict)
      a  --part NAME        part of --window: test or val == test
      a  --input FILE       look at the end of the series in this file
      a  --series ID        series id (default: the first)
      a  --channel NAME     channel, where each is seen alone (default: the first)
      a  --layer NUMBERS    layers to draw: all, or numbers as 0,2 == all
      a  --head NUMBERS     heads to draw: all, mean, or numbers as 0,2 == all
      a  --level NUMBERS    draw scores of levels instead: all, or numbers as 1,2
      a  --output FILE      figure (.png, .pdf, .svg) or table (.csv, .parquet)
      a  --overwrite        replace existing files

data (your own file; `--data.help CLASS` lists the options of another class)
  f      --data CLASS       CSVDataModule, PublicDataModule, CO2DataModule or MappedDataModule
  fvtpa  --data.path FILE   your own .csv, .csv.gz or .parquet file
  f      --data.context_length N  past steps that the model sees == 336
  f      --data.prediction_length N  steps to forecast == 96
  f      --data.target NAMES  columns to forecast (default: y, target, or all of a wide table)
  f      --data.id_column NAMES  column with the series id (default: unique_id or item_id)
  f      --data.time_column NAME  column with the time stamps (default: ds, timestamp or date)
  f      --data.past_covariates NAMES  columns known only in the past
  f      --data.future_covariates NAMES  columns known in the future, too
  f      --data.static NAMES  categorical columns, constant within a series
  f      --data.transform KIND  transform the targets: log, log1p or box_cox; keeps forecasts positive
  f      --data.weight_column NAME  column with training weights; 0 ignores the row
  f      --data.val_rows N  validation rows; needs --data.test_rows (default: by share)
  f      --data.test_rows N  test rows, the last ones
  f      --data.batch_size N  windows in a training batch == 32
  fvtpa  --data.eval_batch_size N  windows in a batch outside training == 128

model
  f      --model.backbone KIND  model, or {kind: patchtst, d_model: 64} == a small patchtst and a ridge
  f      --model.backbone.ARGUMENT VALUE  set one argument of the model
  f      --attention KIND   kind of attention, or {kind: mlr, ranks: [4, 2, 2]} == standard
  f      --attention.ARGUMENT VALUE  set one argument of the attention
  f      --model.quantiles LEVELS  quantile levels: "[0.1, 0.5, 0.9]" (default: point forecast)
  f      --model.distribution NAME  distribution to forecast: normal, student_t or negative_binomial
  f      --model.calibrate B  calibrate intervals on validation windows, or a share of them == false
  f      --model.learning_rate RATE  highest learning rate == 0.001
  f      --model.loss NAME  loss: mse, mae, huber or frequency; pinball (quantiles), nll (distributions)
  f      --model.weight_decay RATE  AdamW weight decay (matrices only) == 0.01
  f      --model.warmup_steps N  steps up to the highest learning rate (default: a tenth, at most 100)
  f      --model.schedule NAME  learning rate after warm-up: cosine (down to 0) or constant == cosine

training
  f      --trainer.max_steps N  optimizer steps (default: by the number of windows)
  f      --trainer.max_epochs N  passes over all windows, instead of steps
  f      --trainer.max_time D:H:M:S  time limit, instead of steps
  f      --trainer.val_check_interval N  steps between validations (default: automatic)
  f      --trainer.accumulate_grad_batches N  batches in an optimizer step == 1
  f      --trainer.gradient_clip_val NORM  largest norm of the gradient; 0 for no clipping == 1.0

machine
  fvtpa  --trainer.accelerator NAME  device: auto, cpu, cuda or mps == auto
  f      --trainer.precision NAME  precision: 32-true, bf16-mixed, ... (default: by device)
   vtpa  --trainer.precision NAME  precision: 32-true, ... (default: as in the run)
  f      --trainer.devices N  number of devices to train on == 1
  f      --model.activation_checkpointing B  save memory; training takes a third longer == false
  f      --model.compile_mode NAME  torch.compile mode: default, reduce-overhead, ... (default: none)

more
  fvtpa  --print_config     print the whole configuration, and end
  fvtpa  --debug            show the traceback of an error
  fvtpa  --help-all         list every option
"""

USAGES: dict[str, tuple[str, ...]] = {
    "fit": (
        "fit FILE [options]",
        "fit --config NAME [options]",
        "fit --data CSVDataModule --data.path FILE [options]",
        "fit --start DIR [--data.path FILE] [options]",
        "fit --resume DIR [--trainer.max_steps N] [--refit] [--detail]",
    ),
    **{
        name: (f"{name} --run DIR [options]", f"{name} --config NAME --ckpt_path FILE [options]")
        for name in ("validate", "test", "predict", "attention")
    },
}
_OF_EXPERIMENT = ("--config", "--data", "--attention", "--seed_everything", "--print_config", "--debug", "--help-all")


class Option(NamedTuple):
    """An option: its name, a word for its value if it takes one, what it does, its default as YAML, its commands."""

    name: str
    value: str
    what: str
    default: str
    commands: tuple[str, ...]

    @classmethod
    def of(cls, line: str) -> Option:
        """Read a line of the table."""
        letters, name, rest = line.split(maxsplit=2)
        what, _, default = rest.partition(" == ")
        value, _, after = what.partition(" ")
        commands = tuple(command for command in USAGES if command[0] in letters)
        return cls(name, *(value, after.strip()) if value.isupper() else ("", what), default, commands)

    def parsed(self, text: str | None) -> Any:
        """The value that was typed; a `UserError` for none, or one of another kind."""
        if not self.value:
            return True
        if text is None:
            raise UserError(f"{self.name} needs a value")
        if self.value == "N":
            if not text.removeprefix("-").isdecimal():
                raise UserError(f"{self.name} must be a whole number, not {text}")
            return int(text)
        if self.value == "PERCENT":
            try:
                level = yaml.safe_load(text)
            except yaml.YAMLError:
                level = None
            levels = level if isinstance(level, list) else [level]
            if any(isinstance(one, bool) or not isinstance(one, int | float) for one in levels):
                raise UserError(f'{self.name} must be a number, or a list, such as "[80, 95]", not {text}')
            return level
        return {"true": True, "false": False}.get(text.lower(), text) if self.default == "true" else text


GROUPS = {title: tuple(map(Option.of, lines)) for title, *lines in map(str.splitlines, _TABLE.strip().split("\n\n"))}
"""Options by the purpose that they share."""


def own_options(command: str) -> dict[str, Option]:
    """The options of a command that say nothing of an experiment, by name."""
    listed = [option for group in GROUPS.values() for option in group if command in option.commands]
    return {one.name: one for one in listed if "." not in one.name and one.name not in _OF_EXPERIMENT}


def short_help(command: str) -> str:
    """What `COMMAND --help` prints: the options that people use, in groups, with their defaults."""
    lines = ["usage:", *(f"  tsattn {usage}" for usage in USAGES[command])]
    for title, options in GROUPS.items():
        listed = [option for option in options if command in option.commands]
        lines += ["", f"{title}:"] if listed else []
        for name, value, what, default, _ in listed:
            lines.append(f"  {f'{name} {value}':37} {what}{f' (default: {default})' if default else ''}")
    if command == "fit":
        lines += ["", f"kinds of model: {one_of(predictor_kinds())}", f"kinds of attention: {one_of(KINDS)}"]
    return "\n".join(lines)
