"""A study as a job array of SLURM."""

from __future__ import annotations

import shlex
from pathlib import Path

__all__ = ["slurm_script"]


def slurm_script(words: list[str], folder: Path, workers: int) -> str:
    """A script for `sbatch`, every task of which runs the same command and shares the study.

    Args:
        words: those after ``tune``, without passwords; ``--slurm`` is left out.
        folder: of the study.
        workers: number of tasks.
    """
    kept: list[str] = []
    skip = False
    for word in words:
        if skip or word.startswith("--slurm="):
            skip = False
        elif word == "--slurm":
            skip = True
        else:
            kept.append(word)
    command = shlex.join(["python", "-m", "tsattn", "tune", *kept])
    return f"""\
#!/bin/bash
#SBATCH --job-name={folder.name}
#SBATCH --array=1-{workers}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --output={folder.name}_%a.txt
#SBATCH --signal=TERM@60
# SIGTERM, a minute before the end of the time, queues the running trial again. Submit once more to go on.
# The journal needs a folder that all nodes share; else give --storage, or the URL in TSATTN_STORAGE. Passwords are not
# written here: sbatch passes TSATTN_STORAGE and PGPASSWORD on, and a passfile in the home folder is found.
srun {command}
"""
