"""One sentence for each way in which a parser refuses its input.

Parsers say what they refuse as text alone, so it is read by regular expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tsattn.errors import did_you_mean, one_of

__all__ = ["sentence", "under_key"]

_NOT_ARGUMENTS = ("--help", "--print_config", "--print_shtab")
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "Sequence": 'a list, such as "[a, b]"',
}
# the option that a file alone was most likely meant for
_OWN_FILE = "--data CSVDataModule --data.path"
_FILES = {
    **dict.fromkeys((".csv", ".csv.gz", ".parquet", ".arrow"), _OWN_FILE),
    **dict.fromkeys((".yaml", ".yml"), "--config"),
}


def sentence(message: str, *, options: Iterable[str], data_sets: Iterable[str], prog: str = "tsattn") -> str:
    """The parser's message as one sentence that names the argument and says what is valid.

    Args:
        message: of the parser.
        options: of the parser, ``--data.root`` and so on.
        data_sets: the names of the DataModules that ``--data`` takes.
        prog: the command as it is typed, ``tsattn fit``.
    """
    # with a plus at its end an option adds to a list
    plain = [option for option in options if option.startswith("--") and not option.endswith("+")]
    names = [option for option in plain if not option.startswith(_NOT_ARGUMENTS)]
    unknown = re.search(
        r"unrecognized arguments: (\S+)|Option '([^']+)' is not accepted|Key '([^']+)' is not expected", message, re.I
    )
    if unknown:
        return _unknown(next(group for group in unknown.groups() if group), names, prog)
    if found := re.search(r"Group '([^']+)' does not accept option '([^']+)'", message):
        return _unknown(f"--{found[1]}.{found[2]}", names, prog)
    if found := re.search(r"arguments are required: (\w+)", message):
        if found[1] not in ("data", "source"):
            return f"{_flag(found[1], names)} is missing"
        public = "--data PublicDataModule --data.name NAME"
        return f"`--data` names no class; give `--config NAME`, `{_OWN_FILE} FILE` or `{public}`"
    if found := re.search(r"argument (?:-\w/)?(--[\w.-]+)\S*: expected", message):
        return f"{found[1]} needs a value"
    if found := re.search(r"argument (--\S+): invalid (\w+) value: '(.*)'", message):
        return f"{found[1]} must be {_KINDS.get(found[2], found[2])}, not {found[3]}"
    key = re.search(r'(?:Parser key|key) "([^"]+)"', message)
    value = re.search(r"(?:Given|Got) value: (.{0,100})", message)
    given = f"not {value[1].strip()}" if value else "not what was given"
    if key and key[1] == "data":
        if found := re.search(r"Multiple subclasses with name (\S+)\. .*?: (.*)\.", message):
            return f"--data {found[1]} names more than one class; give the import path of one: {found[2]}"
        return f"--data must be one of {one_of(data_sets)}, or the import path of a ForecastDataModule, {given}"
    if not key or not value:
        return " ".join(message.split())[:400]
    flag, expected = _flag(key[1], names), message.split("Given value type")[0]
    choices = [name.strip("'") for some in re.findall(r"Literal\[([^\]]*)\]", expected) for name in some.split(", ")]
    if choices:
        number = ", or a whole number" if "<class 'int'>" in expected else ""
        return f"{flag} must be one of {one_of(dict.fromkeys(choices))}{number}, {given}"
    if found := re.search(r"Expected a dot import path string: (\S+)", message):
        return f"{flag} names no class: {found[1]}; valid is one of Lightning's by its name, or an import path"
    types = [name for name in re.findall(r"<class '(?:\w+\.)*(\w+)'>", expected) if name != "NoneType"]
    kinds = " or ".join(_KINDS.get(name, name) for name in dict.fromkeys(types)) or "another kind of value"
    return f"{flag} must be {kinds}, {given}"


def _unknown(name: str, names: list[str], prog: str) -> str:
    """The sentence about a name that is no option."""
    option = next((one for suffix, one in _FILES.items() if name.endswith(suffix)), None)
    if option == _OWN_FILE and "--input" in names:
        option = "--input"
    if option is not None and not name.startswith("-") and option.split()[0] in names:
        return f"Did you mean: {prog} {option} {name}?"
    group = name.rpartition(".")[0]
    # of a command with a hundred options, those of the group, if they are few
    near = [option for option in names if group and option.rpartition(".")[0] == group]
    valid = one_of(names)
    if len(names) >= 20 and any("." in option for option in names):
        valid = one_of(near) if 0 < len(near) < 20 else "all those that `--help-all` lists"
    # a whole group is not what somebody meant who has named an option of it
    hint = did_you_mean(name, (option for option in names if not name.startswith(f"{option}.")))
    return f"unknown argument {name}{hint}; valid: {valid}"


def _flag(key: str, names: Iterable[str]) -> str:
    """The flag of a key, also of one that the parser names without the class that it is an argument of."""
    flag = f"--{key.removeprefix('--')}"
    full = [name for name in names if name.endswith(f".{key}")]
    return full[0] if flag not in names and len(full) == 1 else flag


def under_key(text: str, message: str) -> str:
    """Name an argument as on the command line in what the parser of a class says of it.

    Args:
        text: the sentence about an argument of the class.
        message: of the parser of the command, which names the key of the class, such as ``data``.
    """
    key = re.search(r'Parser key "([\w.]+)"', message)
    if key is not None and text.startswith("--") and not text.startswith(f"--{key[1]}"):
        return f"--{key[1]}.{text.removeprefix('--')}"
    if key is None or not text.startswith("unknown argument "):
        return text
    name, rest = text.removeprefix("unknown argument ").lstrip("-").split(maxsplit=1)
    named, is_end = name.rstrip(";"), name.endswith(";")
    rest = re.sub(r"(?<![\w.-])--(?=\w)", f"--{key[1]}.", rest)
    return f"unknown argument --{key[1]}.{named}{';' if is_end else ''} {rest}"
