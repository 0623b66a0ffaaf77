"""Seconds of a run without those of others that it takes over, and what is known of them in older records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.leaderboard.invented import record
from tsattn.leaderboard.own_seconds import highest_memory, known_seconds, own_seconds
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.report.score_sections import horizon_section
from tsattn.leaderboard.standings import Standings
from tsattn.leaderboard.summaries import horizon_means, scores

PATCHTST = {"kind": "patchtst", "d_model": 16}
NAN = float("nan")


def text(backbone: Any, seed: int = 1, trainer: dict[str, Any] | None = None, **model: Any) -> str:
    content = {
        "seed_everything": seed,
        "data": {"init_args": {"context_length": 96}},
        "model": {"backbone": backbone, "calibrate": False, "loss": "mse", "schedule": "constant", **model},
        "trainer": {"max_steps": 600, "val_check_interval": 100, "precision": None, **(trainer or {})},
    }
    return yaml.safe_dump(content)


def ensemble(*members: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "ensemble", "members": list(members), **more}


def done(*rows: tuple[int | None, float, str], own: float = NAN) -> pd.DataFrame:
    return pd.DataFrame(
        [{"seed": seed, "seconds": one, "experiment": what, "own_seconds": own} for seed, one, what in rows]
    )


@pytest.mark.parametrize("seeds", [1, 2])
def test_seconds_of_a_mix_leave_those_of_its_trained_members_out(seeds: int) -> None:
    ridge = {"kind": "ridge"}
    runs = done(
        (1, 60.0, text(PATCHTST)),
        (2, 50.0, text(PATCHTST, 2)),
        (None, 3.0, text(ridge)),
        (1, 113.0, text(ensemble(PATCHTST, ridge, seeds=seeds))),
    )
    assert own_seconds(runs).tolist() == [60.0, 50.0, 3.0, 53.0 if seeds == 1 else 3.0], "the ridge is fitted again"


def test_members_are_those_that_are_trained_alike() -> None:
    """Two trainings of one network differ in their options: the last of them was taken for both."""
    of_mix = {"loss": "mse", "calibrate": True}
    runs = done(
        (1, 60.0, text(PATCHTST, loss="mse")),
        (1, 40.0, text(PATCHTST, loss="mae")),
        (1, 20.0, text(PATCHTST, loss="mse", trainer={"max_steps": 200, "max_epochs": None, "max_time": None})),
        (1, 65.0, text(ensemble(PATCHTST), **of_mix)),
        (1, 45.0, text(ensemble({**PATCHTST, "loss": "mae"}), **of_mix)),
        (1, 26.0, text(ensemble({**PATCHTST, "max_steps": 200}), **of_mix)),
        (1, 7.0, text(ensemble({**PATCHTST, "max_steps": 999}), **of_mix)),
        (1, 7.0, text(ensemble({"kind": "of.another.package", "d_model": 16}), **of_mix)),
    )
    assert own_seconds(runs).tolist() == [60.0, 40.0, 20.0, 5.0, 5.0, 6.0, 7.0, 7.0]


def test_what_a_predictor_did_not_have_when_one_of_two_was_recorded_makes_no_other_of_it() -> None:
    runs = done((1, 60.0, text(PATCHTST)), (1, 61.0, text(ensemble({**PATCHTST, "patch_mask": 0.0}))))
    assert own_seconds(runs).tolist() == [60.0, 1.0]


def test_a_training_that_goes_on_leaves_the_shorter_one_out() -> None:
    def lengths(steps: int, interval: int, **more: Any) -> str:
        return text(PATCHTST, trainer={"max_steps": steps, "val_check_interval": interval}, **more)

    runs = done(
        (1, 10.0, lengths(200, 200)),
        (1, 30.0, lengths(600, 600)),
        (1, 50.0, lengths(1000, 1000)),
        (1, 50.0, lengths(1000, 100)),
        (1, 50.0, lengths(1000, 1000, learning_rate=0.1)),
        (1, 50.0, lengths(1000, 1000, schedule="cosine")),
    )
    assert own_seconds(runs).tolist() == [10.0, 20.0, 40.0, 50.0, 50.0, 50.0]


def test_the_memory_of_a_mix_is_that_of_its_members() -> None:
    runs = done(
        (1, 60.0, text(PATCHTST)), (1, 61.0, text(ensemble(PATCHTST))), (1, 61.0, text(ensemble({"kind": "ridge"})))
    )
    runs["peak_memory"] = [700, 300, 400]
    assert highest_memory(runs).tolist() == [700, 700, 400]
    runs["peak_memory"] = [None, 300, 400]
    assert highest_memory(runs).isna().tolist() == [True, True, False]


def test_what_records_say_themselves_is_taken() -> None:
    runs = done((1, 60.0, text(PATCHTST)), (1, 20.0, text(ensemble(PATCHTST))), own=20.0)
    assert own_seconds(runs).tolist() == [20.0, 20.0]
    assert known_seconds(runs).tolist() == [60.0, 20.0], "its member was trained by a slower machine"


def test_seconds_of_a_mix_below_those_of_its_members_are_unknown() -> None:
    """Records of a while had lost the seconds of members whose training was interrupted."""
    experiments = {
        **{("patchtst", seed): text(PATCHTST, seed) for seed in (1, 2)},
        **{("patchtst+ridge", seed): text(ensemble(PATCHTST, {"kind": "ridge"}), seed) for seed in (1, 2)},
    }
    seconds = {
        ("patchtst", 1): 300.2,
        ("patchtst", 2): 250.0,
        ("patchtst+ridge", 1): 111.0,
        ("patchtst+ridge", 2): 251.0,
    }
    runs = [
        record("ETTh1", 24, name, "btt", seed, windows=50, seconds=one, experiment=experiments[name, seed])
        for (name, seed), one in seconds.items()
    ]
    board = Standings(Records.of(runs))
    assert known_seconds(board.done).isna().tolist() == [False, False, True, False]
    table = scores(board)
    assert table.set_index("predictor")["seconds"].isna().to_dict() == {"patchtst": False, "patchtst+ridge": True}
    assert np.isnan(horizon_means(board, table).set_index("predictor").loc["patchtst+ridge", "seconds"])
    (sentence,) = [one for one in horizon_section(Analysis(board)).text if "unknown" in one]
    assert "the records of 1 run of mixes say fewer" in sentence
