"""The help of a command: what people use at once, and everything when it is asked for."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tsattn.attention import KINDS
from tsattn.backbones import complete_backbone
from tsattn.cli import main
from tsattn.cli.command_options import GROUPS, USAGES, Option, own_options, short_help
from tsattn.cli.tune import _parser as tune_parser
from tsattn.data import CSVDataModule, DataOptions, FrameDataModule
from tsattn.experiments.experiment import experiment_parser
from tsattn.predictors import predictor_kinds

LISTED = [(command, option) for command in USAGES for group in GROUPS.values() for option in group]
LISTED = [(command, option) for command, option in LISTED if command in option.commands]

HEAVY = """
import sys
from tsattn.cli import main
for command in sys.argv[1:]:
    try:
        code = main([*command.split(), "--help"])
    except SystemExit as stop:
        code = stop.code
    heavy = {"torch", "lightning", "pandas", "numpy", "optuna", "jsonargparse"} & set(sys.modules)
    if heavy or code:
        sys.exit(f"{command}: {code}, {heavy} imported")
"""


def data_defaults() -> dict[str, Any]:
    """The defaults of the arguments of a file of one's own, whose class hands them on to those that it is made of."""
    classes = (DataOptions, FrameDataModule, CSVDataModule)
    parameters = {name: one for cls in classes for name, one in inspect.signature(cls).parameters.items()}
    return {name: one.default for name, one in parameters.items() if one.kind is not one.VAR_KEYWORD}


@pytest.mark.parametrize("command", USAGES)
def test_each_option_is_one_of_the_parser_with_the_default_that_is_shown(command: str) -> None:
    for option in (option for listed, option in LISTED if listed == command):
        check_option(command, option)


def check_option(command: str, option: Option) -> None:
    name = option.name.removeprefix("--").removesuffix(".ARGUMENT")
    parser = experiment_parser()
    if option.name in own_options(command) or option.name in ("--debug", "--help-all", "--print_config"):
        return
    if name == "attention":  # set in the description
        default = complete_backbone(parser.get_default("model.backbone"))["attention"]["kind"]
    elif name.startswith("data."):
        default = data_defaults()[name.removeprefix("data.")]
    else:
        assert f"--{name}" in {string for action in parser._actions for string in action.option_strings}
        default = parser.get_default(name)
    if option.name == "--model.backbone":  # in words, its description being longer than a line
        assert option.default == "a small patchtst and a ridge"
        assert (default["kind"], default["d_model"], default["linear_path"]) == ("patchtst", 32, "ridge")
    elif option.default:
        assert yaml.safe_load(option.default) == default
    elif not option.name.endswith(".ARGUMENT"):
        assert default in (None, False, -1, (), [], inspect.Parameter.empty), "a default is shown"
    line = next(line for line in short_help(command).splitlines() if line.split()[:1] == [option.name])
    assert option.what in line
    assert len(line) <= 120


def test_the_kinds_are_those_that_there_are() -> None:
    *_, models, attentions = short_help("fit").splitlines()
    assert models == f"kinds of model: {', '.join(predictor_kinds())}"
    assert attentions == f"kinds of attention: {', '.join(KINDS)}"


def test_help_imports_nothing_heavy() -> None:
    commands = ["fit", "validate", "test", "predict", "attention", "export", "tune", "benchmark"]
    commands += ["kernels", "cost", "report", ""]
    done = subprocess.run([sys.executable, "-c", HEAVY, *commands], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage") >= len(commands)


def test_all_options_are_listed_when_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--help-all"]) == 0
    said = capsys.readouterr().out
    for option in ("--trainer.reload_dataloaders_every_n_epochs", "--model.mup", "--data.help", "--resume", "--refit"):
        assert option in said
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--data.help", "PublicDataModule"])
    assert not stop.value.code
    assert "--data.clean" in capsys.readouterr().out


def test_tune_lists_its_own_options() -> None:
    text = tune_parser().format_help()
    for option in ("--search", "--trials", "--timeout", "--study", "--storage", "--cv", "--test", "--slurm"):
        assert f"\n  {option}" in text
