"""Whether the best learning rate of a narrow transformer is the best of one four times as wide.

    python benchmarks/mup.py

Trains a small `transformer` on drawn series (three waves and noise, never the same series twice) at both widths, with
every rate of a grid of factor 2 and several seeds: by the muP rules with `scaling: mup` and, beside them, by the
standard ones, as PyTorch initialises, with one rate for all and `scaling: head`. The error is that on further series
drawn alike. Takes about six minutes on one core. Writes `mup.csv` (every run), `mup.json` (best rates, command,
versions, hardware) and `mup.png`.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from tsattn.backbones import Transformer
from tsattn.batch import Batch
from tsattn.optim import adamw, cap_rms_, mup_groups, mup_init_, rate_schedule
from tsattn.task import Output, Task

CONTEXT, HORIZON, BATCH = 32, 8, 16
PERIODS, NOISE = (24, 8.5, 5), 0.1
HEADS = 4
WIDTHS = (32, 128)
RATES = tuple(2.0**power for power in range(-9, -2))
STEPS, WARMUP = 150, 15
RULES = {"muP": "mup", "standard": "head"}  # each with its `scaling`
KINDS = ("standard", "mlr")


def draw_batches(count: int, seed: int) -> list[Batch]:
    """Series of a wave of each period, of random height (0.5 to 1.5) and phase, and noise."""
    generator = torch.Generator().manual_seed(seed)
    heights, phases = torch.rand(2, count, BATCH, 1, len(PERIODS), generator=generator)
    turns = torch.arange(CONTEXT + HORIZON)[:, None] / torch.tensor(PERIODS)
    series = ((0.5 + heights) * torch.sin(2 * math.pi * (turns + phases))).sum(-1, keepdim=True)
    series = series + NOISE * torch.randn(series.shape, generator=generator)
    return [Batch(each[:, :CONTEXT], each[:, CONTEXT:]) for each in series]


def squared_error(model: Transformer, batch: Batch) -> Tensor:
    assert batch.target is not None
    error: Tensor = model(batch) - batch.target
    return error.square().mean()


def train(kind: str, rule: str, width: int, learning_rate: float, seed: int) -> float:
    """Error on new series after training, mean squared."""
    torch.manual_seed(seed)
    task = Task("waves", CONTEXT, HORIZON, ("wave",), "h", 24)
    description = {"kind": kind, "scaling": RULES[rule], "qk_norm": True}
    model = Transformer(task, Output(), d_model=width, num_heads=HEADS, attention=description, dropout=0.0)
    if rule == "muP":
        mup_init_(model)
        # relative to the narrow width, so that both rules mean the same by a rate there
        optimizer = torch.optim.AdamW(mup_groups(model, learning_rate, 0.0, base_width=WIDTHS[0]))
    else:
        optimizer = adamw([model], learning_rate, 0.0, fused=False)
    schedule = rate_schedule(optimizer, WARMUP, STEPS)
    for batch in draw_batches(STEPS, seed):
        optimizer.zero_grad()
        squared_error(model, batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if rule == "muP":
            cap_rms_(model)
        schedule.step()
    with torch.no_grad():
        return statistics.fmean(squared_error(model, batch).item() for batch in draw_batches(32, 10_000))


def run(kinds: Iterable[str], seeds: int) -> list[dict[str, Any]]:
    rows = []
    for kind in kinds:
        for rule in RULES:
            for width in WIDTHS:
                for rate in RATES:
                    losses = [train(kind, rule, width, rate, seed) for seed in range(seeds)]
                    described = {"attention": kind, "rule": rule, "width": width, "learning_rate": rate}
                    rows += [{**described, "seed": seed, "mse": round(loss, 6)} for seed, loss in enumerate(losses)]
                    print(f"{kind:9} {rule:9} width {width:<4} rate {rate:.5f}  {statistics.fmean(losses):.4f}")
    return rows


def curve(rows: list[dict[str, Any]], kind: str, rule: str, width: int) -> list[float]:
    """The mean error over seeds, for each rate."""

    def mean(rate: float) -> float:
        key = (kind, rule, width, rate)
        return statistics.fmean(
            row["mse"] for row in rows if (row["attention"], row["rule"], row["width"], row["learning_rate"]) == key
        )

    return [mean(rate) for rate in RATES]


def summary(rows: list[dict[str, Any]], kind: str, rule: str) -> dict[str, Any]:
    """The best rate at each width, and what the narrow one's costs the wide model."""
    narrow, wide = (curve(rows, kind, rule, width) for width in WIDTHS)
    first, second = (losses.index(min(losses)) for losses in (narrow, wide))
    return {
        "attention": kind,
        "rule": rule,
        "best_rate": {str(width): RATES[best] for width, best in zip(WIDTHS, (first, second), strict=True)},
        "mse_at_best": {
            str(width): round(min(losses), 5) for width, losses in zip(WIDTHS, (narrow, wide), strict=True)
        },
        "wide_over_narrow_best_rate": RATES[second] / RATES[first],
        "wide_mse_at_the_rate_of_the_narrow_over_its_best": round(wide[first] / wide[second], 3),
    }


def picture(rows: list[dict[str, Any]], kinds: list[str], path: Path) -> None:
    figure = Figure(figsize=(9, 3.4 * len(kinds)), layout="constrained")
    axes = figure.subplots(len(kinds), len(RULES), sharey=True, squeeze=False)
    for kind, line in zip(kinds, axes, strict=True):
        for rule, ax in zip(RULES, line, strict=True):
            for width, colour, size in zip(WIDTHS, ("C0", "C1"), (18, 9), strict=True):
                losses = curve(rows, kind, rule, width)
                best = losses.index(min(losses))
                ax.plot(RATES, losses, marker="o", ms=4, color=colour, label=f"width {width}")
                ax.plot(RATES[best], losses[best], marker="*", ms=size, color=colour)
            ax.set(xscale="log", yscale="log", title=f"{kind} attention, {rule} rules", xlabel="learning rate")
            ax.set_xticks(RATES, labels=[f"1/{round(1 / rate)}" for rate in RATES], fontsize=8)
            ax.minorticks_off()
            ax.spines[["top", "right"]].set_visible(False)
        line[0].set_ylabel("mean squared error on new series")
    axes[0, 0].legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)


def machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    models = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    return {
        "cpu": models[0].split(":")[1].strip() if models else platform.processor(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), help="attentions that know scaling head and mup")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()
    rows = run(arguments.kinds, arguments.seeds)
    seconds = round(time.perf_counter() - began)
    arguments.output.mkdir(parents=True, exist_ok=True)
    with (arguments.output / "mup.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    report: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "seconds": seconds,
        "seeds": list(range(arguments.seeds)),
        "steps": STEPS,
        "machine": machine(),
        "versions": {name: version(name) for name in ("torch", "tsattn")},
        "found": [summary(rows, kind, rule) for kind in arguments.kinds for rule in RULES],
    }
    (arguments.output / "mup.json").write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
    picture(rows, arguments.kinds, arguments.output / "mup.png")
    for found in report["found"]:
        print(
            "{attention} attention, {rule} rules: best rate at the wide over that at the narrow model "
            "{wide_over_narrow_best_rate:g}; the narrow one's costs the wide model "
            "{wide_mse_at_the_rate_of_the_narrow_over_its_best} of its least error".format(**found)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
