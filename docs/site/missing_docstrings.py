"""Names of the reference that nothing is said of."""

from __future__ import annotations

import re

__all__ = ["undocumented"]

_OBJECT = re.compile(
    r'<h\d id="(?P<name>tsattn\.[^"]*)" class="doc doc-heading">.*?</h\d>'
    r'(?P<body>.*?)(?=<h\d id="tsattn\.[^"]*" class="doc doc-heading">|\Z)',
    re.DOTALL,
)
_SIGNATURE = re.compile(r'<div class="(?:language-python )?doc-signature.*?</div>', re.DOTALL)


def undocumented(html: str) -> list[str]:
    """Those of a page that mkdocstrings made which have a heading and a signature, and no words beneath."""
    objects = ((found["name"], _SIGNATURE.sub("", found["body"])) for found in _OBJECT.finditer(html))
    return [name for name, body in objects if not re.sub(r"<[^>]*>", "", body).strip()]
