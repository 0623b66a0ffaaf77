"""What MkDocs calls while it builds: generated pages in, links led, comments of the tests out."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import tsattn
from docs.site.command_pages import command_pages
from docs.site.key_pages import configuration_page, search_page, suite_page
from docs.site.kind_pages import attention_page, predictor_page
from docs.site.missing_docstrings import undocumented
from docs.site.name_pages import name_pages
from docs.site.notebook_pages import notebook_page
from docs.site.repository_links import relinked, repository_path, site_path
from docs.site.result_pages import result_files, result_nav

LOG = logging.getLogger("mkdocs.hooks.tsattn")
ROOT = Path(__file__).parents[2]
REPOSITORY_PAGES = ("data/README.md", "CHANGELOG.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md")
TEST_COMMENT = re.compile(r"^ *<!-- (run|in tests:|not run:).*?-->\n?", re.MULTILINE | re.DOTALL)
SETTINGS: dict[str, dict[str, Any]] = {
    "index.md": {"hide": ["navigation"], "search": {"boost": 2}},
    "how-to/": {"search": {"boost": 2}},
    "notebooks/": {"search": {"boost": 1.5}},
    "reference/python/": {"search": {"boost": 0.5}},
    "reference/internals/": {"search": {"exclude": True}},
    "benchmarks/": {"hide": ["navigation"], "search": {"exclude": True}},
}
"""How pages are laid out and searched, by the beginning of their paths. Reports have wide tables of numbers."""
WORDS = {
    "index.md": ["install"],
    "how-to/own-data.md": ["csv", "parquet"],
    "how-to/covariates.md": ["holiday", "event", "exogenous"],
    "how-to/outputs.md": ["prediction interval", "confidence", "uncertainty"],
    "how-to/compare-attentions.md": ["compare"],
    "how-to/cross-validate.md": ["backtest"],
}
"""Words that people search for, and the page that they mean."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show the version in the footer."""
    config.copyright = f"tsattn {tsattn.__version__}"
    return config


def reference_pages() -> dict[str, str]:
    """All pages of the reference, as Markdown by path."""
    pages = {
        "configuration": configuration_page(),
        "attentions": attention_page(),
        "predictors": predictor_page(),
        "suite": suite_page(),
        "search": search_page(),
    }
    pages |= {f"commands/{name}": text for name, text in command_pages().items()}
    pages |= name_pages()
    return {f"reference/{name}.md": text for name, text in pages.items()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put beside the pages of `docs/` what is generated, and what other folders of the repository have."""
    for path, text in reference_pages().items():
        files.append(File.generated(config, path, content=text))
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text, pictures = notebook_page(notebook)
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    for path in [*REPOSITORY_PAGES, *result_files(ROOT)]:
        if (ROOT / path).is_file():
            _add(files, config, path)
    config.nav = _nav(config.nav or [], [one.src_uri for one in files.documentation_pages()])
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead its links, and leave out what is for the tests alone."""
    path = repository_path(page.file.src_uri)
    for start, settings in SETTINGS.items():
        if page.file.src_uri.startswith(start):
            page.meta = {**settings, **page.meta}
    if page.file.src_uri in WORDS:
        page.meta["tags"] = WORDS[page.file.src_uri]
    return relinked(TEST_COMMENT.sub("", markdown), path, ROOT, lambda file: _add(files, config, file))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Warn of names without a docstring, which ends a strict build; leave out a list of contents without entries."""
    for name in undocumented(html):
        LOG.warning("%s: %s has no docstring", page.file.src_uri, name)
    if not any(heading.children for heading in page.toc):
        page.meta["hide"] = [*page.meta.get("hide", []), "toc"]
    return html


def _add(files: Files, config: MkDocsConfig, path: str) -> None:
    """A file of the repository onto the site, if it is not there yet."""
    where = site_path(path)
    if files.get_file_from_path(where) is None:
        files.append(File.generated(config, where, abs_src_path=str(ROOT / path)))


def _nav(nav: list[Any], pages: list[str]) -> list[Any]:
    """The navigation: with the groups of results, and pages that nothing names for `FOLDER/*` and `FOLDER/**`."""
    results = result_nav((ROOT / "docs" / "results" / "index.md").read_text("utf-8"))
    nav = [{**entry, "Results": [*entry["Results"], *results]} if "Results" in entry else entry for entry in nav]
    text = str(nav)
    rest = [page for page in pages if repr(page) not in text]
    return [one for entry in nav for one in _entries(entry, rest)]


def _entries(entry: Any, rest: list[str]) -> list[Any]:
    if isinstance(entry, dict):
        ((title, below),) = entry.items()
        if isinstance(below, str):
            return [entry]
        inner = [one for part in below for one in _entries(part, rest)]
        return [{title: inner}] if inner else []
    if entry.endswith("*"):
        folder = entry.rstrip("*")
        below = [page for page in rest if page.startswith(folder)]
        return [page for page in below if entry.endswith("**") or "/" not in page.removeprefix(folder)]
    return [entry]
