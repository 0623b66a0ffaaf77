"""What conversions and calibration keep of trained scores, and the folders that adapted models are saved in."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.chronos.tiny_models import forecast, series, tiny_pipeline, weights_of
from tsattn import Forecaster
from tsattn.chronos import AdaptedChronos, adapt, load_adapted, open_pipeline
from tsattn.chronos.adapted import ContextWindows, input_moments
from tsattn.chronos.conversions import mean_form
from tsattn.chronos.families import FAMILIES as FAMILY
from tsattn.chronos.families import family_of
from tsattn.chronos.swapped_attention import Surroundings
from tsattn.descriptions import imported
from tsattn.errors import UserError
from tsattn.saved_folders import write_checksums

MLR = {"kind": "mlr", "ranks": [4, 2, 2], "blocks": [1, 2, 8]}
ONE_BLOCK = {"kind": "mlr", "ranks": [4, 2, 2], "blocks": {"lengths": [400, 200, 100]}}


def data() -> list[torch.Tensor]:
    return series(64, 40, 90, 120, 200, 80)


@pytest.mark.parametrize(("family", "with_data"), [("t5", True), ("bolt", False), ("chronos2", True)])
def test_rotation_keeps_scores(family: str, with_data: bool) -> None:
    pipeline = tiny_pipeline(family)
    expected = forecast(pipeline, series(60, 33))
    adapted = adapt(pipeline, ONE_BLOCK, convert="rotate", data=data() if with_data else None)
    torch.testing.assert_close(forecast(adapted.pipeline, series(60, 33)), expected, rtol=1e-4, atol=1e-4)
    rotated = adapted.swapped["encoder.0"].attention.projection.query.weight
    assert not torch.allclose(rotated, pipeline.inner_model.get_submodule(sites(pipeline)[0].path).q.weight)


def sites(pipeline: Any) -> list[Any]:
    return family_of(pipeline).sites()


def test_far_errors_are_those_of_scores() -> None:
    """Against scores of pairs of tokens, one by one, their mean over keys left out."""
    pipeline = tiny_pipeline("bolt")
    adapted = adapt(pipeline, MLR, convert="rotate", data=data())
    site = sites(pipeline)[1]
    moments = input_moments(family_of(pipeline), sites(pipeline)[:3], data(), 0)[site.name]
    original = pipeline.inner_model.get_submodule(site.path)
    projection = adapted.swapped[site.name].attention.projection
    root = torch.linalg.cholesky(moments.covariance + 1e-12 * torch.eye(24)).float()
    draws = torch.randn(2, 20000, 24, generator=torch.Generator().manual_seed(0))
    x, y = (moments.mean.float() + draws @ root.T).unbind()
    with torch.no_grad():
        q, k = (layer(t).view(-1, 3, 8) for layer, t in ((original.q, x), (original.k, y - moments.mean.float())))
        exact = (q * k).sum(-1)
        rotated, keys = (layer(t).view(-1, 3, 8) for layer, t in ((projection.query, x), (projection.key, y)))
    torch.testing.assert_close((rotated * keys).sum(-1), exact, rtol=1e-3, atol=1e-3)
    found = ((rotated * keys)[..., 4:].sum(-1).square().mean(0) / exact.square().mean(0)).sqrt()
    torch.testing.assert_close(found, torch.tensor(adapted.score_errors[site.name]), rtol=0.1, atol=0.01)


@pytest.mark.parametrize(("family", "convert"), [("t5", "copy"), ("chronos2", "rotate")])
def test_far_pairs_keep_the_levels_that_hold_them_all(family: str, convert: str) -> None:
    """No level: nothing of their scores; two: the components of both."""
    pipeline = tiny_pipeline(family)

    def errors(ranks: list[int], blocks: Any) -> torch.Tensor:
        described = {"kind": "mlr", "ranks": ranks, "blocks": blocks}
        return torch.tensor(list(adapt(pipeline, described, convert=convert).score_errors.values()))

    none = errors([4, 2, 2], [2, 4, 8])
    torch.testing.assert_close(none, torch.ones_like(none))
    torch.testing.assert_close(errors([4, 2, 2], {"lengths": [8, 4, 2]}), none)
    two = errors([4, 2, 2], [1, 1, 8])
    torch.testing.assert_close(two, errors([6, 2], [1, 8]))
    assert (two < errors([4, 2, 2], [1, 2, 8])).any()


def test_rotary_forms_are_fitted_to_their_mean_over_distances() -> None:
    family = family_of(tiny_pipeline("chronos2"))
    around = Surroundings(family, family.sites()[0], family.longest)
    form, left_out, norm = mean_form(around)
    q, k = (layer.weight.double().view(3, 8, 24) for layer in (around.original.q, around.original.k))
    turns = 10_000.0 ** -(torch.arange(4).double() / 4)
    forms = []
    for i in range(16):
        for j in range(16):
            angle = ((i - j) * turns).repeat(2)
            turned = angle.cos()[:, None] * k + angle.sin()[:, None] * torch.cat([-k[:, 4:], k[:, :4]], 1)
            forms.append(q.mT @ turned)
    every = torch.stack(forms)
    mean = every.mean(0)
    torch.testing.assert_close(form, mean)
    squares = torch.linalg.matrix_norm(every).square().mean(0)
    torch.testing.assert_close(norm, squares.sqrt())
    torch.testing.assert_close(left_out, squares - torch.linalg.matrix_norm(mean).square())


@pytest.mark.parametrize(
    ("attention", "convert", "message"),
    [
        ("btt", "copy", "convert=copy does not work with this attention, .*: give project or fresh"),
        ("mlr", "project", "convert=project works with btt, bilinear_mlr and mlbtc only"),
        ("btt", "rotate", "convert=rotate works with mlr only"),
        ("mlr", "transplant", "convert must be one of copy, rotate, project, fresh, not"),
        ({"kind": "mlr", "num_kv_heads": 1}, "copy", "num_kv_heads of attention mlr is set by the Chronos model"),
        ({"kind": "swa", "scaling": "mup"}, "copy", "cannot have scaling"),
        ({"kind": "mlr", "align": "start"}, "copy", "of a Chronos encoder needs align=end"),
        ({"kind": "mlr", "ranks": [4, 4], "blocks": {"calendar": ["month", "day"]}}, "copy", "calendar need time"),
        ({"kind": "mlr", "ranks": [8], "blocks": {"change_points": [4]}}, "copy", "change points need values"),
        (["mlr", "swa"], "copy", "lists 2 kinds for 3 layers"),
    ],
)
def test_what_does_not_go_together_is_refused(attention: Any, convert: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        adapt(tiny_pipeline("bolt"), attention, convert=convert)


def test_an_adapted_model_is_not_adapted_again() -> None:
    pipeline = adapt(tiny_pipeline("bolt"), "mlr").pipeline
    with pytest.raises(UserError, match=r"adapted already: call restore\(\)"):
        adapt(pipeline, "swa")


@pytest.mark.parametrize(
    ("family", "where", "message"),
    [
        ("chronos2", "decoder", "where must be one of encoder, group, all or a list of layers"),
        ("bolt", "group", "where must be one of encoder, decoder, cross, all"),
        ("chronos2", ["cross.0"], "the layer cross.0, which this model does not have; valid: .*, group.2$"),
        ("bolt", [7], "the layer encoder.7, which this model does not have; valid: encoder.0, "),
        ("bolt", [0, 2, "encoder.0"], "where names the layer encoder.0 more than once"),
    ],
)
def test_layers_that_are_not_there_are_refused(family: str, where: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        adapt(tiny_pipeline(family), "mlr", where)


CALIBRATED: dict[str, tuple[Any, str]] = {
    "swa": ({"kind": "swa", "window_size": 3}, "copy"),
    "mlr": ({"kind": "mlr", "ranks": [2, 2, 4], "blocks": [1, 4, 16]}, "copy"),
    "btt": ({"kind": "btt", "side": "both"}, "project"),
}


def windows_of(rows: Any) -> ContextWindows:
    return ContextWindows.of(rows, family_of(tiny_pipeline("bolt")), [])


@pytest.mark.parametrize(("family", "kind"), [("t5", "swa"), ("bolt", "mlr"), ("chronos2", "btt")])
def test_outputs_come_nearer(family: str, kind: str) -> None:
    pipeline = tiny_pipeline(family)
    weights = {name: weight.clone() for name, weight in pipeline.inner_model.state_dict().items()}
    attention, convert = CALIBRATED[kind]
    adapted = adapt(pipeline, attention, "encoder", convert)
    before = adapted.output_errors(data())
    report = adapted.calibrate(data(), steps=40, batch_size=8)
    assert report["layer"].tolist() == ["encoder.0", "encoder.1", "encoder.2"]
    assert (report["after"] < report["before"]).all()
    assert report["after"].mean() < 0.9 * report["before"].mean()
    assert (adapted.output_errors(data()) < before).all()
    assert all(torch.equal(weight, weights[name]) for name, weight in pipeline.inner_model.state_dict().items())
    assert all(not weight.isnan().any() for weight in adapted.model.parameters())


def test_windows_that_are_held_out_are_not_learned_from() -> None:
    for rows in (data(), series(100)):
        training, held_out = windows_of(rows).split()
        generator = torch.Generator().manual_seed(0)
        learned = {float(x) for x in training.draw(200, generator)[:, -1]}
        assert learned.isdisjoint(float(x) for x in held_out.draw(200, generator)[:, -1])


def test_a_fit_holds_out_the_latest_windows_with_all_their_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel that is held out in all windows would be one that nothing is learnt of."""
    seen: list[tuple[Any, Any]] = []
    monkeypatch.setattr(AdaptedChronos, "calibrate", lambda adapted, data, held_out, **_: seen.append((data, held_out)))
    index = pd.date_range("2024-01-01", periods=300, freq="h")
    frame = pd.DataFrame({f"c{number}": 1000 * number + np.arange(300.0) for number in range(5)}, index=index)
    swapped = {"kind": "chronos", "weights": weights_of("t5"), "attention": "swa", "calibrate": 1}
    Forecaster(swapped, context_length=20, prediction_length=6, val_rows=30, test_rows=40).fit(frame)
    ((learnt, held_out),) = seen
    assert len(held_out) == len(learnt) // 4
    early, late = ([divmod(round(float(row[-1])), 1000) for row in rows] for rows in (learnt, held_out))
    for channel in range(5):
        assert max(end for of, end in early if of == channel) < min(end for of, end in late if of == channel)


def test_other_data_is_refused() -> None:
    for rows in ([], [torch.full((3,), torch.nan)], ["text"], 7, torch.zeros(2, 3, 4)):
        with pytest.raises(UserError, match="data must be a list of series"):
            windows_of(rows)


FOLDER = Path(__file__).parent / "small_t5"


def drawn(seed: int, count: int = 24) -> list[torch.Tensor]:
    """Two seasons, a level that wanders and noise, as in the series that it was trained on."""
    generator, time = torch.Generator().manual_seed(seed), torch.arange(96)
    weights, phases, speeds = torch.rand(3, count, 2, 1, generator=generator)
    waves = (weights * (6 * phases + time * (0.1 + speeds)).sin()).sum(1)
    walk, noise = torch.randn(2, count, 96, generator=generator)
    return [*(waves + 0.05 * walk.cumsum(-1) + 0.2 * noise)]


@pytest.fixture(scope="module")
def trained() -> Any:
    return open_pipeline(FOLDER, dtype="float32")


def error(adapted: Any) -> float:
    """Of the attention outputs, in the mean over layers, on series that nothing was learned from."""
    errors = adapted.output_errors(drawn(2))
    return float(errors.mean())


def test_far_pairs_keep_more_of_what_was_learned_by_rotation(trained: Any) -> None:
    copied, rotated, learned = (
        adapt(trained, {"kind": "mlr", "ranks": [8, 4, 4]}, convert=convert, data=data)
        for convert, data in (("copy", None), ("rotate", None), ("rotate", drawn(1)))
    )
    assert error(learned) < 0.5 * error(copied)
    assert error(learned) <= error(rotated) < error(copied)


def test_projection_keeps_more_than_a_fresh_start(trained: Any) -> None:
    for attention in ({"kind": "bilinear_mlr", "ranks": [8, 4, 4]}, "btt"):
        projected, fresh = (adapt(trained, attention, convert=convert) for convert in ("project", "fresh"))
        assert error(projected) < 0.6 * error(fresh)


SAVED = {
    **CALIBRATED,
    "mlr": ({"kind": "mlr", "ranks": [4, 2, 2]}, "rotate"),
    "bilinear_mlr": ("bilinear_mlr", "fresh"),
}


@pytest.mark.parametrize(
    ("family", "kind"), [("bolt", "bilinear_mlr"), ("bolt", "swa"), ("chronos2", "mlr"), ("t5", "btt")]
)
def test_what_was_saved_forecasts_alike(family: str, kind: str, tmp_path: Path) -> None:
    attention, convert = SAVED[kind]
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


def test_bfloat16_stays_bfloat16(tmp_path: Path) -> None:
    pipeline = tiny_pipeline("chronos2")
    pipeline.inner_model.to(torch.bfloat16)
    adapted = adapt(pipeline, {"kind": "swa", "window_size": 3}, "all")
    loaded = load_adapted(adapted.save(tmp_path / "model"))
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.bfloat16}
    assert torch.equal(forecast(loaded.pipeline, series(60)), forecast(adapted.pipeline, series(60)))


def test_plain_loaders_fail(tmp_path: Path) -> None:
    from chronos import BaseChronosPipeline
    from transformers import AutoModel

    adapted = adapt(tiny_pipeline("bolt"), {"kind": "swa", "window_size": 3})
    folder = adapted.save(tmp_path / "model")
    for loader in (BaseChronosPipeline, imported(FAMILY["bolt"].pipeline_path), AutoModel):
        with pytest.raises(ValueError, match="tsattn-adapted-chronos"):
            loader.from_pretrained(folder)
    with pytest.raises((OSError, AssertionError, ValueError)):
        FAMILY["bolt"].model_class().from_pretrained(folder)
    with pytest.raises(UserError, match=r"holds an adapted model: open it with tsattn.chronos.load_adapted"):
        open_pipeline(folder)
    with pytest.raises(UserError, match=r"save an adapted model with AdaptedChronos.save"):
        adapted.model.save_pretrained(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    with pytest.raises(UserError, match="would lose the swapped attention: train the predictor chronos"):
        adapted.pipeline.fit([torch.zeros(20)])


def test_folders_that_are_not_right_are_refused(tmp_path: Path) -> None:
    adapted = adapt(tiny_pipeline("bolt"), "standard")
    folder = adapted.save(tmp_path / "model")
    with pytest.raises(UserError, match="exists already"):
        adapted.save(folder)
    (tmp_path / "mine").mkdir()
    with pytest.raises(UserError, match="is not overwritten; name another"):
        adapted.save(tmp_path / "mine", overwrite=True)
    with pytest.raises(UserError, match=r"it has no adapted.json"):
        load_adapted(tmp_path / "mine")
    record = json.loads((folder / "adapted.json").read_text())
    for name, value, message in [
        ("format", "x", "has the format x, not tsattn adapted chronos 2; adapt the model again"),
        ("swaps", {"encoder.0": {"attention": "btt", "convert": "project"}}, "is damaged: "),
        ("family", "t6", "is damaged: "),
        ("attention_implementation", "somebody/kernels", "is damaged: somebody/kernels is no attention_implementation"),
    ]:
        (folder / "adapted.json").write_text(json.dumps(record | {name: value}))
        with pytest.raises(UserError, match=r"damaged: adapted.json is missing or was changed"):
            load_adapted(folder)
        write_checksums(folder, [folder / "adapted.json", folder / "adapted.safetensors"])
        with pytest.raises(UserError, match=message):
            load_adapted(folder)
    (folder / "adapted.json").write_text(json.dumps(record))
    write_checksums(folder, [folder / "adapted.json", folder / "adapted.safetensors"])
    (folder / "adapted.safetensors").write_bytes((folder / "adapted.safetensors").read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(UserError, match=r"damaged: adapted.safetensors is missing or was changed"):
        load_adapted(folder)


def test_an_absent_model_gives_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"somebody/model at revision abc is neither a folder, nor in the local cache"):
        open_pipeline("somebody/model", revision="abc")
    with pytest.raises(UserError, match="dtype of a Chronos model must be one of auto, float32, bfloat16"):
        open_pipeline("amazon/chronos-2", dtype="int8")
    with pytest.raises(UserError, match="weights must be the name or folder of a Chronos model, not 7"):
        open_pipeline(7)  # type: ignore[arg-type]
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="cannot be opened as a Chronos model"):
        open_pipeline(tmp_path)


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
