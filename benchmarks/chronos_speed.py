"""How fast a Chronos model is with multi-level attention beside its own, and how fast chronos-tiny forecasts.

    python benchmarks/chronos_speed.py
    python benchmarks/chronos_speed.py --weights FILE.safetensors --parts forecaster

Three parts. `encoder`: a forward pass of the encoder of a Chronos-T5 over 2048 tokens, a value each, with its relative
bias and without, by turns in one run. `decoder`: what its decoder keeps of keys, and how many tokens it gives a second.
`forecaster`: `Forecaster` with pretrained weights on 400 series of 700 rows, 48 steps ahead, in a process of its own.
Times are CPU seconds of one thread, medians of turns. What weights hold decides no time: the first two parts draw them.

Writes `SLUG.json` (machine and versions, too) and `SLUG.md` into the output folder; parts that are not named are
kept as they were measured before. Needs the extra `chronos`, and the kernels.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from measuring import Timing, cpu_clock, describe, slug_of, take_turns, this_command
from random_chronos import random_t5, save_random
from transformers import DynamicCache, EncoderDecoderCache

from tsattn.chronos import adapt
from tsattn.chronos.opening import NamedWeights
from tsattn.errors import UserError
from tsattn.ops.native.library import why_no_kernels
from tsattn.saved_folders import write_text

FOLDER = Path(__file__).parent / "results" / "chronos" / "speed"
ORIGINAL, STANDARD, NATIVE, MLR = "original", "standard, sdpa", "standard, native", "mlr, native"

SHAPES = {  # of a Chronos-T5 as chronos-tiny is wide, and of chronos-t5-small
    "tiny": {"d_model": 128, "d_kv": 16, "num_heads": 8, "d_ff": 256, "num_layers": 4},
    "small": {"d_model": 512, "d_kv": 64, "num_heads": 8, "d_ff": 2048, "num_layers": 6},
}
TOY_SHAPES = {"toy": {"d_model": 16, "d_kv": 8, "num_heads": 2, "d_ff": 16, "num_layers": 2}}
ENCODER_TOKENS, DECODED = 2048, (64, 512)
PATHS, CONTEXT = 20, 64  # decoded at once, and tokens of the context that they follow
SERIES, ROWS, HORIZON = 400, 700, 48
MOST = {"with the relative bias": 1.0, "without": 0.9}
MOST_SECONDS = 10.0
SHIPPED = "chronos-tiny"

FORECAST = """
import json, sys, time
count, rows, horizon, weights = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
began = time.process_time()
import numpy as np, pandas as pd, torch
from tsattn import Forecaster
torch.set_num_threads(1)
described = {"kind": "chronos", "weights": weights}

def frame(count):
    steps = np.arange(rows)
    noise = np.random.default_rng(0).standard_normal((count, rows))
    values = np.sin(steps / 3.8 + np.arange(count)[:, None]) + 0.1 * noise.cumsum(1)
    stamps = pd.date_range("2020-01-01", periods=rows, freq="h")
    ids = np.repeat(np.arange(count), rows)
    return pd.DataFrame({"unique_id": ids, "ds": np.tile(stamps, count), "y": values.ravel()})

imported = time.process_time()
Forecaster(described, prediction_length=horizon, accelerator="cpu").predict(frame(1))
asked = frame(count)
ready, wall = time.process_time(), time.perf_counter()
forecast = Forecaster(described, prediction_length=horizon, accelerator="cpu").predict(asked)
seconds, wall = time.process_time() - ready, time.perf_counter() - wall
assert len(forecast) == count * horizon and forecast["predictions"].notna().all()
print(json.dumps({"imports": imported - began, "first": ready - imported, "seconds": seconds, "wall": wall}))
"""


def ranks_of(width: int) -> list[int]:
    return [width // 2, width // 4, width // 4]


def encoder(timing: Timing, *, toy: bool) -> list[dict[str, Any]]:
    """A row a model, with the relative bias and without."""
    tokens = 32 if toy else ENCODER_TOKENS
    rows = []
    for name, sizes in (TOY_SHAPES if toy else SHAPES).items():
        pipeline = random_t5(sizes, tokens - 1, 8)  # and the end of the sequence
        ids = torch.randint(2, 4096, (1, tokens), generator=torch.Generator().manual_seed(0))
        swapped = {
            STANDARD: "standard",
            NATIVE: {"kind": "standard", "impl": "native"},
            MLR: {"kind": "mlr", "ranks": ranks_of(sizes["d_kv"]), "impl": "native"},
        }
        models = {kind: adapt(pipeline, attention).model for kind, attention in swapped.items()}
        for which in MOST:
            if which == "without":
                models = {kind: without_bias(model) for kind, model in models.items()}
            else:
                models = {ORIGINAL: pipeline.inner_model, **models}
            runs = {kind: partial(forward, model, ids) for kind, model in models.items()}
            check_same(runs)
            medians, turns = take_turns(runs, timing, cpu_clock)
            models.pop(ORIGINAL, None)
            rows.append({"model": name, "tokens": tokens, "bias": which, "turns": turns, "seconds": medians})
    return rows


def without_bias(model: Any) -> Any:
    """A copy whose first layer has no relative bias to give to all."""
    bare = copy.deepcopy(model)
    bare.encoder.block[0].layer[0].SelfAttention.relative_bias = None
    return bare


@torch.no_grad()
def forward(model: Any, ids: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model.encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    return found


def check_same(runs: Mapping[str, Callable[[], torch.Tensor]]) -> None:
    """Refuse to time standard attentions that do not give the same."""
    outputs = {kind: run() for kind, run in runs.items() if kind != MLR}
    reference = outputs[STANDARD]
    for kind, found in outputs.items():
        if not torch.allclose(found, reference, atol=1e-3):
            raise RuntimeError(f"{kind} differs from {STANDARD} by {float((found - reference).abs().max()):.2g}")


def decoder(timing: Timing, *, toy: bool) -> list[dict[str, Any]]:
    """A row a model and length."""
    rows = []
    for name, sizes in (TOY_SHAPES if toy else SHAPES).items():
        for tokens in (12,) if toy else DECODED:
            pipeline = random_t5(sizes, CONTEXT, tokens - 1)
            mlr = adapt(pipeline, {"kind": "mlr", "ranks": ranks_of(sizes["d_kv"])}, "decoder")
            models = {ORIGINAL: pipeline.inner_model, "mlr": mlr.model}
            runs = {kind: partial(decode, model, tokens) for kind, model in models.items()}
            held = {kind: max(run()) for kind, run in runs.items()}
            medians, turns = take_turns(runs, timing, cpu_clock)
            rates = {kind: PATHS * tokens / seconds for kind, seconds in medians.items()}
            row = {"model": name, "tokens": tokens, "paths": PATHS, "turns": turns}
            rows.append({**row, "key_bytes": held, "tokens_per_second": rates})
    return rows


@torch.no_grad()
def decode(model: Any, tokens: int) -> list[int]:
    """Give tokens one by one after a context, and the bytes of keys of earlier tokens that are held at each."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, 4096, (PATHS, CONTEXT), generator=generator)
    states = model.encoder(input_ids=ids, attention_mask=torch.ones_like(ids))
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    given = torch.randint(2, 4096, (PATHS, tokens), generator=generator)
    held = []
    for step in range(tokens):
        at = {"decoder_input_ids": given[:, step : step + 1], "past_key_values": cache}
        model(encoder_outputs=states, attention_mask=torch.ones_like(ids), **at)
        held.append(sum(key_bytes(layer) for layer in cache.self_attention_cache.layers))
    return held


def key_bytes(layer: Any) -> int:
    """Of a layer of a cache, this package's or transformers'."""
    return int(layer.held.key_nbytes if hasattr(layer, "held") else layer.keys.nbytes)


def forecaster(weights: str | None, *, toy: bool) -> dict[str, Any]:
    """Seconds of a forecast of many series, in a process of its own."""
    sizes = (3, 60, 10) if toy else (SERIES, ROWS, HORIZON)
    with tempfile.TemporaryDirectory() as folder:
        where = weights or str(save_random(Path(folder) / "random.safetensors", 0))
        command = [sys.executable, "-c", FORECAST, *map(str, sizes), where]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the forecast failed: {done.stderr.strip()[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    about = {"series": sizes[0], "rows": sizes[1], "horizon": sizes[2]}
    return {**about, "weights": Path(where).name, **found}


def targets(parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is asked for, of the parts that are there; the worst model counts.

    Standard attention stands for what a model has without this package (its own code, or torch's fused attention where
    that takes no bias), and for this package's own kernel, too.
    """
    found = []
    for which, most in MOST.items():
        rows = [row for row in parts.get("encoder", ()) if row["bias"] == which]
        for beside in (ORIGINAL, STANDARD, NATIVE):
            if rows and beside in rows[0]["seconds"] and not (beside == STANDARD and ORIGINAL in rows[0]["seconds"]):
                worst = max(row["seconds"][MLR] / row["seconds"][beside] for row in rows)
                found.append({"target": f"encoder {which}: {MLR} over {beside}", "measured": worst, "at_most": most})
    if "forecaster" in parts:
        one = parts["forecaster"]
        name = f"Forecaster, {one['series']} series of {one['rows']} rows, horizon {one['horizon']}: CPU seconds"
        found.append({"target": name, "measured": one["seconds"], "at_most": MOST_SECONDS})
    return [{**one, "met": one["measured"] <= one["at_most"]} for one in found]


def report(record: Mapping[str, Any]) -> str:
    """The record in Markdown."""
    lines = [f"# Chronos with multi-level attention, {record['machine']['cpu']}", ""]
    if record["dry_run"]:
        lines += ["**A dry run of toy sizes: its figures mean nothing.**", ""]
    for about in {json.dumps(one): one for one in record["measured"].values()}.values():
        packages = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
        own = [name for name, one in record["measured"].items() if one == about]
        lines += [f"{', '.join(own)}: `{about['command']}`; CPU seconds of one thread; {packages}.", ""]
    for one in record["targets"]:
        word = "kept" if one["met"] else "**exceeded**"
        lines.append(f"- {one['target']}: {one['measured']:.3f}, limit {one['at_most']:g}: {word}")
    lines.append("")
    if rows := record["parts"].get("encoder"):
        heads = [ORIGINAL, STANDARD, NATIVE, MLR]
        lines += ["## Encoder, forward, random weights", ""]
        lines += [_line(["model", "tokens", "relative bias", *(f"{kind}, ms" for kind in heads), "mlr over each"])]
        lines += [_line(["---"] * (len(heads) + 4))]
        for row in rows:
            spent = row["seconds"]
            cells = [f"{1e3 * spent[kind]:.1f}" if kind in spent else "" for kind in heads]
            over = " / ".join(f"{spent[MLR] / spent[kind]:.3f}" for kind in heads[:-1] if kind in spent)
            bias = "with" if row["bias"].startswith("with ") else "without"
            lines.append(_line([row["model"], row["tokens"], bias, *cells, over]))
        lines.append("")
    if rows := record["parts"].get("decoder"):
        lines += [f"## Decoder, {PATHS} paths token by token, random weights", ""]
        head = ["model", "tokens", "key bytes, original", "mlr", "share", "tokens a second, original", "mlr", "ratio"]
        lines += [_line(head), _line(["---"] * len(head))]
        for row in rows:
            cells: list[Any] = [row["model"], row["tokens"]]
            for name, form in (("key_bytes", ",.0f"), ("tokens_per_second", ",.0f")):
                own, other = row[name]["mlr"], row[name][ORIGINAL]
                cells += [f"{other:{form}}", f"{own:{form}}", f"{own / other:.3f}"]
            lines.append(_line(cells))
        lines.append("")
    if one := record["parts"].get("forecaster"):
        lines += [f"## Forecaster, {one['weights']}", ""]
        lines += [
            f"{one['series']} series of {one['rows']} rows, {one['horizon']} steps: {one['seconds']:.2f} CPU seconds "
            f"({one['wall']:.2f} by the clock on the wall), imports apart: these take {one['imports']:.2f}, and "
            f"a first forecast of one series, which imports the rest, {one['first']:.2f}.",
            "",
        ]
    return "\n".join(lines)


def _line(cells: list[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("encoder", "decoder", "forecaster")
    parser.add_argument("--parts", nargs="+", choices=names, default=[*names], help="to measure anew")
    parser.add_argument("--weights", help="of the forecaster: a shipped model, chronos-tiny by default, or a file")
    parser.add_argument("--seconds", type=float, default=30, help="for the turns of one model, if 5 are done")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder to write into")
    parser.add_argument("--dry-run", action="store_true", help="toy sizes, whose figures mean nothing; needs --output")
    options = parser.parse_args()
    if options.dry_run and options.output == FOLDER:
        parser.error("--dry-run needs an --output of its own: its figures mean nothing")
    if (why_not := why_no_kernels()) is not None:
        parser.error(f"there is nothing to measure: {why_not}")
    try:
        weights = options.weights or (None if options.dry_run else SHIPPED)
        if weights is not None:
            NamedWeights.of(weights)
    except UserError as error:
        parser.error(str(error))
    torch.set_num_threads(1)
    toy, timing = options.dry_run, Timing(0 if options.dry_run else options.seconds, least=2 if options.dry_run else 5)
    measures: dict[str, Callable[[], Any]] = {
        "encoder": partial(encoder, timing, toy=toy),
        "decoder": partial(decoder, timing, toy=toy),
        "forecaster": partial(forecaster, weights, toy=toy),
    }
    machine = describe("cpu", torch.float32)
    file = options.output / f"{slug_of(machine)}.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    parts, about = before.get("parts", {}), before.get("measured", {})
    packages = ("tsattn", "torch", "transformers", "chronos-forecasting")
    for name in options.parts:
        parts[name] = measures[name]()
        about[name] = {"command": this_command(), "versions": {one: version(one) for one in packages}}
        record = {
            "dry_run": toy,
            "machine": machine,
            "measured": {one: about[one] for one in names if one in about},
            "targets": targets(parts),
            "parts": {one: parts[one] for one in names if one in parts},
        }
        write_text(file, json.dumps(record, indent=2) + "\n")
        write_text(file.with_suffix(".md"), report(record))
    print(report(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
