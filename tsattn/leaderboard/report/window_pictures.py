"""Forecasts of the best and of the worst test windows, by models whose run folders are still there.

What was drawn is kept beside the records, for run folders are gone before the records are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from tsattn.checks import folder_path
from tsattn.errors import UserError
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.report.inline_svg import figure_style, inline_svg
from tsattn.leaderboard.report.parts import ReportFigure
from tsattn.leaderboard.report.wording import score
from tsattn.leaderboard.standings import RankedArm
from tsattn.saved_folders import write_text

__all__ = ["PICTURES", "extreme_windows", "kept_pictures", "run_folders", "window_pictures"]

PICTURES = "pictures.json"
"""The file beside records in which drawn forecasts are kept, as SVG by `Experiment.key`."""

_EACH = 2  # windows of the lowest errors, and of the highest
_CHANNELS = 3


def run_folders(folder: str | Path) -> dict[str, Path]:
    """The finished runs anywhere in a folder that still have their checkpoint, by `Experiment.key`.

    Raises:
        UserError: if there is no such folder.
    """
    root = folder_path(folder)
    if not root.is_dir():
        raise UserError(f"there is no folder {root} with runs")
    found = {}
    for metrics in sorted(root.rglob("metrics.json")):
        try:
            content = json.loads(metrics.read_text())
        except (OSError, ValueError):  # not one of ours, or in the making
            continue
        key = content.get("key") if isinstance(content, dict) else None
        if isinstance(key, str) and (metrics.parent / "checkpoints" / "best.ckpt").exists():
            found[key] = metrics.parent
    return found


def kept_pictures(folders: Iterable[Path]) -> dict[str, str]:
    """What was drawn before, by `Experiment.key`.

    Args:
        folders: of records.

    Raises:
        UserError: for a file that is damaged.
    """
    kept: dict[str, str] = {}
    for file in (folder / PICTURES for folder in folders):
        if not file.exists():
            continue
        try:
            kept |= {str(key): str(svg) for key, svg in json.loads(file.read_text(encoding="utf-8")).items()}
        except (OSError, ValueError, AttributeError) as error:
            raise UserError(f"{file} is damaged; remove it, and draw forecasts anew with --runs FOLDER") from error
    return kept


def window_pictures(
    analysis: Analysis, records: Records, runs: str | Path | None, folders: Iterable[Path]
) -> tuple[list[ReportFigure], str]:
    """A figure for each data set of a run of the arm that validation chose, at its shortest horizon.

    Args:
        analysis: which knows what was chosen.
        records: for the errors by window.
        runs: a folder that the runs lie in, at any depth; None for those that were drawn before.
        folders: of the records, in the first of which new pictures are kept.

    Returns:
        The figures, and a sentence on what has none; empty where each has one.

    Raises:
        UserError: if there is no such folder, or kept pictures are damaged.
    """
    folders = list(folders)
    kept, known = kept_pictures(folders), {} if runs is None else run_folders(runs)
    pictures, lacking, used = [], [], {}
    for number, dataset in enumerate(analysis.board.datasets, 1):
        best = analysis.chosen(dataset)
        arm = None if best is None else RankedArm(best["predictor"], best["attention"])
        horizons = analysis.deciding.horizons(dataset)
        own = (
            pd.DataFrame(columns=["key", "seed"]) if arm is None else analysis.deciding.runs(dataset, horizons[0], arm)
        )
        there = [key for key in own["key"] if key in known] or [key for key in own["key"] if key in kept]
        if not there:
            lacking.append(dataset)
            continue
        key = there[0]
        seed = own.loc[own["key"] == key, "seed"].iloc[0]
        what = f"{dataset}, horizon {horizons[0]}, {arm}, seed {seed}"
        caption = f"{what}: the test windows with the lowest and with the highest errors"
        if key in known:
            chosen = extreme_windows(records.windows(key))
            used[key] = _drawn(known[key], chosen, what, f"window-svg-{key[:12]}", caption)
        else:
            used[key] = kept[key]
        pictures.append(ReportFigure(f"window-figure-{number}", caption, used[key], is_wide=True))
    if known and used:
        write_text(folders[0] / PICTURES, json.dumps(used, indent=1) + "\n")
    where = "was drawn" if runs is None else f"is in {runs}, or was drawn before"
    what = "No run" if runs is None else "No run folder"
    sentence = f"{what} of what was chosen on {', '.join(lacking)} {where}." if lacking else ""
    return pictures, f"{sentence} --runs FOLDER draws them." if sentence and runs is None else sentence


def extreme_windows(windows: pd.DataFrame) -> Mapping[int, str]:
    """The numbers of the windows with the lowest and with the highest mean squared errors, with a word for each.

    Windows next to each other show the same; one of a kind begins at least as far from another as a twentieth of all.

    Args:
        windows: from `Records.windows`.
    """
    errors = (windows["squared"] / windows["count"].where(windows["count"] > 0)).to_numpy(np.float64)
    apart = max(1, len(errors) // 20)
    found: dict[int, str] = {}
    for word, order in (("lowest", np.argsort(errors, kind="stable")), ("highest", np.argsort(-errors, kind="stable"))):
        own: list[int] = []
        for place in order[: np.isfinite(errors).sum()]:
            if len(own) < _EACH and all(abs(int(place) - other) >= apart for other in own):
                own.append(int(place))
        numbers = windows["window"].to_numpy()
        found |= {int(numbers[place]): f"{word} errors, MSE {score(float(errors[place]))}" for place in own}
    return found


def _drawn(run: Path, chosen: Mapping[int, str], title: str, name: str, label: str) -> str:
    from tsattn.experiments import Experiment, RunFolder
    from tsattn.experiments.reopened import reopened
    from tsattn.figures import plot_test_forecasts

    folder = RunFolder(run)
    fitted, data, execution = reopened(Experiment.read(folder.config), folder.best, "test")
    predictor = fitted.predictor
    with figure_style():
        figure = plot_test_forecasts(
            predictor, data, title, predictor.on(execution), num_channels=_CHANNELS, chosen=chosen
        )
        return inline_svg(figure, name, label)
