"""One report over all experiments: each claim, the numbers, the verdict, and where more is said.

    python benchmarks/paper/overview.py [--output DIR]

Made of the `claims.json` of each experiment that is there, and written as `report.md` beside their folders.
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
from benchmarks.paper.claims import ASKED_BY, CLAIMS_FILE, WORDS
from benchmarks.paper.experiment import RESULTS
from tsattn.errors import UserError, number_of
from tsattn.saved_folders import write_text

EXPERIMENTS = ("in_context", "etth1", "language", "generation", "mup_transfer", "wall_clock", "blocks")  # in this order
_COUNTED = {True: "held", False: "refuted", None: "not decided"}
_HEAD = """\
# The paper's experiments

What was found here of what Kuang et al. (ICML 2025) say, and of what they leave open. *Not decided* is what too few or
too uncertain numbers do not tell, and what another learning rate might turn round: a claim is not decided if what has
the higher error was best at the least or the greatest rate that was tried. The report of each experiment says by which
rule a claim was decided, and what differs from the paper.

Where there are many comparisons, some come out by chance. On forecasts, p-values are corrected for all comparisons of
the claims of an experiment (Holm). On prompts, texts and learning rates they are not: where nothing is different, a
claim of one comparison holds by chance in one of 40 cases, and one of which most of two or three comparisons must agree
far more rarely, unless these share runs. No correction reaches over experiments, nor over the forms among which
validation chose.

`python benchmarks/paper/overview.py` makes this one anew."""


def overview(results: Path) -> str:
    """Return the report on the experiments in a folder as Markdown; without any, that is a UserError."""
    found: dict[str, dict[str, Any]] = {
        file.parent.name: json.loads(file.read_text()) for file in results.glob(f"*/{CLAIMS_FILE}")
    }
    if not found:
        raise UserError(f"no experiment has a {CLAIMS_FILE} in {results}: run one, as by `make paper`")
    claims = [one for content in found.values() for one in content["claims"]]
    counts = [
        f"Of {number_of(len(verdicts), 'claim')} {of}: "
        + ", ".join(f"{verdicts.count(holds)} {words}" for holds, words in _COUNTED.items())
        for is_of_paper, of in ((True, "of the paper"), (False, "of ours, on what the paper leaves open"))
        if (verdicts := [one["holds"] for one in claims if one["is_of_paper"] == is_of_paper])
    ]
    rows = []
    for name in sorted(found, key=lambda name: ([*EXPERIMENTS, name].index(name), name)):
        content = found[name]
        where = f"[{content['title']}]({name}/report.md)"
        for number, one in enumerate(content["claims"]):
            hours = "" if number else f"{content['seconds'] / 3600:.1f}"
            rows.append((one["claim"], ASKED_BY[one["is_of_paper"]], one["found"], WORDS[one["holds"]], where, hours))
    parts = [_HEAD, f"{'. '.join(counts)}."]
    parts += ["\n".join(table(("claim", "of", "here", "", "experiment", "hours"), rows)[:-1])]
    parts += ["Hours are by the clock, of the whole experiment, on the machines that its report names."]
    if lacking := [f"`{name}.py`" for name in EXPERIMENTS if name not in found]:
        parts.append(f"Not run at their small size yet: {', '.join(lacking)}.")
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
