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
PASSES = ("forward", "forward+backward")


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
    """What the page says of the speed on a machine: a table, what else was measured, and the picture."""
    about, rows = results.about(), results.rows()
    main = rows[rows["part"] == "attention"]
    said = (
        f"Measured on {machine(about)} with one thread: time over `scaled_dot_product_attention`, forward / forward "
        "and backward, in float32 with 8 heads of 64 components and windows of 64:"
    )
    lines = [
        *wrapped(said),
        "",
        f"| tokens x batch | {' | '.join(COLUMNS)} |",
        "| --- |" + " --- |" * len(COLUMNS),
    ]
    shapes = main[main["width"] == 64][["T", "batch"]].drop_duplicates()
    for T, batch in shapes.itertuples(index=False):
        cells = [pair(main[(main["T"] == T) & (main["width"] == 64)], *column) for column in COLUMNS.values()]
        lines.append(f"| {T} x {batch} | {' | '.join(cells)} |")
    targets = limits(about["targets"], f"{SHOWN}/{results.slug}.json")
    picture = f"![Time over scaled_dot_product_attention, by number of tokens]({SHOWN}/{results.slug}.png)"
    return "\n".join([*lines, "", *wrapped(" ".join([*more(rows), targets])), "", picture])


def limits(targets: list[dict[str, Any]], link: str) -> str:
    """How many limits there are ([file](link) lists them), and which of them are exceeded."""
    said = f"Of {len(targets)} limits that `benchmarks/attention.py` checks ([list]({link}))"
    over = [
        f"{in_words(target['target'], target['measured'])} ({target['at_most']:g} was the limit)"
        for target in targets
        if not target["met"]
    ]
    if not over:
        return f"{said} none is exceeded."
    return f"{said} {'one is' if len(over) == 1 else f'{len(over)} are'} exceeded: {'; '.join(over)}."


def in_words(target: str, measured: float) -> str:
    """What a target has measured; of one of two lengths, how the time grows from the one to the other."""
    if lengths := re.fullmatch(r"(\w+) time\((\d+)\) over time\((\d+)\)", target):
        kind, long, short = lengths.groups()
        times = {2: "twice", 4: "four times"}.get(int(long) // int(short), f"{int(long) // int(short)} times")
        return f"{times} the tokens take `{kind}` {measured:.1f} times the time, from {short} to {long}"
    return f"{target}: {measured:.2f}"


def wrapped(text: str) -> list[str]:
    """In lines as long as the page's others."""
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def machine(about: dict[str, Any]) -> str:
    """Its name and what it computes with."""
    numbers = f" (family {about['cpu_family']}, model {about['cpu_model']})" if "cpu_family" in about else ""
    return f"{about['cpu']}{numbers}, `{about['kernels']}`,"


def pair(rows: pd.DataFrame, contender: str, causal: bool) -> str:
    """`forward / forward+backward`."""
    rows = rows[(rows["contender"] == contender) & (rows["causal"] == causal)].set_index("pass")["ratio"]
    return " / ".join(f"{rows[which]:.2f}" for which in PASSES)


def more(rows: pd.DataFrame) -> list[str]:
    """A sentence for each of the other comparisons."""

    def between(part: str, contender: str, **where: Any) -> str:
        chosen = rows[(rows["part"] == part) & (rows["contender"] == contender)]
        for column, value in where.items():
            chosen = chosen[chosen[column] == value]
        low, high = chosen["ratio"].min(), chosen["ratio"].max()
        return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"

    parts = set(rows["part"])
    says = [
        ("attention", f"With heads of 8 components `mlr` takes {between('attention', 'mlr native', width=8)}."),
        ("avx2", f"Kept to AVX2, which PyTorch is not, it takes {between('avx2', 'mlr native')}."),
        ("threads", f"Two threads take {between('threads', 'mlr native, 2 threads')} of the time of one."),
        ("bfloat16", f"In bfloat16 `mlr` takes {between('bfloat16', 'mlr native bfloat16')} of its time in float32."),
        (
            "patchtst",
            f"A training step of PatchTST with `mlr` takes {between('patchtst', 'mlr by native')} of one with "
            "`standard` by `impl: sdpa`; with `standard` by the native kernel it was not timed.",
        ),
    ]
    return [line for part, line in says if part in parts]
