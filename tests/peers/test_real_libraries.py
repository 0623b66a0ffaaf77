"""The libraries themselves, where their environment is there: the forecasts are those of their own ways."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.peers.there import needs_peers
from tests.peers.toys import L, T, toy_data, toy_frame, training
from tsattn.peers.predictors import peers_python
from tsattn.predictors import build_predictor
from tsattn.predictors.base import Predictor
from tsattn.task import Output

pytestmark = [needs_peers, pytest.mark.slow]

SMALL: dict[str, dict[str, Any]] = {
    "PatchTST": {"hidden_size": 16, "n_heads": 2, "encoder_layers": 1, "linear_hidden_size": 16, "patch_len": 8},
    "NHITS": {"mlp_units": [[16, 16]] * 3, "scaler_type": "standard"},
    "DLinear": {},
    "iTransformer": {"hidden_size": 16, "n_heads": 2, "d_ff": 16},
    "TSMixer": {"ff_dim": 8},
}

THEIR_OWN_WAY = """
import json, sys
import numpy as np, pandas as pd
import neuralforecast.models
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import MQLoss
from safetensors.torch import load_file
asked = json.load(open("asked.json"))
L, T, levels = asked["L"], asked["T"], asked["levels"]
for name, arguments in asked["models"].items():
    kind = getattr(neuralforecast.models, name)
    sizes = dict(h=T, input_size=L, max_steps=1, logger=False, enable_progress_bar=False, **arguments)
    if levels:
        sizes |= dict(loss=MQLoss(quantiles=levels), valid_loss=MQLoss(quantiles=levels))
    if kind.MULTIVARIATE:
        sizes["n_series"] = 2
    table = pd.read_parquet(f"{name}-window.parquet")
    forecaster = NeuralForecast(models=[kind(**sizes)], freq=1)
    forecaster.fit(pd.concat([table.assign(ds=table.ds + L * number) for number in range(-4, 1)]))
    forecaster.models[0].load_state_dict(load_file(f"{name}.safetensors"))
    made = forecaster.predict(df=table).sort_values(["unique_id", "ds"])
    made.drop(columns=["unique_id", "ds"]).to_parquet(f"{name}-made.parquet")
"""


def fitted(model: str, levels: tuple[float, ...] = (), seed: int = 5, **more: Any) -> tuple[Predictor, Any, Any]:
    data = toy_data(toy_frame(500))
    predictor = build_predictor({"kind": "neuralforecast", "model": model, "arguments": {**SMALL[model], **more}})
    predictor.build(data.task, Output(levels), empty=True)
    facts = predictor.fit(data, replace(training({"max_steps": 6}), seed=seed))
    return predictor, next(iter(data.eval_dataloader("val"))), facts


@pytest.mark.parametrize("levels", [(), (0.1, 0.5, 0.9)], ids=["point", "quantiles"])
def test_a_window_is_forecast_as_the_library_itself_does(levels: tuple[float, ...], tmp_path: Path) -> None:
    made = {}
    for model in SMALL:
        predictor, windows, facts = fitted(model, levels)
        assert facts["training"]["steps"] == 6
        assert predictor.num_parameters == facts["parameters"] > 0
        made[model] = predictor(windows)[3].numpy().reshape(T, 2, -1)  # a window among others
        past = windows.past[3].numpy()
        table = pd.concat(pd.DataFrame({"unique_id": c, "ds": np.arange(L), "y": past[:, c]}) for c in range(2))
        table.to_parquet(tmp_path / f"{model}-window.parquet")
        (tmp_path / f"{model}.safetensors").write_bytes(predictor.state_dict()["fitted"].numpy().tobytes())
    (tmp_path / "asked.json").write_text(json.dumps({"L": L, "T": T, "levels": levels, "models": SMALL}))
    in_their_environment(THEIR_OWN_WAY, tmp_path)
    for model, found in made.items():
        expected = pd.read_parquet(tmp_path / f"{model}-made.parquet").to_numpy().reshape(2, T, -1).swapaxes(0, 1)
        np.testing.assert_allclose(found, np.sort(expected, -1), rtol=1e-4, atol=1e-5, err_msg=model)


def in_their_environment(code: str, folder: Path) -> None:
    said = subprocess.run([peers_python("it"), "-c", code], cwd=folder, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr


def test_a_training_repeats_by_its_seed() -> None:
    one, windows, _ = fitted("PatchTST", dropout=0.2)
    same, _, _ = fitted("PatchTST", dropout=0.2)
    other, _, _ = fitted("PatchTST", dropout=0.2, seed=6)
    assert torch.equal(one.state_dict()["fitted"], same.state_dict()["fitted"])
    assert not torch.allclose(one(windows), other(windows), rtol=1e-3)


def test_local_models_forecast_as_the_library_itself_does(tmp_path: Path) -> None:
    data = toy_data(toy_frame(300))
    predictor = build_predictor({"kind": "statsforecast", "model": "AutoETS", "context_length": 48})
    predictor.build(data.task, Output((0.1, 0.5, 0.9)))
    windows = next(iter(data.eval_dataloader("test", 48)))
    made = predictor(windows)[2].numpy()
    np.save(tmp_path / "past.npy", windows.past[2].numpy())
    code = f"""
import numpy as np
from statsforecast.models import AutoETS
past = np.load("past.npy")
made = [AutoETS(season_length=24).forecast(y=past[:, c], h={T}, level=[80]) for c in range(2)]
np.save("made.npy", np.stack([[one["lo-80"], one["mean"], one["hi-80"]] for one in made]))
"""
    in_their_environment(code, tmp_path)
    expected = np.load(tmp_path / "made.npy").transpose(2, 0, 1)
    np.testing.assert_allclose(made, expected, rtol=1e-3, atol=1e-3)
