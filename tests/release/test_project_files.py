"""The files around the package: pins and their sums, citation, hooks, the forge's workflow, the audit."""

import ast
import importlib.metadata
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import tsattn

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(name: str) -> dict[str, str]:
    """Versions by package, of a file of pins or of one with sums."""
    lines = re.findall(r"^([\w.-]+)==([^\s;\\]+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE)
    found = {plain(package): version for package, version in lines}
    assert len(found) == len(lines), "a package is there twice"
    return found


@pytest.mark.parametrize(
    ("pinned", "hashed", "without"),
    [("constraints.txt", "hashed.txt", {"torch"}), ("pandas2-constraints.txt", "pandas2-hashed.txt", set())],
)
def test_every_pin_has_its_sums(pinned: str, hashed: str, without: set[str]) -> None:
    expected = {name: version for name, version in pins(pinned).items() if name not in without}
    assert pins(hashed) == expected, "`make hashes` writes them"
    entries = re.split(r"^(?=\S)", (ROOT / "requirements" / hashed).read_text(), flags=re.MULTILINE)[1:]
    assert len(entries) == len(expected)
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry.splitlines()[0]
    assert "://" not in (ROOT / "requirements" / hashed).read_text()


def test_what_is_needed_is_pinned() -> None:
    needed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    names = {plain(re.split(r"[^\w.-]", one)[0]) for one in needed}
    assert names <= set(pins("constraints.txt"))


def test_the_changelog_has_the_usual_headings() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert versions
    for one in versions:
        assert re.fullmatch(r"\d+\.\d+\.\d+, (unreleased|\d{4}-\d{2}-\d{2})", one), one
    headings = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert set(headings) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        found = re.findall(r"^### (.+)$", part, re.MULTILINE)
        assert found, "entries stand under a heading"
        assert len(found) == len(set(found)), f"{found}: each once a version"
    entries = re.findall(r"^- .+$", text, re.MULTILINE)
    assert len(entries) == len(set(entries)), "an entry is there twice"


def test_hooks_and_the_forge_run_what_ci_runs() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (local,) = config["repos"]
    assert local["repo"] == "local", "nothing is fetched"
    linters = {hook["entry"].split(" --force")[0].removeprefix(".venv/bin/") for hook in local["hooks"]}
    makefile = (ROOT / "Makefile").read_text()
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert linters == {re.sub(r" ?\.$", "", one) for one in re.findall(r"\$\(BIN\)/(.+)", lint[1])}
    assert {hook["language"] for hook in local["hooks"]} == {"system"}
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert ".ci/run" in [step.get("run") for step in workflow["jobs"]["ci"]["steps"]]
    assert workflow["permissions"] == {"contents": "read"}
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100


@pytest.fixture(scope="module")
def audit() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / ".ci" / "audit.py"))


def test_a_known_weakness_is_named(audit: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    weakness = {"id": "PYSEC-1", "aliases": ["CVE-2"], "fix_versions": ["1.1"]}
    found = [
        {"name": "bad", "version": "1.0", "vulns": [weakness]},
        {"name": "good", "version": "2.0", "vulns": []},
        {"name": "own", "skip_reason": "not found"},
    ]
    assert audit["judged"](found) == ["bad 1.0: PYSEC-1, mended in 1.1"]
    assert capsys.readouterr().out == "audit: weaknesses were looked up for 2 of 3 packages; NOT for own\n"
    audit["ACCEPTED"]["CVE-2"] = "it is not reached"
    assert audit["judged"](found) == []
    del audit["ACCEPTED"]["CVE-2"]


def test_a_licence_fails_ci_and_a_weakness_is_named(audit: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    main = audit["main"]
    for weak, wrong, code in (([], [], 0), (["a"], [], 1), ([], ["b"], 3), (["a"], ["b"], 3)):
        monkeypatch.setitem(main.__globals__, "weaknesses", lambda pins, weak=weak: weak)
        monkeypatch.setitem(main.__globals__, "wrong_licences", lambda wrong=wrong: wrong)
        assert main() == code
    assert 'wait "$audit" || [ $? = 1 ]' in (ROOT / ".ci" / "run").read_text()


def test_files_are_one_idea() -> None:
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in (ROOT / "tsattn").rglob("*.py")}
    assert {path.name for path, n in lengths.items() if n > 600} == set()


def test_licences_that_are_refused(audit: dict[str, Any]) -> None:
    for licence in ("MIT License", "Apache-2.0 OR GPL-3.0-only", "3-Clause BSD License", "(MIT)"):
        assert not audit["refused"]({"some": licence})
    both = ("Apache-2.0 AND GPL-3.0-only", "BSD License; GNU General Public License v3 (GPLv3)")
    for licence in (*both, "LGPL-3.0-only", "UNKNOWN", ""):
        assert audit["refused"]({"some": licence})
    assert audit["refused"]({"psycopg": "LGPL-3.0-only"}) == []
    assert audit["refused"]({"docutils": "BSD License; GNU General Public License (GPL); Public Domain"}) == []


SCRIPT = Path(__file__).with_name("users_script.py")


def test_a_script_that_uses_every_public_name_is_checked() -> None:
    tree = ast.parse(SCRIPT.read_text())
    (imported,) = [one for one in tree.body if isinstance(one, ast.ImportFrom) and one.module == "tsattn"]
    names = {alias.name for alias in imported.names} - {"__version__"}
    assert names == set(tsattn.__all__)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert names <= used
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert settings["strict"]
    assert "tests.release.users_script" in settings["modules"]


def test_the_version_is_that_of_the_project() -> None:
    assert tsattn.__version__ == importlib.metadata.version("tsattn")
    assert "__version__" not in vars(tsattn), "it is looked up when it is asked for"
    assert tsattn.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
