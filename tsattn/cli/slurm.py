"""Scripts for SLURM: a study as a job array, a suite on a Ray cluster of several nodes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tsattn.cli.words import without_options

__all__ = ["ray_script", "slurm_script"]


def slurm_script(words: list[str], folder: Path, workers: int) -> str:
    """A script for `sbatch`, whose tasks run `tune` with these words, without passwords, and share the study."""
    command = shlex.join(["tsattn", "tune", *without_options(("--slurm",), words)])
    name = _job_name(folder.name)
    return f"""\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=1-{workers}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --output={name}_%a.txt
#SBATCH --signal=TERM@60
# SIGTERM, a minute before the end of the time, queues the running trial again. Submit once more to go on.
# The SQLite file of the study serves one node; for several give --storage, or the URL in TSATTN_STORAGE. Passwords are
# not written here: sbatch passes TSATTN_STORAGE and PGPASSWORD on, and a passfile in the home folder is found.
srun {command}
"""


def ray_script(words: list[str], name: str, nodes: int) -> str:
    """A script for `sbatch` that starts a Ray cluster on its nodes, and runs `benchmark` with these words there."""
    command = shlex.join(["tsattn", "benchmark", *without_options(("--ray", "--slurm"), words)])
    name = _job_name(name)
    return f"""\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --output={name}_%j.txt
#SBATCH --signal=B:TERM@120
# SIGTERM, two minutes before the end of the time, lets the benchmark write its records. Submit once more to go on: what
# is done is kept, and trainings and studies that were under way begin anew.
# The folders of the benchmark lie where this script is submitted; the nodes need the code and the data, no shared disk.
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
address="${{nodes[0]}}:$((20000 + SLURM_JOB_ID % 10000))"
on() {{ srun --overlap --nodes=1 --ntasks=1 --nodelist="$1" "${{@:2}}" & }}
on "${{nodes[0]}}" ray start --head --port="${{address##*:}}" --num-cpus="$SLURM_CPUS_PER_TASK" --block
head=$!
until ray status --address="$address" > /dev/null 2>&1; do
    if ! kill -0 "$head" 2> /dev/null || [ "$SECONDS" -gt 600 ]; then
        echo "Ray does not start on ${{nodes[0]}}: is it installed where this script runs?" >&2
        exit 1
    fi
    sleep 1
done
for node in "${{nodes[@]:1}}"; do
    on "$node" ray start --address="$address" --num-cpus="$SLURM_CPUS_PER_TASK" --block
done
{command} --ray "$address" &
benchmark=$!
trap 'kill -TERM "$benchmark"; wait "$benchmark"' TERM
wait "$benchmark"
code=$?
kill $(jobs -p) 2> /dev/null
exit "$code"
"""


def _job_name(name: str) -> str:
    """A name without characters that end a word of a header."""
    return re.sub(r"[^\w.-]+", "_", name)
