"""The maps of the ridge: one for each channel, shrunk towards the map of all channels.

Shape letters: C channels, L context length, T prediction length, F columns of the season's waves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import product
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tsattn.ridge.window_products import Products, Waves, Windows

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule

CONTEXTS = (6, 12, 24, 48, 96, 192, 336, 512, 720, 1024)
"""Context lengths that are tried, up to a quarter of the training rows."""
PENALTIES = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7)
"""Penalties that are tried for the shared map, on the data's scale; the largest leave little but the last value."""
POOLINGS = (1e2, 1e3, 1e4)
"""Penalties that are tried on a channel's distance from the shared map."""
_QUARTER, _NEAR = 4, 1.1  # largest context is rows / 4; largest error of averaged maps, compared with the lowest
_FEW_WINDOWS, _BLOCKS = 30, 10  # validation windows, below which blocks of training windows are left out instead
_MOST_NUMBERS = 2**24  # C L T of maps of channels; beyond, all channels share one map
_KEPT_NUMBERS = 2**26  # numbers in sums of products that are kept in memory, not computed again


def possible_contexts(data: ForecastDataModule, longest: int | None = None) -> list[int]:
    """Return the lengths of `CONTEXTS`, or those below `longest` and itself, that leave rows to train on.

    They also leave rows before each part. If none does, the longest possible is returned.
    """
    lengths = CONTEXTS if longest is None else [*(one for one in CONTEXTS if one < longest), longest]
    T = data.prediction_length
    ends = sorted(split.train_end for split in data.splits)
    most = max(1, min([(ends[len(ends) // 2] - T) // _QUARTER, ends[-1] - T, *part_starts(data)]))
    return [length for length in lengths if length <= most] or [most]


def part_starts(data: ForecastDataModule) -> list[int]:
    """Return the rows before validation and test, of the series with most of a horizon there, then most rows."""
    bounds = [[split.bounds(part) for split in data.splits] for part in data.parts if part != "train"]
    T = data.prediction_length
    return [max((min(end - start, T), start) for start, end in one)[1] for one in bounds]


class _Sums:
    """Sums of products of a part by channel and context length; kept while they fit into memory."""

    def __init__(self, data: ForecastDataModule, part: str, lengths: Iterable[int]) -> None:
        self.lengths = sorted(lengths, reverse=True)
        longer = [None, *self.lengths[:-1]]
        self.windows = [Windows.of(data, part, *pair) for pair in zip(self.lengths, longer, strict=True)]
        self.channels, self.waves, self.T = data.contents[1].num_channels, Waves.of(data), data.prediction_length
        others = self.T + len(self.waves)
        sizes = [length + others for length in (self.lengths if part == "train" else self.lengths[:1])]
        self._keeps = 2 * self.channels * sum(size**2 for size in sizes) <= _KEPT_NUMBERS
        self._kept: dict[int, dict[int, Products]] = {}

    def of(self, channel: int) -> dict[int, Products]:
        """Products of a channel by context length, each of all windows of that length."""
        if channel in self._kept:
            return self._kept[channel]
        found, longer = dict[int, Products](), 0
        for length, windows in zip(self.lengths, self.windows, strict=True):
            parts = [found[longer].shortened(longer - length)] if longer else []
            if not parts or len(windows):
                parts.append(windows.products(channel, self.waves))
            found[length], longer = reduce(add, parts), length
        if self._keeps:
            self._kept[channel] = found
        return found

    def __iter__(self) -> Iterator[dict[int, Products]]:
        return map(self.of, range(self.channels))

    @cached_property
    def whole(self) -> dict[int, Products]:
        return reduce(lambda one, other: {length: one[length] + other[length] for length in one}, self)


Maps = list[dict[str, Any]]  # of each: context_length, penalty, pooling, mse_scaled; as facts of a fit have them
Pairs = list[tuple[dict[int, Products], dict[int, Products]]]  # for the fit, and for its error


def ridge_maps(
    data: ForecastDataModule,
    lengths: Sequence[int],
    penalties: Sequence[float] = PENALTIES,
    chosen: Maps | None = None,
) -> tuple[Maps, tuple[Tensor, Tensor, Tensor]]:
    """Return the maps that validation chooses among context lengths and penalties, and what `solve` says of them.

    Args:
        data: its training windows are solved for.
        lengths: context lengths to try.
        penalties: to try on the map that channels share.
        chosen: the maps that an earlier call chose, which are solved again.
    """
    if chosen is None:
        maps, train = choose(data, lengths, penalties)
    else:
        maps, train = [*chosen], _Sums(data, "train", {one["context_length"] for one in chosen})
    return maps, solve(train, maps)


def choose(data: ForecastDataModule, lengths: Sequence[int], penalties: Sequence[float]) -> tuple[Maps, _Sums]:
    """Return the maps whose mean is taken, best first, and the sums of the training windows."""
    train, held = _Sums(data, "train", lengths), None
    if "val" in data.parts and len(data.windows("val", max(lengths))) >= _FEW_WINDOWS:
        held = _Sums(data, "val", lengths)
    pairs: Pairs = _blocks(train) if held is None else [(train.whole, held.whole)]
    found = _near([_of_shared(pairs, length, penalties, train.T) for length in lengths])
    fits = train.channels * max(one["context_length"] for one in found) * train.T <= _MOST_NUMBERS
    if held is not None and train.channels > 1 and fits:
        found = _near(_of_channels(train, held, pairs[0][0], found))
    return found, train


def _near(ways: Maps) -> Maps:
    """The maps with errors near the lowest, best first."""
    lowest = min(one["mse_scaled"] for one in ways)
    near = [one for one in ways if one["mse_scaled"] <= _NEAR * lowest]
    return sorted(near, key=itemgetter("mse_scaled"))


def best_context(data: ForecastDataModule, lengths: Sequence[int], penalties: Sequence[float]) -> int:
    """Return the length of the shared map with the least squared error on validation windows."""
    train, held = (_Sums(data, part, lengths) for part in ("train", "val"))
    pairs = [(train.whole, held.whole)]
    found = [_of_shared(pairs, length, penalties, train.T) for length in lengths]
    return int(min(found, key=itemgetter("mse_scaled"))["context_length"])


def _blocks(train: _Sums) -> Pairs:
    """Each block of the longest context's windows, after all windows that share no rows with it.

    Source: Racine, *hv-block cross-validation* (Journal of Econometrics, 2000).
    """
    longest = train.lengths[0]
    blocks: list[dict[int, Products]] = []
    for windows in train.windows[0].blocks(_BLOCKS):
        whole = reduce(add, (windows.products(channel, train.waves) for channel in range(train.channels)))
        blocks.append({length: whole.shortened(longest - length) for length in train.lengths})
    pairs: Pairs = []
    for place, held in enumerate(blocks):
        rest = [one for other, one in enumerate(blocks) if abs(other - place) > 1]
        pairs.append(({length: reduce(add, (one[length] for one in rest)) for length in held}, held))
    return pairs


def _of_shared(pairs: Pairs, length: int, penalties: Sequence[float], T: int) -> dict[str, Any]:
    """The shared map of a context length with the best penalty, tried from the middle outwards while errors fall."""
    sides = [[products[length].centred(length, T) for products in pair] for pair in pairs]
    errors: dict[float, float] = {}
    middle = len(penalties) // 2
    for outwards in (penalties[middle:], penalties[:middle][::-1]):
        for penalty in outwards:
            errors[penalty] = sum(test.squared_error(fit.solve(penalty)) for fit, test in sides)
            if errors[penalty] > min(errors.values()):
                break
    penalty, count = min(errors, key=errors.__getitem__), sum(test.count for _, test in sides)
    error = errors[penalty] / max(1, count)
    return {"context_length": length, "penalty": penalty, "pooling": None, "mse_scaled": error}


def _of_channels(train: _Sums, held: _Sums, whole: Mapping[int, Products], choices: Maps) -> Maps:
    """Each choice with its best pooling, or without pooling."""
    errors: dict[tuple[int, float], float] = dict.fromkeys(product(range(len(choices)), POOLINGS), 0.0)
    shared, count = _shared(whole, choices, train.T), 0
    for products, others in zip(train, held, strict=True):
        count += others[held.lengths[0]].windows * train.T
        for place, (choice, towards) in enumerate(zip(choices, shared, strict=True)):
            equations, other = (
                one[choice["context_length"]].centred(choice["context_length"], train.T) for one in (products, others)
            )
            for pooling in POOLINGS:
                errors[place, pooling] += other.squared_error(equations.solve(pooling, towards))
    found: Maps = []
    for place, choice in enumerate(choices):
        own = [{**choice, "pooling": one, "mse_scaled": errors[place, one] / max(1, count)} for one in POOLINGS]
        found.append(min(choice, *own, key=itemgetter("mse_scaled")))
    return found


def _shared(whole: Mapping[int, Products], choices: Maps, T: int) -> list[Tensor]:
    lengths = [choice["context_length"] for choice in choices]
    return [whole[L].centred(L, T).solve(one["penalty"]) for L, one in zip(lengths, choices, strict=True)]


def solve(train: _Sums, choices: Maps) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean maps, as `LinearMaps` has them: `(C or 1, L, T)`, `(C or 1, F, T)`, and the period."""
    whole, longest = train.whole, max(choice["context_length"] for choice in choices)
    shared = _shared(whole, choices, train.T)
    alone = all(choice["pooling"] is None for choice in choices)
    weight = torch.zeros(1 if alone else train.channels, longest, train.T, dtype=torch.float64)
    waves = torch.zeros(len(weight), len(train.waves), train.T, dtype=torch.float64)
    for channel, products in enumerate([whole] if alone else train):
        for choice, towards in zip(choices, shared, strict=True):
            own, length = towards, choice["context_length"]
            if choice["pooling"] is not None:
                own = products[length].centred(length, train.T).solve(choice["pooling"], towards)
            weight[channel, longest - length :] += own[:length] / len(choices)
            waves[channel] += own[length:] / len(choices)
    return weight, waves, torch.tensor(train.waves.period)
