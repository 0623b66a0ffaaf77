"""Links of pages, which lead from file to file of the repository, led to the same files on the site.

A page of `docs/` stands at the site's root, every other file where it stands in the repository. So the same link works
in a checkout and on the site.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

__all__ = ["relinked", "repository_path", "site_path"]

# of the pages of the site, those that are files outside of `docs/`
_RENAMED = {
    "data/README.md": "data/cards.md",  # a README would be the index of what stands beside it
    ".github/CONTRIBUTING.md": "CONTRIBUTING.md",
    ".github/SECURITY.md": "SECURITY.md",
}
_ROOT_PAGES = ("CHANGELOG.md",)
_ROOT_FOLDERS = ("benchmarks/", "notebooks/")

_LINK = re.compile(r"(?P<start>\]\()(?P<target>[^)#\s]+)(?P<end>(?:#[^)\s]*)?(?: \"[^\"]*\")?\))")
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2", re.MULTILINE | re.DOTALL)


def site_path(path: str) -> str:
    """Where a file of the repository stands on the site."""
    return _RENAMED.get(path) or re.sub(r"\.ipynb$", ".md", path.removeprefix("docs/"))


def repository_path(path: str) -> str:
    """What links of a page are relative to: its file in the repository, or where that of a generated page would be."""
    renamed = {site: file for file, site in _RENAMED.items()}
    outside = path in _ROOT_PAGES or path.startswith(_ROOT_FOLDERS)
    return renamed.get(path) or (path if outside else f"docs/{path}")


def relinked(markdown: str, path: str, root: Path, found: Callable[[str], None]) -> str:
    """The text of a page with its links to files of the repository as they lead on the site.

    Args:
        markdown: the text.
        path: of the page in the repository; of a generated one, where it would stand there.
        root: of the repository.
        found: is called with each file that a link leads to.
    """
    here = PurePosixPath(site_path(path)).parent.as_posix()

    def led(match: re.Match[str]) -> str:
        target = match["target"]
        if re.match(r"[a-z]+:|/", target):
            return match[0]
        file = normpath((PurePosixPath(path).parent / target).as_posix())
        if file.startswith("..") or not (root / file).is_file():
            return match[0]  # a generated page; or a broken link, which the build will name
        found(file)
        return f"{match['start']}{relpath(site_path(file), here)}{match['end']}"

    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(led, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(led, markdown[end:])])
