"""What a suite says of itself beside its runs, as its table of records keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tsattn.leaderboard.plan import Entry
from tsattn.leaderboard.planner import takes_attention
from tsattn.leaderboard.suite import Mix, Suite
from tsattn.leaderboard.suite_facts import SuiteFacts

__all__ = ["planned_facts"]


def planned_facts(
    suite: Suite, narrowed: Suite, entries: Sequence[Entry], run_here: Iterable[Entry], before: SuiteFacts
) -> SuiteFacts:
    """The facts of a suite.

    Args:
        suite: all of it.
        narrowed: the part of it that is run here, with what is run beside it.
        entries: planned, of both.
        run_here: those of the part: a mean is over their horizons.
        before: what an earlier table said, of data sets that are not run here.
    """
    applies = [entry for entry in entries if not entry.reason]
    datasets = dict.fromkeys(entry.dataset for entry in entries)
    horizons = {
        **_horizons(entries),
        **{name: some for name, some in before.horizons.items() if name in datasets},
        **_horizons(run_here),
    }
    seeds = {name: {entry.seed for entry in applies if entry.dataset == name} - {None} for name in datasets}
    return SuiteFacts(
        horizons,
        suite.fresh_seeds,
        suite.caveats,
        planned={name: sum(entry.dataset == name for entry in applies) for name in datasets},
        seeds={name: tuple(sorted(seed for seed in some if seed is not None)) for name, some in seeds.items()},
        kinds={name: one.kinds for name, one in {**suite.attentions, **narrowed.attentions}.items()},
        without={**_without(suite), **_without(narrowed)},
    )


def _horizons(entries: Iterable[Entry]) -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = {}
    for entry in entries:
        found.setdefault(entry.dataset, set()).add(entry.horizon)
    return {name: tuple(sorted(some)) for name, some in found.items()}


def _without(suite: Suite) -> dict[str, str]:
    """By predictor that takes an attention, the name of what it is without the part that does."""
    found = {}
    for name, arm in suite.predictors.items():
        if arm.mix is None and takes_attention(arm):
            found[name] = ""
        elif arm.mix is not None and arm.has_attentions:
            left = _left(suite, arm.mix)
            if len(left) < len(arm.mix.of):
                found[name] = _name_of(suite, left)
    return found


def _left(suite: Suite, mix: Mix) -> dict[str, float]:
    """The weight, of all that is left, of each member without an attention."""
    weights = dict(zip(mix.of, mix.weights or [1.0] * len(mix.of), strict=True))
    left = {name: weight for name, weight in weights.items() if not takes_attention(suite.predictors[name])}
    total = sum(left.values()) or 1.0
    return {name: weight / total for name, weight in left.items()}


def _name_of(suite: Suite, parts: dict[str, float]) -> str:
    """A predictor alone, the mix of the suite that weighs its members so, or how one would call it."""
    if len(parts) <= 1:
        return next(iter(parts), "")
    for name, arm in suite.predictors.items():
        if arm.mix is not None and set(arm.mix.of) == set(parts):
            weights = dict(zip(arm.mix.of, arm.mix.weights or [1.0] * len(arm.mix.of), strict=True))
            if all(abs(weights[part] / sum(weights.values()) - weight) < 1e-9 for part, weight in parts.items()):
                return name
    return "+".join(parts)
