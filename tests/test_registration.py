"""What is added in one place is found by its name; what lies outside, by its import path, as the pages say."""

import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tsattn.attention import KINDS, Attention, build_attention
from tsattn.attention.cost import closed_form
from tsattn.attention.maps import attention_map, attention_zones
from tsattn.backbones import BACKBONES, Backbone
from tsattn.cli import main
from tsattn.data import DATA_MODULES, ForecastDataModule
from tsattn.descriptions import class_of, imported
from tsattn.errors import UserError
from tsattn.experiments.experiment import ExperimentParser, add_experiment, parsed
from tsattn.predictors import PREDICTORS, Predictor, build_predictor, predictor_kinds

PAGES = [page.read_text("utf-8") for page in sorted((Path(__file__).parents[1] / "docs" / "how-to").glob("add-*.md"))]
TABLES: dict[str, tuple[Mapping[str, str], type[Any], str]] = {
    "attention": (KINDS, Attention, "tsattn.attention"),
    "backbones": (BACKBONES, Backbone, "tsattn.backbones"),
    "predictors": (PREDICTORS, Predictor, "tsattn.predictors"),
    "data": (DATA_MODULES, ForecastDataModule, "tsattn.data"),
}


@pytest.fixture
def my_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The file that the pages show, each a part of it, where Python finds it."""
    code = "\n\n".join(re.findall(r"```python\n(# my_package\.py\n.*?)```", page, re.DOTALL)[0] for page in PAGES)
    (tmp_path / "my_package.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield code
    sys.modules.pop("my_package", None)


def test_each_path_of_a_table_imports_and_is_of_its_base() -> None:
    for table, base, package in TABLES.values():
        assert table
        for kind, path in table.items():
            cls = imported(path)
            assert issubclass(cls, base), kind
            assert f"{cls.__module__}.{cls.__qualname__}" == path, "a class has one path"
            assert getattr(sys.modules[package], cls.__name__) is cls
        assert len(set(table.values())) == len(table)


def test_a_kind_has_one_meaning_among_predictors_and_backbones() -> None:
    assert not set(PREDICTORS) & set(BACKBONES)
    assert predictor_kinds() == [*BACKBONES, *PREDICTORS]


def test_one_line_of_a_table_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which `build` then takes and every message lists."""
    monkeypatch.setitem(KINDS, "same", "tsattn.attention.kinds.SlidingWindowAttention")
    assert build_attention("same", d_model=8, num_heads=2)(torch.randn(1, 3, 8)).shape == (1, 3, 8)
    with pytest.raises(UserError, match=r"unknown attention 'other'; valid: standard, .*, fixed_mixing, same$"):
        build_attention("other", d_model=8, num_heads=2)
    monkeypatch.setitem(PREDICTORS, "last", "tsattn.predictors.naive.Persistence")
    assert isinstance(build_predictor("last"), Predictor)
    monkeypatch.setitem(BACKBONES, "net", "tsattn.backbones.patchtst.PatchTST")
    assert build_predictor({"kind": "net", "d_model": 16}).description["d_model"] == 16
    with pytest.raises(UserError, match=r"unknown predictor .zzz.; valid: transformer, .*, net, auto, .*, last$"):
        build_predictor("zzz")


def test_one_line_names_a_data_set_for_yaml_and_command_line(my_package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATA_MODULES, "Waves", "my_package.Waves")
    parser = ExperimentParser(exit_on_error=True)
    add_experiment(parser)
    found = parser.parse_object({"data": {"class_path": "Waves", "init_args": {"rows": 50}}})
    assert found.data.class_path == "my_package.Waves"
    with pytest.raises(UserError, match=r"--data must be one of .*, Waves, or the import path of a ForecastDataModule"):
        parser.parse_object({"data": {"class_path": "Tides"}})


def test_what_is_no_import_path_of_a_kind_is_refused() -> None:
    for path, message in (
        *((path, f"unknown toy {path!r}; valid: mine") for path in ("nowhere", "nowhere.Class", ".")),
        ("tsattn.Nowhere", "toy tsattn.Nowhere: tsattn has no class Nowhere"),
        ("tsattn.errors.UserError", "toy tsattn.errors.UserError: it must derive from Predictor"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            class_of(path, Predictor, what="toy", table={"mine": "nowhere.Mine"})


@pytest.mark.parametrize(
    ("line", "cause", "message"),
    [
        ("import not_installed", ModuleNotFoundError, "No module named 'not_installed'"),
        ("from tsattn import nothing", ImportError, "cannot import name 'nothing'"),
        ("import math; math.cake", AttributeError, "module 'math' has no attribute 'cake'"),
        ("1 / 0", ZeroDivisionError, "division by zero"),
        ("def f(:", SyntaxError, "invalid syntax"),
        ("import sys; sys.exit('no GPU')", SystemExit, "no GPU"),
    ],
)
def test_an_error_of_a_module_that_a_kind_lies_in_is_shown(
    line: str, cause: type[BaseException], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_one.py").write_text(f"{line}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    sentence = f"attention broken_one.Mine: broken_one cannot be imported ({cause.__name__}: {message}"
    with pytest.raises(UserError, match=re.escape(sentence)) as caught:
        build_attention({"kind": "broken_one.Mine"}, d_model=8, num_heads=2)
    assert isinstance(caught.value.__cause__, cause)


@pytest.mark.parametrize(("line", "key"), [("import not_installed", "data"), ("1 / 0", "callbacks")])
def test_an_error_of_a_module_that_a_class_path_names_is_shown(
    line: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_two.py").write_text(f"{line}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    named = {"class_path": "broken_two.Mine"}
    content = {"data": named} if key == "data" else {"data": "CO2DataModule", "trainer": {"callbacks": [named]}}
    with pytest.raises(UserError, match=r"class broken_two.Mine: broken_two cannot be imported \(\w+Error: \w+"):
        parsed(content)


@pytest.mark.usefixtures("undrawn", "short_ridge")
def test_a_toy_of_each_is_added_from_outside_as_the_pages_say(my_package: str, tmp_path: Path) -> None:
    """By the first command of each page."""
    assert len(PAGES) == len(re.findall(r"^class (\w+)", my_package, re.MULTILINE)) == 4
    scored = {}
    # in a file, what says how to train may stand beside what is not trained
    (tmp_path / "toy.yaml").write_text(
        "trainer: {max_steps: 2, max_epochs: null, val_check_interval: 2, accelerator: cpu}\n"
    )
    for number, page in enumerate(PAGES):
        (shown,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
        for command in shown.replace("\\\n", "").splitlines()[:1]:
            run = tmp_path / str(number)
            toy = ["--config", str(tmp_path / "toy.yaml"), "--run", str(run)]
            (name,) = re.findall(r"my_package\.(\w+)", command)
            assert main([*shlex.split(command)[1:], *toy]) == 0
            metrics = json.loads((run / "metrics.json").read_text())
            assert metrics["test_windows"] > 0
            scored[name] = next(iter(metrics["test"]))
    assert scored == {
        "Scaled": "my_package.Scaled",
        "Waves": "auto",
        "Drift": "my_package.Drift",
        "Nearest": "transformer_my_package.Nearest",
    }


def test_a_pattern_is_added_from_outside_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one file: how it computes, what it costs, which pairs it favours."""
    (code,) = (
        found for page in PAGES for found in re.findall(r"```python\n(# my_pattern\.py\n.*?)```", page, re.DOTALL)
    )
    (tmp_path / "my_pattern.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    attention = build_attention(
        {"kind": "my_pattern.PhaseAttention", "period": 3}, d_model=8, num_heads=2, max_length=12, causal=True
    )
    x = torch.randn(2, 12, 8)
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[0, -2:] = False
    i, j = torch.arange(12)[:, None], torch.arange(12)[None]
    same = (i - j) % 3 == 0
    weights = attention_map(attention, x, attention_mask=mask)
    assert torch.equal(weights[1, 0] > 0, same & (j <= i))
    assert torch.equal(attention_zones(attention, x)["every 3 steps"][0], same)
    assert closed_form(attention, 12).score_flops_per_head == 2 * 12 * 4 * 4
    attention.impl, expected = "reference", attention(x, attention_mask=mask)
    torch.testing.assert_close(attention(x, attention_mask=mask)[mask], expected[mask])
    with pytest.raises(UserError, match="SamePhase has no cache: it cannot decode step by step"):
        attention.new_cache(1)
    sys.modules.pop("my_pattern")
