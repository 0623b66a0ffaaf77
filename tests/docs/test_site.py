"""The site is built strictly, once; every name, command, option and key that there is stands on its pages."""

import ast
import contextlib
import importlib
import inspect
import json
import re
import subprocess
from collections.abc import Iterable
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from filelock import FileLock
from IPython.core.inputtransformer2 import TransformerManager
from mkdocs.commands.build import build
from mkdocs.config import load_config

from docs.site.missing_docstrings import undocumented
from docs.site.repository_links import relinked
from tests.docs.blocks import ROOT, blocks, pages
from tests.leaderboard.browser import CHROMIUM, FLAGS
from tsattn.attention import KINDS, build_attention
from tsattn.cli import COMMANDS, main
from tsattn.data import CARDS, DATA_MODULES
from tsattn.errors import UserError
from tsattn.leaderboard.suite import read_suite
from tsattn.predictors import build_predictor, predictor_kinds
from tsattn.tuning import read_search

pytestmark = pytest.mark.slow

OWN_WORDS = ("benchmark", "cost", "datasets", "export", "kernels", "report", "tune")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w.-]*\w")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The site, which one worker builds for all; a warning would have ended it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "site"
    done = folder.with_suffix(".done")
    with FileLock(folder.with_suffix(".lock")):
        if not done.exists():
            build(load_config(str(ROOT / "docs/site/mkdocs.yml"), site_dir=str(folder)))
            done.touch()
    return folder


def words(page: Path) -> str:
    return unescape(re.sub(r"<[^>]*>", "", page.read_text("utf-8").partition("<article")[2].partition("</article")[0]))


def lacking(names: Iterable[str], text: str) -> list[str]:
    """Those names that do not stand in a text as words of their own."""
    return [name for name in names if not re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", text)]


def documented(site: Path) -> dict[str, str]:
    """What the Python reference has entries of, by path, each with the page."""
    files = sorted(file for folder in ("python", "internals") for file in (site / "reference" / folder).glob("*.html"))
    found = {file.stem: re.findall(r'<h\d id="(tsattn\.[\w.]+)" class="doc', file.read_text("utf-8")) for file in files}
    return {path: page for page, paths in found.items() for path in paths}


def one_of_path(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def exported() -> list[tuple[str, str]]:
    """Every name of the `__all__` of a package, as it is written there."""
    found = []
    for file in sorted((ROOT / "tsattn").rglob("__init__.py")):
        room = ".".join(file.parent.relative_to(ROOT).parts)
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                found += [(room, name) for name in ast.literal_eval(node.value)]
    return found


def imported_by_pages() -> list[tuple[str, str]]:
    """Every name of the package that the Python of a page or notebook imports."""
    code = [block.code for page in pages() for block in blocks(page.read_text("utf-8")) if block.language == "python"]
    magic = TransformerManager()
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        cells = nbformat.read(notebook, as_version=4).cells
        code += [magic.transform_cell(cell.source) for cell in cells if cell.cell_type == "code"]
    nodes = [node for part in code for node in ast.walk(ast.parse(part)) if isinstance(node, ast.ImportFrom)]
    own = [node for node in nodes if (node.module or "").partition(".")[0] == "tsattn"]
    return sorted({(str(node.module), alias.name) for node in own for alias in node.names})


def has_entry(room: str, name: str, entries: Iterable[str]) -> bool:
    """Whether one of the entries is this object: a class or function by whatever path, a constant by its own."""
    one = getattr(importlib.import_module(room), name)
    if inspect.ismodule(one):
        return any(path.startswith(f"{one.__name__}.") for path in entries)
    if not (inspect.isclass(one) or inspect.isroutine(one)):
        return f"{room}.{name}" in entries
    return any(path.rpartition(".")[2] == name and one_of_path(path) is one for path in entries)


def test_every_public_name_has_an_entry(site: Path) -> None:
    entries = [path for path in documented(site) if not path.split(".")[-2][:1].isupper()]
    assert len(exported()) == 136
    names = {*exported(), *imported_by_pages()}
    assert sorted(f"{room}.{name}" for room, name in names if not has_entry(room, name, entries)) == []
    assert not has_entry("tsattn", "Forecaster", [path for path in entries if not path.endswith("Forecaster")])
    for name in ("fit", "predict", "evaluate", "save"):
        assert f"tsattn.forecaster.Forecaster.{name}" in documented(site), "a class comes with its methods"


def test_every_command_and_option_that_the_help_lists_is_told(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the page of the command, or, as it is a key of a configuration, on that of these."""
    keys = words(site / "reference" / "configuration.html")
    assert lacking(COMMANDS, words(site / "reference" / "commands" / "index.html")) == []
    for command in COMMANDS:
        said = ""
        for asked in helps(command):
            with contextlib.suppress(SystemExit):
                main([command, *asked])
            said += capsys.readouterr().out
        options = sorted(set(OPTION.findall(said)) - {"--help", "--help-all"})
        assert options, command
        text = words(site / "reference" / "commands" / f"{command}.html")
        left = [option for option in lacking(options, text) if lacking([option.removeprefix("--")], keys)]
        assert [option for option in left if option not in ("--model", "--trainer")] == [], command  # files of keys
        assert options[0] in lacking(options, text.replace(options[0], "")), "the test can fail"


def helps(command: str) -> list[list[str]]:
    actions = ("list", "info", "fetch", "check", "convert", "diagnose") if command == "datasets" else ()
    more = [] if command in OWN_WORDS else [["--help-all"]]
    return [["--help"], *([action, "--help"] for action in actions), *more]


def test_every_key_of_data_and_of_a_whole_configuration_is_told(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = words(site / "reference" / "configuration.html")
    for cls in DATA_MODULES:
        with pytest.raises(SystemExit):
            main(["fit", "--data.help", cls])
        options = set(re.findall(r"--(data\.\w+)", capsys.readouterr().out)) - {"data.help"}
        assert len(options) > 8, cls
        assert f"{cls}¶" in text, "it has a heading"
        assert lacking(options, text) == [], cls
    with pytest.raises(SystemExit):
        main(["fit", "--config", "etth1_mlr.yaml", "--print_config"])
    content = yaml.safe_load(capsys.readouterr().out)
    keys = [f"{part}.{name}" for part in ("model", "trainer") for name in content[part]]
    assert len(keys) > 40
    assert lacking(["seed_everything", *keys, "model.nonsense"], text) == ["model.nonsense"]


def valid_names(error: pytest.ExceptionInfo[UserError]) -> list[str]:
    return str(error.value).rpartition("valid: ")[2].split(", ")


SUITES = {
    "Keys": "{nonsense: 1}",
    "A data set": "{data: [{name: ETTh1, nonsense: 1}], horizons: [24], predictors: {ridge: ridge}}",
    "A predictor": "{data: [ETTh1], horizons: [24], predictors: {one: {backbone: ridge, nonsense: 1}}}",
    "A mix": "{data: [ETTh1], horizons: [24], predictors: {one: {mix: {of: [two], nonsense: 1}}}}",
    "An attention": "{data: [ETTh1], horizons: [24], predictors: {a: ridge}, attentions: {b: {attention: swa, x: 1}}}",
    "A question": "{data: [ETTh1], horizons: [24], predictors: {ridge: ridge}, questions: [{nonsense: 1}]}",
}


SEARCHES = (
    "{parameters: {model.loss: [mse]}, nonsense: 1}",
    "{parameters: {model.learning_rate: {type: float, low: 1, high: 2, nonsense: 1}}}",
    "{parameters: {model.loss: {type: categorical, choices: [mse], nonsense: 1}}}",
)


def test_every_key_of_a_suite_and_of_a_search_space_is_told(site: Path, tmp_path: Path) -> None:
    suite, search = (words(site / "reference" / f"{name}.html") for name in ("suite", "search"))
    told = {content: suite.partition(f"{part}¶")[2].partition("¶")[0] for part, content in SUITES.items()}
    for content, text in {**told, **dict.fromkeys(SEARCHES, search)}.items():
        (tmp_path / "file.yaml").write_text(content)
        with pytest.raises(UserError) as error:
            (read_search if content in SEARCHES else read_suite)(tmp_path / "file.yaml")
        assert lacking([*valid_names(error), "nonsense"], text) == ["nonsense"], content


def section(text: str, title: str) -> str:
    """What stands under a heading of a page, to the next one."""
    return text.partition(f"\n{title}¶")[2].partition("¶")[0]


def test_every_argument_of_an_attention_and_of_a_predictor_is_told(site: Path) -> None:
    attentions, predictors = (words(site / "reference" / f"{name}.html") for name in ("attentions", "predictors"))
    shared = attentions.partition("Arguments of every kind¶")[2]
    for kind in (*KINDS, *predictor_kinds()):
        build: Any = partial(build_attention, d_model=8, num_heads=2) if kind in KINDS else build_predictor
        with pytest.raises(UserError) as error:
            build({"kind": kind, "nonsense": 1})
        told = section(attentions, kind) + shared if kind in KINDS else section(predictors, kind)
        valid = [name for name in valid_names(error) if name != "none"]
        assert lacking([*valid, "nonsense"], told) == ["nonsense"], kind


def test_every_card_is_there(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:] if line and line[0] != "h"]
    assert len(listed) == len(CARDS)
    assert lacking(listed, words(site / "data" / "cards.html")) == []


def test_notebooks_and_reports_are_pages_with_their_pictures(site: Path) -> None:
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        page = (site / "notebooks" / f"{notebook.stem}.html").read_text("utf-8")
        assert re.search(r'<img alt="[^"]*" src="\w+\.png"', page), notebook.stem
    for report in (ROOT / "benchmarks" / "results").rglob("*.md"):
        path = report.relative_to(ROOT).with_suffix(".html")
        assert (site / path).is_file()
        assert f'href="../{path.as_posix()}"' in (site / "results" / "index.html").read_text("utf-8")
    assert "0.1.0" in words(site / "CHANGELOG.html")


def test_no_page_needs_a_network_or_shows_a_comment_of_the_tests(site: Path) -> None:
    files = [file for file in site.rglob("*.html") if "md-main" in file.read_text("utf-8") and file.name != "404.html"]
    assert len(files) > 50
    for file in files:
        text = file.read_text("utf-8")
        loads = re.findall(r'<(?:script|img|iframe|source)\b[^>]*?\bsrc="([^"]*)"', text)
        loads += re.findall(r'<link\b(?![^>]*rel="canonical")[^>]*?\bhref="([^"]*)"', text)
        assert loads
        assert [one for one in loads if re.match(r"\w+:(?!image/)|//", one)] == [], file
        for one in loads:
            if not one.startswith(("data:", "#")):
                assert (file.parent / one.partition("?")[0].partition("#")[0]).exists(), f"{file}: {one}"
        assert not re.search(r"<!-- (run|in tests:|not run:)|class=\"mermaid\"", text), file
    for file in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", file.read_text("utf-8")), file


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium, so the site is not tried in a browser")
def test_a_page_from_the_disk_is_searched_without_a_network(site: Path, tmp_path: Path) -> None:
    address = (site / "reference" / "commands" / "fit.html").as_uri()
    flags = [*FLAGS, f"--user-data-dir={tmp_path}", "--virtual-time-budget=10000", "--dump-dom"]
    command = [str(CHROMIUM), *flags, f"{address}?q=gradient_clip_val"]
    page = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found = re.findall(r'<a href="file://[^"]*?/reference/(.*?)\.html[^"]*" class="md-search-result__link"', page)
    assert "configuration" in found


SEARCHED = {
    "install": "index",
    "holiday": "how-to/covariates",
    "csv": "how-to/own-data",
    "compare": "how-to/compare-attentions",
    "prediction interval": "how-to/outputs",
    "confidence": "how-to/outputs",
}


def test_words_of_readers_find_the_page_that_answers(site: Path) -> None:
    weights = {"tags": 1e6, "title": 1e3, "text": 1.0}  # of the theme's search

    def score(entry: dict[str, Any], words: str) -> float:
        said = {field: str(entry.get(field, "")).lower() for field in weights}
        found = (weights[field] for field, text in said.items() for word in words.split() if word in text)
        return float(entry.get("boost", 1)) * sum(found)

    entries = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    for asked, answer in SEARCHED.items():
        best = sorted(entries, key=lambda entry: score(entry, asked), reverse=True)[:3]
        assert answer in [entry["location"].partition(".html")[0] for entry in best], asked
    assert not [entry for entry in entries if entry["location"].startswith(("reference/internals/", "benchmarks/"))]


def test_a_name_without_a_docstring_is_found() -> None:
    heading = '<h2 id="tsattn.{}" class="doc doc-heading">f</h2><div class="doc-signature highlight">f()</div>'
    page = f"{heading.format('a')}<div><p>What it is.</p></div>{heading.format('b')}<div> </div>"
    assert undocumented(page) == ["tsattn.b"]


def test_links_between_files_of_the_repository_lead_on_the_site() -> None:
    found: list[str] = []
    page = "[a](../../data/README.md#etth1) [b](../../configs/co2_mlr.yaml) [c](other.md) ![d](../images/x.png)\n"
    page += "```md\n[a](../../data/README.md)\n```\n"
    led = relinked(page, "docs/how-to/page.md", ROOT, found.append)
    first, *fence = led.splitlines()
    assert first == "[a](../data/cards.md#etth1) [b](../configs/co2_mlr.yaml) [c](other.md) ![d](../images/x.png)"
    assert fence == page.splitlines()[1:]
    assert found == ["data/README.md", "configs/co2_mlr.yaml"]
