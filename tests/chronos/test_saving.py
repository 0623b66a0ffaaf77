"""Adapted models are saved with their swap, opened by nothing else, and their cost is counted."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.chronos.tiny_models import FAMILIES, forecast, series, tiny_pipeline
from tsattn.chronos import adapt, load_adapted, open_pipeline
from tsattn.errors import UserError
from tsattn.saved_folders import write_checksums

KINDS: dict[str, tuple[Any, str]] = {
    "swa": ({"kind": "swa", "window_size": 3}, "copy"),
    "mlr": ({"kind": "mlr", "ranks": [4, 2, 2]}, "rotate"),
    "btt": ({"kind": "btt", "side": "both"}, "project"),
    "bilinear_mlr": ("bilinear_mlr", "fresh"),
}


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        *((family, "swa") for family in FAMILIES),
        *((family, "btt") for family in FAMILIES),
        ("t5", "mlr"),
        ("chronos2", "mlr"),
        ("bolt", "bilinear_mlr"),
    ],
)
def test_what_was_saved_forecasts_alike(family: str, kind: str, tmp_path: Path) -> None:
    attention, convert = KINDS[kind]
    contexts = series(60, 33)
    where = [1] if kind == "swa" else "all"
    adapted = adapt(tiny_pipeline(family), attention, where, convert, data=series(90, 120, 80))
    with torch.no_grad():
        for weight in adapted.model.parameters():
            weight.mul_(1.01)  # as training does
    expected = forecast(adapted.pipeline, contexts)
    folder = adapted.save(tmp_path / "model")
    state = torch.random.get_rng_state()
    loaded = load_adapted(folder)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(forecast(loaded.pipeline, contexts), expected)
    assert loaded.swaps == adapted.swaps
    assert loaded.score_errors == adapted.score_errors
    again = load_adapted(loaded.save(folder, overwrite=True))
    assert torch.equal(forecast(again.pipeline, contexts), expected)
    with pytest.raises(UserError, match="does not hold the original"):
        loaded.restore()
    with pytest.raises(UserError, match="calibration needs the original"):
        loaded.calibrate(contexts)


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_stays_bfloat16(family: str, tmp_path: Path) -> None:
    pipeline = tiny_pipeline(family)
    pipeline.inner_model.to(torch.bfloat16)
    adapted = adapt(pipeline, {"kind": "swa", "window_size": 3}, "all")
    loaded = load_adapted(adapted.save(tmp_path / "model"))
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.bfloat16}
    assert torch.equal(forecast(loaded.pipeline, series(60)), forecast(adapted.pipeline, series(60)))


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_loaders_fail(family: str, tmp_path: Path) -> None:
    from chronos import BaseChronosPipeline, Chronos2Pipeline, ChronosBoltPipeline, ChronosPipeline
    from chronos.chronos2 import Chronos2Model
    from chronos.chronos_bolt import ChronosBoltModelForForecasting
    from transformers import AutoModel, T5ForConditionalGeneration

    adapted = adapt(tiny_pipeline(family), {"kind": "swa", "window_size": 3})
    folder = adapted.save(tmp_path / "model")
    for loader in (BaseChronosPipeline, Chronos2Pipeline, ChronosBoltPipeline, ChronosPipeline, AutoModel):
        with pytest.raises(ValueError, match="tsattn-adapted-chronos"):
            loader.from_pretrained(folder)
    for model in (Chronos2Model, ChronosBoltModelForForecasting, T5ForConditionalGeneration):
        with pytest.raises((OSError, AssertionError, ValueError)):
            model.from_pretrained(folder)
    with pytest.raises(UserError, match=r"holds an adapted model: tsattn.chronos.load_adapted opens it"):
        open_pipeline(folder)
    with pytest.raises(UserError, match=r"saved by AdaptedChronos.save"):
        adapted.model.save_pretrained(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    with pytest.raises(UserError, match="not trained by its pipeline's own fit"):
        adapted.pipeline.fit([torch.zeros(20)])


def test_folders_that_are_not_right_are_refused(tmp_path: Path) -> None:
    adapted = adapt(tiny_pipeline("bolt"), "standard")
    folder = adapted.save(tmp_path / "model")
    with pytest.raises(UserError, match="exists already"):
        adapted.save(folder)
    (tmp_path / "mine").mkdir()
    with pytest.raises(UserError, match="it is not overwritten"):
        adapted.save(tmp_path / "mine", overwrite=True)
    with pytest.raises(UserError, match=r"it has no adapted.json"):
        load_adapted(tmp_path / "mine")
    record = json.loads((folder / "adapted.json").read_text())
    for name, value, message in [
        ("format", "x", "not the folder of an adapted model of this tsattn: x"),
        ("swaps", {"encoder.0": {"attention": "btt", "convert": "project"}}, "is damaged: "),
        ("family", "t6", "is damaged: "),
        ("attention_implementation", "somebody/kernels", "is damaged: somebody/kernels is no attention_implementation"),
    ]:
        (folder / "adapted.json").write_text(json.dumps(record | {name: value}))
        with pytest.raises(UserError, match=r"damaged: adapted.json is not the file that was written"):
            load_adapted(folder)
        write_checksums(folder, [folder / "adapted.json", folder / "adapted.safetensors"])
        with pytest.raises(UserError, match=message):
            load_adapted(folder)
    (folder / "adapted.json").write_text(json.dumps(record))
    write_checksums(folder, [folder / "adapted.json", folder / "adapted.safetensors"])
    (folder / "adapted.safetensors").write_bytes((folder / "adapted.safetensors").read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(UserError, match=r"damaged: adapted.safetensors is not the file that was written"):
        load_adapted(folder)


def test_an_absent_model_gives_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"somebody/model at revision abc is neither a folder, nor in the local cache"):
        open_pipeline("somebody/model", revision="abc")
    with pytest.raises(UserError, match="dtype of a Chronos model must be one of auto, float32, bfloat16"):
        open_pipeline("amazon/chronos-2", dtype="int8")
    with pytest.raises(UserError, match="opened by a name or folder, not by 7"):
        open_pipeline(7)  # type: ignore[arg-type]
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="cannot be opened as a Chronos model"):
        open_pipeline(tmp_path)
    with pytest.raises(UserError, match="is no model on the hub, which alone has revisions"):
        open_pipeline(tmp_path, revision="abc")


# its cost

SPECIAL = {"t5": 1, "bolt": 1, "chronos2": 5}


@pytest.mark.parametrize(
    ("family", "blocks"), [("t5", [1, 2, 8]), ("chronos2", [1, 2, 8]), ("bolt", {"lengths": [16, 8, 4]})], ids=str
)
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


# Flops of swapped attentions in closed form are those of the products that the reference path takes.


class Ones(nn.Module):
    """Queries and keys of ones, so that the score of a pair is the number of components that it is scored with."""

    def __init__(self, width: int, heads: tuple[int, int]) -> None:
        super().__init__()
        self.width, self.heads, self.scale = width, heads, 1.0

    def forward(self, x: Tensor, context: Tensor) -> Any:
        both = zip(self.heads, (x, context), strict=True)
        return tuple(x.new_ones(len(x), heads, tokens.shape[1], self.width) for heads, tokens in both)


class EachToken(nn.Module):
    """Values by which the output of a head is the row of its weights."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        return torch.eye(x.shape[1]).to(x).repeat(1, self.heads).expand(len(x), -1, -1)


@torch.no_grad()
def counted_components(module: Any, tokens: int) -> Tensor:
    """`(H, N, N)`: with how many components each pair is scored, 0 for one that is not seen.

    With queries and keys of ones the logarithm of weights is, up to a constant of each query, the number of products in
    a score. A token is scored with itself by all components.
    """
    probe = copy.deepcopy(module).double().eval()
    attention = probe.attention
    width, heads = attention.projection.width, attention.num_heads
    attention.projection = Ones(width, (heads, attention.num_kv_heads))
    attention.query_norm = attention.key_norm = nn.Identity()
    attention.value, attention.output = EachToken(attention.num_kv_heads), nn.Identity()
    attention.rotary, attention.impl, attention.scale = None, "reference", 1.0
    rows = probe.attend(torch.zeros(1, tokens, attention.d_model, dtype=torch.float64), key_mask=None, bias=None)
    weights = rows.view(tokens, heads, tokens).transpose(0, 1)
    own = weights.diagonal(dim1=1, dim2=2)[:, :, None]
    found = torch.where(weights > 0, (weights / own).log() + width, 0.0)
    torch.testing.assert_close(found, found.round(), atol=1e-6, rtol=0)
    return found.round().long()


def counted(adapted: Any) -> list[dict[str, Any]]:
    rows = adapted.cost().to_dict("records")
    return [{**row, "counts": counted_components(adapted.swapped[row["layer"]], row["tokens"])} for row in rows]


def test_components_are_counted_on_the_reference() -> None:
    for row in counted(adapt(tiny_pipeline("chronos2"), {"kind": "mlr", "ranks": [4, 2, 2], "blocks": [1, 2, 8]})):
        assert 2 * int(row["counts"].sum()) == row["score_flops"] < row["original_flops"]
    swa = adapt(tiny_pipeline("chronos2"), {"kind": "swa", "window_size": 4})
    (row, *_) = counted(swa)
    special, at = swa.swapped["encoder.0"].layout.special_tokens, torch.arange(row["tokens"])
    sees = (at[:, None] - at).abs() < 4
    sees[-special:] = True
    sees[:, -special:] = True
    assert torch.equal(row["counts"], 8 * sees.expand(3, -1, -1))
    said = "the closed form counts windows that reach beyond the ends"
    assert 2 * int(row["counts"].sum()) <= row["score_flops"], said
