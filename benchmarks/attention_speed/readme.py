"""The README's paragraph on speed, made from the files of a machine."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pandas as pd

from attention_speed.results import Results

__all__ = ["FOLDER", "README", "shown_machine", "speed_section", "with_section"]

SHOWN = "benchmarks/results/attention"
ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
FOLDER = ROOT / SHOWN

SECTION = re.compile(r"Measured on .*?\]\(benchmarks/results/attention/([\w-]+)\.png\)", re.DOTALL)
COLUMNS = {
    "`mlr`": ("mlr native", False),
    "`mlr`, causal": ("mlr native", True),
    "`standard`": ("standard native", False),
    "`swa`": ("swa native", False),
    "`global_swa`": ("global_swa native", False),
}
PASSES = ("forward", "forward+backward")


def shown_machine(readme: str) -> str:
    """The slug of the machine whose figures a README shows."""
    found = SECTION.search(readme)
    assert found, "the README has no paragraph `Measured on ...`"
    return found[1]


def with_section(readme: str, results: Results) -> str:
    """A README with the paragraph of another machine."""
    assert SECTION.search(readme), "the README has no paragraph `Measured on ...`"
    return SECTION.sub(lambda _: speed_section(results), readme)


def speed_section(results: Results) -> str:
    """What the README says of the speed on a machine: a table, what else was measured, and the picture."""
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
    met = sum(target["met"] for target in about["targets"])
    targets = f"{met} of {len(about['targets'])} targets are met, which [this file]({SHOWN}/{results.slug}.json) lists."
    picture = f"![Time over scaled_dot_product_attention, by number of tokens]({SHOWN}/{results.slug}.png)"
    return "\n".join([*lines, "", *wrapped(" ".join([*more(rows), targets])), "", picture])


def wrapped(text: str) -> list[str]:
    """In lines as long as the README's others."""
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
            "`standard` by `impl: sdpa`.",
        ),
    ]
    return [line for part, line in says if part in parts]
