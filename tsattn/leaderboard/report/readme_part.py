"""The table of results in a README, made from records."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pandas as pd

from tsattn.errors import UserError
from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.report.difference_sections import compared_in_short, confirmed_in_short
from tsattn.leaderboard.report.wording import listed, score_pair, seed_counts
from tsattn.leaderboard.standings import RIDGE, STANDARD, RankedArm
from tsattn.leaderboard.summaries import ROLLING
from tsattn.leaderboard.whole_files import write_text

__all__ = ["BEGIN", "END", "readme_part", "with_part", "write_readme"]

BEGIN, END = "<!-- leaderboard: python -m tsattn report RECORDS --readme README.md -->", "<!-- leaderboard ends -->"
"""Comments around what is written anew."""

_BASELINES = (RIDGE, "seasonal_naive", "persistence")


def readme_part(analysis: Analysis) -> str:
    """What stands between the comments: a row a data set and what was chosen on it, and how to read it."""
    heads = ["data set", "arm", "chosen on", "MSE / MAE", "beside standard", "beside the ridge"]
    heads += [name.replace("_", " ") for name in _BASELINES]
    heads += ["weight", "without it", "seeds"]
    lines = [heads, ["---"] * len(heads)]
    for dataset in analysis.board.datasets:
        by_arm: dict[RankedArm, list[tuple[str, pd.Series]]] = {}
        for by in ("validation", ROLLING):
            if (best := analysis.chosen(dataset, by=by)) is not None:
                by_arm.setdefault(RankedArm(best["predictor"], best["attention"]), []).append((by, best))
        lines += [_line(analysis, arm, listed([by for by, _ in said]), said[0][1]) for arm, said in by_arm.items()]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n{_caveats(analysis)}"


def _line(analysis: Analysis, arm: RankedArm, selectors: str, best: pd.Series) -> list[str]:
    dataset = best["dataset"]
    is_standard = arm.attention == STANDARD
    return [
        *(dataset, f"`{arm.predictor}`, `{arm.attention}`", selectors),
        f"**{score_pair(best['mse'], best['mae'])}**",
        "standard itself" if is_standard else analysis.mean_verdict(dataset, arm, STANDARD) or "not compared",
        analysis.mean_verdict(dataset, arm, RIDGE) or "not compared",
        *(_pair(analysis, dataset, RankedArm(name)) for name in _BASELINES),
        f"{best['weight']:.2g}",
        score_pair(best["without_mse"], best["without_mae"]),
        seed_counts(best["seeds"], best["most_seeds"]),
    ]


def with_part(text: str, part: str) -> str:
    """A README with another part between the comments.

    Raises:
        UserError: if they are not there, once each and in order.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise UserError(f"the file must hold the lines {BEGIN} and {END}, once each, with nothing of use between them")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{rest.partition(END)[2]}"


def write_readme(path: Path, analysis: Analysis) -> None:
    """Put the table of an analysis into a file.

    Raises:
        UserError: if it cannot be read or written, or lacks the comments.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read") from error
    write_text(path, with_part(text, readme_part(analysis)))


def _pair(analysis: Analysis, dataset: str, arm: RankedArm) -> str:
    """Scores of a baseline, and what its label adds to the head of the column."""
    mean = analysis.mean_of(dataset, arm)
    if mean is None:
        return "not run"
    return score_pair(mean["mse"], mean["mae"]) + analysis.deciding.label(arm, dataset).removeprefix(arm.predictor)


def _caveats(analysis: Analysis) -> str:
    board = analysis.deciding
    lacking = [name for name in analysis.board.datasets if analysis.chosen(name) is None]
    horizons = {name: listed(board.horizons(name)) for name in board.datasets if name not in lacking}
    over = "; ".join(f"{names}: {value}" for value, names in _grouped(horizons).items())
    text = (
        f"Means over horizons ({over}) and over seeds (so many at each horizon), over all test windows, on the "
        "train-standardised scale, of models with a trained attention, alone or as a quarter or more of a mix: "
        "*weight* is its share, and *without it* what is left without the trained member. "
        f"{_selectors(analysis)}A *tie* is a paired "
        "difference of the mean MSE, over blocks of time and over seeds, that cannot be told from none after "
        "correction for the comparisons of this table. "
        f"At single horizons: {_uncapitalised(compared_in_short(analysis.against_standard, analysis.mixes))}"
    )
    text += f" {confirmed}" if (confirmed := confirmed_in_short(analysis)) else ""
    text += f" Not done at all horizons yet: {listed(lacking)}." if lacking else ""
    caveats = dict.fromkeys(one for facts in board.suites.values() for one in facts.caveats)
    text += "".join(f" {one}" for one in caveats)
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _selectors(analysis: Analysis) -> str:
    """What the second selector is, if there is one."""
    origins = analysis.compared_origins
    if origins is None or origins.empty:
        return ""
    blocks = listed([str(one) for one in sorted({len(one) for one in origins["origins"]})])
    return (
        f"*Rolling origins* are {blocks} blocks of rows before the test part, before each of which every arm is fitted "
        "anew, at one horizon and with one seed. To take whichever of the two selectors does better here would be to "
        "choose on the test part. "
    )


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:]


def _grouped(horizons: dict[str, str]) -> dict[str, str]:
    by: dict[str, list[str]] = {}
    for name, value in horizons.items():
        by.setdefault(value, []).append(name)
    return {value: listed(names) for value, names in by.items()}
