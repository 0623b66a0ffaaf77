"""Pretrain `tiny` on series that are drawn as it goes, and on some real ones.

    python benchmarks/pretraining/train.py --output build/tiny --steps 20000 --seed 1

Begun again, it goes on after the last checkpoint, with the batches that would have come: each is decided by the seed and
its number. Weights are averaged over the last steps; `choose.csv` has the scores of these on real series that are not
trained on, see `real_series.py`.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.pretraining import corpus
from tsattn.pretrained.guesses import Guesses, guess
from tsattn.pretrained.tiny_network import LEVELS, TinyNetwork, standardised

HORIZONS = (4, 6, 8, 8, 12, 12, 18, 24, 24, 30, 36, 48, 48, 64, 96)
LENGTHS = (16, 2048)
TOGETHER = 16  # rows of one length
REAL = 0.2  # share of the rows that are real, where there are some
SHORT = 64  # the shortest bucket, to which shorter rows are padded


class Rows(IterableDataset[dict[str, Tensor]]):
    """Batches of contexts and targets, each decided by the seed and its number."""

    def __init__(self, seed: int, start: int, steps: int, size: int, real: list[tuple[np.ndarray, int]]) -> None:
        self.seed, self.start, self.steps, self.size, self.real = seed, start, steps, size, real

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for step in range(self.start, self.steps):
            yield batch(np.random.default_rng((self.seed, step)), self.size, self.real)


def batch(rng: np.random.Generator, size: int, real: list[tuple[np.ndarray, int]]) -> dict[str, Tensor]:
    """Contexts `(R, L)` with targets `(R, T)`, NaN where missing; longer rows in smaller batches."""
    T = int(rng.choice(HORIZONS))
    least, most = LENGTHS
    bucket = 2 ** int(rng.choice([6, 7, 8, 9, 10, 11], p=[0.2, 0.22, 0.2, 0.16, 0.12, 0.1]))
    lowest = least if bucket == SHORT else bucket // 2
    size = max(TOGETHER, int(size * min(1.0, 512 / bucket)))
    values, targets, seasons = [], [], []
    while len(values) < size:
        n = int(np.exp(rng.uniform(np.log(max(lowest, min(2 * T, bucket // 2))), np.log(min(bucket, most)))))
        if real and rng.random() < REAL:
            drawn, season = zip(*(cut(rng, real, n + T) for _ in range(TOGETHER)), strict=True)
        else:
            drawn, season = corpus.draw(rng, TOGETHER, n + T)
        for row, period in zip(drawn, season, strict=True):
            known = np.isfinite(row[:-T])
            if known.sum() < 4 or not np.isfinite(row[-T:]).any() or np.nanmax(np.abs(row)) > 1e15:
                continue
            context = np.full(bucket, np.nan)
            context[-(len(row) - T) :] = row[:-T]
            values.append(context)
            targets.append(row[-T:])
            seasons.append(int(period))
    arrays = np.stack(values[:size]), np.stack(targets[:size])
    past, target = (torch.from_numpy(np.ascontiguousarray(one)) for one in arrays)
    known, season = ~past.isnan(), torch.tensor(seasons[:size])
    values, level, size_of = standardised(past.nan_to_num(0.0), known, season)
    made = guess(values, known, season, T, (-level / size_of).float())
    truth = ((target - level[:, None]) / size_of[:, None]).float()
    return {"values": values, "known": known, "truth": truth, "season": season, **{f"made.{n}": v for n, v in vars(made).items()}}


def cut(rng: np.random.Generator, real: list[tuple[np.ndarray, int]], length: int) -> tuple[np.ndarray, int]:
    """A stretch of a real series, sometimes added to or multiplied by another, reversed in sign, or without its season."""
    row, season = real[int(rng.integers(len(real)))]
    length = min(length, len(row))
    first = int(rng.integers(len(row) - length + 1))
    part = row[first : first + length].astype(np.float64).copy()
    if rng.random() < 0.1:
        part = part.max() + part.min() - part if np.isfinite(part).all() else part
    if rng.random() < 0.15 and np.nanmin(part) > 0:
        part = part ** rng.uniform(0.5, 1.6)
    if rng.random() < 0.2:
        part = part + np.nanstd(part) * rng.uniform(0.02, 0.5) * rng.standard_normal(length)
    return part, season if rng.random() < 0.9 else 1


def loss_of(network: TinyNetwork, given: dict[str, Tensor]) -> Tensor:
    """Mean quantile loss, over the errors that the naive forecasts make before and after the end of the context."""
    values, truth, season = given["values"], given["truth"], given["season"]
    made = Guesses(**{name.removeprefix("made."): part for name, part in given.items() if name.startswith("made.")})
    quantiles = network(values, given["known"], made)
    T, counts = truth.shape[1], ~truth.isnan()
    truth = truth.nan_to_num(0.0)
    error = truth[..., None] - quantiles
    levels = torch.tensor(LEVELS)
    pinball = 2 * torch.maximum(levels * error, (levels - 1) * error).mean(-1)
    place = torch.arange(T) % season[:, None] - season[:, None]
    naive = values.gather(1, (values.shape[1] + place).clamp(min=0))
    usual = ((truth - naive).abs() * counts).sum(1) / counts.sum(1).clamp(min=1)
    row = (pinball * counts).sum(1) / counts.sum(1).clamp(min=1) / (0.6 + 0.4 * usual)
    return torch.where(row < 4, row, 4 + (row - 3).clamp(min=1).log()).mean()


@torch.no_grad()
def forecast(network: TinyNetwork, rows: list[np.ndarray], season: int, horizon: int) -> np.ndarray:
    """Quantiles `(n, horizon, Q)` of series in their own units."""
    out = []
    for row in rows:
        row = row[-2048:]
        past = torch.from_numpy(np.concatenate([np.full(max(0, 16 - len(row)), np.nan), row]))[None]
        known = ~past.isnan()
        one = torch.tensor([season])
        values, level, size = standardised(past.nan_to_num(0.0), known, one)
        quantiles = network(values, known, guess(values, known, one, horizon, (-level / size).float()))
        out.append((quantiles.double() * size[:, None, None] + level[:, None, None])[0].numpy())
    return np.stack(out)


def scores(network: TinyNetwork, groups: dict[str, tuple[list[np.ndarray], int, int]]) -> pd.DataFrame:
    """Relative MASE, WQL and coverage of 80 % of each group of `(series, season, horizon)` on their last windows."""
    rows = []
    for name, (series, season, horizon) in groups.items():
        parts = [(one[:-horizon], one[-horizon:]) for one in series]
        found = forecast(network, [past for past, _ in parts], season, horizon)
        mase, naive, lost, base, inside = [], [], 0.0, 0.0, []
        for (past, truth), quantiles in zip(parts, found, strict=True):
            clean = past[np.isfinite(past)]
            scale = np.abs(clean[season:] - clean[:-season]).mean()
            if not scale > 0:
                continue
            repeated = np.resize(pd.Series(past).ffill().to_numpy()[-season:], horizon)
            error = truth - quantiles[:, len(LEVELS) // 2]
            mase.append(np.nanmean(np.abs(error)) / scale)
            naive.append(np.nanmean(np.abs(truth - repeated)) / scale)
            some = [LEVELS.index(level / 10) for level in range(1, 10)]
            wrong = truth[:, None] - quantiles[:, some]
            at = np.array(LEVELS)[some]
            lost += np.nansum(2 * np.maximum(at * wrong, (at - 1) * wrong).mean(1)) / scale
            base += np.nansum(np.abs(truth - repeated)) / scale
            low, high = quantiles[:, LEVELS.index(0.1)], quantiles[:, LEVELS.index(0.9)]
            inside.append(np.nanmean((truth >= low) & (truth <= high)))
        rows.append((name, len(mase), np.mean(mase) / np.mean(naive), lost / base, np.mean(inside)))
    table = pd.DataFrame(rows, columns=["group", "series", "mase", "wql", "coverage"])
    mean = np.exp(np.log(table[["mase", "wql"]].astype(float)).mean())
    table.loc[len(table)] = ["all", table["series"].sum(), mean["mase"], mean["wql"], table["coverage"].mean()]
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("build/tiny"))
    parser.add_argument("--real", type=Path, help="what real_series.py wrote")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=128, help="rows of a batch")
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--attention", default="standard")
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--every", type=int, default=500, help="steps from one checkpoint to the next")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    network = TinyNetwork(options.width, options.layers, attention=json.loads(options.attention) if options.attention[:1] in "{[" else options.attention)
    optimizer = torch.optim.AdamW(network.parameters(), lr=options.rate, weight_decay=0.02, betas=(0.9, 0.98))
    averaged, start, spent = copy.deepcopy(network), 0, 0.0
    path = options.output / "last.pt"
    if path.exists():
        saved = torch.load(path, weights_only=True)
        network.load_state_dict(saved["network"])
        averaged.load_state_dict(saved["averaged"])
        optimizer.load_state_dict(saved["optimizer"])
        start, spent = saved["step"], saved["seconds"]
    train, choose = read_real(options.real)
    log = options.output / "choose.csv"

    def check(step: int, mean: float) -> None:
        if not choose:
            print(step, round(mean, 4), f"{spent:.0f} s", flush=True)
            return
        table = scores(averaged.eval(), choose).assign(step=step, loss=mean, seconds=round(spent))
        table.to_csv(log, mode="a", header=not log.exists(), index=False)
        print(step, round(mean, 4), *table.iloc[-1][["mase", "wql", "coverage"]].round(4), f"{spent:.0f} s", flush=True)

    if choose and not start:
        check(0, math.nan)
    rows = DataLoader(Rows(options.seed, start, options.steps, options.size, train), batch_size=None, num_workers=1, prefetch_factor=8)
    losses, began = [], time.process_time()
    for step, given in enumerate(rows, start):
        share = step / options.steps
        rate = options.rate * min(1.0, (step + 1) / 300) * (0.5 + 0.5 * math.cos(math.pi * share)) + 1e-6
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(network, given)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        if norm.isfinite():
            optimizer.step()
        with torch.no_grad():
            keep = min(0.998, (step + 1) / (step + 20))
            for mean, now in zip(averaged.parameters(), network.parameters(), strict=True):
                mean.lerp_(now, 1 - keep)
        losses.append(loss.item())
        if (step + 1) % options.every == 0 or step + 1 == options.steps:
            spent, began = spent + time.process_time() - began, time.process_time()
            state = {"network": network.state_dict(), "averaged": averaged.state_dict()}
            state |= {"optimizer": optimizer.state_dict(), "step": step + 1, "seconds": spent}
            torch.save(state, path.with_suffix(".partial"))
            os.replace(path.with_suffix(".partial"), path)
            check(step + 1, float(np.mean(losses)))
            losses.clear()
            began = time.process_time()
    return 0


def read_real(path: Path | None) -> tuple[list[tuple[np.ndarray, int]], dict[str, Any]]:
    """Series to train on, with their seasons, and groups to choose on."""
    if path is None:
        return [], {}
    frame = pd.read_parquet(path)
    horizons = {1: 6, 4: 8, 7: 14, 12: 12, 24: 48, 48: 96, 52: 13, 5: 10}
    train, choose = [], {}
    for (part, source, season), some in frame.groupby(["part", "source", "season"]):
        series = [one["y"].to_numpy(float) for _, one in some.groupby("unique_id")]
        if part == "train":
            train += [(one, int(season)) for one in series if len(one) >= 24]
        else:
            horizon = horizons.get(int(season), 24)
            kept = [one for one in series if len(one) >= max(3 * season, 2 * horizon) + horizon]
            kept = [one for one in kept if np.isfinite(one[-horizon:]).any() and np.nanstd(one[:-horizon]) > 0][:30]
            if kept:
                choose[f"{source} {season}"] = kept, int(season), horizon
    return train, choose


if __name__ == "__main__":
    sys.exit(main())
