"""Calibration: swapped attentions learn to give what the original's give, each from the original's own inputs."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from tsattn.checks import positive_number, whole_number
from tsattn.chronos.adapted_chronos import AdaptedChronos
from tsattn.chronos.converting.activations import AttentionCall, attention_calls, window_length
from tsattn.chronos.converting.context_windows import ContextWindows
from tsattn.chronos.swapped.swapped_attention import SwappedAttention
from tsattn.errors import UserError

__all__ = ["calibrate", "output_errors"]

HELD_OUT_WINDOWS = 64


def calibrate(
    adapted: AdaptedChronos,
    data: Any,
    *,
    steps: int = 300,
    batch_size: int = 32,
    learning_rate: float = 0.005,
    seed: int = 0,
    held_out: Any = None,
) -> pd.DataFrame:
    """Train the swapped attentions, layer by layer, to give the outputs of those that they replace.

    The original forecasts windows drawn from the data; each swapped attention gets the tokens that reached its
    original, and learns by the squared error of its output as a share of the square of the original's. No layer sees
    another's errors, and nothing else is trained, the relative bias neither. A layer that is no nearer to the original
    on windows held out (of every fifth series, or of the last fifth of fewer) keeps the weights that it had.

    Args:
        adapted: the model, with its original.
        data: series, as `predict` of the pipeline takes them.
        steps: of training, with Adam, at a rate that rises over the first tenth and falls along half a cosine.
        batch_size: windows a step.
        learning_rate: by about how much a step of Adam changes a weight at the height of the rate, as a share of the
            root mean square of its tensor.
        seed: of the windows.
        held_out: series like `data` that windows are held out of, in place of a part of `data`.

    Returns:
        Columns `layer`, `before`, `after`: the relative error of the outputs on the windows held out (see
        `output_errors`).

    Raises:
        UserError: for arguments that mean nothing, or a model that was loaded without its original.
    """
    steps, batch_size = whole_number("steps", steps), whole_number("batch_size", batch_size)
    rate = positive_number("learning_rate", learning_rate)
    training, checked = _windows(adapted, data, held_out)
    generator = torch.Generator().manual_seed(seed)
    check = _calls(adapted, checked.draw(HELD_OUT_WINDOWS, torch.Generator().manual_seed(seed)))
    # in float32, whatever the model is in, and apart from it until all is well
    students = _students(adapted)
    before = _errors(students, check)
    weights = {name: [*student.attention.parameters()] for name, student in students.items()}
    for weight in (weight for group in weights.values() for weight in group):
        weight.requires_grad_(True)
    groups = [{"params": [w], "lr": rate * _size(w)} for group in weights.values() for w in group]
    optimizer = torch.optim.Adam(groups)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, 10 * (step + 1) / steps) * (1 + math.cos(math.pi * step / steps)) / 2
    )
    for _ in range(steps):
        calls = _calls(adapted, training.draw(batch_size, generator))
        optimizer.zero_grad(set_to_none=True)
        with torch.enable_grad():
            loss = torch.stack([_loss(students[name], call) for name, call in calls.items()]).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    after = _errors(students, check)
    for name, module in adapted.swapped.items():
        if after[name] < before[name]:
            module.attention.load_state_dict(students[name].attention.state_dict())
    rows = [(name, before[name], min(before[name], after[name])) for name in adapted.swapped]
    return pd.DataFrame(rows, columns=["layer", "before", "after"])


def output_errors(adapted: AdaptedChronos, data: Any, *, seed: int = 0) -> pd.Series:
    """The relative error of the outputs of each swapped attention, by layer, from the original's inputs.

    The root of the summed squares of the difference over those of the original's output, over real tokens of windows
    drawn from the data.

    Raises:
        UserError: for a model that was loaded without its original.
    """
    original = adapted.restore()
    windows = ContextWindows.of(data, window_length(adapted.family, original, adapted.sites))
    calls = _calls(adapted, windows.draw(HELD_OUT_WINDOWS, torch.Generator().manual_seed(seed)))
    students = _students(adapted)
    return pd.Series(_errors(students, calls), name="error")


def _students(adapted: AdaptedChronos) -> dict[str, SwappedAttention]:
    """Copies of the swapped attentions in float32, for the tokens that the original is given."""
    students = {name: copy.deepcopy(module).float().eval() for name, module in adapted.swapped.items()}
    for student in students.values():
        if student.layout is not None:
            student.layout.special_tokens = adapted.family.special_tokens(adapted.original)
    return students


def _windows(adapted: AdaptedChronos, data: Any, held_out: Any) -> tuple[ContextWindows, ContextWindows]:
    if adapted.original is None:
        raise UserError("calibration needs the original, which a folder of an adapted model does not hold")
    length = window_length(adapted.family, adapted.original, adapted.sites)
    if held_out is None:
        return ContextWindows.of(data, length).split()
    return ContextWindows.of(data, length), ContextWindows.of(held_out, length)


def _calls(adapted: AdaptedChronos, windows: Tensor) -> dict[str, AttentionCall]:
    """What the original's attentions take and give, in float32."""
    calls = attention_calls(adapted.family, adapted.original, adapted.sites, windows)
    exact = {}
    for name, call in calls.items():
        others = {key: _float(value) for key, value in call.others.items()}
        exact[name] = AttentionCall(_float(call.tokens), others, _float(call.output), call.real)
    return exact


def _float(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


def _squares(student: SwappedAttention, call: AttentionCall) -> tuple[Tensor, Tensor]:
    """Of the error and of the original's output, summed over real tokens."""
    found = student(call.tokens, **call.others)[0]
    return (found - call.output)[call.real].square().sum(), call.output[call.real].square().sum()


def _loss(student: SwappedAttention, call: AttentionCall) -> Tensor:
    error, whole = _squares(student, call)
    return error / whole.clamp(min=torch.finfo(whole.dtype).tiny)


@torch.no_grad()
def _errors(students: Mapping[str, SwappedAttention], calls: Mapping[str, AttentionCall]) -> dict[str, float]:
    return {name: float(_loss(students[name], call).sqrt()) for name, call in calls.items()}


def _size(weight: nn.Parameter) -> float:
    """The root mean square of a tensor, or a small one where it is zero."""
    return float(weight.detach().square().mean().sqrt()) or 1e-3
