"""What conversions keep of the trained scores."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.chronos.tiny_models import forecast, series, tiny_pipeline
from tsattn.chronos import adapt
from tsattn.chronos.adapted import input_moments
from tsattn.chronos.conversions import mean_form
from tsattn.chronos.families import family_of
from tsattn.chronos.swapped_attention import Surroundings
from tsattn.errors import UserError

MLR = {"kind": "mlr", "ranks": [4, 2, 2], "blocks": [1, 2, 8]}
ONE_BLOCK = {"kind": "mlr", "ranks": [4, 2, 2], "blocks": {"lengths": [400, 200, 100]}}


def data() -> list[torch.Tensor]:
    return series(64, 40, 90, 120, 200)


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
        ("btt", "copy", "copy keeps queries and keys, .*: convert it by project or fresh"),
        ("mlr", "project", "project is for structured forms"),
        ("btt", "rotate", "rotate is for mlr"),
        ("swa", "rotate", "rotate is for mlr"),
        ("mlr", "transplant", "convert must be one of copy, rotate, project, fresh, not"),
        ({"kind": "mlr", "num_kv_heads": 1}, "copy", "num_kv_heads of attention mlr is the Chronos model's own"),
        ({"kind": "swa", "scaling": "mup"}, "copy", "cannot have scaling"),
        ({"kind": "swa", "qk_norm": True}, "copy", "cannot have qk_norm"),
        ({"kind": "mlr", "align": "start"}, "copy", "of a Chronos encoder has align=end"),
        ({"kind": "mlr", "ranks": [4, 4], "blocks": {"calendar": ["month", "day"]}}, "copy", "calendar need time"),
        ({"kind": "mlr", "ranks": [8], "blocks": {"change_points": [4]}}, "copy", "change points need the values"),
        (["mlr", "swa"], "copy", "lists 2 kinds for 3 layers"),
    ],
)
def test_what_does_not_go_together_is_refused(attention: Any, convert: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        adapt(tiny_pipeline("bolt"), attention, convert=convert)


def test_an_adapted_model_is_not_adapted_again() -> None:
    pipeline = adapt(tiny_pipeline("bolt"), "mlr").pipeline
    with pytest.raises(UserError, match="adapted already: adapt its original"):
        adapt(pipeline, "swa")


@pytest.mark.parametrize(
    ("family", "where", "message"),
    [
        ("chronos2", "decoder", "where must be one of encoder, group, all or a list of layers"),
        ("bolt", "group", "where must be one of encoder, decoder, cross, all"),
        ("chronos2", ["cross.0"], "the layer cross.0, which this model does not have; valid: .*, group.2$"),
        ("bolt", [7], "the layer encoder.7, which this model does not have; valid: encoder.0, "),
        ("bolt", [], "where must be"),
        ("bolt", [0, 2, "encoder.0"], "where names the layer encoder.0 more than once"),
        ("bolt", [True], "which this model does not have"),
    ],
)
def test_layers_that_are_not_there_are_refused(family: str, where: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        adapt(tiny_pipeline(family), "mlr", where)
