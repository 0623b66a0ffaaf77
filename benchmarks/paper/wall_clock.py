"""Multi-level attention takes longer than standard attention.

    python benchmarks/paper/wall_clock.py [--device cpu|cuda] [--seconds S] [--report-only] [--output DIR]

Forward and backward passes of 8 heads of 64 components, each path of ours beside
`torch.nn.functional.scaled_dot_product_attention`, from 256 to 4096 tokens. They are timed by
`benchmarks/attention.py`, whose files lie in the same folder, a set for each machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run as a file, which finds what lies beside it but not the folder above
    sys.path[0] = str(Path(__file__).parents[2])

import json

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.paper.claims import Claim, PaperReport, write_report

__all__ = ["main", "report", "timed"]

PAPER = 1.35
"""The time of MLR attention over that of standard attention, in the paper."""

FROM, TO = 256, 4096
"""The tokens that are reported."""

_ROOT = Path(__file__).parents[2]
_FOLDER = _ROOT / "benchmarks" / "results" / "paper" / "wall_clock"
_SDPA = "sdpa"


def timed(folder: Path, *, least: int = FROM) -> pd.DataFrame:
    """What `benchmarks/attention.py` has measured: its rows of heads of 64 components, with ``machine``.

    Args:
        folder: of its files.
        least: tokens, below which rows are left out.
    """
    parts = []
    for file in sorted(folder.glob("*.json")):
        about = json.loads(file.read_text())
        rows = pd.read_csv(file.with_suffix(".csv"))
        kept = (rows["part"] == "attention") & (rows["width"] == 64) & rows["T"].between(least, TO)
        parts.append(rows[kept].assign(machine=_machine(about)))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"machine": [], "contender": []})


def _machine(about: dict) -> str:  # type: ignore[type-arg]
    if "gpu" in about:
        return f"{about['gpu']}, {about['dtype']}"
    model = f" (family {about['cpu_family']} model {about['cpu_model']})" if "cpu_family" in about else ""
    return f"{about['cpu']}{model}, one thread"


def report(rows: pd.DataFrame) -> PaperReport:
    """The report of what was measured, see `timed`."""
    paths = [
        (machine, path)
        for machine, part in rows.groupby("machine", sort=False)
        for path in dict.fromkeys(part["contender"])
        if str(path).startswith("mlr")
    ]
    return PaperReport(
        title="The time of multi-level attention",
        about=[" ".join((__doc__ or "").split("\n\n")[-1].split())],
        claims=[_claim(rows, str(machine), str(path)) for machine, path in paths],
        table=_table(rows),
        legend="`ratio` is the time over that of SDPA, of medians of turns; a contender is named after its kind and "
        "path. 8 heads of 64 components; MLR of ranks 32, 8, 6, 4, 4, 4, 4, 2.",
        figure=_figure(rows),
        caption=f"The time over that of SDPA by length; the dotted line is the paper's {PAPER}.",
        differs=[
            "The paper timed language models on a GPU, by masks of PyTorch; here it is the attention alone.",
            "Standard attention is PyTorch's fused kernel.",
        ],
    )


def _claim(rows: pd.DataFrame, machine: str, path: str) -> Claim:
    """Whether a path takes longer at every length and in every pass."""
    part = rows[(rows["machine"] == machine) & (rows["contender"] == path)]
    said = []
    for which, of_pass in part.groupby("pass", sort=False):
        by_length = of_pass.groupby("T")["ratio"].agg(["min", "max"])
        ratios = ", ".join(_range(int(T), row["min"], row["max"]) for T, row in by_length.iterrows())
        said.append(f"{which}: {ratios}")
    return Claim(
        f"MLR attention takes {PAPER} times as long as standard attention (here: {path}, {machine}).",
        "; ".join(said),
        bool((part["ratio"] > 1).all()),
        "it takes longer than SDPA at every length and in every pass; the range is of causal and not",
    )


def _range(T: int, least: float, most: float) -> str:
    return f"{least:.2f} to {most:.2f} (T {T})" if least != most else f"{least:.2f} (T {T})"


def _table(rows: pd.DataFrame) -> pd.DataFrame:
    table = rows[rows["contender"] != _SDPA][
        ["machine", "contender", "T", "causal", "pass", "median_ms", "ratio", "turns"]
    ]
    table = table.assign(causal=["yes" if one else "no" for one in table["causal"]])
    return table.rename(columns={"median_ms": "ms"}).reset_index(drop=True)


def _figure(rows: pd.DataFrame) -> Figure:
    machines, passes = (list(dict.fromkeys(rows[name])) for name in ("machine", "pass"))
    size = (4.5 * max(1, len(passes)), 3.6 * max(1, len(machines)))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(max(1, len(machines)), max(1, len(passes)), squeeze=False, sharey=True)
    for machine, line in zip(machines, axes, strict=False):
        for which, ax in zip(passes, line, strict=False):
            part = rows[(rows["machine"] == machine) & (rows["pass"] == which) & ~rows["causal"].astype(bool)]
            for number, (contender, of_path) in enumerate(part.groupby("contender", sort=False)):
                if contender != _SDPA:
                    ax.plot(of_path["T"], of_path["ratio"], marker="o", ms=4, color=f"C{number}", label=contender)
            ax.axhline(1, color="0.6", lw=1)
            ax.axhline(PAPER, color="0.6", lw=1, ls=":")
            ax.set(title=f"{which}, not causal\n{machine}", xlabel="tokens")
            ax.set_xscale("log", base=2)
            ax.spines[["top", "right"]].set_visible(False)
        line[0].set_ylabel("time over SDPA's")
        line[0].legend(frameon=False, fontsize=8)
    return figure


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/paper/wall_clock.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=2, help="for the turns of one shape and pass, if 5 are done")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes, whose figures mean nothing; needs --output")
    parser.add_argument("--report-only", action="store_true", help="make the report of what was measured")
    parser.add_argument("--output", type=Path, default=_FOLDER, metavar="DIR", help="of all files")
    options = parser.parse_args(words)
    if not options.report_only:
        command = [sys.executable, str(_ROOT / "benchmarks" / "attention.py"), "--parts", "attention"]
        command += ["--device", options.device, "--seconds", str(options.seconds), "--output", str(options.output)]
        code = subprocess.run([*command, *(["--dry-run"] if options.dry_run else [])], check=False).returncode
        if code:
            return code
    rows = timed(options.output, least=0 if options.dry_run else FROM)
    if rows.empty:
        print(f"error: nothing was measured in {options.output}: run it without --report-only", file=sys.stderr)
        return 2
    made = (
        f"`python benchmarks/paper/wall_clock.py{'' if options.device == 'cpu' else ' --device cuda'}`: versions and "
        "what else is known of each machine stand in its JSON file."
    )
    write_report(options.output, report(rows), made)
    print(f"report: {options.output / 'report.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
