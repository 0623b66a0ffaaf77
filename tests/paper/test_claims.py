"""What reports decide, on records of which it is known what they say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks.paper import in_context, language
from benchmarks.paper.claims import (
    Claim,
    chosen_by_validation,
    described_by,
    how_made,
    runs_of,
    table_of,
    write_report,
)
from tests.paper.made_up import closed_form, made_up, prompt_runs, records_of
from tsattn.errors import UserError
from tsattn.leaderboard.records import Record


def test_a_rate_that_failed_once_is_not_chosen() -> None:
    runs = described_by(
        runs_of(
            records_of(
                *prompt_runs("btt_1", "btt", [0.1, 0.1], rate=0.01)[:2],
                *prompt_runs("btt_1", "btt", [0.1] * 3, rate=0.01, status="failed")[2:],
                *prompt_runs("btt_1", "btt", [0.5] * 3, rate=0.001),
                *prompt_runs("btt_1", "btt", [0.4] * 2, rate=0.003),
            )
        ),
        rate="model.learning_rate",
        nothing="model.no.such.value",
    )
    chosen = chosen_by_validation(runs, ["attention"], ["rate"])
    assert chosen["rate"].tolist() == [0.001] * 3, "not that of two seeds alone"
    assert chosen["candidates"].tolist() == [3] * 3
    assert runs["nothing"].isna().all()


def language_runs(
    attention: str, losses: dict[int, float], cost: float, rate: float = 0.001, validation: float = 0.0, seeds: int = 3
) -> list[Record]:
    """The runs of widths by their loss, with flops of a hundred million times the width and a factor."""
    found = []
    for width, loss in losses.items():
        experiment = {
            "data": {"init_args": {"batch_size": 4}},
            "model": {"learning_rate": rate, "backbone": {"d_model": width, "num_layers": 6}},
            "trainer": {"max_steps": 10},
        }
        for seed in range(1, seeds + 1):
            scores = {"mae": loss + 0.01 * (seed - 2), "validation_mae": loss + validation}
            flops = 1e8 * width * cost + 2 * 8 * width * 256  # of eight characters, with the read-out
            found.append(made_up(f"w{width}_{rate}", attention, seed, experiment, flops=flops, **scores))
    return found


def language_claims(*runs: list[Record]) -> dict[str, Claim]:
    report = language.report(records_of(*(one for part in runs for one in part)))
    return dict(zip(("standard", "swa", "global_swa"), report.claims, strict=True))


LINE = {64: 2.4, 128: 2.2, 256: 2.0}


def test_language_models_are_compared_at_the_same_flops() -> None:
    mlr = language_runs("mlr", {64: 2.5, 128: 2.2, 256: 2.0}, 1 / math.sqrt(2))
    claims = language_claims(mlr, language_runs("standard", LINE, 1.0))
    # at the flops of the middle of two widths standard attention comes to the middle of their losses
    assert claims["standard"].holds is True
    assert claims["standard"].found == (
        "width 128: \N{MINUS SIGN}0.100 ± 0.000; width 256: \N{MINUS SIGN}0.100 ± 0.000 nats beside the line through "
        "2.400 ± 0.010, 2.200 ± 0.010, 2.000 ± 0.010"
    )
    assert claims["swa"].holds is None
    assert claims["swa"].found == "no width has flops within those of the other"
    worse = language_runs("mlr", {128: 2.2, 256: 2.15}, 1 / math.sqrt(2))
    assert language_claims(worse, language_runs("standard", LINE, 1.0))["standard"].holds is False
    few = language_claims(*(language_runs(name, LINE, 1.0, seeds=2) for name in ("mlr", "standard")))
    assert few["standard"].holds is None


def test_the_rate_of_a_language_model_is_chosen_by_validation() -> None:
    report = language.report(
        records_of(
            *language_runs("mlr", LINE, 1.0, rate=0.001, validation=0.5),
            *language_runs("mlr", {width: loss + 1 for width, loss in LINE.items()}, 1.0, rate=0.01, validation=-1),
        )
    )
    assert report.table["learning rate"].tolist() == [0.01] * 3
    assert report.table["flops"].tolist() == [6.4e9, 1.28e10, 2.56e10], "without the read-out"
    assert report.table["loss"].tolist() == pytest.approx([3.4, 3.2, 3.0])


def test_a_report_is_written_of_records(tmp_path: Path) -> None:
    parts = [
        prompt_runs("standard", "standard", [0.8, 0.9, 0.7]),
        prompt_runs("btt_1", "btt", [0.1, 0.2, 0.3]),
        prompt_runs("btt_2", "btt", [0.1], status="failed"),
    ]
    records = records_of(closed_form(), *(one for part in parts for one in part))
    made = how_made(runs_of(records), "python x.py", "in_context_small")
    write_report(tmp_path, in_context.report(records), made)
    text = (tmp_path / "report.md").read_text()
    assert "| Where heads have a rank below d, they fail, and BTT of the same width learns. | d 8, width 16" in text
    assert "| **holds** |" in text
    assert "| not decided |" in text
    assert "![" in text
    assert "7 runs done, 1 failed, 0.0 hours of training in all, on a CPU (cpu); tsattn 0.1.0, torch 2.13.0" in text
    assert "- failed: w16_8_0.001 btt_2, seed 1: training diverged" in text
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(tmp_path / "table.csv")
    assert table["arm"].tolist() == ["standard, low-rank heads", "btt_1", "least squares"]
    assert table["error"].tolist() == pytest.approx([0.8, 0.2, 1.25e-10])


def test_a_report_of_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="no run is done, so there is nothing to report"):
        runs_of(records_of(*prompt_runs("btt_1", "btt", [0.1], status="failed")))


@pytest.mark.parametrize(
    ("value", "text"), [(0.123456, "0.1235"), (float("nan"), "\N{EN DASH}"), (None, "\N{EN DASH}"), (1234, "1,234")]
)
def test_cells_are_read_at_a_glance(value: Any, text: str) -> None:
    frame = pd.DataFrame({"one": pd.Series([value], dtype="Int64" if isinstance(value, int) else None)})
    assert table_of(frame).rows[0][0].text == text
