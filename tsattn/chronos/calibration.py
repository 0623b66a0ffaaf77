"""Calibration: swapped attentions learn to give what the original's give, from the original's own inputs on series."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from tsattn.checks import positive_number, whole_number
from tsattn.chronos.conversions import InputMoments
from tsattn.chronos.families import AttentionSite, ChronosFamily
from tsattn.chronos.swapped_attention import SwappedAttention, real_keys
from tsattn.errors import UserError

__all__ = ["HELD_OUT", "AttentionCall", "ContextWindows", "attention_calls", "calibrated", "errors_of", "input_moments"]

HELD_OUT = 5  # one series in so many, or the last part of so many of each series

_HELD_OUT_WINDOWS = 64
_MOMENT_WINDOWS, _BATCH = 256, 32


@dataclass(frozen=True)
class ContextWindows:
    """Windows of series `(length,)`, at most `length` values each, by the first and last end that may be drawn."""

    series: tuple[Tensor, ...]
    ends: tuple[tuple[int, int], ...]
    length: int

    @classmethod
    def of(cls, data: Any, family: ChronosFamily, sites: Sequence[AttentionSite]) -> ContextWindows:
        """Take all windows of `data`, a list of series, of a context and the future if the sites read it.

        Raises:
            UserError: for anything else, and series without a value.
        """
        rows = list(data) if isinstance(data, Sequence | Tensor) or hasattr(data, "__array__") else []
        try:
            series = tuple(torch.as_tensor(row, dtype=torch.float32).cpu() for row in rows)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError("data must be a list of series, each a row of numbers") from error
        if not series or any(row.dim() != 1 or not torch.isfinite(row).any() for row in series):
            raise UserError("data must be a list of series, each a row of numbers of which one at least is not missing")
        length = family.context_length + (family.steps_at_once if family.reads_future(sites) else 0)
        return cls(series, tuple((min(length, len(row)), len(row)) for row in series), length)

    def split(self) -> tuple[ContextWindows, ContextWindows]:
        """Windows to learn from, and others: of every fifth series; of fewer series, ends in their last fifth."""
        if len(self.series) >= HELD_OUT:
            learned, held = (
                [at for at in range(len(self.series)) if (at % HELD_OUT == HELD_OUT - 1) == is_held]
                for is_held in (False, True)
            )
            return self._only(learned), self._only(held)
        border = [last - max(1, (last - first) // HELD_OUT) for first, last in self.ends]
        early = tuple((min(first, at), max(at, 1)) for (first, _), at in zip(self.ends, border, strict=True))
        late = tuple((min(at + 1, last), last) for (_, last), at in zip(self.ends, border, strict=True))
        return ContextWindows(self.series, early, self.length), ContextWindows(self.series, late, self.length)

    def _only(self, chosen: Sequence[int]) -> ContextWindows:
        return ContextWindows(
            tuple(self.series[at] for at in chosen), tuple(self.ends[at] for at in chosen), self.length
        )

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` windows, every series alike: `(count, length)`, NaN in front of shorter ones."""
        windows = torch.full((count, min(self.length, max(last for _, last in self.ends))), torch.nan)
        for window, at in zip(windows, torch.randint(len(self.series), (count,), generator=generator), strict=True):
            first, last = self.ends[int(at)]
            end = int(torch.randint(first, last + 1, (), generator=generator))
            values = self.series[int(at)][max(0, end - len(window)) : end]
            window[len(window) - len(values) :] = values
        return windows


@dataclass(frozen=True)
class AttentionCall:
    """A call of an attention: tokens `(B, N, D)`, other arguments, output `(B, N, D)` and real tokens `(B, N)`."""

    tokens: Tensor
    others: dict[str, Any]
    output: Tensor
    real: Tensor


@torch.no_grad()
def attention_calls(family: ChronosFamily, sites: Sequence[AttentionSite], windows: Tensor) -> dict[str, AttentionCall]:
    """Record the call of the attention at each site, by its name, in float32, on windows `(B, length)`."""
    calls: dict[str, AttentionCall] = {}

    def recorder(site: AttentionSite) -> Any:
        def record(module: Any, args: tuple[Any, ...], others: dict[str, Any], output: Any) -> None:
            tokens = exact(args[0])
            real = real_keys(others.get("mask")) if site.stack == "encoder" else None
            if real is None:
                real = torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
            left_out = ("past_key_values", "output_attentions")
            kept = {name: exact(value) for name, value in others.items() if name not in left_out}
            calls[site.name] = AttentionCall(tokens, kept, exact(output[0]), real.expand(tokens.shape[:2]))

        return record

    def exact(value: Any) -> Any:
        return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value

    model = family.network
    was_training = model.training
    hooks = [model.get_submodule(site.path).register_forward_hook(recorder(site), with_kwargs=True) for site in sites]
    try:
        model.eval()
        family.run(windows, family.reads_future(sites))
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return calls


def input_moments(
    family: ChronosFamily, sites: Sequence[AttentionSite], data: Any, seed: int
) -> dict[str, InputMoments]:
    """The moments of the tokens at each site, over windows drawn from the data; special tokens are left out."""
    windows = ContextWindows.of(data, family, sites)
    generator = torch.Generator().manual_seed(seed)
    sums: dict[str, list[Tensor]] = {}
    for _ in range(_MOMENT_WINDOWS // _BATCH):
        for name, call in attention_calls(family, sites, windows.draw(_BATCH, generator)).items():
            real = call.real
            if name.startswith("encoder"):
                real = real[:, : real.shape[1] - family.special_tokens]
            x = call.tokens[:, : real.shape[1]][real].double()
            parts = [x.T @ x, x.sum(0), torch.tensor(len(x), dtype=torch.float64, device=x.device)]
            sums[name] = [old + new for old, new in zip(sums[name], parts, strict=True)] if name in sums else parts
    return {name: InputMoments(second / count, total / count) for name, (second, total, count) in sums.items()}


def calibrated(
    original: ChronosFamily,
    swapped: Mapping[str, SwappedAttention],
    data: Any,
    steps: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    held_out: Any,
) -> pd.DataFrame:
    """Train swapped attentions, by the names of their sites; see `AdaptedChronos.calibrate`."""
    steps, batch_size = whole_number("steps", steps), whole_number("batch_size", batch_size)
    rate = positive_number("learning_rate", learning_rate)
    sites = original.chosen_sites([*swapped])
    training = ContextWindows.of(data, original, sites)
    if held_out is None:
        training, checked = training.split()
    else:
        checked = ContextWindows.of(held_out, original, sites)
    generator = torch.Generator().manual_seed(seed)
    check = attention_calls(original, sites, checked.draw(_HELD_OUT_WINDOWS, torch.Generator().manual_seed(seed)))
    students = _students(original, swapped)
    before = _errors(students, check)
    weights = [weight for student in students.values() for weight in student.attention.parameters()]
    for weight in weights:
        weight.requires_grad_(True)
    optimizer = torch.optim.Adam([{"params": [weight], "lr": rate * _size(weight)} for weight in weights])
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, 10 * (step + 1) / steps) * (1 + math.cos(math.pi * step / steps)) / 2
    )
    for _ in range(steps):
        calls = attention_calls(original, sites, training.draw(batch_size, generator))
        optimizer.zero_grad(set_to_none=True)
        with torch.enable_grad():
            loss = torch.stack([_loss(students[name], call) for name, call in calls.items()]).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    after = _errors(students, check)
    for name, module in swapped.items():
        if after[name] < before[name]:
            module.attention.load_state_dict(students[name].attention.state_dict())
    rows = [(name, before[name], min(before[name], after[name])) for name in swapped]
    return pd.DataFrame(rows, columns=["layer", "before", "after"])


def errors_of(original: ChronosFamily, swapped: Mapping[str, SwappedAttention], data: Any, seed: int) -> pd.Series:
    """See `AdaptedChronos.output_errors`."""
    sites = original.chosen_sites([*swapped])
    windows = ContextWindows.of(data, original, sites)
    calls = attention_calls(original, sites, windows.draw(_HELD_OUT_WINDOWS, torch.Generator().manual_seed(seed)))
    return pd.Series(_errors(_students(original, swapped), calls), name="error")


def _students(original: ChronosFamily, swapped: Mapping[str, SwappedAttention]) -> dict[str, SwappedAttention]:
    """Copies of the swapped attentions in float32, for the tokens that the original is given."""
    students = {name: copy.deepcopy(module).float().eval() for name, module in swapped.items()}
    for student in students.values():
        if student.layout is not None:
            student.layout.special_tokens = original.special_tokens
    return students


def _loss(student: SwappedAttention, call: AttentionCall) -> Tensor:
    """The squared error of the output over real tokens, as a share of the original's square."""
    found = student(call.tokens, **call.others)[0]
    error, whole = (found - call.output)[call.real].square().sum(), call.output[call.real].square().sum()
    share: Tensor = error / whole.clamp(min=torch.finfo(whole.dtype).tiny)
    return share


@torch.no_grad()
def _errors(students: Mapping[str, SwappedAttention], calls: Mapping[str, AttentionCall]) -> dict[str, float]:
    return {name: float(_loss(students[name], call).sqrt()) for name, call in calls.items()}


def _size(weight: nn.Parameter) -> float:
    """The root mean square of a tensor, or a small one where it is zero."""
    return float(weight.detach().square().mean().sqrt()) or 1e-3
