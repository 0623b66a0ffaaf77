"""The predictors that the contract is tested on. A new one adds its descriptions here and inherits every test."""

from __future__ import annotations

from typing import Any

import torch

from tests.chronos.tiny_models import weights_of
from tests.peers.toys import toy_data, toy_frame, training
from tests.toy_windows import toy_windows
from tsattn.batch import Batch
from tsattn.data import FrameDataModule
from tsattn.peers.predictors import NeuralForecast
from tsattn.predictors import Predictor, build_predictor
from tsattn.task import Output, Task

SMALL = {"d_model": 16, "num_heads": 2}
NETWORK = {"kind": "patchtst", "patch_len": 5, **SMALL}

CASES: dict[str, dict[str, Any]] = {
    "auto": {"kind": "auto", "context_length": 30},
    "auto-members": {"kind": "auto", "members": ["persistence", NETWORK, {"kind": "persistence"}], "seeds": 2},
    "ridge": {"kind": "ridge"},
    "ridge-own-context": {"kind": "ridge", "penalty": 1.0, "context_length": 11},
    "seasonal_naive": {"kind": "seasonal_naive"},
    "persistence": {"kind": "persistence"},
    "window_mean": {"kind": "window_mean"},
    "ridge-longer": {"kind": "ridge", "penalty": 10.0, "context_length": 31},
    "theta": {"kind": "theta", "context_length": 31},
    "ets": {"kind": "ets", "context_length": 31},
    "dlinear": {"kind": "dlinear"},
    "nlinear": {"kind": "nlinear", "individual": True},
    "itransformer": {"kind": "itransformer", **SMALL},
    "network": {**NETWORK, "calendar": True},
    "ensemble": {
        "kind": "ensemble",
        "members": ["ridge", {**NETWORK, "context_length": 31, "loss": "mae"}, "seasonal_naive"],
        "weights": [1, 2, 0.5],
        "seeds": 2,
    },
    "ensemble-networks": {"kind": "ensemble", "members": [NETWORK, {"kind": "transformer", **SMALL}]},
    "chronos": {"kind": "chronos", "weights": weights_of("bolt"), "context_length": 11},
    "tiny": {"kind": "tiny", "context_length": 30},
    "neuralforecast": {"kind": "neuralforecast", "model": "DLinear", "arguments": {"moving_avg_window": 3}},
    "neuralforecast-together": {
        "kind": "neuralforecast",
        "model": "iTransformer",
        "arguments": {"hidden_size": 16, "n_heads": 2, "d_ff": 16},
    },
    "statsforecast": {"kind": "statsforecast", "model": "AutoETS"},
}

PEERS = ("neuralforecast", "neuralforecast-together", "statsforecast")  # which run in an environment of their own

IN_FLOAT32 = (*PEERS, "chronos", "tiny", "auto")  # whatever the dtype of the windows

WITH_WEIGHTS = ("tiny",)  # whose state a fit need not leave

# whose forecasts have waves of the calendar, which do not grow with the window
BY_TIME = ("ridge", "ridge-own-context", "ridge-longer", "ensemble")

# whose forecasts move and grow with the window; `tiny` and local models know where 0 is
WITH_ZERO = ("theta", "ets", "tiny", "auto")
EQUIVARIANT = tuple(case for case in CASES if case not in (*PEERS, *BY_TIME, *WITH_ZERO, "dlinear", "nlinear"))

# which attend to channels, and need two of them
OF_CHANNELS = ("itransformer",)


def build(case: str, task: Task, output: Output = Output(), *, seed: int = 0) -> Predictor:
    """The predictor of a case, float64 and in eval mode, with random numbers for what a fit finds."""
    predictor = build_predictor(CASES[case])
    predictor.build(task, output)
    if isinstance(predictor, NeuralForecast):
        predictor.fit(_toy_data(task), training({"max_steps": 1}))
        return predictor.eval()
    generator = torch.Generator().manual_seed(seed)
    state = predictor.state_dict()
    # a whole number is what was chosen: a length; an extra state are shares
    drawn = {
        name: 0.3 * torch.randn(part.shape, generator=generator).double()
        if part.is_floating_point() and name != "_extra_state"
        else part
        for name, part in state.items()
    }
    predictor = predictor.double().eval()
    predictor.load_state_dict(drawn)
    return predictor


def _toy_data(task: Task) -> FrameDataModule:
    """Data of the sizes of a task."""
    sizes = {"context_length": task.context_length, "prediction_length": task.prediction_length}
    return toy_data(toy_frame(400, task.num_channels), **sizes)


def windows_for(predictor: Predictor, count: int = 4, **options: Any) -> Batch:
    """Random windows with as much context as it looks at, and what its task names."""
    task = predictor.task
    extra = predictor.context_length - task.context_length + options.pop("extra", 0)
    return toy_windows(task, count, extra=extra, **options)
