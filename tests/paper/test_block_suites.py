"""The suites of blocks and of MLBTC compare like with like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tsattn.attention import build_attention
from tsattn.leaderboard.suite import read_suite

SUITES = Path(__file__).parents[2] / "benchmarks" / "paper" / "suites"


def sizes(suite: Any) -> dict[str, Any]:
    (found,) = {
        (arm.backbone["d_model"], arm.backbone["num_heads"])
        for arm in suite.predictors.values()
        if isinstance(arm.backbone, dict) and "num_heads" in arm.backbone
    }
    return {"d_model": found[0], "num_heads": found[1]}


@pytest.mark.parametrize("name", ["mlbtc_small", "mlbtc_full", "mlbtc_prompts_full"])
def test_arms_of_mlbtc_have_as_many_parameters_as_standard_attention(name: str) -> None:
    suite = read_suite(SUITES / f"{name}.yaml")
    counts = {}
    for arm in suite.attentions.values():
        weights = build_attention(arm.description, **sizes(suite)).projection.parameters()
        counts[arm.name] = sum(weight.numel() for weight in weights if weight.dim() > 1)  # without standard's biases
    assert len(counts) == 14
    assert set(counts.values()) == {counts["standard"]}


def test_forms_of_mlbtc_on_prompts_have_as_many_parameters_as_heads_of_rank_two_or_three() -> None:
    suite = read_suite(SUITES / "mlbtc_prompts_small.yaml")
    counts = {
        arm.name: build_attention(arm.description, **sizes(suite)).projection.num_params()
        for arm in suite.attentions.values()
    }
    assert sorted(counts.values()) == [512] * 6 + [768] * 5
    assert (counts["standard"], counts["low_rank_2"], counts["low_rank_3"]) == (512, 512, 768)


@pytest.mark.parametrize("name", ["blocks_small", "blocks_full"])
def test_arms_of_blocks_have_as_many_as_there_are_days(name: str) -> None:
    suite = read_suite(SUITES / f"{name}.yaml")
    for data in suite.data.values():
        steps = {"ETTm1": 96, "vic_electricity": 48}[data.source["init_args"]["name"]]
        context = data.values["data.init_args.context_length"]
        assert data.name.endswith(f"_{context}")
        days = -(-context // steps)
        described: dict[str, Any] = {
            arm.name: arm.by_data.get(data.name, arm.description) for arm in suite.attentions.values()
        }
        assert described["numbers"]["blocks"] == [1, days]
        assert described["change_points"]["blocks"] == {"change_points": [1, days]}
        assert described["swa"]["window_size"] * 2 == steps, "half a day on each side"
        for description in described.values():
            build_attention(description, **sizes(suite), max_length=context)
