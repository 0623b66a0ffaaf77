"""Everything that only a GPU can tell, by one command, into one folder.

    python benchmarks/gpu.py --output results
    python benchmarks/gpu.py --output results --dry-run

Steps: `tests`, the contract tests of the implementations for CUDA and all tests that are marked `gpu` (where pytest is
installed; `attention` compares each implementation with its reference in any case); `attention`, the times of
`benchmarks/attention.py --device cuda` with the targets; `training`, `benchmarks/gpu_training.py`. Each step's output
lies in `STEP.txt`, its files beside that; `gpu.json` names the device, the versions, the commands and how they ended.
A step that fails leaves the others to run, and makes the exit code 1.

`--steps paper` runs the suites of `benchmarks/paper` at their size for a GPU, which takes hours. Finished runs are
kept: `timeout 570` before the command makes parts of ten minutes, and the same command continues.

Where packages are missing and nothing can be downloaded, make them a folder on another machine, for that one's Python:

    python -m pip wheel --no-deps --wheel-dir wheels .
    python -m pip install --no-deps --only-binary=:all: --python-version 3.12 --platform linux_x86_64 \\
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \\
        --target packages wheels/*.whl jsonargparse docstring-parser typeshed-client importlib-resources pooch \\
        platformdirs optuna alembic colorlog sqlalchemy mako greenlet
    PYTHONPATH=packages python benchmarks/gpu.py --output results

`--dry-run` goes through all of it in a minute without a GPU, with tiny sizes and Triton's interpreter: its figures mean
nothing, which `gpu.json` says too.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import yaml

ROOT = Path(__file__).parents[1]
STEPS = ("tests", "attention", "training")
PAPER = ("etth1", "language", "rank_lists", "in_context", "mlbtc_prompts", "mup_transfer", "blocks")
_SHOWN = ("torch", "triton", "lightning")  # packages
CONTRACT_TESTS = (
    "tests/ops/test_multilevel_triton.py",
    "tests/ops/test_multilevel_triton_compiled.py",
    "tests/ops/test_sliding_window_flex.py",
)
# of a dry run, one of each file; pytest fails where one is not there
FEW_TESTS = (
    f"{CONTRACT_TESTS[0]}::test_equals_the_reference[part of a tile]",
    f"{CONTRACT_TESTS[1]}::test_compiled_whole_for_any_length",
    f"{CONTRACT_TESTS[2]}::test_equals_the_reference[padded-1000]",
)


def commands(step: str, output: Path, dry_run: bool) -> list[list[str]]:
    if step == "tests":
        if importlib.util.find_spec("pytest") is None:
            return []
        pytest = ["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
        if dry_run:
            return [[*pytest, *FEW_TESTS]]
        if importlib.util.find_spec("xdist") is not None:  # compiling is most of the time
            pytest += ["-n", str(min(8, os.cpu_count() or 1))]
        # files without such tests may need packages that are not there
        others = sorted(
            str(file.relative_to(ROOT)) for file in ROOT.glob("tests/*/test_*.py") if "mark.gpu" in file.read_text()
        )
        return [
            [*pytest, *CONTRACT_TESTS],
            [*pytest, "-m", "gpu", *(one for one in others if one not in CONTRACT_TESTS)],
        ]
    if step == "attention":
        words = ["benchmarks/attention.py", "--device", "cuda", "--output", str(output / "attention")]
        return [[*words, "--dry-run"] if dry_run else words]
    if step == "paper":
        words = ["--size", "h100", "--jobs", "4", *(["--dry-run"] if dry_run else [])]
        folders = {name: output / "paper" / name for name in PAPER}
        return [
            [f"benchmarks/paper/{name}.py", *words, "--output", str(folder), "--folder", str(folder / "runs")]
            for name, folder in folders.items()
        ]
    words = ["benchmarks/gpu_training.py", "--out", str(output / "training")]
    if dry_run:
        words += ["--config", str(tiny_config(output)), "--accelerator", "cpu", "--max-steps", "2"]
        words += ["--attention", "mlr", "--setting", "bf16"]
    return [words]


def tiny_config(output: Path) -> Path:
    config = yaml.safe_load((ROOT / "configs" / "co2_mlr.yaml").read_text())
    config["data"]["init_args"] |= {"context_length": 24, "prediction_length": 4}
    config["model"]["backbone"] |= {"d_model": 16, "num_heads": 2, "num_layers": 1}
    config["trainer"] = {"max_steps": 2}
    path = output / "tiny.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def run_step(step: str, output: Path, dry_run: bool) -> dict[str, Any]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **({"TRITON_INTERPRET": "1"} if dry_run else {})}
    how: dict[str, Any] = {"cwd": ROOT, "env": environment, "text": True, "stderr": subprocess.STDOUT}
    lines, code, began = commands(step, output, dry_run), 0, time.perf_counter()
    with (output / f"{step}.txt").open("w") as file:
        for words in lines:
            print(f"$ {shlex.join(['python', *words])}", flush=True)
            with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, **how) as process:
                for line in process.stdout or ():
                    print(line, end="", file=file, flush=True)
                    print(line, end="", flush=True)
            code = code or process.returncode
    record = {"commands": [shlex.join(["python", *words]) for words in lines], "exit_code": code}
    if not lines:
        record |= {"left_out": "pytest is not installed"}
        print(f"{step} left out: pytest is not installed")
    return {**record, "seconds": round(time.perf_counter() - began, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=os.environ.get("OUT"), help="folder; $OUT by default")
    parser.add_argument("--steps", nargs="+", choices=(*STEPS, "paper"), default=STEPS, help="all but paper by default")
    parser.add_argument("--dry-run", action="store_true", help="on a CPU, with tiny sizes: figures mean nothing")
    options = parser.parse_args()
    if options.output is None:
        parser.error("name a folder for the results: --output, or the environment variable OUT")
    if not options.dry_run and not torch.cuda.is_available():
        parser.error("there is no CUDA device; --dry-run goes through all steps without one")
    output = Path(options.output).resolve()
    output.mkdir(parents=True, exist_ok=True)
    about: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "dry_run": options.dry_run,
        "cuda": torch.version.cuda,
        "platform": platform.platform(),
        "python": platform.python_version(),
        **{one.name: one.version for one in importlib.metadata.distributions() if one.name in _SHOWN},
    }
    if options.dry_run:
        print("a dry run: sizes are tiny, Triton may be interpreted, and no figure means anything", flush=True)
    done: dict[str, Any] = {}
    for step in options.steps:
        done[step] = run_step(step, output, options.dry_run)
        # at once, so that a machine that is taken away leaves what was measured
        (output / "gpu.json").write_text(json.dumps({**about, "steps": done}, indent=2) + "\n")
    for step, record in done.items():
        ended = "left out" if "left_out" in record else "well" if not record["exit_code"] else "FAILED"
        print(f"{step:10} {ended:9} {record['seconds']:8.1f} s   {output / step}.txt")
    return int(any(record["exit_code"] for record in done.values()))


if __name__ == "__main__":
    sys.exit(main())
