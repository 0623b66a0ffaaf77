"""Report how `tiny` was trained, from the records of `train.py`.

    python -m benchmarks.pretraining.train --output build/attention/1 --real real.parquet --steps 1500 --seed 1 \\
        --attention standard swa global_swa mlr identity    # and seeds 2 and 3
    python -m benchmarks.pretraining.report --weights build/tiny --attention build/attention

Copies the scores of the steps and groups, and the last scores of each attention, to `results/pretrained`, and writes
`report.md` from there. Without folders it writes the report alone. `ideas.csv` and `looks.csv` are notes of runs.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t

from benchmarks.measuring import RESULTS, table
from tsattn.pretrained.tiny import read_head
from tsattn.saved_folders import write_text

FOLDER = RESULTS / "pretrained"
SHOWN = {
    **{"mase_ratio": "MASE", "wql_ratio": "WQL", "coverage_80": "80 % interval covers"},
    **{"least_coverage_80": "least", "worse": "worse than naive"},
}


def attentions(folder: Path) -> pd.DataFrame:
    """Return the last scores of networks in `folder/SEED` and `folder/SEED/NUMBER`."""
    rows = []
    for scores in sorted(folder.rglob("choose.csv"), key=lambda path: (len(path.parts), path)):
        head = read_head(str(scores.with_name("tiny.safetensors")))
        facts = {"attention": head["sizes"]["attention"], "seed": head["seed"], "commit": head["commit"][:8]}
        rows.append({**facts, **pd.read_csv(scores).iloc[-1]})
    return pd.DataFrame(rows)


def compared(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare attentions with the standard one: seeds are pairs, as they saw the same batches."""
    found = []
    for attention, one in rows.groupby("attention", sort=False):
        line = {"attention": attention, "seeds": len(one), "loss": one["loss"].mean()}
        for name in ("mase_ratio", "wql_ratio"):
            line[SHOWN[name]] = one[name].mean()
            if attention != "standard":
                standard = rows[rows["attention"] == "standard"].set_index("seed")[name]
                logs = np.log(one.set_index("seed")[name] / standard).dropna()  # of equal seeds
                half = float(t.ppf(0.975, len(logs) - 1)) * logs.std() / math.sqrt(len(logs))
                line[f"{SHOWN[name]} to standard"] = f"{100 * logs.mean():+.2f} % ± {100 * half:.2f}"
        found.append(line)
    return pd.DataFrame(found)


def verdict(rows: pd.DataFrame) -> str:
    """Say which attentions differ from the standard one in MASE."""
    differ = [
        f"`{name}`"
        for name, change in zip(rows["attention"], rows["MASE to standard"].fillna("0 % ± 1"), strict=True)
        if abs(float(change.split(" %")[0])) > float(change.split("± ")[1])
    ]
    return f"{', '.join(differ)} differ from `standard`." if differ else "None differs measurably from `standard`."


def shown(rows: pd.DataFrame, digits: int = 3) -> str:
    """Make a table of rows, numbers with so many digits."""
    cells = rows.fillna("").map(lambda cell: f"{cell:.{digits}f}" if isinstance(cell, float) else cell)
    return "\n".join(table([*cells.columns], cells.itertuples(index=False))).rstrip()


def report(folder: Path) -> str:
    """Write the page."""
    steps, groups = pd.read_csv(folder / "choose.csv"), pd.read_csv(folder / "groups.csv")
    some = steps.iloc[[0, 1, *range(3, len(steps) - 1, 4), -1]][["step", "loss", *SHOWN]].rename(columns=SHOWN)
    ideas, looks = (pd.read_csv(folder / f"{name}.csv", dtype=str) for name in ("ideas", "looks"))
    some["worse than naive"] = some["worse than naive"].astype(int)
    seeds = pd.read_csv(folder / "attention.csv")
    head, models, steps_of, commit = read_head("tiny"), compared(seeds), seeds["step"].max(), seeds["commit"].iloc[0]
    parts = [
        "# How `tiny` was trained",
        f"`{head['command']}`, seed {head['seed']}, commit {head['commit'][:8]}: {head['steps']:,} steps, "
        f"{head['cpu_seconds'] / 60:.0f} minutes of one core for the network and about as many for its data.",
        f"Choices were made on {groups['windows'].sum():,} windows of {len(groups)} groups of real series that are not "
        "trained on. Errors are divided by those of the seasonal naive forecast; means over groups are geometric.",
        "## Steps",
        shown(some),
        "Intervals were then widened by the one factor with which they cover 80 % of these groups on average: "
        f"{head['widened']}.",
        "## Ideas",
        shown(ideas),
        "## Which attention in the encoder?",
        f"{verdict(models)} {steps_of:,.0f} steps of the same batches, commit {commit}; intervals "
        "of 95 % over seeds. `identity` lets no patch see another.",
        shown(models, 4),
        "## Looks at data kept aside",
        "No choice was made on the panel, ETTh1 or vic_electricity. The panel may be looked at five times in all.",
        shown(looks),
        "## Groups",
        shown(groups[["group", "windows", *list(SHOWN)[:3]]].rename(columns=SHOWN)),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, help="folder of train.py with the weights that ship")
    parser.add_argument("--attention", type=Path, help="folder of folders of train.py, one a seed")
    options = parser.parse_args()
    if options.weights:
        for name in ("choose", "groups"):
            pd.read_csv(options.weights / f"{name}.csv").to_csv(FOLDER / f"{name}.csv", index=False)
    if options.attention:
        attentions(options.attention).to_csv(FOLDER / "attention.csv", index=False)
    write_text(FOLDER / "report.md", report(FOLDER))
    return 0


if __name__ == "__main__":
    sys.exit(main())
