"""The script of the page about SLURM, whose scheduler is played by a shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.docs.blocks import ROOT, blocks

COMMON = "srun --overlap --nodes=1 --ntasks=1 --nodelist="
RAY = f"{COMMON}%s ray start --address=one:22345 --num-cpus=8 --block"
# what it calls writes down how it was called
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
    assert last == "tsattn benchmark --suite ett --ray one:22345"
    head = f"{COMMON}one ray start --head --port=22345 --num-cpus=8 --block"
    assert sorted(sruns) == [head, RAY % "three", RAY % "two"]
    # where Ray is not found the script ends, rather than to wait for it until its time is over
    for name in ("srun", "ray"):
        (tmp_path / name).write_text("#!/bin/bash\nexit 127\n")
    done = subprocess.run(["bash", "script.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "Ray does not start on one: is it installed where this script runs?\n")
