"""Public data sets of which some of the windows for validation and testing are scored, as all would take long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from tsattn.data.public.public_data import PublicDataModule
from tsattn.data.splits import Recut, Split
from tsattn.errors import whole_number


class ThinnedDataModule(PublicDataModule):
    """A public data set of one series, of which each k-th window for validation and testing is scored.

    Neighbouring windows share all but one of their steps, and so nearly all of their errors: those that are left reach
    over the same time. This is not the benchmark's protocol, so the data set is called ``NAME_every_K``.
    """

    def __init__(self, name: str = "ETTm1", every: int = 4, **options: Any) -> None:
        super().__init__(name, **options)
        self.every = whole_number("every", every)
        self.name = f"{self.name}_every_{self.every}"
        self.rule = Recut(self.rule, self._thinned)

    def _thinned(self, split: Split) -> Split:
        return _ThinnedSplit(split.train_end, split.val_end, split.test_end, self.every)


@dataclass(frozen=True)
class _ThinnedSplit(Split):
    """Every `every`-th origin of the parts that are not trained on."""

    every: int = 1

    @override
    def origins(self, part: str, context_length: int, prediction_length: int) -> range:
        found = super().origins(part, context_length, prediction_length)
        return found if part == "train" else found[:: self.every]
