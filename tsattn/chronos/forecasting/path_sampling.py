"""How paths are drawn by families that draw any: each series by itself, whatever it is forecast with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from typing_extensions import override

__all__ = ["Sampling"]


class Sampling:
    """Paths that are drawn.

    Args:
        paths: for each series; as many as the model says by default.
        seed: of every series: it gets the paths that its pipeline draws for it alone after `torch.manual_seed(seed)`.
    """

    def __init__(self, paths: int | None, seed: int) -> None:
        self.paths = paths
        self.seed = seed

    @contextlib.contextmanager
    def of_series(self, count: int, device: torch.device) -> Iterator[None]:
        """Tokens of so many series at once are drawn thus inside; PyTorch's own generators stay as they are."""
        with _AlikeForEachSeries(count, torch.Generator(device).manual_seed(self.seed)):
            yield


class _AlikeForEachSeries(TorchFunctionMode):
    """In the place of `torch.multinomial`, whose draws for a row depend on those before it.

    Args:
        count: series, whose paths are blocks of rows.
        generator: of the draws for one of them.
    """

    def __init__(self, count: int, generator: torch.Generator) -> None:
        super().__init__()
        self.count = count
        self.generator = generator

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.multinomial:
            return self._drawn(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _drawn(self, probabilities: Tensor, num_samples: int) -> Tensor:
        """One token `(R, 1)` for each row of `(R, V)`, drawn as PyTorch draws one: the first of exponential waits."""
        assert num_samples == 1, "a path goes on by one token at a time"
        each = probabilities.view(self.count, -1, probabilities.shape[-1])
        waits = torch.empty_like(each[0]).exponential_(generator=self.generator)
        tokens: Tensor = (each / waits).argmax(-1)
        return tokens.flatten()[:, None]
