"""The section on speed of the page on the native kernel, made from the files of a machine."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pandas as pd

from attention_speed.results import Results

__all__ = ["FOLDER", "PAGE", "shown_machine", "speed_section", "with_section"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "native-kernel.md"
FOLDER = ROOT / "benchmarks" / "results" / "attention"
SHOWN = "../../benchmarks/results/attention"  # as seen from the page

SECTION = re.compile(rf"Measured on .*?\]\({SHOWN}/([\w-]+)\.png\)", re.DOTALL)
COLUMNS = {
    "`mlr`": ("mlr native", False),
    "`mlr`, causal": ("mlr native", True),
    "`standard`": ("standard native", False),
    "`swa`": ("swa native", False),
    "`global_swa`": ("global_swa native", False),
}
PASSES = {"To forecast (forward)": "forward", "To train (forward and backward)": "forward+backward"}


def shown_machine(page: str) -> str:
    """The slug of the machine whose figures a page shows."""
    found = SECTION.search(page)
    assert found, "the page has no paragraph `Measured on ...`"
    return found[1]


def with_section(page: str, results: Results) -> str:
    """A page with the paragraph of another machine."""
    assert SECTION.search(page), "the page has no paragraph `Measured on ...`"
    return SECTION.sub(lambda _: speed_section(results), page)


def speed_section(results: Results) -> str:
    """The section on the speed of a machine: a table for each pass, the other comparisons, and the picture."""
    about, rows = results.about(), results.rows()
    main = rows[rows["part"] == "attention"]
    main = main[main["width"] == 64]
    lines = wrapped(
        f"Measured on {machine(about)} with one thread. Each number is the time relative to PyTorch's "
        "`scaled_dot_product_attention`: 0.50 is half of it. Heads have 64 components, windows 64 tokens, numbers "
        "are float32."
    )
    for title, which in PASSES.items():
        lines += ["", f"{title}:", "", f"| tokens x batch | {' | '.join(COLUMNS)} |"]
        lines.append("| --- |" + " --- |" * len(COLUMNS))
        for T, batch in main[["T", "batch"]].drop_duplicates().itertuples(index=False):
            of_shape = main[(main["T"] == T) & (main["pass"] == which)]
            cells = [f"{ratio(of_shape, *column):.2f}" for column in COLUMNS.values()]
            lines.append(f"| {T} x {batch} | {' | '.join(cells)} |")
    targets = limits(about["targets"], f"{SHOWN}/{results.slug}.json")
    picture = f"![Time relative to PyTorch's attention, by number of tokens]({SHOWN}/{results.slug}.png)"
    return "\n".join([*lines, "", *more(rows), "", *wrapped(targets), "", picture])


def limits(targets: list[dict[str, Any]], link: str) -> str:
    """How many limits there are ([file](link) lists them), and which of them are exceeded."""
    said = f"`python benchmarks/attention.py` checks {len(targets)} limits ([list]({link}))"
    over = [
        f"{in_words(target['target'], target['measured'])} The limit was {target['at_most']:g}."
        for target in targets
        if not target["met"]
    ]
    if not over:
        return f"{said}. None is exceeded."
    return f"{said}. {'One is' if len(over) == 1 else f'{len(over)} are'} exceeded. {' '.join(over)}"


def in_words(target: str, measured: float) -> str:
    """What a target has measured; of one of two lengths, how the time grows from the one to the other."""
    if lengths := re.fullmatch(r"(\w+) time\((\d+)\) over time\((\d+)\)", target):
        kind, long, short = lengths.groups()
        times = {2: "twice", 4: "four times"}.get(int(long) // int(short), f"{int(long) // int(short)} times")
        return f"`{kind}` takes {measured:.1f} times as long with {times} the tokens ({long})."
    return f"{target}: {measured:.2f}."


def wrapped(text: str) -> list[str]:
    """In lines as long as the page's others."""
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def machine(about: dict[str, Any]) -> str:
    """Its name and what it computes with."""
    numbers = f" (family {about['cpu_family']}, model {about['cpu_model']})" if "cpu_family" in about else ""
    return f"{about['cpu']}{numbers}, `{about['kernels']}`,"


def ratio(rows: pd.DataFrame, contender: str, causal: bool) -> float:
    """Time of a contender relative to PyTorch's, in the rows of one shape and pass."""
    (found,) = rows[(rows["contender"] == contender) & (rows["causal"] == causal)]["ratio"]
    return float(found)


def more(rows: pd.DataFrame) -> list[str]:
    """A table of the other comparisons, a row each."""

    def between(part: str, contender: str, **where: Any) -> str:
        chosen = rows[(rows["part"] == part) & (rows["contender"] == contender)]
        for column, value in where.items():
            chosen = chosen[chosen[column] == value]
        low, high = chosen["ratio"].min(), chosen["ratio"].max()
        return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"

    parts = set(rows["part"])
    compared = [
        ("attention", "`mlr`, heads of 8 components", "PyTorch", "mlr native", {"width": 8}),
        ("avx2", "`mlr`, kept to AVX2", "PyTorch with AVX-512", "mlr native", {}),
        ("threads", "`mlr`, two threads", "one thread", "mlr native, 2 threads", {}),
        ("bfloat16", "`mlr`, bfloat16", "float32", "mlr native bfloat16", {}),
        ("patchtst", "a training step of PatchTST, `mlr`", "`standard` by `impl: sdpa`", "mlr by native", {}),
    ]
    lines = [
        f"| {what} | {against} | {between(part, contender, **where)} |"
        for part, what, against, contender, where in compared
        if part in parts
    ]
    return ["| also measured | relative to | time |", "| --- | --- | --- |", *lines]
