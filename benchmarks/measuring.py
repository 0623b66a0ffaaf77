"""What benchmarks share: the machine that measures, time and memory of calls by turns, parsers, records and tables."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from tsattn.ops.native.library import VARIABLE, find_library
from tsattn.saved_folders import write_text

RESULTS = Path(__file__).parent / "results"
os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler announces itself at every start
FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16")


def cpu() -> dict[str, Any]:
    """Return its name, its family and model where the name leaves them open, and the instructions that matter here."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    said = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    about: dict[str, Any] = {"cpu": said.get("model name") or platform.processor() or platform.machine()}
    if not re.search(r"\d", short_name(about["cpu"])) and "cpu family" in said:
        about |= {"cpu_family": int(said["cpu family"]), "cpu_model": int(said["model"])}
    listed = (said.get("flags") or said.get("Features") or "").split()
    return {**about, "flags": [flag for flag in FLAGS if flag in listed]}


def short_name(name: str) -> str:
    return re.sub(r"\((R|TM)\)|\bCPU\b|@.*", " ", name)


def describe(device: str, dtype: torch.dtype) -> dict[str, Any]:
    found = find_library(os.environ.get(VARIABLE, ""))
    return {
        **({"gpu": torch.cuda.get_device_name()} if device == "cuda" and torch.cuda.is_available() else {}),
        **cpu(),
        "cores": os.cpu_count(),
        "kernels": None if found.instruction_set is None else found.instruction_set.name,
        "torch_capability": torch.backends.cpu.get_cpu_capability(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "dtype": str(dtype).removeprefix("torch."),
    }


def this_command() -> str:
    """Return the command that runs, without the folders of its files."""
    script, *words = sys.argv
    given = [Path(word).name if "/" in word else word for word in words]
    return shlex.join(["python", f"benchmarks/{Path(script).name}", *given])


def slug_of(about: dict[str, Any]) -> str:
    """Name a machine's files after its GPU and numbers, else its CPU."""
    family = f" family {about['cpu_family']} model {about['cpu_model']}" if "cpu_family" in about else ""
    words = f"{about['gpu']} {about['dtype']}" if "gpu" in about else short_name(about["cpu"]) + family
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


class MachineTable:
    """`SLUG.csv` and `SLUG.json` of a machine in a folder: rows, and what is known about it."""

    def __init__(self, folder: Path, slug: str) -> None:
        self.folder, self.slug = folder, slug

    def path(self, ending: str) -> Path:
        return self.folder / f"{self.slug}.{ending}"

    def about(self) -> dict[str, Any]:
        return json.loads(self.path("json").read_text()) if self.path("json").exists() else {}

    def rows(self) -> pd.DataFrame:
        return pd.read_csv(self.path("csv")) if self.path("csv").exists() else pd.DataFrame({"part": []})

    def write(self, rows: pd.DataFrame, about: dict[str, Any] | None = None) -> None:
        write_text(self.path("csv"), rows.to_csv(index=False))
        if about is not None:
            write_record(self.path("json"), about)


Run = Callable[[], object]
Clock = Callable[[Run], float]  # the seconds of a call

GPU_CALLS = 10  # that are timed together on a GPU


@dataclass(frozen=True)
class Timing:
    """How long is measured: at least `least` turns, then as many as `seconds` allow, up to `most`."""

    seconds: float = 2.0
    least: int = 5
    most: int = 60


def cpu_clock(run: Run) -> float:
    """Time this process alone, whatever else the machine does."""
    start = time.process_time()
    run()
    return time.process_time() - start


def wall_clock(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def gpu_clock(run: Run) -> float:
    """Time the device alone: the mean of several calls without a gap."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(GPU_CALLS):
        run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / GPU_CALLS


def take_turns(runs: Mapping[str, Run], timing: Timing, clock: Clock) -> tuple[dict[str, float], int]:
    """Return the median seconds of each call, and the turns that each had, after one that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    began, turns = time.perf_counter(), 0
    while turns < timing.least or (turns < timing.most and time.perf_counter() - began < timing.seconds):
        for name, run in runs.items():
            times[name].append(clock(run))
        turns += 1
    return {name: statistics.median(spent) for name, spent in times.items()}, turns


def peak_memory(run: Run, device: str) -> int:
    """Return the bytes held besides the inputs at the peak, as the allocator counts them."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(profile_memory=True) as profile:
        run()
    held = peak = 0
    for event in sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def new_parser(doc: str | None, folder: Path = RESULTS, *, toy: str = "") -> argparse.ArgumentParser:
    """Make a parser with ``--output``, and ``--dry-run`` where `toy` says what that does."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", "--out", type=Path, default=folder, metavar="DIR", help="folder to write into")
    if toy:
        said = f"{toy}, whose figures mean nothing; needs --output"
        parser.add_argument("--dry-run", action="store_true", help=said)
    return parser


def parse(parser: argparse.ArgumentParser, words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the words; a dry run into the folder of the committed results is refused. Torch gets one thread."""
    options = parser.parse_args(words)
    if getattr(options, "dry_run", False) and options.output == parser.get_default("output"):
        parser.error("--dry-run needs an --output of its own: its figures mean nothing")
    torch.set_num_threads(1)
    return options


def about(*packages: str) -> dict[str, Any]:
    versions = {name: version(name) for name in ("tsattn", "torch", *packages)}
    machine = {**describe("cpu", torch.float32), "threads": 1}
    return {"command": this_command(), "machine": machine, "versions": versions}


def write_record(file: Path, record: dict[str, Any], page: str = "") -> None:
    write_text(file, json.dumps(record, indent=2) + "\n")
    if page:
        write_text(file.with_suffix(".md"), page)


def table(head: Sequence[object], rows: Iterable[Iterable[object]], marks: Sequence[str] | None = None) -> list[str]:
    """Return the lines of a Markdown table and an empty one."""
    lines = (head, marks or ["---"] * len(head), *rows)
    return [*(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines), ""]


def packages_of(record: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in record["versions"].items())


def title_of(record: dict[str, Any], title: str) -> list[str]:
    """Write the title of a page; a dry run says that it is one."""
    toy = ["**A dry run of toy sizes: its figures mean nothing.**", ""] if record["dry_run"] else []
    return [f"# {title}", "", *toy]
