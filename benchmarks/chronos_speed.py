"""How fast a Chronos model is with multi-level attention compared with its own, and how fast chronos-tiny forecasts.

    python benchmarks/chronos_speed.py
    python benchmarks/chronos_speed.py --weights FILE.safetensors --parts forecaster

Three parts. `encoder`: a forward pass of the encoder of a Chronos-T5 over 2048 tokens, a value each, with its relative
bias and without, by turns in one run. `decoder`: the keys that its decoder keeps, and how many tokens it gives a
second. `forecaster`: `Forecaster` with pretrained weights on 400 series of 700 rows, 48 steps ahead, in a process of
its own. Times are CPU seconds of one thread, medians of turns. Weights decide no time: the first two parts draw them.

Writes `SLUG.json` and `SLUG.md`; parts that are not named are kept as they were measured before. Needs the extra
`chronos`, and the kernels.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measuring import Timing, cpu_clock, describe, slug_of, take_turns
from reporting import RESULTS, about, new_parser, parse, table, write_record
from small_t5 import random_t5, save_random
from transformers import DynamicCache, EncoderDecoderCache

from tsattn.chronos import adapt
from tsattn.chronos.opening import NamedWeights
from tsattn.errors import UserError
from tsattn.ops.native.library import why_no_kernels

PARTS = ("encoder", "decoder", "forecaster")
ORIGINAL, STANDARD, NATIVE, MLR = "original", "standard, sdpa", "standard, native", "mlr, native"
SHAPES = {  # of a Chronos-T5 as chronos-tiny is wide, and of chronos-t5-small
    "tiny": {"d_model": 128, "d_kv": 16, "num_heads": 8, "d_ff": 256, "num_layers": 4},
    "small": {"d_model": 512, "d_kv": 64, "num_heads": 8, "d_ff": 2048, "num_layers": 6},
}
TOY_SHAPES = {"toy": {"d_model": 16, "d_kv": 8, "num_heads": 2, "d_ff": 16, "num_layers": 2}}
ENCODER_TOKENS, DECODED = 2048, (64, 512)
PATHS, CONTEXT = 20, 64  # decoded at once, and tokens of the context that they follow
SERIES = (400, 700, 48)  # series, rows and steps
BIASES = ("with the relative bias", "without")

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


def mlr_of(width: int, **more: Any) -> dict[str, Any]:
    return {"kind": "mlr", "ranks": [width // 2, width // 4, width // 4], **more}


def encoder(timing: Timing, *, toy: bool) -> list[dict[str, Any]]:
    """Return a row a model, with the relative bias and without."""
    tokens, rows = 32 if toy else ENCODER_TOKENS, []
    ids = torch.randint(2, 4096, (1, tokens), generator=torch.Generator().manual_seed(0))
    for name, sizes in (TOY_SHAPES if toy else SHAPES).items():
        pipeline = random_t5(sizes, tokens - 1, 8)  # and the end of the sequence
        native, mlr = {"kind": "standard", "impl": "native"}, mlr_of(sizes["d_kv"], impl="native")
        swapped = {STANDARD: "standard", NATIVE: native, MLR: mlr}
        models = {ORIGINAL: pipeline.inner_model}
        models |= {kind: adapt(pipeline, attention).model for kind, attention in swapped.items()}
        for which in BIASES:
            if which == "without":
                models = {kind: without_bias(model) for kind, model in models.items() if kind != ORIGINAL}
            runs = {kind: partial(forward, model, ids) for kind, model in models.items()}
            check_same(runs)
            medians, turns = take_turns(runs, timing, cpu_clock)
            rows.append({"model": name, "tokens": tokens, "bias": which, "turns": turns, "seconds": medians})
    return rows


def without_bias(model: Any) -> Any:
    """Copy a model without the relative bias, which its first layer gives to all."""
    bare = copy.deepcopy(model)
    bare.encoder.block[0].layer[0].SelfAttention.relative_bias = None
    return bare


@torch.no_grad()
def forward(model: Any, ids: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model.encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    return found


def check_same(runs: Mapping[str, Callable[[], torch.Tensor]]) -> None:
    """Refuse to time standard attentions that do not give the same."""
    reference = runs[STANDARD]()
    for kind in runs.keys() - {MLR}:
        if not torch.allclose(found := runs[kind](), reference, atol=1e-3):
            raise RuntimeError(f"{kind} differs from {STANDARD} by {float((found - reference).abs().max()):.2g}")


def decoder(timing: Timing, *, toy: bool) -> list[dict[str, Any]]:
    """Return a row a model and length."""
    rows = []
    for name, sizes in (TOY_SHAPES if toy else SHAPES).items():
        for tokens in (12,) if toy else DECODED:
            pipeline = random_t5(sizes, CONTEXT, tokens - 1)
            models = {ORIGINAL: pipeline.inner_model, "mlr": adapt(pipeline, mlr_of(sizes["d_kv"]), "decoder").model}
            runs = {kind: partial(decode, model, tokens) for kind, model in models.items()}
            held = {kind: max(run()) for kind, run in runs.items()}
            medians, turns = take_turns(runs, timing, cpu_clock)
            rates = {kind: PATHS * tokens / seconds for kind, seconds in medians.items()}
            row = {"model": name, "tokens": tokens, "paths": PATHS, "turns": turns}
            rows.append({**row, "key_bytes": held, "tokens_per_second": rates})
    return rows


@torch.no_grad()
def decode(model: Any, tokens: int) -> list[int]:
    """Give tokens one by one after a context; return the bytes of keys of earlier tokens that are held at each."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, 4096, (PATHS, CONTEXT), generator=generator)
    seen = {"attention_mask": torch.ones_like(ids)}
    states, cache = model.encoder(input_ids=ids, **seen), EncoderDecoderCache(DynamicCache(), DynamicCache())
    given, held = torch.randint(2, 4096, (PATHS, tokens), generator=generator), []
    for token in given.split(1, 1):
        model(encoder_outputs=states, decoder_input_ids=token, past_key_values=cache, **seen)
        layers = cache.self_attention_cache.layers  # of this package, or of transformers
        held.append(sum(int(one.held.key_nbytes if hasattr(one, "held") else one.keys.nbytes) for one in layers))
    return held


def forecaster(weights: str | None, *, toy: bool) -> dict[str, Any]:
    """Return seconds of a forecast of many series, in a process of its own."""
    sizes = (3, 60, 10) if toy else SERIES
    with tempfile.TemporaryDirectory() as folder:
        where = weights or str(save_random(Path(folder) / "random.safetensors", 0))
        command = [sys.executable, "-c", FORECAST, *map(str, sizes), where]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the forecast failed: {done.stderr.strip()[-2000:]}")
    named = dict(zip(("series", "rows", "horizon"), sizes, strict=True))
    return {**named, "weights": Path(where).name, **json.loads(done.stdout.splitlines()[-1])}


def page(record: Mapping[str, Any]) -> str:
    """Return the record in Markdown."""
    lines, parts = [f"# Chronos with multi-level attention, {record['machine']['cpu']}", ""], record["parts"]
    if record["dry_run"]:
        lines += ["**A dry run of toy sizes: its figures mean nothing.**", ""]
    for one in {json.dumps(one): one for one in record["measured"].values()}.values():
        packages = ", ".join(f"{name} {number}" for name, number in one["versions"].items())
        own = ", ".join(name for name, other in record["measured"].items() if other == one)
        lines += [f"{own}: `{one['command']}`; CPU seconds of one thread; {packages}.", ""]
    if "encoder" in parts:
        heads, rows = (ORIGINAL, STANDARD, NATIVE, MLR), []
        for row in parts["encoder"]:
            spent, bias = row["seconds"], "with" if row["bias"].startswith("with ") else "without"
            cells = [f"{1e3 * spent[kind]:.1f}" if kind in spent else "" for kind in heads]
            over = " / ".join(f"{spent[MLR] / spent[kind]:.3f}" for kind in heads[:-1] if kind in spent)
            rows.append((row["model"], row["tokens"], bias, *cells, over))
        head = ("model", "tokens", "relative bias", *(f"{kind}, ms" for kind in heads), "mlr over each")
        lines += ["## Encoder, forward, random weights", "", *table(head, rows)]
    if "decoder" in parts:
        rows = []
        for row in parts["decoder"]:
            pairs = [(row[name][ORIGINAL], row[name]["mlr"]) for name in ("key_bytes", "tokens_per_second")]
            cells = [cell for one, mlr in pairs for cell in (f"{one:,.0f}", f"{mlr:,.0f}", f"{mlr / one:.3f}")]
            rows.append((row["model"], row["tokens"], *cells))
        head = ("model", "tokens", "key bytes, original", "mlr", "share", "tokens a second, original", "mlr", "ratio")
        lines += [f"## Decoder, {PATHS} paths token by token, random weights", "", *table(head, rows)]
    if one := parts.get("forecaster"):
        lines += [f"## Forecaster, {one['weights']}", ""]
        lines += [
            f"{one['series']} series of {one['rows']} rows, {one['horizon']} steps: {one['seconds']:.2f} CPU seconds "
            f"({one['wall']:.2f} by the clock on the wall), imports apart: these take {one['imports']:.2f}, and "
            f"a first forecast of one series, which imports the rest, {one['first']:.2f}.",
            "",
        ]
    return "\n".join(lines)


def main() -> int:
    parser = new_parser(__doc__, RESULTS / "chronos" / "speed", toy="toy sizes")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS], help="to measure again")
    parser.add_argument("--weights", help="of the forecaster: a shipped model, chronos-tiny by default, or a file")
    parser.add_argument("--seconds", type=float, default=30, help="for the turns of one model, if 5 are done")
    options = parse(parser)
    toy = options.dry_run
    if (why_not := why_no_kernels()) is not None:
        parser.error(f"there is nothing to measure: {why_not}")
    weights = options.weights or (None if toy else "chronos-tiny")
    try:
        if weights is not None:
            NamedWeights.of(weights)
    except UserError as error:
        parser.error(str(error))
    timing = Timing(0 if toy else options.seconds, least=2 if toy else 5)
    measures: dict[str, Callable[..., Any]] = {
        "encoder": partial(encoder, timing),
        "decoder": partial(decoder, timing),
        "forecaster": partial(forecaster, weights),
    }
    machine = describe("cpu", torch.float32)
    file = options.output / f"{slug_of(machine)}.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    parts, measured = before.get("parts", {}), before.get("measured", {})
    for name in options.parts:
        parts[name] = measures[name](toy=toy)
        facts = about("transformers", "chronos-forecasting")
        measured[name] = {"command": facts["command"], "versions": facts["versions"]}
        there = [one for one in PARTS if one in parts]
        record = {"dry_run": toy, "machine": machine, "measured": {one: measured[one] for one in there}}
        record["parts"] = {one: parts[one] for one in there}
        write_record(file, record, page(record))
    print(page(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
