"""The list of results: every report that benchmarks have left in the repository, in groups."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["result_files", "result_nav", "results_page"]

RESULTS = "benchmarks/results"

_INDEX = """# All results

Read [Results in short](../results.md) first: it answers in two minutes whether another attention helps. Below are the
full reports. Benchmarks wrote them; nobody edited them by hand.
"""

_GROUPS = {
    "Accuracy": "On seven public data sets no attention is measurably better. On one more, local attention helps.",
    "Speed and memory": "How long do training and forecasting take? For one layer read [Cost](../concepts/cost.md).",
    "The paper": "Which claims of Kuang et al. (ICML 2025) hold here, at the size that a CPU can train?",
    "More": "Reports of other benchmarks.",
}
_REPORTS = {
    "leaderboard/report.md": ("Accuracy", "Seven public data sets", "Attentions compared with linear models."),
    "equal_training/report.md": ("Accuracy", "Half-hours as tokens", "Local attention helps on demand in Victoria."),
    "earlier_windows/report.md": ("Accuracy", "Half-hours, earlier years", "A check of that result on earlier data."),
    "peers/leaderboard/report.md": ("Accuracy", "Models of other libraries", "Compared with ridge on two data sets."),
    "defaults/amd-epyc-family-26-model-2.md": (
        *("Accuracy", "Forecaster() at equal time"),
        "The default model compared with NHITS and PatchTST of neuralforecast.",
    ),
    "defaults/choice.md": (
        "Accuracy",
        "Choice of the default model",
        "Candidates for `Forecaster()`, without test data.",
    ),
    "chronos/chronos_tiny.md": ("Accuracy", "Zero-shot forecasts", "`chronos-tiny` compared with seasonal naive."),
    "chronos/conversion.md": (
        "Accuracy",
        "Attention swapped in Chronos",
        "Errors before and after, with and without training.",
    ),
    "accuracy.md": ("Accuracy", "What helps PatchTST", "Masking, ridges and other changes, each against its base."),
    "statistics/coverage.md": ("Accuracy", "Do our intervals hold?", "Simulated tests with known differences."),
    "peers/amd-epyc-family-26-model-2.md": (
        *("Speed and memory", "Training compared with neuralforecast"),
        "Time of a training step and memory, on one thread.",
    ),
    "chronos/speed/amd-epyc-family-26-model-2.md": (
        *("Speed and memory", "Chronos with multi-level attention"),
        "Time of the encoder, the decoder and a forecast.",
    ),
    "data/report.md": ("Speed and memory", "Reading a CSV file", "Two million rows, compared with pandas."),
    "paper/report.md": ("The paper", "All claims", "Every claim with its verdict."),
    "paper/in_context/report.md": (
        "The paper",
        "In-context regression",
        "Where heads of low rank fail and BTT learns.",
    ),
    "paper/etth1/report.md": ("The paper", "Forecasts of ETTh1", "MLR, sliding windows and BTT on single hours."),
    "paper/language/report.md": ("The paper", "Language models", "Loss at equal computation."),
    "paper/generation/report.md": ("The paper", "Text generation", "Size and speed of key caches."),
    "paper/wall_clock/report.md": (
        "The paper",
        "Time of multi-level attention",
        "Every kernel compared with PyTorch's.",
    ),
    "paper/mup_transfer/report.md": ("The paper", "muP", "Does a learning rate carry over to wider models?"),
    "paper/blocks/report.md": ("The paper", "Which blocks", "Equal blocks, calendar days and change points."),
    "paper/mlbtc/report.md": ("The paper", "Which form of MLBTC forecasts", "Levels and factors at equal size."),
    "paper/mlbtc_prompts/report.md": (
        "The paper",
        "Which form of MLBTC learns in context",
        "Levels and factors on prompts.",
    ),
}
"""Group, title and content of reports; one that is not here is among `More`, by its own title."""


def result_files(root: Path) -> list[str]:
    """Reports and figures, by their paths in the repository."""
    found = (path for path in (root / RESULTS).rglob("*") if path.suffix in (".md", ".png", ".svg"))
    return sorted(path.relative_to(root).as_posix() for path in found)


def result_nav(root: Path) -> list[Any]:
    """The groups as the navigation has them."""
    groups = _grouped(root).items()
    return [{group: [{title: file} for file, title, _ in reports]} for group, reports in groups if reports]


def results_page(root: Path) -> str:
    """The groups with a sentence for each report."""
    parts = [_INDEX]
    for group, reports in _grouped(root).items():
        lines = [f"- [{title}](../../{file})" + (f": {what}" if what else "") for file, title, what in reports]
        parts += [f"## {group}\n\n{_GROUPS[group]}\n", "\n".join(lines) + "\n"] if lines else []
    return "\n".join(parts)


def _grouped(root: Path) -> dict[str, list[tuple[str, str, str]]]:
    """Path, title and content of the reports of each group."""
    files = [file.removeprefix(f"{RESULTS}/") for file in result_files(root) if file.endswith(".md")]
    found: dict[str, list[tuple[str, str, str]]] = {group: [] for group in _GROUPS}
    for file in sorted(files, key=[*_REPORTS, *files].index):
        path = f"{RESULTS}/{file}"
        group, title, what = _REPORTS.get(file) or ("More", _title(root / path), "")
        found[group].append((path, title, what))
    return found


def _title(path: Path) -> str:
    """The first heading of a report."""
    found = re.search(r"^# (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return found[1] if found else path.stem.replace("_", " ").capitalize()
