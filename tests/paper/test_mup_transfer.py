"""What the report of muP transfer decides, on records of which it is known what they say."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.paper import mup_transfer
from benchmarks.paper.claims import Claim
from tests.paper.made_up import Record, made_up, records_of


def wave_runs(
    kind: str, mup: bool, width: int, errors: dict[int, float], seeds: int = 3, noise: float = 0.0
) -> list[Record]:
    """The runs of rates by their power of 2, infinite where they diverge; noise moves neighbours up and down."""
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
            own = error * (1 + 0.01 * seed) * (1 + noise * (-1) ** (seed + power))
            values = {"mse": own, "validation_mse": error} if status == "done" else {}
            found.append(made_up(f"{mup} w{width} {power}", kind, seed, experiment, status, **values))
    return found


NARROW = {-10: 0.4, -9: 0.3, -8: 0.1, -7: 0.2, -6: 0.4}
SAME = NARROW
OTHER = {-10: 0.4, -9: 0.1, -8: 0.2, -7: 0.3, -6: 0.4}


def mup_claims(plain_wide: dict[int, float], mup_wide: dict[int, float], **options: Any) -> tuple[Claim, Claim]:
    narrow = options.pop("narrow", NARROW)
    records = [
        *wave_runs("btt", True, 64, narrow, **options),
        *wave_runs("btt", True, 256, mup_wide, **options),
        *wave_runs("btt", False, 64, narrow, **options),
        *wave_runs("btt", False, 256, plain_wide, **options),
    ]
    with_mup, without = mup_transfer.report(records_of(*records)).claims
    return with_mup, without


def decided(*args: Any, **options: Any) -> list[bool | None]:
    return [claim.holds for claim in mup_claims(*args, **options)]


def test_a_rate_that_goes_over_holds_with_mup_and_refutes_without() -> None:
    with_mup, without = mup_claims(SAME, SAME)
    assert (with_mup.holds, without.holds) == (True, False)
    assert with_mup.found == (
        "best at 64: 2^-8, at 256: 2^-8 (0.101 ± 0.001); the former costs the wide model 1.000 (1.000 to 1.000) of its "
        "least error"
    )


def test_a_rate_that_does_not_go_over_refutes_with_mup_and_holds_without() -> None:
    with_mup, without = mup_claims(OTHER, OTHER)
    assert (with_mup.holds, without.holds) == (False, True)
    assert "costs the wide model 2.000 (2.000 to 2.000) of its least error" in without.found


def test_a_cost_within_the_spread_of_seeds_decides_nothing() -> None:
    nearly, more = ({**OTHER, -8: error} for error in (0.104, 0.106))
    for noise in (0.02, 0.05):
        assert decided(nearly, more, noise=noise) == [None, None]
    assert decided(OTHER, OTHER, noise=0.02) == [False, True], "a large one does"


def test_a_flat_curve_decides_nothing() -> None:
    flat = {-10: 0.103, -9: 0.102, -8: 0.1, -7: 0.101, -6: 0.103}
    assert decided(flat, flat) == [None, None]


def test_an_edge_of_the_grid_decides_nothing() -> None:
    falling = {-10: 0.4, -9: 0.3, -8: 0.2, -7: 0.1}
    assert decided(falling, falling, narrow=falling) == [None, None]
    claim, _ = mup_claims(SAME, falling)
    assert claim.holds is None
    assert "2^-7 is at the edge of the grid" in claim.found
