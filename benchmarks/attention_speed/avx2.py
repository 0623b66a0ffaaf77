"""Multi-level attention where the kernel may use AVX2 alone, and PyTorch what it likes, or AVX2 alone too.

Instruction sets are chosen once for a process, so that each is measured in one of its own, which runs this file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from attention_speed.contenders import CONTENDERS, SDPA, TOLERANCES, Problem, check
from attention_speed.passes import pass_rows
from attention_speed.rows import Row
from attention_speed.timing import Timing

__all__ = ["AVX2_PARTS", "avx2_rows"]

AVX2_PARTS = {
    "avx2": {"TSATTN_KERNELS": "avx2"},
    "avx2 alone": {"TSATTN_KERNELS": "avx2", "ATEN_CPU_CAPABILITY": "avx2"},
}


def avx2_rows(part: str, problems: Sequence[Problem], timing: Timing) -> list[Row]:
    """The rows of a part, from a process with its environment.

    Raises:
        CalledProcessError: if that process fails.
    """
    root = Path(__file__).parents[1]
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        asked = {"part": part, "problems": [asdict(problem) for problem in problems], "timing": asdict(timing)}
        subprocess.run(
            [sys.executable, "-m", "attention_speed.avx2", str(file), json.dumps(asked)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **AVX2_PARTS[part]},
            check=True,
        )
        return [Row(**row) for row in json.loads(file.read_text())]


def main(file: str, asked: str) -> None:
    torch.set_num_threads(1)
    said = json.loads(asked)
    problems = [Problem(**problem) for problem in said["problems"]]
    error = check(CONTENDERS["mlr native"], Problem(130, 2, causal=True), torch.float32, "cpu")
    if not error <= TOLERANCES[torch.float32]:
        sys.exit(f"mlr native differs from its reference by {error} where it has AVX2 alone")
    rows = pass_rows(problems, Timing(**said["timing"]), part=said["part"], names=(SDPA, "mlr native"))
    Path(file).write_text(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main(*sys.argv[1:])
