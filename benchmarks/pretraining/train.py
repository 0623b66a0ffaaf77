"""Pretrain `tiny` on series that are drawn as it goes, and on some real ones.

    python -m benchmarks.pretraining.train --output build/tiny --real real.parquet --steps 40000

Each batch is decided by the seed and its number. Begun again, the script goes on after its last checkpoint; with more
steps it goes on from where the rate began to fall. Weights are averaged over the last steps. `choose.csv` has the
scores of these on real series that are not trained on (`real_series.py`). `tiny.safetensors` has the last of them; its
intervals are widened until those of 80 % cover 80 % of these series. Several descriptions of attention make a network
each, which see the same batches.
"""

from __future__ import annotations

import argparse
import copy
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.pretraining import corpus
from benchmarks.pretraining.evaluate import Array, Forecast, Group, compare, groups_of, summary
from tsattn.layers import at_levels
from tsattn.pretrained.guesses import Guesses, guess
from tsattn.pretrained.tiny import save_tiny
from tsattn.pretrained.tiny_network import LEVELS, LONGEST, OUTPUTS, STEPS, TinyNetwork, standardised

HORIZONS = (4, 6, 8, 8, 12, 12, 18, 24, 24, 30, 36, 48, 48, 64, 96)
LENGTHS = {64: 0.2, 128: 0.22, 256: 0.2, 512: 0.16, 1024: 0.12, 2048: 0.1}
"""Padded lengths of rows, and their shares; a row has at least half of its length, of the first one at least 16."""
TOGETHER = 16  # rows of one length
REAL = 0.35  # share of the rows that are real
WARM_UP, FALL = 300, 0.3  # steps until the full rate, and the share of all in which it falls to nothing
WIDTHS = np.arange(1.0, 1.31, 0.05)  # that are tried for the intervals
TRAINED_ON = ("weather", "exchange_rate", "national_illness", "co2")  # training parts of public cards

Real = list[tuple[Array, int]]
"""Series with their seasons."""


class Rows(IterableDataset[dict[str, Any]]):
    """Batches of contexts and targets, each decided by the seed and its number."""

    def __init__(self, seed: int, start: int, size: int, real: Real) -> None:
        self.seed, self.start, self.size, self.real = seed, start, size, real

    def __iter__(self) -> Iterator[dict[str, Any]]:
        step = self.start
        while True:
            yield batch(np.random.default_rng((self.seed, step)), self.size, self.real)
            step += 1


def batch(rng: np.random.Generator, size: int, real: Real) -> dict[str, Any]:
    """Draw contexts `(R, L)` with targets `(R, T)`, NaN where missing, and guess; fewer rows where they are long."""
    T, length = int(rng.choice(HORIZONS)), int(rng.choice([*LENGTHS], p=[*LENGTHS.values()]))
    size = max(TOGETHER, int(size * min(1.0, 512 / length)))
    least = max(16 if length == min(LENGTHS) else length // 2, min(2 * T, length // 2))
    contexts, targets, seasons = list[Array](), list[Array](), list[int]()
    while len(contexts) < size:
        n = int(np.exp(rng.uniform(np.log(least), np.log(length))))
        if real and rng.random() < REAL:
            rows, periods = zip(*(cut(rng, real, n + T) for _ in range(TOGETHER)), strict=True)
        else:
            rows, periods = corpus.draw(rng, TOGETHER, n + T)
        for row, period in zip(rows, periods, strict=True):
            is_known = np.isfinite(row)
            if is_known[:-T].sum() >= 4 and is_known[-T:].any() and np.nanmax(np.abs(row)) <= 1e15:
                contexts.append(np.concatenate([np.full(length + T - len(row), np.nan), row[:-T]]))
                targets.append(row[-T:])
                seasons.append(int(period))
    past, target = (torch.from_numpy(np.stack(part[:size])) for part in (contexts, targets))
    known, season = past.isfinite(), torch.tensor(seasons[:size])
    values, level, scale = standardised(past.nan_to_num(0.0), known, season)
    made = guess(values, known, season, T, (-level / scale).float())
    truth = ((target - level[:, None]) / scale[:, None]).float()
    return {"values": values, "known": known, "truth": truth, "season": season, "made": vars(made)}


def cut(rng: np.random.Generator, real: Real, length: int) -> tuple[NDArray[np.float64], int]:
    """Take a stretch of a real series, sometimes upside down, to a power, or with noise; its season may be unknown."""
    row, season = real[int(rng.integers(len(real)))]
    length = min(length, len(row))
    first = int(rng.integers(len(row) - length + 1))
    part = row[first : first + length].copy()
    if rng.random() < 0.1 and np.isfinite(part).all():
        part = part.max() + part.min() - part
    if rng.random() < 0.15 and np.nanmin(part) > 0:
        part = part ** rng.uniform(0.5, 1.6)
    if rng.random() < 0.2:
        part = part + np.nanstd(part) * rng.uniform(0.02, 0.5) * rng.standard_normal(length)
    return part, season if rng.random() < 0.9 else 1


def loss_of(network: TinyNetwork, given: dict[str, Any]) -> Tensor:
    """Mean quantile loss, in shares of the errors that seasonal naive makes and of the changes of the row."""
    values, truth, season = given["values"], given["truth"], given["season"]
    error = truth.nan_to_num(0.0)[..., None] - network(values, given["known"], Guesses(**given["made"]))
    counts, levels = truth.isfinite(), torch.tensor(LEVELS)
    number = counts.sum(1).clamp(min=1)
    pinball = 2 * torch.maximum(levels * error, (levels - 1) * error).mean(-1)
    place = values.shape[1] + torch.arange(truth.shape[1]) % season[:, None] - season[:, None]
    naive = values.gather(1, place.clamp(min=0))
    usual = ((truth.nan_to_num(0.0) - naive).abs() * counts).sum(1) / number
    row = (pinball * counts).sum(1) / number / (0.6 + 0.4 * usual)
    return torch.where(row < 4, row, 4 + (row - 3).clamp(min=1).log()).mean()


def forecasting(network: TinyNetwork) -> Forecast:
    """Make the function of a network for `compare`."""

    @torch.no_grad()
    def forecast(contexts: list[Array], season: int, horizon: int, levels: tuple[float, ...]) -> Array:
        found = np.empty((len(contexts), horizon, len(levels)))
        order = sorted(range(len(contexts)), key=lambda place: len(contexts[place]))
        for first in range(0, len(order), 32):
            some = order[first : first + 32]
            rows = [contexts[place][-LONGEST:] for place in some]
            longest = max(16, *map(len, rows))
            past = torch.tensor(np.stack([np.r_[np.full(longest - len(row), np.nan), row] for row in rows]))
            known, seasons = past.isfinite(), torch.full((len(rows),), season)
            values, level, scale = standardised(past.nan_to_num(0.0), known, seasons)
            made = guess(values, known, seasons, horizon, (-level / scale).float())
            quantiles = at_levels(network(values, known, made), LEVELS, levels)
            found[some] = (quantiles.double() * scale[:, None, None] + level[:, None, None]).numpy()
        return found

    return forecast


class Trainee:
    """A network that is trained, with its average, in a folder that holds its checkpoints."""

    def __init__(self, options: argparse.Namespace, attention: str, folder: Path) -> None:
        self.folder, self.steps = folder, options.steps
        names = ("real", "size", "rate", "seed", "width", "layers")
        self.options = {"attention": attention, **{name: str(getattr(options, name)) for name in names}}
        self.sizes = {"d_model": options.width, "num_layers": options.layers, "attention": yaml.safe_load(attention)}
        torch.manual_seed(options.seed)
        self.network = TinyNetwork(**self.sizes)
        self.averaged = copy.deepcopy(self.network).eval()
        hidden = [
            part
            for name, part in self.network.named_parameters()
            if part.ndim == 2 and not name.startswith(("head", "patches.0", "facts.0", "ahead.0"))
        ]
        others = [part for part in self.network.parameters() if all(part is not one for one in hidden)]
        self.optimizers = [
            torch.optim.Muon(hidden, lr=options.rate, weight_decay=0.02),
            torch.optim.AdamW(others, lr=0.15 * options.rate, weight_decay=0.02, betas=(0.9, 0.98)),
        ]
        self.step, self.seconds, self.losses = 0, 0.0, list[float]()
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "last.pt").exists():
            saved = torch.load(folder / "last.pt", weights_only=True)
            if saved["options"] != self.options:
                raise SystemExit(
                    f"{folder} was begun with {saved['options']}, not {self.options}: give another --output"
                )
            if saved["steps"] != options.steps:
                if not (folder / "stable.pt").exists() or saved["steps"] > options.steps:
                    raise SystemExit(
                        f"{folder} was to take {saved['steps']} steps: give those, or more from 0.7 of them on"
                    )
                saved = torch.load(folder / "stable.pt", weights_only=True)
            self.network.load_state_dict(saved["network"])
            self.averaged.load_state_dict(saved["averaged"])
            for optimizer, state in zip(self.optimizers, saved["optimizers"], strict=True):
                optimizer.load_state_dict(state)
            self.step, self.seconds = saved["step"], saved["seconds"]
        self.rates = [options.rate, 0.15 * options.rate]

    def train(self, given: dict[str, Any]) -> None:
        """Take one step."""
        began = time.process_time()
        share = min(1.0, (self.step + 1) / WARM_UP, (self.steps - self.step) / (FALL * self.steps))
        loss = loss_of(self.network, given)
        self.network.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        for optimizer, rate in zip(self.optimizers, self.rates, strict=True):
            optimizer.param_groups[0]["lr"] = share * rate
            if norm.isfinite():
                optimizer.step()
        with torch.no_grad():
            keep = min(0.998, (self.step + 1) / (self.step + 20))
            for mean, now in zip(self.averaged.parameters(), self.network.parameters(), strict=True):
                mean.lerp_(now, 1 - keep)
        self.step += 1
        self.losses.append(loss.item())
        self.seconds += time.process_time() - began

    def save(self, choose: list[Group]) -> None:
        """Write a checkpoint, the averaged weights and a line of scores."""
        state = {"network": self.network.state_dict(), "averaged": self.averaged.state_dict()}
        state |= {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}
        state |= {"step": self.step, "steps": self.steps, "seconds": self.seconds, "options": self.options}
        is_stable = self.step <= (1 - FALL) * self.steps
        for name in ("last", "stable") if is_stable else ("last",):
            torch.save(state, self.folder / "partial.pt")
            os.replace(self.folder / "partial.pt", self.folder / f"{name}.pt")
        found: dict[str, Any] = {"step": self.step, "loss": np.mean(self.losses), "seconds": round(self.seconds)}
        if choose:
            rows = compare(choose, forecasting(self.averaged))
            rows.round(4).to_csv(self.folder / "groups.csv", index=False)
            found |= summary(rows)
        log = self.folder / "choose.csv"
        pd.DataFrame([found]).round(5).to_csv(log, mode="a", header=not log.exists(), index=False)
        print(self.folder.name, {name: round(float(value), 4) for name, value in found.items()}, flush=True)
        self.losses.clear()


def widen(network: TinyNetwork, factor: float) -> None:
    """Multiply the distances of quantiles from the median."""
    with torch.no_grad():
        network.head.bias.view(STEPS, -1)[:, OUTPUTS[0] + OUTPUTS[1]] += float(np.log(factor))


def widened(network: TinyNetwork, choose: list[Group]) -> tuple[TinyNetwork, float]:
    """Widen the intervals by the factor whose intervals of 80 % cover closest to that."""
    made = []
    for factor in WIDTHS:
        other = copy.deepcopy(network)
        widen(other, factor)
        coverage = summary(compare(choose, forecasting(other)))["coverage_80"]
        made.append((abs(coverage - 0.8), float(factor), other))
    _, factor, best = min(made, key=lambda one: one[0])
    return best, round(factor, 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("build/tiny"))
    parser.add_argument("--real", type=Path, help="what real_series.py wrote")
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--size", type=int, default=128, help="rows of a batch of up to 512 steps")
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--attention", nargs="+", default=["standard"], help="of the encoder, a network each")
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--every", type=int, default=500, help="steps from one checkpoint to the next")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folders = [options.output / f"{number}" if number else options.output for number in range(len(options.attention))]
    trainees = [Trainee(options, *one) for one in zip(options.attention, folders, strict=True)]
    train, choose = read_real(options.real)
    first = min(one.step for one in trainees)
    rows = DataLoader(Rows(options.seed, first, options.size, train), batch_size=None, num_workers=1, prefetch_factor=8)
    for number, given in enumerate(islice(rows, options.steps - first), first):
        for one in trainees:
            if one.step == number:
                one.train(given)
                if one.step % options.every == 0 or one.step == options.steps:
                    one.save(choose)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    for one in trainees:
        facts = {"trained_on": TRAINED_ON if train else (), "steps": options.steps, "seed": options.seed}
        facts |= {"commit": commit, "command": " ".join(sys.argv[1:]), "cpu_seconds": round(one.seconds)}
        network, facts["widened"] = widened(one.averaged, choose) if choose else (one.averaged, 1.0)
        save_tiny(one.folder / "tiny.safetensors", network, one.sizes, facts)
    return 0


def read_real(path: Path | None) -> tuple[Real, list[Group]]:
    """Read series to train on, and groups to choose on."""
    if path is None:
        return [], []
    frame = pd.read_parquet(path)
    part = frame[frame["part"] == "train"]
    train = [
        (one["y"].to_numpy(float), int(one["season"].iloc[0]))
        for _, one in part.groupby(["source", "season", "unique_id"])
    ]
    return [one for one in train if len(one[0]) >= 24], groups_of(frame[frame["part"] == "choose"], origins=6)


if __name__ == "__main__":
    sys.exit(main())
