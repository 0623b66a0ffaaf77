"""Exception for mistakes that a user can fix, and helpers for its messages, which hide the passwords of URLs."""

from __future__ import annotations

import contextlib
import difflib
import logging
import operator
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from numbers import Real
from pathlib import Path
from typing import Any
from urllib.parse import unquote


class UserError(ValueError):
    """Error that you can fix: one sentence says what is wrong and what is valid.

    The command line prints the message alone and exits with code 2; a library caller sees a ``ValueError``.
    """


class DivergedError(UserError):
    """Error of a training whose loss or validation error became NaN or exploded."""


class FormatError(UserError):
    """Error of a file that another version of tsattn wrote."""


def one_of(names: Iterable[str]) -> str:
    """Valid names as error messages list them: ``a, b, c``."""
    return ", ".join(names)


def did_you_mean(name: object, names: Iterable[object]) -> str:
    """Return `` (did you mean X?)`` for the most similar name, or ``""``. The last part of a dotted name may match."""
    meant = str(name).lstrip("-").lower()
    plain = {str(one).lstrip("-").lower(): one for one in names}
    parts = {one.rpartition(".")[2]: plain[one] for one in plain} | plain
    close = [one for one in plain if meant and one.startswith(meant)] or difflib.get_close_matches(meant, parts, 1)
    close = close or difflib.get_close_matches(meant.rpartition(".")[2], parts, 1)
    return f" (did you mean {parts[close[0]]}?)" if close else ""


def rounded(value: float) -> str:
    """Round a number for readers: three digits below 1, four digits up to 1000, whole numbers above."""
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e8 else f"{value:#.{4 if abs(value) >= 1 else 3}g}"


def duration(seconds: float) -> str:
    """A rounded duration, for estimates: ``40 s``, ``3 min``, ``2.5 h``."""
    if seconds < 90:
        return f"{round(seconds) or int(seconds > 0)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def number_of(count: int, noun: str) -> str:
    """A count with its noun: ``1 row``, ``2 rows``, ``2 entries``."""
    many = noun if noun.endswith("series") else re.sub("(?<![aeou])y$", "ie", noun) + "s"
    return f"{count} {noun if count == 1 else many}"


def is_whole_number(value: Any) -> bool:
    """Whether this is an int or another integer type, as in numpy; a bool does not count."""
    with contextlib.suppress(TypeError):
        return operator.index(value) is not None and not isinstance(value, bool)
    return False


def whole_number(name: str, value: Any, least: int = 1, most: int = sys.maxsize) -> int:
    """Convert a value to int and check its range, see `is_whole_number`; the error message uses `name`."""
    if not is_whole_number(value):
        raise UserError(f"{name} must be a whole number, not {shown(repr(value))}")
    number = operator.index(value)
    if not least <= number <= most:
        bound = f"least {least}" if number < least else f"most {most}"
        raise UserError(f"{name} must be at {bound}, not {shown(number)}")
    return number


def is_number(value: Any) -> bool:
    """Whether this is a real number; a bool does not count."""
    return isinstance(value, Real) and not isinstance(value, bool)


def positive_number(name: str, value: Any) -> float:
    """Check that a number is finite and above 0."""
    if not is_number(value) or not 0 < value <= sys.float_info.max:
        raise UserError(f"{name} must be a number above 0, not {shown(repr(value))}")
    return float(value)


def shown(cell: object) -> str:
    """A cell or name from a file, in a form for a message of one line."""
    text = "an empty cell" if isinstance(cell, float) and cell != cell else str(cell)
    return (text if text.isprintable() else repr(text))[:60]


def first_line(error: Exception) -> str:
    """The first line of another library's error, or its class if that line cannot be printed."""
    text = str(error).strip().splitlines()
    return (text[0][:200] if text and text[0].isprintable() else "") or type(error).__name__


def one_line(text: object, most: int | None = None) -> str:
    """The words of an error or a text in one line, of at most so many characters."""
    return " ".join(str(text).split())[:most]


def check_file(path: Path) -> None:
    """Refuse a path that is not a file."""
    if path.is_dir() or not path.exists():
        raise UserError(f"{path} {'is a folder, not a file' if path.is_dir() else 'does not exist'}")


def folder_path(folder: Any, name: str = "folder") -> Path:
    """Return a path with ``~`` expanded; messages call it `name`."""
    if not isinstance(folder, str | os.PathLike):
        raise UserError(f"the {name} must be a path, not {shown(repr(folder))}")
    try:
        return Path(folder).expanduser()
    except RuntimeError as error:  # the user has no home folder
        raise UserError(f"{folder} cannot be expanded: {error}") from error


def import_ray(what: str) -> Any:
    """Import Ray; the message says that `what` needs it."""
    try:
        import ray
    except ImportError as error:
        raise UserError(f"{what} needs Ray: pip install 'tsattn[ray]'") from error
    return ray


_is_quiet = ContextVar("_is_quiet", default=False)
logging.getLogger("tsattn").addFilter(lambda record: not _is_quiet.get())


@contextlib.contextmanager
def quiet(is_quiet: bool = True, *, lifted: bool = False) -> Iterator[None]:
    """Stop logs of ``tsattn`` from this thread, such as for rows read twice; `lifted` turns them on within another."""
    token = _is_quiet.set(not lifted and (is_quiet or _is_quiet.get()))
    try:
        yield
    finally:
        _is_quiet.reset(token)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether this is an error of an allocator, also of torch's, or the `UserError` that was made of it."""
    if isinstance(error, UserError):
        return is_out_of_memory(error.__cause__)
    is_torch = isinstance(error, RuntimeError) and re.search("allocate memory|out of memory", str(error)) is not None
    return is_torch or isinstance(error, MemoryError)


_URL = re.compile(r"\w[\w+.-]*://\S+")
_SECRETS = (  # group 1 stays, group 2 is the secret: after a user, in the place of a port, or in a query
    re.compile(r"(?<=://)([^:@]*):([^@]*(?:@[^@?]*)*)(?=@)"),
    re.compile(r"(?<=://)([^:@]*(?:@[^:@?]*)+):([^@?]*(?:@[^@?]*)*)(?=@)"),  # the user name has an @
    re.compile(r"(?<=://)([^:@?[]*(?:@[^:@?[]*)+):(?!\d*[/?#,])([^@]*(?:@[^@?]*)*)(?=@)"),  # and no port follows
    re.compile(r"(?<=://)((?>\[[^]]*\]|[^:/?#@]*)):(?!\d+(?:[/?#]|$))([^/?#@]+)(?=[^@]*$)"),
    re.compile(r"(?<=[?&])()(?:(?:ssl)?(?:password|passwd|passphrase|pwd)|[^=&]*(?:secret|token))=([^&]*)&?", re.I),
)


def without_password(url: str) -> str:
    """Remove the password of a URL, or of a word that ends with one, even if the URL is malformed.

    A password may hold ``/``, ``?`` or ``@``. Text in the place of a port counts as a password if it is not a number.
    """
    return _taken_apart(url)[0]


def masked(text: str) -> str:
    """Remove the passwords of the URLs in a text."""
    return _URL.sub(lambda found: without_password(found[0]), text)


def scrubbed(text: str, url: str) -> str:
    """Remove the password of `url`, in any spelling, from a text about it."""
    secrets = {form for secret in _taken_apart(url)[1] for form in (secret, unquote(secret)) if form}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return masked(text)


def _taken_apart(url: str) -> tuple[str, list[str]]:
    """Return a URL without its passwords, and its passwords."""
    secrets = list[str]()
    for pattern in _SECRETS if "://" in url else ():
        secrets += [found[2] for found in pattern.finditer(url)]
        url = pattern.sub(r"\1", url)
    return url.rstrip("?&") if secrets else url, secrets
