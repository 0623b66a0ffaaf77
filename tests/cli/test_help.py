"""The help of a command: what people use at once, and everything when it is asked for."""

import inspect
from typing import Any

import pytest
import yaml

from tsattn.attention import KINDS
from tsattn.backbones import complete_backbone
from tsattn.cli import main
from tsattn.cli.words import COMMANDS, OF_EXPERIMENTS, Option, Words, groups, help_text, own_options
from tsattn.data import CSVDataModule, DataOptions, FrameDataModule
from tsattn.experiments.experiment import experiment_parser
from tsattn.predictors import network_for, predictor_kinds


def data_defaults() -> dict[str, Any]:
    """The defaults of the arguments of a file of one's own, whose class hands them on to those that it is made of."""
    classes = (DataOptions, FrameDataModule, CSVDataModule)
    parameters = {name: one for cls in classes for name, one in inspect.signature(cls).parameters.items()}
    return {name: one.default for name, one in parameters.items() if one.kind is not one.VAR_KEYWORD}


@pytest.mark.parametrize("command", OF_EXPERIMENTS)
def test_each_option_is_one_of_the_parser_with_the_default_that_is_shown(command: str) -> None:
    for option in (option for group in groups(command) for option in group.options):
        check_option(command, option)


def check_option(command: str, option: Option) -> None:
    name = option.name.removeprefix("--").removesuffix(".ARGUMENT")
    parser = experiment_parser()
    if option.name in own_options(command) or option.name in ("--debug", "--help-all"):
        return
    if name == "attention":  # set in the description
        default = complete_backbone(network_for(parser.get_default("model.backbone")))["attention"]["kind"]
    elif name.startswith("data."):
        default = data_defaults()[name.removeprefix("data.")]
    else:
        assert f"--{name}" in {string for action in parser._actions for string in action.option_strings}
        default = parser.get_default(name)
    if option.default:
        assert yaml.safe_load(option.default) == default
    elif not option.name.endswith(".ARGUMENT"):
        assert default in (None, False, -1, (), [], inspect.Parameter.empty), "a default is shown"


@pytest.mark.parametrize("name", ["tsattn", *COMMANDS, "datasets convert", "datasets check"])
def test_a_page_shows_its_options_in_lines(name: str) -> None:
    lines = help_text(name).splitlines()
    for option in (option for group in groups(name) for option in group.options):
        (line,) = (line for line in lines if line.startswith(f"  {option.name} ") and option.what in line)
        assert len(line) <= 120
    assert "usage:" in lines[0]


def test_the_kinds_are_those_that_there_are() -> None:
    *_, models, attentions = help_text("fit").splitlines()
    assert models == f"kinds of model: {', '.join(predictor_kinds())}"
    assert attentions == f"kinds of attention: {', '.join(KINDS)}"


def test_all_options_are_listed_when_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--help-all"]) == 0
    said = capsys.readouterr().out
    for option in ("--trainer.reload_dataloaders_every_n_epochs", "--model.mup", "--data.help", "--resume", "--refit"):
        assert option in said
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--data.help", "PublicDataModule"])
    assert not stop.value.code
    assert "--data.clean" in capsys.readouterr().out


def test_words_are_taken_apart() -> None:
    words = ["runs/a", "--vary", "x=1,2", "--dry-run", "runs/b", "--vary=y=3", "-c", "co2", "--trainer.max_steps", "-1"]
    given = Words("compare", words)
    assert (given.free, given.pairs) == (["runs/a", "runs/b"], [("--trainer.max_steps", "-1")])
    options = given.options
    assert (options.vary, options.config, options.dry_run, options.seeds) == (["x=1,2", "y=3"], "co2", True, 3)
    for text, seconds in (("1h30m", 5400), ("90", 90)):
        assert Words("tune", ["--search=mlr", f"--timeout={text}"]).options.timeout == seconds
    # whose help no run is opened for
    options = Words("predict", ["--level", "[80, 95]", "--figure=false", "--data.help=CSVDataModule"]).options
    assert (options.level, options.figure) == ([80, 95], False)
    assert Words("benchmark", ["--horizon=96,336"]).options.horizon == [96, 336]
