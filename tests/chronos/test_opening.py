"""What a name means, wherever it is typed, and what is refused of the files that it leads to."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.chronos.tiny_models import FAMILIES, forecast, series, tiny_pipeline, weights_of
from tests.toy_windows import toy_task
from tsattn.chronos import adapt, open_pipeline
from tsattn.chronos.adapted import open_weights
from tsattn.chronos.chronos_predictor import ChronosNetwork
from tsattn.chronos.opening import NamedWeights
from tsattn.errors import UserError
from tsattn.predictors import build_predictor
from tsattn.task import Output


@pytest.mark.parametrize(
    "name", ["chronos-tiny", "./none", "~/none.safetensors", "a/none.safetensors", "a/b/c", "/a", ""]
)
def test_what_a_name_may_be_is_one_sentence_everywhere(name: str) -> None:
    for opening in (NamedWeights.of, open_weights, open_pipeline, lambda one: adapt(one, "swa")):
        with pytest.raises(
            UserError, match=r"^weights must be .*folder .*hub such as .*, not .*; the included .* tiny`$"
        ) as e:
            opening(name)
        assert repr(name) in str(e.value)
    assert NamedWeights.of("somebody/a-model.2") == NamedWeights("somebody/a-model.2")


def test_only_a_model_on_the_hub_has_revisions(tmp_path: Path) -> None:
    adapt(weights_of("bolt"), "swa").save(tmp_path / "adapted")
    for weights in (weights_of("bolt"), str(tmp_path / "adapted")):
        for opening in (NamedWeights.of, open_weights, open_pipeline):
            with pytest.raises(UserError, match="is a folder, and only models on the hub have revisions: leave"):
                opening(weights, revision="abc")


def test_a_number_of_paths_is_refused_where_none_are_drawn() -> None:
    for family, more in (("bolt", {}), ("chronos2", {"trained": "all"})):
        predictor = build_predictor({"kind": "chronos", "weights": weights_of(family), "num_samples": 7, **more})
        with pytest.raises(UserError, match=r"num_samples is for Chronos-T5 only, .*: leave num_samples out"):
            predictor.build(toy_task(20, 2, 1), Output())


def test_an_adapted_folder_keeps_its_swap(tmp_path: Path) -> None:
    adapt(weights_of("bolt"), {"kind": "swa", "window_size": 2}, where=[1]).save(tmp_path / "adapted")

    def network(**options: Any) -> ChronosNetwork:
        return ChronosNetwork(toy_task(), Output(), weights=str(tmp_path / "adapted"), **options)

    with pytest.raises(UserError, match="adapted, so its swapped layers are trained: leave where out"):
        network(trained="attention", where=[0])
    with pytest.raises(UserError, match="has a swapped attention already: leave attention out, or give"):
        network(trained="lora", attention="mlr")
    names = [name for name, part in network(trained="attention").named_parameters() if part.requires_grad]
    assert names
    assert all("encoder.block.1." in name for name in names)


def changed(
    folder: Path,
    family: str,
    config: Callable[[dict[str, Any]], object] | None = None,
    weights: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None,
) -> Path:
    """A copy of a tiny model with another configuration or other weights."""
    shutil.copytree(weights_of(family), folder)
    if config is not None:
        content = json.loads((folder / "config.json").read_text())
        config(content)
        (folder / "config.json").write_text(json.dumps(content))
    if weights is not None:
        state = weights(load_file(folder / "model.safetensors"))
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("family", "config", "weights", "message"),
    [
        ("t5", None, lambda s: {k: s[k] for k in s if ".q." not in k}, r"it lacks .*\.q\.weight.* \d+ others"),
        ("bolt", None, lambda s: {**s, "x.y": torch.ones(2)}, r"holds weights that its model has not got, x\.y$"),
        ("chronos2", lambda c: c.update(d_ff=16), None, "damaged: it holds weights of other shapes than its model, "),
        ("bolt", lambda c: c.pop("chronos_config"), None, "its config.json has no chronos_config"),
        *(
            (family, lambda c: c["chronos_config"].pop("context_length"), None, "cannot be opened .*'context_length'")
            for family in FAMILIES
        ),
        ("t5", lambda c: c["chronos_config"].update(more=1), None, "cannot be opened .*'more'"),
        ("chronos2", lambda c: c.update(d_model="wide"), None, "cannot be opened .*'d_model'"),
        ("t5", lambda c: c.update(chronos_pipeline_class="P"), None, "pipeline is 'P'; valid: ChronosPipeline, "),
        ("bolt", lambda c: c.update(model_type="bert"), None, "its model_type is 'bert'"),
        ("t5", lambda c: c["chronos_config"].update(model_type="causal"), None, "decoder-only Chronos models cannot"),
        *(
            (family, lambda c: c.update(_attn_implementation="a/b"), None, "a/b is no attention_implementation; valid")
            for family in FAMILIES
        ),
    ],
)
def test_folders_that_are_damaged_are_refused(
    family: str, config: Any, weights: Any, message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = changed(tmp_path / "model", family, config, weights)
    with caplog.at_level(logging.WARNING), pytest.raises(UserError, match=message) as caught:
        open_pipeline(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_damaged_are_refused(tmp_path: Path) -> None:
    folder = changed(tmp_path / "model", "bolt")
    (folder / "model.safetensors").write_bytes(b"12345678abc")
    with pytest.raises(UserError, match=r"cannot be opened as a Chronos model: .*header"):
        open_pipeline(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="holds no Chronos model in safetensors"):
        open_pipeline(folder)
    (folder / "config.json").write_text("{not json")
    with pytest.raises(UserError, match=r"holds no Chronos model in safetensors: .* not a valid JSON"):
        open_pipeline(folder)


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    def spoilt(state: dict[str, Tensor]) -> dict[str, Tensor]:
        next(iter(state.values())).view(-1)[3] = torch.nan
        return state

    with pytest.raises(UserError, match="model is damaged: it holds weights that are not finite"):
        open_pipeline(changed(tmp_path / "model", "chronos2", weights=spoilt))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_is_opened_as_its_own_package_does(family: str) -> None:
    from chronos import BaseChronosPipeline

    theirs, ours = BaseChronosPipeline.from_pretrained(weights_of(family)), open_pipeline(weights_of(family))
    assert type(theirs) is type(ours)
    assert type(theirs.inner_model) is type(ours.inner_model)
    assert theirs.inner_model.config.to_dict() == ours.inner_model.config.to_dict()
    assert theirs.inner_model.config._attn_implementation == ours.inner_model.config._attn_implementation
    assert not ours.inner_model.training
    assert torch.equal(forecast(theirs, series(60, 33)), forecast(ours, series(60, 33)))
    half = open_pipeline(weights_of(family), dtype="bfloat16").inner_model
    assert {weight.dtype for weight in half.parameters()} == {torch.bfloat16}
    assert tiny_pipeline(family).inner_model.state_dict().keys() == ours.inner_model.state_dict().keys()
