"""What reports decide, on records of which it is known what they say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks.paper import in_context, mup_transfer
from benchmarks.paper.claims import (
    Claim,
    chosen_by_validation,
    described_by,
    how_made,
    runs_of,
    table_of,
    write_report,
)
from tests.paper.made_up import made_up, records_of
from tsattn.errors import UserError
from tsattn.leaderboard.records import Record

D = 8
RANKS = {"bilinear_mlr": [1, 1]}


def prompt_runs(
    name: str,
    kind: str,
    errors: list[float],
    *,
    heads: int = 8,
    width: int = 16,
    rate: float = 0.001,
    validation: float | None = None,
    flops: float = 1000.0,
    status: str = "done",
) -> list[Record]:
    """The seeds of an arm with one learning rate; errors are those over d."""
    attention = {"kind": kind, **({"ranks": [1, 1], "blocks": [1, 2]} if kind == "bilinear_mlr" else {})}
    experiment = {
        "data": {"init_args": {"dimensions": D, "batch_size": 64, "curriculum": 0.06}},
        "model": {
            "learning_rate": rate,
            "backbone": {"d_model": width, "num_heads": heads, "num_layers": 3, "attention": attention},
        },
        "trainer": {"max_steps": 100},
    }
    return [
        made_up(
            f"w{width}_{heads}_{rate}",
            name,
            seed,
            experiment,
            status,
            mse=error * D,
            validation_mse=(error if validation is None else validation) * D,
            flops=flops,
        )
        for seed, error in enumerate(errors, 1)
    ]


def closed_form() -> Record:
    experiment = {"data": {"init_args": {"dimensions": D}}, "model": {"backbone": {"kind": "x", "alpha": 0.0}}}
    return made_up("least_squares", "", None, experiment, mse=1e-9, validation_mse=1e-9)


def claims_of(*runs: list[Record]) -> dict[str, Claim]:
    report = in_context.report(records_of(closed_form(), *(one for part in runs for one in part)))
    names = ("btt", "bilinear_mlr", "rank", "cost")
    return dict(zip(names, report.claims, strict=True))


LOW = prompt_runs("standard", "standard", [0.8, 0.9, 0.7])


def test_heads_of_low_rank_fail_where_an_arm_learns() -> None:
    claims = claims_of(
        LOW,
        prompt_runs("btt_1", "btt", [0.1, 0.2, 0.3]),
        prompt_runs("bilinear_2", "bilinear_mlr", [0.1, 0.2, 0.3], flops=2000),
        prompt_runs("standard", "standard", [0.1, 0.1, 0.1], heads=1),
    )
    assert {name: claim.holds for name, claim in claims.items()} == dict.fromkeys(claims, True)
    assert claims["btt"].found == "d 8, width 16: 0.200 ± 0.100 (btt_1) beside 0.800 ± 0.100 (heads of rank 2)"
    assert "heads come to 0.8 with 1,000 flops, btt_1 to 0.2 with 1,000" in claims["cost"].found


@pytest.mark.parametrize(
    "errors",
    [
        [0.1, 0.1, 0.75],  # one seed lies among those of the heads
        [0.6, 0.6, 0.6],  # below them all, but learns little
        [0.9, 0.9, 0.9],
    ],
)
def test_an_arm_that_learns_no_better_does_not_hold(errors: list[float]) -> None:
    claims = claims_of(
        LOW,
        prompt_runs("btt_1", "btt", errors, flops=2000),
        prompt_runs("standard", "standard", errors, heads=1, flops=2000),
    )
    assert claims["btt"].holds is False
    assert claims["rank"].holds is False
    assert claims["cost"].holds is False, "it takes more flops"
    assert claims["bilinear_mlr"].holds is None
    assert claims["bilinear_mlr"].found == "no such runs"


def test_too_few_seeds_decide_nothing() -> None:
    claims = claims_of(LOW, prompt_runs("btt_1", "btt", [0.1, 0.1]))
    assert claims["btt"].holds is None
    assert claims["cost"].holds is None


def test_heads_of_full_rank_are_not_asked_about() -> None:
    wide = [prompt_runs("standard", "standard", [0.9] * 3, width=64), prompt_runs("btt_1", "btt", [0.1] * 3, width=64)]
    assert claims_of(*wide)["btt"].holds is None


def test_the_learning_rate_is_chosen_by_validation_for_every_arm() -> None:
    low = [
        *prompt_runs("standard", "standard", [0.3] * 3, rate=0.01, validation=0.9),
        *prompt_runs("standard", "standard", [0.8] * 3, rate=0.001, validation=0.7),
    ]
    claims = claims_of(low, prompt_runs("btt_1", "btt", [0.1] * 3))
    assert "beside 0.800" in claims["btt"].found


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


def wave_runs(kind: str, mup: bool, width: int, errors: dict[int, float], seeds: int = 3) -> list[Record]:
    """The runs of rates by their power of 2, infinite where they diverge."""
    found = []
    for power, error in errors.items():
        experiment = {
            "model": {
                "learning_rate": 2.0**power,
                "mup": mup,
                "backbone": {"d_model": width, "attention": {"kind": kind}},
            },
            "trainer": {"max_steps": 10},
        }
        for seed in range(seeds):
            status = "done" if math.isfinite(error) else "failed"
            values = {"mse": error * (1 + 0.01 * seed), "validation_mse": error} if status == "done" else {}
            found.append(made_up(f"{mup} w{width} {power}", kind, seed, experiment, status, **values))
    return found


def mup_claims(plain_wide: dict[int, float], mup_wide: dict[int, float], seeds: int = 3) -> tuple[Claim, Claim]:
    narrow = {-9: 0.3, -8: 0.1, -7: 0.2}
    records = [
        *wave_runs("btt", True, 64, narrow, seeds),
        *wave_runs("btt", True, 256, mup_wide, seeds),
        *wave_runs("btt", False, 64, narrow, seeds),
        *wave_runs("btt", False, 256, plain_wide, seeds),
    ]
    with_mup, without = mup_transfer.report(records_of(*records)).claims
    return with_mup, without


SAME, OTHER = {-9: 0.3, -8: 0.1, -7: 0.2}, {-9: 0.1, -8: 0.2, -7: 0.3}


def test_a_rate_that_goes_over_holds_with_mup_and_refutes_without() -> None:
    with_mup, without = mup_claims(SAME, SAME)
    assert (with_mup.holds, without.holds) == (True, False)
    assert with_mup.found == (
        "best at 64: 2^-8, at 256: 2^-8 (0.101 ± 0.001); the former costs the wide model 1.000 of its least error"
    )


def test_a_rate_that_does_not_go_over_refutes_with_mup_and_holds_without() -> None:
    with_mup, without = mup_claims(OTHER, OTHER)
    assert (with_mup.holds, without.holds) == (False, True)
    assert "costs the wide model 2.000 of its least error; 2^-9 is at the edge of the grid" in without.found


def test_a_neighbour_that_costs_next_to_nothing_counts_as_the_same() -> None:
    with_mup, without = mup_claims({-9: 0.1, -8: 0.104, -7: 0.3}, {-9: 0.1, -8: 0.106, -7: 0.3})
    assert (with_mup.holds, without.holds) == (False, False)


def test_a_wide_model_that_diverges_at_the_rate_of_the_narrow_one_does_not_take_it_over() -> None:
    _, without = mup_claims({-9: 0.1, -8: math.inf, -7: math.inf}, SAME)
    assert without.holds is True
    assert "makes the wide model diverge" in without.found


def test_two_seeds_decide_nothing_of_rates() -> None:
    assert [one.holds for one in mup_claims(SAME, SAME, seeds=2)] == [None, None]


def test_a_report_is_written_of_records(tmp_path: Path) -> None:
    parts = [LOW, prompt_runs("btt_1", "btt", [0.1, 0.2, 0.3]), prompt_runs("btt_2", "btt", [0.1], status="failed")]
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
