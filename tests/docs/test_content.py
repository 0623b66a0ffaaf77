"""What the pages list is what there is: kinds, costs, files, suites, search spaces, links."""

import os
import re
import shlex
import subprocess
from inspect import signature
from pathlib import Path

import pytest
import yaml

from tests.docs.blocks import ROOT, blocks, pages
from tests.test_imports import LAYERS
from tsattn import Forecaster
from tsattn.attention import KINDS, attention_arguments, attention_class
from tsattn.cli import main
from tsattn.cli.words import Words, session
from tsattn.leaderboard.suite import read_suite
from tsattn.ops.native.library import set_in_use
from tsattn.predictors import predictor_kinds
from tsattn.predictors.ensemble import TRAINING_OPTIONS
from tsattn.tuning import HeldData, check_search, comparable, read_search

CONCEPTS, HOW_TO = ROOT / "docs" / "concepts", ROOT / "docs" / "how-to"


def yaml_of(page: Path) -> str:
    (code,) = [block.code for block in blocks(page.read_text("utf-8")) if block.language == "yaml"]
    return code


def test_the_suite_is_one_that_benchmark_takes(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(yaml_of(HOW_TO / "leaderboard.md"))
    read = read_suite(tmp_path / "suite.yaml")
    assert list(read.predictors) == ["ridge", "patchtst", "patchtst+ridge"]
    assert [question.models for question in read.questions] == [("patchtst, mlr",)]


def test_the_configuration_is_one_that_comes_along() -> None:
    page = HOW_TO / "train.md"
    shipped = yaml.safe_load((ROOT / "configs" / "co2_mlr.yaml").read_text("utf-8"))
    assert yaml.safe_load(yaml_of(page)) == shipped


def test_names_of_other_libraries_stand_beside_arguments_of_ours() -> None:
    table = (HOW_TO / "peers.md").read_text("utf-8").split("| here | neuralforecast |")[1].split("\n\n")[0]
    named = re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines()[2:]))
    known = {*signature(Forecaster).parameters, *signature(Forecaster.predict).parameters, "predict"}
    assert len(named) > 10
    assert set(named) <= known
    assert "cross_validate(windows, step, refit)" in table
    assert {"windows", "step", "refit"} <= set(signature(Forecaster.cross_validate).parameters)


def test_the_page_of_predictors_names_each_and_the_options_of_members() -> None:
    named = re.findall(r"`(\w+)`", (HOW_TO / "predictors.md").read_text("utf-8"))
    assert {*named} >= {*predictor_kinds(), *TRAINING_OPTIONS}


def test_the_search_file_is_one_that_tune_takes(toy_csv: Path, tmp_path: Path) -> None:
    (tmp_path / "search.yaml").write_text(yaml_of(HOW_TO / "tune.md"))
    data = ["--data=CSVDataModule", f"--data.path={toy_csv}", "--data.context_length=24", "--data.prediction_length=4"]
    words = [*data, "--trainer.accelerator=cpu", "--trainer.max_steps=1"]
    with session():
        experiment = Words("fit", words).experiment()
        check_search(read_search(tmp_path / "search.yaml"), comparable(experiment).to_dict(), HeldData().check)


def test_the_cost_table_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (CONCEPTS / "cost.md").read_text("utf-8")
    command = re.search(r"^tsattn (cost .*?)\n```", page, re.DOTALL | re.MULTILINE)
    assert command
    assert main(shlex.split(command[1].replace("\\\n", " "))) == 0
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.strip().splitlines())
    if set_in_use() in ("avx512", "avx512_bf16"):
        assert printed in page
    # what is executed depends on the width of vectors, and on whether there is a compiler
    executed = r"(?<=flops executed on a CPU, with values) +[\d,]+"
    assert re.sub(executed, "", printed) in re.sub(executed, "", page)


def test_the_table_of_kinds_is_complete() -> None:
    table = (CONCEPTS / "attention.md").read_text("utf-8").split("| kind | bias |")[1].split("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \|[^\n]*?\|([^|\n]*)\|[^|\n]*\|[^|\n]*\|$", table, re.MULTILINE))
    assert list(rows) == list(KINDS)
    for kind, arguments in rows.items():
        named = re.findall(r"`(\w+)`", arguments)
        assert set(named) <= set(attention_arguments(attention_class(kind))), kind


def test_the_map_of_the_code_is_complete() -> None:
    page = (CONCEPTS / "where-things-are.md").read_text("utf-8")
    mapped = re.findall(r"^  (\w+)/ ", page, re.MULTILINE)
    assert set(mapped) == {path.parent.name for path in (ROOT / "tsattn").glob("*/__init__.py")}
    order = " ".join(page.split()).split("never import higher ones (`")[1].split("`")[0]
    assert order.split(" < ") == LAYERS
    for name in re.findall(r"^(\w+)/ ", page, re.MULTILINE):
        assert (ROOT / name).is_dir(), name


def test_the_files_between_a_table_and_a_batch_are_there() -> None:
    page = (CONCEPTS / "data-flow.md").read_text("utf-8")
    names = re.findall(r"`(\w+\.py|\w+/)`", page)
    assert len(names) > 10
    for name in names:
        assert (ROOT / "tsattn" / "data" / name).exists(), name


def test_every_file_that_a_page_links_is_there() -> None:
    for page in pages():
        text = page.read_text("utf-8")
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, part = link.partition("#")
            if path.startswith(("http:", "https:")):
                continue
            target = page.parent / path if path else page
            assert target.exists(), f"{page}: {link}"
            if part:
                headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
                anchors = [re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings]
                assert part in anchors, f"{page}: {link}"
        assert "@@" not in text, page


COMMON = "srun --overlap --nodes=1 --ntasks=1 --nodelist="
RAY = f"{COMMON}%s ray start --address=one:22345 --num-cpus=8 --block"
TOOLS = {
    "scontrol": 'printf "one\\ntwo\\nthree\\n"',
    "srun": 'echo "srun $@" >> calls; exec sleep 60',
    "ray": 'sleep 0.2; grep -q "nodelist=one" calls',  # `ray status`
    "tsattn": 'for _ in $(seq 100); do [ "$(grep -c srun calls)" = 3 ] && break; sleep 0.1; done\n'
    'echo "tsattn $@" >> calls; exit 7',
}


def test_the_script_starts_a_cluster_on_its_nodes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "slurm.md").read_text("utf-8")
    (script,) = (block.code for block in blocks(page) if "scontrol" in block.code)
    (tmp_path / "script.sh").write_text(script)
    for name, text in TOOLS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "12345"}
    environment |= {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_CPUS_PER_TASK": "8"}
    done = subprocess.run(["bash", "script.sh"], cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 7, done.stderr  # that of the benchmark
    *sruns, last = (tmp_path / "calls").read_text().splitlines()
    assert last == "tsattn benchmark --suite classic --ray one:22345"
    head = f"{COMMON}one ray start --head --port=22345 --num-cpus=8 --block"
    assert sorted(sruns) == [head, RAY % "three", RAY % "two"]
    # where Ray is not found the script ends, rather than to wait for it until its time is over
    for name in ("srun", "ray"):
        (tmp_path / name).write_text("#!/bin/bash\nexit 127\n")
    done = subprocess.run(["bash", "script.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "Ray does not start on one: is it installed where this script runs?\n")
