"""One report over all experiments: each claim, the numbers, the verdict, and where more is said.

    python benchmarks/paper/overview.py [--output DIR]

Made of the `claims.json` of each experiment that is there, and written as `report.md` next to their folders.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

from benchmarks.measuring import new_parser, table
from benchmarks.paper.claims import CLAIMS_FILE, WORDS
from benchmarks.paper.experiment import RESULTS
from tsattn.errors import UserError, number_of
from tsattn.saved_folders import write_text

EXPERIMENTS = (  # in this order
    *("in_context", "bottleneck", "mlbtc_prompts", "etth1", "language", "rank_lists"),
    *("generation", "mup_transfer", "wall_clock", "blocks"),
)
_HEAD = """\
# The paper's claims

What Kuang et al. (ICML 2025) say, and what we found at the sizes that two cores can run. A claim *holds*, is *refuted
at this size*, or is *undecided*; intervals are of 95 %. The report behind each command has the rule, all runs, and what
differs from the paper. Claims marked (ours) are not made by the paper.

Intervals and p-values are not corrected for the number of claims, except those of forecasts (Holm, by experiment).
Where nothing differs, one claim in 20 is decided by chance. The rules for `language.py`, `mup_transfer.py` and the
first three seeds of `in_context.py` and `mlbtc_prompts.py` were set after those runs were seen; all other questions
were asked before. Seeds 1 to 4 of `standard` and `mlr` in `rank_lists.py` repeat runs of `language.py`, which had been
seen, so these two experiments are not independent."""


def overview(results: Path) -> str:
    """Return the report on the experiments in a folder as Markdown; without any, that is a UserError."""
    found: dict[str, dict[str, Any]] = {
        file.parent.name: json.loads(file.read_text()) for file in results.glob(f"*/{CLAIMS_FILE}")
    }
    if not found:
        raise UserError(f"no experiment has a {CLAIMS_FILE} in {results}: run one, as by `make paper`")
    names = sorted(found, key=lambda name: ([*EXPERIMENTS, name].index(name), name))
    claims = [one for name in names for one in found[name]["claims"]]
    counts = [
        f"{number_of(len(verdicts), 'claim')} {of}: {verdicts.count(True)} held, {verdicts.count(False)} refuted at "
        f"this size, {verdicts.count(None)} undecided."
        for is_of_paper, of in ((True, "of the paper"), (False, "of ours"))
        if (verdicts := [one["holds"] for one in claims if one["is_of_paper"] == is_of_paper])
    ]
    rows = []
    for name in names:
        command = f"[`{found[name]['command']}`]({name}/report.md)"
        rows += [
            (one["claim"], WORDS[one["holds"]], one["found"], one["size"], command) for one in found[name]["claims"]
        ]
    parts = [_HEAD, " ".join(counts), "\n".join(table(("claim", "verdict", "here", "size", "command"), rows)[:-1])]
    if lacking := [f"`{name}.py`" for name in EXPERIMENTS if name not in found]:
        parts.append(f"Not run at their small size yet: {', '.join(lacking)}.")
    parts.append("`python benchmarks/paper/overview.py` writes this page.")
    return "\n\n".join(parts) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    parser = new_parser(__doc__, RESULTS)
    folder = parser.parse_args(words).output
    try:
        write_text(folder / "report.md", overview(folder))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"report: {folder / 'report.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
