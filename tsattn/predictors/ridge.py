"""Ridge regression in closed form: a map for each channel, shrunk towards the map of all channels.

Shape letters: B windows, C channels, L context length, T prediction length, F columns of the calendar.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.errors import UserError, number_of, positive_number, whole_number
from tsattn.predictors.base import Predictor, last_context
from tsattn.predictors.window_products import Products, Waves, Windows, wave_columns
from tsattn.task import Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training

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


def ridge_label(contexts: Iterable[int], name: str = "ridge") -> str:
    """Return a label that tells ridges apart in tables: ``ridge (context 104)``."""
    lengths = sorted(set(contexts))
    context = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    return f"{name} (context {context})"


class ClosedForm(Predictor):
    """A linear map of the context, of a size that a fit chooses; in float64 whatever is cast around it."""

    weight: Tensor  # (..., L, T)

    @property
    @override
    def label(self) -> str:
        return ridge_label([self.context_length], self.name.replace("_", " "))

    @override
    def check_weights(self, data: ForecastDataModule) -> None:
        pass

    @property
    @override
    def context_length(self) -> int:
        return self.weight.shape[-2]

    @override
    def _load_from_state_dict(self, state_dict: Mapping[str, Tensor], prefix: str, *others: Any) -> None:
        for name, own in self.named_buffers():
            if (given := state_dict.get(prefix + name)) is not None and given.dim() == own.dim():
                setattr(self, name, own.new_empty(given.shape))
        super()._load_from_state_dict(state_dict, prefix, *others)

    @override
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ClosedForm:
        # a precision for the networks of an ensemble does not suit a solution of equations
        super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)  # type: ignore[no-untyped-call]
        return self


class Ridge(ClosedForm):
    """One linear map per channel, of the context minus its last value and the season's waves at the origin; float64.

    It is the mean of the maps of several context lengths: all whose squared error on validation windows is within a
    tenth of the lowest. For each length these windows choose two penalties: on the map that all channels
    share, and on a channel's distance from it. Series share the map of their channel.

    With fewer than 30 validation windows, blocks of training windows are left out in turn instead. Then all channels
    share one map, as they do where their own maps would have more than 16 million numbers.

    It uses no covariates, and leaves them unread. A window counts by the mean weight of its targets, and not at all if
    a target has weight 0 or is missing. In the package's tests of earlier windows, choosing the centre of a window or
    longer waves as well raised the error.

    Args:
        context_length: L; None tries several up to 1024, a quarter of the training rows at most.
        penalty: on the squared coefficients of the map that channels share, on the scale of the data; None tries
            several.
    """

    weight: Tensor  # (C or 1, L, T), of windows less their last values
    waves: Tensor  # (C or 1, F, T)
    period: Tensor  # of the season, see `Waves`

    def __init__(self, *, context_length: int | None = None, penalty: float | None = None) -> None:
        super().__init__(context_length=context_length, penalty=penalty)
        self._own_length = None if context_length is None else whole_number("context_length", context_length)
        self._penalties = PENALTIES if penalty is None else (positive_number("penalty", penalty),)

    @override
    def with_context(self, context_length: int) -> Predictor:
        return self if self._own_length else type(self)(**{**self.arguments, "context_length": context_length})

    @property
    @override
    def num_parameters(self) -> int:
        return self.weight.numel() + self.waves.numel()

    @property
    @override
    def summary(self) -> str:
        return f"ridge (context {self._own_length or 'chosen'}), in closed form"

    @property
    def reads_time(self) -> bool:
        """Whether its forecasts depend on time stamps."""
        return self.waves.shape[1] > 0

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        super().build(task, output, empty=empty)
        # NaN before the fit, so that a forecast without a fit cannot be taken for one
        C, T, device = task.num_channels, task.prediction_length, torch.device("meta" if empty else "cpu")
        sizes = {"weight": self._own_length or task.context_length, "waves": len(Waves(task.season_length))}
        for name, size in sizes.items():
            self.register_buffer(name, torch.full((C, size, T), math.nan, dtype=torch.float64, device=device))
        self.register_buffer("period", torch.zeros((), dtype=torch.int64, device=device))

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        """Solve for all training windows, the ``chosen`` maps with their validation errors."""
        member, chosen = training.member, training.choices.get(training.member)
        facts: dict[str, Any] = {"member": member} if member else {}
        if chosen is None:
            lengths = [self._own_length] if self._own_length else possible_contexts(data, CONTEXTS)
            maps, train = choose(data, lengths, self._penalties)
            facts["chosen"] = {"maps": maps}
            label = ridge_label(one["context_length"] for one in maps)
            line = f"{label}: mean of {number_of(len(maps), 'map')}, MSE {maps[0]['mse_scaled']:.4g} at best"
            training.say(f"{member}: {line}" if member else line)
        else:
            maps = [*chosen["maps"]]
            train = _Sums(data, "train", {one["context_length"] for one in maps})
        self.weight, self.waves = solve(train, maps)
        self.period = torch.tensor(train.waves.period)
        return facts

    @override
    def forward(self, batch: Batch) -> Tensor:
        window = last_context(batch, self.context_length)
        past = window.past.double()
        level = past[:, -1:]
        if window.past_observed is not None:
            counted = window.past_observed.long().cumsum(1)  # steps before the first known value say nothing
            past = torch.where((counted > 0) | (counted[:, -1:] == 0), past, level)
        forecast = ((past - level).permute(2, 0, 1) @ self.weight).permute(1, 2, 0) + level
        if not self.reads_time:
            return forecast
        if batch.time is None:
            raise UserError("this ridge uses the calendar and needs time stamps: give batches with time")
        columns = wave_columns(batch.time[:, batch.past.shape[1]], self.period, self.waves.shape[1])
        return forecast + torch.einsum("bf,cft->btc", columns, self.waves)


def possible_contexts(data: ForecastDataModule, lengths: Iterable[int]) -> list[int]:
    """Return the lengths that leave rows to train on, and rows before each part; the longest possible if none does."""
    T = data.prediction_length
    ends = sorted(split.train_end for split in data.splits)
    starts = [max(split.bounds(part)[0] for split in data.splits) for part in data.parts if part != "train"]
    most = max(1, min([(ends[len(ends) // 2] - T) // _QUARTER, ends[-1] - T, *starts]))
    return [length for length in lengths if length <= most] or [most]


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

    def whole(self) -> dict[int, Products]:
        return reduce(lambda one, other: {length: one[length] + other[length] for length in one}, self)


Maps = list[dict[str, Any]]  # as facts of a fit have them
Pairs = list[tuple[dict[int, Products], dict[int, Products]]]  # for the fit, and for its error


def choose(data: ForecastDataModule, lengths: Sequence[int], penalties: Sequence[float]) -> tuple[Maps, _Sums]:
    """Return the maps whose mean is taken, best first, and the sums of the training windows."""
    train, held = _Sums(data, "train", lengths), None
    if "val" in data.parts and len(data.windows("val", max(lengths))) >= _FEW_WINDOWS:
        held = _Sums(data, "val", lengths)
    pairs: Pairs = _blocks(train) if held is None else [(train.whole(), held.whole())]
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
    pairs = [(train.whole(), held.whole())]
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


def solve(train: _Sums, choices: Maps) -> tuple[Tensor, Tensor]:
    """Return the mean maps: of windows minus their last values, `(C or 1, L, T)`, and of the waves."""
    whole, longest = train.whole(), max(choice["context_length"] for choice in choices)
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
    return weight, waves
