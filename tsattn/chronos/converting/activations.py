"""What reaches the self-attentions of a Chronos model on real contexts, and what they make of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tsattn.chronos.converting.context_windows import ContextWindows
from tsattn.chronos.models.families import AttentionSite, ChronosFamily
from tsattn.chronos.swapped.swapped_attention import real_keys

__all__ = ["AttentionCall", "InputMoments", "attention_calls", "input_moments", "reads_future", "window_length"]

BATCH = 32
MOMENT_WINDOWS = 256


@dataclass(frozen=True)
class AttentionCall:
    """One call of a self-attention.

    Attributes:
        tokens: `(B, N, D)`, what it was given.
        others: the other arguments, by name.
        output: `(B, N, D)`.
        real: `(B, N)` bool, tokens that are seen.
    """

    tokens: Tensor
    others: dict[str, Any]
    output: Tensor
    real: Tensor


@dataclass(frozen=True)
class InputMoments:
    """Of the tokens of a context that reach an attention, in float64.

    Attributes:
        second: `(D, D)`, the mean of `x x^T`.
        mean: `(D,)`.
    """

    second: Tensor
    mean: Tensor

    @classmethod
    def of_noise(cls, width: int) -> InputMoments:
        """Those of white noise, where nothing is known of the tokens."""
        return cls(torch.eye(width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64))

    @property
    def covariance(self) -> Tensor:
        """`(D, D)`."""
        return self.second - self.mean[:, None] * self.mean


def window_length(family: ChronosFamily, pipeline: Any, sites: Sequence[AttentionSite]) -> int:
    """Values that a window of data has at most: a context, and what a decoder of samples is to give after it."""
    future = pipeline.model_prediction_length if reads_future(family, sites) else 0
    return int(pipeline.model_context_length + future)


def reads_future(family: ChronosFamily, sites: Sequence[AttentionSite]) -> bool:
    """Whether sites lie in a decoder that is given the values to come."""
    return family.name == "t5" and any(site.stack in ("decoder", "cross") for site in sites)


@torch.no_grad()
def attention_calls(
    family: ChronosFamily, pipeline: Any, sites: Sequence[AttentionSite], windows: Tensor
) -> dict[str, AttentionCall]:
    """The call of the self-attention at each site, by its name, when a model is given windows `(B, length)`."""
    calls: dict[str, AttentionCall] = {}
    model = pipeline.inner_model
    was_training = model.training
    model.eval()
    try:
        with contextlib.ExitStack() as stack:
            for site in sites:
                stack.enter_context(_recorded(model, site, calls))
            family.run(pipeline, windows, reads_future(family, sites))
    finally:
        model.train(was_training)
    return calls


@contextlib.contextmanager
def _recorded(model: Any, site: AttentionSite, calls: dict[str, AttentionCall]) -> Iterator[None]:
    def record(module: Any, args: tuple[Any, ...], others: dict[str, Any], output: Any) -> None:
        tokens, mask = args[0], others.get("mask")
        real = real_keys(mask) if site.stack == "encoder" else None
        if real is None:
            real = torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
        kept = {name: value for name, value in others.items() if name not in ("past_key_values", "output_attentions")}
        calls[site.name] = AttentionCall(tokens, kept, output[0], real.expand(tokens.shape[:2]))

    handle = model.get_submodule(site.path).register_forward_hook(record, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def input_moments(
    family: ChronosFamily, pipeline: Any, sites: Sequence[AttentionSite], data: Any, seed: int
) -> dict[str, InputMoments]:
    """The moments of the tokens at each site, over windows drawn from the data; special tokens are left out."""
    windows = ContextWindows.of(data, window_length(family, pipeline, sites))
    generator = torch.Generator().manual_seed(seed)
    sums: dict[str, list[Tensor]] = {}
    for _ in range(MOMENT_WINDOWS // BATCH):
        for name, call in attention_calls(family, pipeline, sites, windows.draw(BATCH, generator)).items():
            real = call.real
            if name.startswith("encoder"):
                real = real[:, : real.shape[1] - family.special_tokens(pipeline)]
            x = call.tokens[:, : real.shape[1]][real].double()
            parts = [x.T @ x, x.sum(0), torch.tensor(len(x), dtype=torch.float64, device=x.device)]
            sums[name] = [old + new for old, new in zip(sums[name], parts, strict=True)] if name in sums else parts
    return {name: InputMoments(second / count, total / count) for name, (second, total, count) in sums.items()}
