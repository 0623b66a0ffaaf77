"""Whether multi-level attention takes longer than standard attention.

    python benchmarks/paper/wall_clock.py [--device cpu|cuda] [--seconds S] [--again] [--report-only] [--output DIR]

Forward and backward passes of 8 heads of 64 components, each path of ours compared with
`torch.nn.functional.scaled_dot_product_attention`, from 256 to 4096 tokens. They are timed by `benchmarks/attention.py`
in several rounds, each of which is a process of its own. What this machine has measured already is not measured again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

if not __package__:  # run as a file, which finds files next to it, but not the folder above
    sys.path[0] = str(Path(__file__).parents[2])

import pandas as pd
import torch
from matplotlib.figure import Figure

from benchmarks.paper.claims import Claim, PaperReport, most, new_axes
from benchmarks.paper.experiment import measure_and_report, timed_parser

PAPER = 1.35  # the time of MLR attention over that of standard attention, in the paper
FROM, TO = 256, 4096  # the tokens that are reported
ROUNDS = 3  # in which everything is measured, to know the spread

_SDPA = "sdpa"
_SHAPE = ["machine", "T", "causal", "pass"]
_CASE = ["machine", "contender", "T", "causal", "pass"]

_RULE = (
    "in most cases (lengths, passes, causal or not) each round takes longer than {}, and in none each "
    "takes less; the reverse does not hold; else it is undecided"
)


def timed(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the medians of the rounds of each case, with the ``least`` and ``greatest`` of their ratios.

    ``same_path``, ``same_path_least`` and ``same_path_greatest`` are the time divided by that of standard attention by
    the same path, NaN where that was not measured. Rows are those of `benchmarks/attention.py`, with ``machine`` and
    ``round``.
    """
    kind, path = (rows["contender"].str.partition(" ")[part] for part in (0, 2))
    rows = rows.assign(path=path)
    standard = rows[(kind == "standard") & (path != "")].set_index([*_SHAPE, "path", "round"])["ratio"]
    same_path = standard.rename("same_path").reset_index()
    rows = rows.merge(same_path, "left", [*_SHAPE, "path", "round"])
    rows["same_path"] = rows["ratio"] / rows["same_path"]
    of = {"ms": ("median_ms", "median"), "ratio": ("ratio", "median"), "least": ("ratio", "min")}
    of |= {"greatest": ("ratio", "max"), "same_path": ("same_path", "median"), "same_path_least": ("same_path", "min")}
    of |= {"same_path_greatest": ("same_path", "max"), "rounds": ("round", "nunique"), "turns": ("turns", "sum")}
    return rows.groupby(_CASE, sort=False).agg(**of).reset_index()


def report(cases: pd.DataFrame) -> PaperReport:
    table = cases[cases["contender"] != _SDPA].drop(columns=["same_path_least", "same_path_greatest"])
    paths = [
        (machine, path)
        for machine, part in cases.groupby("machine", sort=False)
        for path in dict.fromkeys(part["contender"])
        if str(path).startswith("mlr")
    ]
    return PaperReport(
        title="The time of multi-level attention",
        doc=__doc__,
        claims=[
            _claim(cases, str(machine), str(path), is_same_path)
            for machine, path in paths
            for is_same_path in (True, False)
            if not is_same_path or _of_path(cases, str(machine), str(path))["same_path"].notna().all()
        ],
        table=table.assign(causal=["yes" if one else "no" for one in table["causal"]]).reset_index(drop=True),
        legend="`ratio` is the time over that of SDPA in the same round, the median of the rounds, and `least` and "
        "`greatest` are of them; `same_path` is the time over that of standard attention by the same "
        "path; a contender is named after its kind and path. 8 heads of 64 components; MLR of ranks "
        "32, 8, 6, 4, 4, 4, 4, 2.",
        figure=_figure(cases),
        caption="The time over that of SDPA by length, with the least and the greatest of the rounds; the dotted line "
        f"is the paper's {PAPER}.",
        differs=[
            f"The paper reports {PAPER} times as long, of whole language models on a GPU, by masks of PyTorch; here it "
            "is the attention alone.",
            "The way called `tiles` is ours: pairs are cut into tiles, which PyTorch's fused kernel computes, in the "
            "place of the paper's masks.",
            "Standard attention is that of the same kernel of ours, which shows what the levels cost, and PyTorch's "
            "fused one, which is what users have.",
        ],
    )


def _of_path(cases: pd.DataFrame, machine: str, path: str) -> pd.DataFrame:
    return cases[(cases["machine"] == machine) & (cases["contender"] == path)]


def _claim(cases: pd.DataFrame, machine: str, path: str, is_same_path: bool) -> Claim:
    part = _of_path(cases, machine, path)
    other = f"standard {path.partition(' ')[2]}" if is_same_path else "SDPA"
    if is_same_path:
        part = part.assign(least=part["same_path_least"], greatest=part["same_path_greatest"])
    found = "; ".join(
        f"{which}: {of_pass['least'].min():.2f} to {of_pass['greatest'].max():.2f} times"
        for which, of_pass in part.groupby("pass", sort=False)
    )
    verdicts = [
        None if row.rounds < ROUNDS else True if row.least > 1 else False if row.greatest < 1 else None
        for row in part.itertuples()
    ]
    is_of_paper = "native" not in path  # which is no kernel of PyTorch
    by = "by PyTorch's kernels" if is_of_paper else "by our own kernel"
    lengths = sorted({part["T"].min(), part["T"].max()})
    return Claim(
        f"MLR attention {by} takes longer than {'standard attention' if is_same_path else 'SDPA'} ({path} compared "
        f"with {other}; {PAPER} times as long in the paper).",
        f"{found}, the range of lengths and rounds, causal and not",
        most(verdicts),
        _RULE.format(other),
        is_of_paper,
        f"{machine}; T {' to '.join(map(str, lengths))}",
    )


def _figure(cases: pd.DataFrame) -> Figure:
    machines, passes = (list(dict.fromkeys(cases[name])) for name in ("machine", "pass"))
    size = 1.5 + 4.5 * max(1, len(passes)), 3.6 * max(1, len(machines))
    figure, axes = new_axes(size, len(machines), len(passes), sharey=True)
    for machine, line in zip(machines, axes, strict=False):
        for which, ax in zip(passes, line, strict=False):
            part = cases[(cases["machine"] == machine) & (cases["pass"] == which) & ~cases["causal"].astype(bool)]
            for number, (contender, of_path) in enumerate(part.groupby("contender", sort=False)):
                if contender != _SDPA:
                    colour = f"C{number}"
                    ax.plot(of_path["T"], of_path["ratio"], marker="o", ms=4, color=colour, label=contender)
                    ax.vlines(of_path["T"], of_path["least"], of_path["greatest"], color=colour, lw=1)
            ax.axhline(1, color="0.6", lw=1)
            ax.axhline(PAPER, color="0.6", lw=1, ls=":")
            ax.set(title=f"{which}, not causal\n{machine}", xlabel="tokens")
            ax.set_xscale("log", base=2)
            ax.set_xticks(lengths := sorted(part["T"].unique()), list(map(str, lengths)))
        line[0].set_ylabel("time over SDPA's")
        figure.legend(*line[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside right upper")
    return figure


def main(words: Sequence[str] | None = None) -> int:
    parser = timed_parser("wall_clock", __doc__, 2, "one shape and pass")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, whose figures mean nothing; needs --output")
    options = parser.parse_args(words)
    if options.seconds < 0:
        parser.error(f"--seconds must be at least 0, not {options.seconds:g}")
    if options.tiny and options.output == parser.get_default("output"):
        parser.error("--tiny needs an --output of its own: its figures mean nothing")
    if options.device == "cuda" and not torch.cuda.is_available() and not options.report_only:
        parser.error("there is no CUDA device")
    command = f"python benchmarks/paper/wall_clock.py{'' if options.device == 'cpu' else ' --device cuda'}"
    settings, rounds = {"seconds": options.seconds, **({"tiny": True} if options.tiny else {})}, range(1, ROUNDS + 1)
    measure, made = partial(_round, options=options), lambda rows: report(timed(rows))
    return measure_and_report(options, settings, ("round", rounds), measure, made, command, options.device)


def _round(number: int, options: argparse.Namespace) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(Path(__file__).parents[1] / "attention.py"), "--parts", "attention"]
        command += ["--device", options.device, "--seconds", str(options.seconds), "--output", folder]
        subprocess.run([*command, *(["--dry-run"] if options.tiny else [])], check=True)
        (file,) = Path(folder).glob("*.csv")
        rows = pd.read_csv(file)
    kept = (rows["part"] == "attention") & (rows["width"] == 64)
    return rows[kept if options.tiny else kept & rows["T"].between(FROM, TO)].assign(round=number)


if __name__ == "__main__":
    sys.exit(main())
