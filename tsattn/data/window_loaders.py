"""Loaders of windows for the device of a Trainer: cut in its memory, or on the host and sent in the background."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from tsattn.batch import Batch
from tsattn.data.batch_order import OrderedBatches, ShuffledBatches, TrainingLoader
from tsattn.data.future_windows import FutureWindows
from tsattn.data.windows import Series, WindowDataset

__all__ = ["HOST", "RESIDENT_ON", "WindowLoaders"]

HOST = torch.device("cpu")
RESIDENT_ON = ("cuda",)  # the types of devices in whose memory series may lie


class WindowLoaders:
    """Makes the loaders of one DataModule, and holds its series in the memory of the device where they are cut.

    Args:
        num_workers: processes of a loader; with any, windows are cut on the host.
        resident_gb: larger series, in GB, are cut on the host too.
    """

    def __init__(self, num_workers: int, resident_gb: float) -> None:
        self.num_workers = num_workers
        self.resident_gb = resident_gb
        self._held: tuple[Series, Series] | None = None  # on the host, on the device

    def placed(self, series: Series, device: torch.device) -> Series:
        """The series that windows for this device are cut from: in its memory, sent there once, or on the host."""
        if device.type not in RESIDENT_ON or self.num_workers or series.nbytes > self.resident_gb * 1e9:
            return series
        if self._held is None or self._held[0] is not series or self._held[1].device != device:
            self._held = series, series.to(device)
        return self._held[1]

    def free(self) -> None:
        """Free the memory of the device."""
        self._held = None

    def shuffled(
        self, windows: WindowDataset, batch_size: int, device: torch.device, process: tuple[int, int], total: int | None
    ) -> TrainingLoader:
        """Training windows in the order of torch's seed, see `ShuffledBatches`.

        Args:
            windows: of series that are `placed`.
            batch_size: windows in a batch of one process.
            device: that computes.
            process: the number of this process, and how many there are.
            total: batches in all, epoch after epoch; None ends with the epoch.
        """
        memory = self._memory_of(windows)
        batches = ShuffledBatches(len(windows), batch_size, torch.initial_seed(), *process, total, memory)
        return TrainingLoader(windows, batches, **self._options(device, memory))

    def in_order(
        self, windows: WindowDataset, numbers: range | NDArray[Any], batch_size: int, device: torch.device = HOST
    ) -> DataLoader[Batch]:
        """The windows of these numbers, ``(n,)``, in their order.

        Args:
            windows: of series that are `placed`, or on the host.
            numbers: which windows.
            batch_size: windows in a batch, at most.
            device: that computes.
        """
        memory = self._memory_of(windows)
        batches = OrderedBatches(numbers, batch_size, memory)
        return DataLoader(windows, batch_sampler=batches, **self._options(device, memory))  # type: ignore[arg-type]

    def beyond_the_end(self, windows: FutureWindows, batch_size: int) -> DataLoader[Batch]:
        """The windows whose horizons lie beyond the end of the data, on the host."""
        return DataLoader(windows, batch_size=batch_size, **self._options(HOST, None))

    def _memory_of(self, windows: WindowDataset) -> torch.device | None:
        """The device in whose memory the series lie that windows are cut from; None for those on the host."""
        is_held = self._held is not None and windows.series is self._held[1]
        return windows.series.device if is_held else None

    def _options(self, device: torch.device, memory: torch.device | None) -> dict[str, Any]:
        """Options of a loader for a device, of windows that are cut in the memory of one, or (None) on the host."""
        return {
            "num_workers": self.num_workers,
            "collate_fn": _as_is,
            # what is sent in the background must lie in page-locked memory
            "pin_memory": device.type == "cuda" and memory is None,
            "persistent_workers": self.num_workers > 0,
            # or each loader would draw a number from torch's generator, which dropout draws from
            "generator": torch.Generator(),
        }


def _as_is(batch: Any) -> Any:
    return batch
