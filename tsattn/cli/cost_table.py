"""`tsattn cost`: what an attention costs, in closed form beside what was counted."""

from __future__ import annotations

import argparse
from typing import Any

from tsattn.cli.words import SentenceParser, as_pairs, count, take_descriptions
from tsattn.errors import UserError, one_of

__all__ = ["run"]

_DTYPES = ("float64", "float32", "bfloat16", "float16")

_DESCRIPTION = """\
Parameters, flops and key cache of an attention over T tokens (a batch of one), in closed form and as measured.
One multiply-add is 2 flops. Biases, norms, and the value and output projections, which every kind has, are left out."""

_ATTENTION = "kind of attention, or '{kind: mlr, ranks: [32, 16, 16]}'; --attention.ARGUMENT sets one argument"

_NOTE = """\
Flops to form scores are measured on the plain reference: it forms every pair
with every component, then masks. The next row counts what the chosen
implementation executes on a CPU, zero-padded components included."""


def run(words: list[str]) -> int:
    """Print the costs of an attention as a table; the exit code is 0, or a `UserError` is raised."""
    described, pairs = take_descriptions(as_pairs(words))
    options = _parser().parse_args([word for pair in pairs for word in pair if word is not None])
    given = {"attention": described or None, **vars(options)}
    missing = [f"--{name}" for name, value in given.items() if value is None and name != "max_length"]
    if missing:
        raise UserError(f"cost needs {' and '.join(missing)}")

    from tsattn.experiments.configs import with_values

    whole = with_values({"model": {"backbone": {"attention": "standard"}}}, described)
    print(_report(whole["model"]["backbone"]["attention"], options))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = SentenceParser(prog="tsattn cost", description=_DESCRIPTION)
    add = parser.add_argument
    add("--attention", metavar="DESCRIPTION", default=argparse.SUPPRESS, help=_ATTENTION)
    add("--d_model", type=count, metavar="D", help="width of the tokens")
    add("--num_heads", type=count, metavar="H", help="number of query heads")
    add("--tokens", type=count, metavar="T", help="number of tokens")
    add("--max_length", type=count, metavar="T", help="length that blocks divide (default: --tokens)")
    add("--dtype", type=_dtype, default="float32", help=f"number format of the key cache: {one_of(_DTYPES)}")
    add("--causal", action="store_true", help="hide later tokens")
    return parser


def _dtype(text: str) -> str:
    if text not in _DTYPES:
        raise argparse.ArgumentTypeError(f"must be one of {one_of(_DTYPES)}, not {text}")
    return text


def _report(description: Any, options: argparse.Namespace) -> str:
    import torch

    from tsattn.attention import build_attention
    from tsattn.attention.cost import closed_form, measured, measured_key_bytes

    length = options.max_length or options.tokens
    sizes = {"d_model": options.d_model, "num_heads": options.num_heads, "max_length": length}
    attention = build_attention(description, **sizes, causal=options.causal)
    form, found = closed_form(attention, options.tokens), measured(attention, options.tokens)
    dtype = getattr(torch, options.dtype)
    notes = [_NOTE] if found.score_flops > form.score_flops else []
    held: int | None = None
    try:
        held = measured_key_bytes(attention, options.tokens, dtype)
    except UserError as reason:
        notes.append(f"The cache is not measured: {reason}.")
    rows: list[tuple[str, int | None, int | None]] = [
        ("score parameters, a head", form.score_params_per_head, None),
        ("score parameters, all heads", form.score_params, found.score_params),
        ("flops to make queries and keys", form.projection_flops, found.projection_flops),
        ("flops to form scores, a head", form.score_flops_per_head, found.score_flops // options.num_heads),
        ("flops to form scores, all heads", form.score_flops, found.score_flops),
        ("flops executed on a CPU, with values", None, found.executed_flops),
        ("cached key numbers, a key head", form.cached_keys_per_head, None),
        ("cached key numbers, all key heads", form.cached_keys, None),
        (f"cached key bytes, {options.dtype}", form.cached_key_bytes(dtype), held),
    ]
    lines = [f"{'one attention layer':36}{'closed form':>20}{'measured':>20}"]
    for name, *both in rows:
        cells = ("" if number is None else f"{number:,}" for number in both)
        lines.append(f"{name:36}{'{:>20}{:>20}'.format(*cells)}".rstrip())
    return "\n".join([*lines, *([""] if notes else []), *notes])
