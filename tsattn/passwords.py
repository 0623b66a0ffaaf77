"""Keeping the passwords of URLs out of what is written, printed and logged."""

from __future__ import annotations

import re
from urllib.parse import unquote

__all__ = ["masked", "scrubbed", "without_password"]

_URL = re.compile(r"\w[\w+.-]*://\S+")
_SECRET = re.compile(r"[?&]((?:ssl)?(?:password|passwd|passphrase|pwd)|[^=&]*(?:secret|token))=([^&]*)", re.IGNORECASE)


def without_password(url: str) -> str:
    """A URL, or a word that ends with one, without its password: ``postgresql://me:pw@host/db`` as ``...me@host/db``.

    What may be a password is left out even where the URL is malformed: one that holds ``/``, ``?`` or ``@``, and what
    stands in the place of a port but is no number. Anything else comes back as it is.
    """
    return _taken_apart(url)[0]


def masked(text: str) -> str:
    """A text without the passwords of the URLs in it."""
    return _URL.sub(lambda found: without_password(found[0]), text)


def scrubbed(text: str, url: str) -> str:
    """What was said of a URL, without its password in any spelling."""
    secrets = {form for secret in _taken_apart(url)[1] for form in (secret, unquote(secret)) if form}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return masked(text)


def _taken_apart(url: str) -> tuple[str, list[str]]:
    """A URL without its passwords, and these."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url, []
    secrets = []
    first = rest.find("@")
    if first >= 0:
        query = rest.find("?", first)
        at = rest.rfind("@", 0, query if query >= 0 else len(rest))
        user, colon, password = rest[:at].partition(":")
        if colon:
            secrets.append(password)
            rest = user + rest[at:]
    else:
        host = re.match(r"(?:\[[^]]*\]|[^:/?#]*):", rest)
        port = re.match(r"[^/?#]*", rest[host.end() :]) if host else None
        if host and port and port[0] and not port[0].isdecimal():
            secrets.append(port[0])
            rest = rest[: host.end() - 1] + rest[host.end() + port.end() :]
    for found in list(_SECRET.finditer(rest)):
        secrets.append(found[2])
    if any(_SECRET.finditer(rest)):
        path, _, query_text = rest.partition("?")
        kept = [part for part in query_text.split("&") if not _SECRET.match(f"&{part}")]
        rest = path + ("?" + "&".join(kept) if kept else "")
    return scheme + separator + rest, secrets
