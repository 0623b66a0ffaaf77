"""The cost of swapped attention is that of the pairs that it scores."""

from __future__ import annotations

import pytest
import torch

from tests.chronos.tiny_models import FAMILIES, tiny_pipeline
from tsattn.chronos import adapt

SPECIAL = {"t5": 1, "bolt": 1, "chronos2": 5}


@pytest.mark.parametrize("blocks", [[1, 2, 8], {"lengths": [16, 8, 4]}], ids=["numbers", "lengths"])
@pytest.mark.parametrize("family", FAMILIES)
def test_multi_level_scores_are_counted_pair_by_pair(family: str, blocks: object) -> None:
    ranks = [4, 2, 2]
    adapted = adapt(tiny_pipeline(family), {"kind": "mlr", "ranks": ranks, "blocks": blocks})
    context = 30 if family == "t5" else 16
    total = context + SPECIAL[family]
    places = torch.arange(context)
    components = torch.full((total, total), 8)
    components[:context, :context] = 0
    for level, rank in enumerate(ranks):
        block = places * blocks[level] // context if isinstance(blocks, list) else places // [16, 8, 4][level]
        components[:context, :context] += rank * (block[:, None] == block)
    cost = adapted.cost()
    assert cost["layer"].tolist() == ["encoder.0", "encoder.1", "encoder.2"]
    assert set(cost["tokens"]) == {total}
    assert set(cost["score_flops"]) == {2 * 3 * int(components.sum())}
    assert set(cost["original_flops"]) == {2 * 3 * 8 * total**2}
    assert (cost["share"] == cost["score_flops"] / cost["original_flops"]).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_standard_attention_costs_what_the_original_does(family: str) -> None:
    cost = adapt(tiny_pipeline(family), {"kind": "swa", "window_size": 99}, "all").cost()
    assert set(cost["share"]) == {1.0}
    assert set(cost["score_parameters"]) == {2 * 3 * 8 * 24}
    assert cost["components"].equals(cost["original_components"])


def test_components_of_structured_forms_are_named() -> None:
    cost = adapt(tiny_pipeline("bolt"), {"kind": "btt", "side": "key"}, convert="project").cost()
    assert set(cost["components"]) == {24}
    assert set(cost["share"]) == {3.0}
