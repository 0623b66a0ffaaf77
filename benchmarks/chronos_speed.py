"""How fast a Chronos model is with multi-level attention compared with its own.

    python benchmarks/chronos_speed.py

Encoder: a forward pass of the encoder of a Chronos-T5 over 2048 tokens, a value each, with its relative
bias and without, by turns in one run. Decoder: the keys that it keeps, and how many tokens it gives a second. Times
are CPU seconds of one thread, medians of turns. Weights decide no time: they are random.

Writes `SLUG.json` and `SLUG.md`. Needs the extra `chronos`, and the kernels.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import measuring
import torch
from measuring import RESULTS, Timing, cpu_clock, new_parser, packages_of, table, take_turns, title_of
from transformers import DynamicCache, EncoderDecoderCache

from tsattn.chronos import adapt
from tsattn.chronos.families import FAMILIES
from tsattn.ops.native.library import why_no_kernels

ORIGINAL, STANDARD, NATIVE, MLR = "original", "standard, sdpa", "standard, native", "mlr, native"
SHAPES = {  # of a small Chronos-T5, and of chronos-t5-small
    "tiny": {"d_model": 128, "d_kv": 16, "num_heads": 8, "d_ff": 256, "num_layers": 4},
    "small": {"d_model": 512, "d_kv": 64, "num_heads": 8, "d_ff": 2048, "num_layers": 6},
}
TOY_SHAPES = {"toy": {"d_model": 16, "d_kv": 8, "num_heads": 2, "d_ff": 16, "num_layers": 2}}
TOKENS, ENCODER_TOKENS, DECODED = 4096, 2048, (64, 512)
PATHS, CONTEXT = 20, 64  # decoded at once, and tokens of the context that they follow
BIASES = ("with the relative bias", "without")


def mlr_of(width: int, **more: Any) -> dict[str, Any]:
    return {"kind": "mlr", "ranks": [width // 2, width // 4, width // 4], **more}


def random_t5(sizes: dict[str, int], context_length: int, prediction_length: int) -> Any:
    """Make the pipeline of a Chronos-T5 of given sizes: `d_model`, `d_kv`, `num_heads`, `d_ff`, `num_layers`."""
    ends = {"pad_token_id": 0, "eos_token_id": 1}
    chronos = {
        **{"tokenizer_class": "MeanScaleUniformBins", "tokenizer_kwargs": {"low_limit": -15.0, "high_limit": 15.0}},
        **{"context_length": context_length, "prediction_length": prediction_length, "n_tokens": TOKENS},
        **{"n_special_tokens": 2, "use_eos_token": True, "model_type": "seq2seq", **ends},
        **{"num_samples": 20, "temperature": 1.0, "top_k": 50, "top_p": 1.0},
    }
    config = {
        **{**sizes, "num_decoder_layers": sizes["num_layers"], "vocab_size": TOKENS, "dropout_rate": 0.0},
        **{"decoder_start_token_id": 0, "is_encoder_decoder": True, **ends, "chronos_config": chronos},
        **{"chronos_pipeline_class": "ChronosPipeline", "architectures": ["T5ForConditionalGeneration"]},
    }
    torch.manual_seed(0)
    pipeline = FAMILIES["t5"].unloaded(config, "sdpa")
    pipeline.inner_model.eval()
    return pipeline


def encoder(timing: Timing, *, toy: bool) -> list[dict[str, Any]]:
    tokens, rows = 32 if toy else ENCODER_TOKENS, []
    ids = torch.randint(2, TOKENS, (1, tokens), generator=torch.Generator().manual_seed(0))
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
    reference = runs[STANDARD]()
    for kind in runs.keys() - {MLR}:
        if not torch.allclose(found := runs[kind](), reference, atol=1e-3):
            raise RuntimeError(f"{kind} differs from {STANDARD} by {float((found - reference).abs().max()):.2g}")


def decoder(timing: Timing, *, toy: bool) -> list[dict[str, Any]]:
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
    ids = torch.randint(2, TOKENS, (PATHS, CONTEXT), generator=generator)
    seen = {"attention_mask": torch.ones_like(ids)}
    states, cache = model.encoder(input_ids=ids, **seen), EncoderDecoderCache(DynamicCache(), DynamicCache())
    given, held = torch.randint(2, TOKENS, (PATHS, tokens), generator=generator), []
    for token in given.split(1, 1):
        model(encoder_outputs=states, decoder_input_ids=token, past_key_values=cache, **seen)
        layers = cache.self_attention_cache.layers  # of this package, or of transformers
        held.append(sum(int(one.held.key_nbytes if hasattr(one, "held") else one.keys.nbytes) for one in layers))
    return held


def page(record: dict[str, Any]) -> str:
    lines = title_of(record, f"Chronos with multi-level attention, {record['machine']['cpu']}")
    lines += [f"`{record['command']}`; CPU seconds of one thread; {packages_of(record)}.", ""]
    heads, rows = (ORIGINAL, STANDARD, NATIVE, MLR), []
    for row in record["encoder"]:
        spent, bias = row["seconds"], "with" if row["bias"].startswith("with ") else "without"
        cells = [f"{1e3 * spent[kind]:.1f}" if kind in spent else "" for kind in heads]
        over = " / ".join(f"{spent[MLR] / spent[kind]:.3f}" for kind in heads[:-1] if kind in spent)
        rows.append((row["model"], row["tokens"], bias, *cells, over))
    head = ("model", "tokens", "relative bias", *(f"{kind}, ms" for kind in heads), "mlr over each")
    lines += ["## Encoder, forward, random weights", "", *table(head, rows)]
    rows = []
    for row in record["decoder"]:
        pairs = [(row[name][ORIGINAL], row[name]["mlr"]) for name in ("key_bytes", "tokens_per_second")]
        cells = [cell for one, mlr in pairs for cell in (f"{one:,.0f}", f"{mlr:,.0f}", f"{mlr / one:.3f}")]
        rows.append((row["model"], row["tokens"], *cells))
    head = ("model", "tokens", "key bytes, original", "mlr", "share", "tokens a second, original", "mlr", "ratio")
    lines += [f"## Decoder, {PATHS} paths token by token, random weights", "", *table(head, rows)]
    return "\n".join(lines)


def main() -> int:
    parser = new_parser(__doc__, RESULTS / "chronos" / "speed", toy="toy sizes")
    parser.add_argument("--seconds", type=float, default=30, help="for the turns of one model, if 5 are done")
    options = measuring.parse(parser)
    toy = options.dry_run
    if (why_not := why_no_kernels()) is not None:
        parser.error(f"there is nothing to measure: {why_not}")
    timing, machine = Timing(0 if toy else options.seconds, 2 if toy else 5), measuring.describe("cpu", torch.float32)
    facts = measuring.about("transformers", "chronos-forecasting")
    record = {"dry_run": toy, "machine": machine, "command": facts["command"], "versions": facts["versions"]}
    record |= {"encoder": encoder(timing, toy=toy), "decoder": decoder(timing, toy=toy)}
    measuring.write_record(options.output / f"{measuring.slug_of(machine)}.json", record, page(record))
    print(page(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
