"""The help of the commands that take an experiment: what people use, without a second's wait."""

from __future__ import annotations

from tsattn.attention import KINDS
from tsattn.cli.help_table import GROUPS, USAGES, Option
from tsattn.errors import one_of
from tsattn.predictors import predictor_kinds

__all__ = ["short_help"]

_NOTES = (
    Option("--print_config", "", "print the whole configuration, and end"),
    Option("--debug", "", "show the traceback of an error"),
    Option("--help-all", "", "list every option"),
)


def short_help(command: str) -> str:
    """What `COMMAND --help` prints: the options that people use, in groups, with their defaults.

    Args:
        command: ``fit``, ``validate``, ``test``, ``predict`` or ``attention``.
    """
    lines = ["usage:", *(f"  tsattn {usage}" for usage in USAGES[command])]
    for title, options in GROUPS:
        listed = [_line(option) for option in options if command in option.commands]
        if listed:
            lines += ["", f"{title}:", *listed]
    lines += ["", "more:", *map(_line, _NOTES)]
    if command == "fit":
        lines += ["", f"kinds of model: {one_of(predictor_kinds())}", f"kinds of attention: {one_of(KINDS)}"]
    return "\n".join(lines)


def _line(option: Option) -> str:
    default = f" (default: {option.default})" if option.default else ""
    return f"  {f'{option.name} {option.value}':37} {option.what}{default}"
