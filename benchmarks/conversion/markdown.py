"""The summary of the conversions as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from conversion.arms import FINE_TUNED, ORIGINAL, ZERO_SHOT

__all__ = ["report"]

DASH = "\N{EN DASH}"


def report(record: dict[str, Any]) -> str:
    """All tables, under what a reader must know."""
    machine = record["machine"]
    lines = ["# Converting the attention of a pretrained Chronos model", ""]
    if record["dry_run"]:
        lines += ["**A dry run of toy sizes: its figures mean nothing.**", ""]
    lines += [
        f"By `{record['command']}`, on {machine['cpu']}, {machine['cores']} cores; "
        + ", ".join(f"{name} {version}" for name, version in record["versions"].items())
        + f". Horizon {record['horizon']}, all windows of the test parts.",
        "",
    ]
    lines += table(
        ("seed", "weights", "sha256", "saw the training parts of"),
        [
            (number, one["name"], f"`{one['sha256'][:12]}`", ", ".join(one["trained_on"]) or DASH)
            for number, one in record["weights"].items()
        ],
    )
    seen = set(record["seen"])
    for part in (_outputs, _zero_shot, _structures, _fine_tuned, _flops):
        lines += part(record, seen)
    return "\n".join(lines) + "\n"


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [*(f"| {' | '.join(map(str, line))} |" for line in lines), ""]


def _of(value: float | None, form: str) -> str:
    return DASH if value is None else f"{value:{form}}".replace("-", "\N{MINUS SIGN}")


def _each(values: dict[Any, float], form: str) -> str:
    return " / ".join(_of(value, form) for value in values.values()) or DASH


def _outputs(record: dict[str, Any], seen: set[str]) -> list[str]:
    errors = record["output_errors"]
    if not errors:
        return []
    layers = [*next(iter(errors.values()))["by_layer"]]
    lines = [
        "## Outputs of the attentions",
        "",
        "Relative error of what each converted attention makes of the original's own inputs, over contexts of the test "
        "parts, mean of data sets (and of layers). No weight is trained.",
        "",
    ]
    rows = [
        [ZERO_SHOT[arm], _of(one["mean"], ".4f"), _each(one["by_seed"], ".4f")]
        + [_of(one["by_layer"][layer], ".4f") for layer in layers]
        for arm, one in errors.items()
    ]
    lines += table(["arm", "mean", "by seed", *layers], rows)
    for arm, one in record["targets"].items():
        word = "kept" if one["met"] else "**exceeded**"
        rises = f"zero-shot WQL rises by {_of(one['rise'], '.2f')} % beside {_of(one['rise_of_copy'], '.2f')} %"
        counts = "" if one["rise_counts"] else " (below 1 %, so that the outputs decide)"
        share = f"{100 * one['of_output_errors']:.1f} % of the output errors of `copy`"
        lines += [f"- {ZERO_SHOT[arm]}: {share}; {rises}{counts}. Limit 50 %: {word}."]
    return [*lines, ""]


def _zero_shot(record: dict[str, Any], seen: set[str]) -> list[str]:
    if not record["zero_shot"]:
        return []
    rows = [
        (
            row["data"] + (" (seen)" if row["data"] in seen else ""),
            ZERO_SHOT.get(row["arm"], ORIGINAL),
            row["windows"],
            _of(row["mase"], ".4f"),
            _of(row["wql"], ".4f"),
            DASH if row["arm"] == ORIGINAL else _of(row["rise"], "+.2f"),
            DASH if row["arm"] == ORIGINAL else _each(row["rise_by_seed"], "+.2f"),
        )
        for row in record["zero_shot"]
    ]
    head = ("data", "arm", "windows", "MASE", "WQL", "rise of WQL, %", "by seed")
    text = "Scores are means of the channels' own, and of seeds; the model has seen the training part where it says so."
    return ["## Zero-shot", "", text, "", *table(head, rows)]


def _structures(record: dict[str, Any], seen: set[str]) -> list[str]:
    if not record["structures"]:
        return []
    rows = [
        (
            f"{one['share']:.0%}",
            one["structure"],
            one["parameters"],
            _of(one["error"], ".4f"),
            _of(one["low_rank_error"], ".4f"),
            _each(one["by_seed"], ".4f"),
        )
        for one in sorted(record["structures"].values(), key=lambda one: (-one["share"], one["error"]))
    ]
    text = (
        "Relative Frobenius error of each head's `W_Q W_K^T`, at most at a share of the parameters that it has, mean "
        "of heads. That matrix is of low rank, which low rank of the whole size holds exactly."
    )
    head = ("at most", "structure", "parameters of a head", "error", "low rank of this size", "by seed")
    return ["## Structures at equal parameters", "", text, "", *table(head, rows)]


def _fine_tuned(record: dict[str, Any], seen: set[str]) -> list[str]:
    found = record["fine_tuned"]
    if not found["rows"]:
        return []
    sizes = record["sizes"]
    rows = []
    for row in found["rows"]:
        interval = DASH if row.get("low") is None else f"{row['low']:.4f} to {row['high']:.4f}"
        rows.append(
            (
                row["data"] + (" (seen)" if row["data"] in seen else ""),
                FINE_TUNED[row["arm"]],
                row["seeds"],
                _of(row["mase"], ".4f"),
                _of(row["wql"], ".4f"),
                _of(row.get("ratio"), ".4f"),
                interval,
                _each(row.get("by_seed", {}), ".4f"),
            )
        )
    lines = [
        "## After calibration and fine-tuning",
        "",
        f"Swapped attentions are calibrated in {sizes['calibrate']} steps; then all arms are trained alike, in "
        f"{sizes['fine_tuning']} steps. The ratio is that of MASE to the original's, with its interval of 95 % over "
        "blocks of time and pairs of seeds.",
        "",
        *table(("data", "arm", "seeds", "MASE", "WQL", "ratio", "interval", "by seed"), rows),
    ]
    for arm, one in found["means"].items():
        word = "kept" if one["met"] else "**exceeded**"
        lines += [f"- {FINE_TUNED[arm]}: {one['ratio']:.4f}, mean of {one['data']} data sets; limit 1.01: {word}."]
    return [*lines, ""]


def _flops(record: dict[str, Any], seen: set[str]) -> list[str]:
    found = record["attention_flops"]
    if found is None:
        return []
    rows = [
        (
            row["layer"],
            row["tokens"],
            f"{row['closed_form']:,}",
            f"{row['counted']:,}",
            f"{row['original']:,}",
            f"{row['closed_form_share']:.4f}",
            f"{row['counted_share']:.4f}",
            f"{row['with_mixing']:.4f}",
        )
        for row in found["layers"]
    ]
    text = (
        f"Of `{found['attention']}` at the whole context, special tokens included: the products that score pairs, in "
        "closed form and counted pair by pair on the reference path, over those of standard attention; and with the "
        "mixing of values, which is the same for both."
    )
    head = ("layer", "tokens", "closed form", "counted", "standard", "share", "share, counted", "with mixing")
    same = all(row["closed_form"] == row["counted"] for row in found["layers"])
    verdict = "The count is the closed form's." if same else "**The count is not the closed form's.**"
    return ["## Flops", "", text, "", *table(head, rows), verdict, ""]
