"""Batches of windows: which windows each holds, shuffled for training, in order for evaluation, and where it is cut.

The order of training is new each epoch, known from a seed, and resumable at any batch. For series that lie in the
memory of a device the numbers of the windows lie there too, so that no batch makes the host wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from tsattn.batch import Batch
from tsattn.data.windows import WindowDataset

__all__ = ["HOST", "RESIDENT_ON", "OrderedBatches", "ShuffledBatches", "TrainingLoader", "spread", "whole_batch"]

HOST = torch.device("cpu")
RESIDENT_ON = ("cuda",)  # the types of devices in whose memory series may lie
_PERMUTED = 10_000_000  # a shuffled list of more windows would take more memory than the data
_DRAWN = 1000  # batches that are drawn at once where there are more

Numbers: TypeAlias = NDArray[np.int64] | Tensor


@dataclass(eq=False)
class ShuffledBatches(Sampler[Numbers]):
    """The numbers of the windows of each training batch, in an order that seed and epoch alone decide.

    Of more than ten million windows, as many are drawn at random, with replacement. Of several processes each takes its
    share of every batch; of the last batch of an epoch, what cannot be shared out evenly is left out. With `total`, it
    gives so many batches, epoch after epoch. `position` batches are left out, counted through the epochs.
    """

    num_windows: int
    batch_size: int
    seed: int
    rank: int = 0
    world_size: int = 1
    total: int | None = None
    device: torch.device | None = None
    epoch: int = field(default=0, init=False)
    position: int = field(default=0, init=False)

    @property
    def epoch_length(self) -> int:
        """Batches in an epoch; a last, smaller one has windows for each process."""
        whole, rest = divmod(self.num_windows, self.batch_size * self.world_size)
        return whole + (rest >= self.world_size)

    @property
    def sampler(self) -> ShuffledBatches:
        """Itself: where Lightning looks for `set_epoch`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Shuffle for this epoch (called by Lightning at its start)."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.epoch_length if self.total is None else self.total

    def __iter__(self) -> Iterator[Numbers]:
        position, self.position = self.position, 0
        if self.total is None:
            yield from self._epoch(self.epoch, position, self.epoch_length)
        while self.total is not None and position < self.total:
            epoch, first = divmod(position, self.epoch_length)
            last = min(self.epoch_length, self.total - epoch * self.epoch_length)
            yield from self._epoch(epoch, first, last)
            position += last - first

    def _epoch(self, epoch: int, first: int, last: int) -> Iterator[Numbers]:
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) % 2**63)
        size = self.batch_size * self.world_size
        is_permuted = self.num_windows <= _PERMUTED
        # numbers are sent to a device many at a time, as each time it is waited for
        together = max(1, self.epoch_length) if is_permuted else _DRAWN
        for start in range(0, last, together):
            if is_permuted:
                numbers = torch.randperm(self.num_windows, generator=generator)
            else:
                count = min(together * size, self.num_windows - start * size)
                numbers = torch.randint(self.num_windows, (count,), generator=generator)
            if start + together <= first:
                continue
            some = numbers.numpy() if self.device is None else numbers.to(self.device)
            for number in range(max(first, start), min(last, start + together)):
                batch = some[(number - start) * size : (number - start + 1) * size]
                if self.world_size > 1:  # contiguous, or each search in it would copy it
                    mine = batch[: len(batch) // self.world_size * self.world_size][self.rank :: self.world_size]
                    batch = mine.contiguous() if isinstance(mine, Tensor) else np.ascontiguousarray(mine)
                yield batch


def spread(num_windows: int, most: int) -> range | NDArray[np.int64]:
    """The numbers of at most so many windows, rising: one drawn from each of `most` stretches, the same each time.

    At equal distances they might all be of the same hour, or of the same rows of each series.
    """
    if most >= num_windows:
        return range(num_windows)
    ends = np.arange(most + 1) * num_windows // most
    return np.random.default_rng(0).integers(ends[:-1], ends[1:])


@dataclass(eq=False)
class OrderedBatches(Sampler[Numbers]):
    """The numbers `(n,)` of the windows of each batch, in order: tensors on a device, or arrays."""

    windows: range | NDArray[np.int64]
    batch_size: int
    device: torch.device | None = None

    def __len__(self) -> int:
        return -(-len(self.windows) // self.batch_size)

    def __iter__(self) -> Iterator[Numbers]:
        for start in range(0, len(self.windows), self.batch_size):
            some = np.asarray(self.windows[start : start + self.batch_size])
            yield some if self.device is None else torch.as_tensor(some, device=self.device)


class TrainingLoader(DataLoader[Batch]):
    """Shuffled training windows; a checkpoint knows how many batches were seen."""

    def __init__(self, windows: WindowDataset, batches: ShuffledBatches, **options: Any) -> None:
        super().__init__(windows, batch_sampler=batches, **options)  # type: ignore[arg-type]  # arrays, not lists
        self.batches = batches
        self._seen = 0
        self._resumed = 0

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        # as a generator, it starts with the first batch, when it is known which batches were seen before
        self._seen, self._resumed = self._resumed, 0
        self.batches.position = self._seen
        for batch in super().__iter__():
            self._seen += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """The number of batches seen, for a checkpoint."""
        return {"seen": self._seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resume after these batches."""
        self._resumed = state["seen"]


def whole_batch(batch: Any) -> Any:
    """Collate what is a batch already."""
    return batch
