"""Sections of how runs were made: their configurations side by side, and the machines and versions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from tsattn.errors import number_of
from tsattn.leaderboard.report.parts import Cell, Column, ReportListing, ReportTable, Section
from tsattn.leaderboard.report.wording import DASH, listed
from tsattn.leaderboard.run_page.reported_run import ReportedRun
from tsattn.passwords import masked

__all__ = ["flat_values", "machine_section", "settings_section"]

_NAMED = 8  # values that differ; of more the table says which
_FIRST = ("command", "device", "threads", "platform", "python", "tsattn", "torch", "lightning")


def settings_section(runs: Sequence[ReportedRun]) -> Section:
    """What differs between the configurations, all their values, and each as a file."""
    values = {run.name: flat_values(run.config) for run in runs}
    paths = list(dict.fromkeys(path for own in values.values() for path in own))
    differing = [path for path in paths if len({values[run.name].get(path, DASH) for run in runs}) > 1]
    table = _side_by_side("settings", "Values of the configurations", "setting", paths, values, differing)
    text = []
    if len(runs) > 1:
        text = [
            f"{number_of(len(differing), 'value')} of {len(paths)} differ between the runs: they are marked, and come "
            f"first{f': {listed(differing)}' if len(differing) <= _NAMED else ''}."
            if differing
            else "These runs have the same configuration."
        ]
    files = [
        ReportListing(f"config-{number}", f"config.yaml of {run.name}", masked(run.folder.config.read_text()))
        for number, run in enumerate(runs, 1)
    ]
    return Section("settings", "Configuration", text, [table, *files])


def machine_section(runs: Sequence[ReportedRun]) -> Section:
    """Versions, hardware, commands, and how long it took."""
    values = {run.name: flat_values(_provenance(run)) for run in runs}
    paths = list(dict.fromkeys([*_FIRST, *(path for own in values.values() for path in own)]))
    paths = [path for path in paths if any(path in own for own in values.values())]
    differing = [path for path in paths if len({values[run.name].get(path, DASH) for run in runs}) > 1]
    table = _side_by_side("machines", "Versions and machines", "fact", paths, values, differing, is_sorted=False)
    folders = [f"{run.name} is the folder {run.folder.path}." for run in runs]
    return Section("machines", "How it was run", folders, [table])


def flat_values(content: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """The values of a mapping by their dotted paths, as text; lists of plain values are values."""
    found: dict[str, str] = {}
    for name, value in content.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            found |= flat_values(value, f"{path}.")
        elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
            found |= flat_values({str(number): one for number, one in enumerate(value)}, f"{path}.")
        else:
            found[path] = (
                value
                if isinstance(value, str)
                else yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("\n...\n").strip()
            )
    return found


def _provenance(run: ReportedRun) -> dict[str, Any]:
    facts = dict(run.versions)
    if isinstance(facts.get("command"), list):
        facts["command"] = masked(" ".join(map(str, facts["command"])))
    if isinstance(facts.get("kernels"), Mapping):
        facts["kernels"] = json.dumps(facts["kernels"])
    training = run.metrics.get("training")
    return {**facts, **({"training": training} if isinstance(training, Mapping) and training else {})}


def _side_by_side(
    name: str,
    caption: str,
    what: str,
    paths: Sequence[str],
    values: Mapping[str, Mapping[str, str]],
    differing: Sequence[str],
    *,
    is_sorted: bool = True,
) -> ReportTable:
    """A row a path and a column a run, what differs marked and, if sorted, first."""
    ordered = [*differing, *(path for path in paths if path not in differing)] if is_sorted else paths
    is_several = len(values) > 1
    columns = [Column(what), *([Column("differs", has_filter=True)] if is_several else []), *map(Column, values)]
    rows = []
    for path in ordered:
        is_other = path in differing
        mark = "chosen" if is_other else ""
        cells = [Cell(path, mark=mark), *([Cell("yes" if is_other else "no", mark=mark)] if is_several else [])]
        rows.append([*cells, *(Cell(own.get(path, DASH), mark=mark) for own in values.values())])
    return ReportTable(f"{name}-table", caption, columns, rows)
