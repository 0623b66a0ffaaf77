"""`tsattn export`, `cost` and `kernels`: commands that read no data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsattn.cli.command_options import Given, unknown
from tsattn.cli.words import session, take_descriptions
from tsattn.errors import UserError, one_of
from tsattn.experiments.run_folder import RunFolder

if TYPE_CHECKING:
    from tsattn.ops.native.library import KernelLibrary

__all__ = ["cost", "export", "kernels"]

_DTYPES = ("float64", "float32", "bfloat16", "float16")
_NOTE = """\
Flops to form scores are measured on the plain reference: it forms every pair
with every component, then masks. The next row counts what the chosen
implementation executes on a CPU, zero-padded components included."""


def cost(given: Given) -> None:
    """Print the costs of an attention as a table; a `UserError` says what is wrong."""
    described, others = take_descriptions(given.others)
    options = given.options
    if strange := [*(name for name, _ in others), *given.free]:
        raise unknown(strange[0], "cost")
    if options.dtype not in _DTYPES:
        raise UserError(f"--dtype must be one of {one_of(_DTYPES)}, not {options.dtype}")
    needed = {"attention": described or None, **vars(options), "max_length": 0}
    if missing := [f"--{name}" for name, value in needed.items() if value is None]:
        raise UserError(f"cost needs {' and '.join(missing)}")

    from tsattn.experiments.configs import with_values

    whole = with_values({"model": {"backbone": {"attention": "standard"}}}, described)
    print(_costs(whole["model"]["backbone"]["attention"], options))


def _costs(description: Any, options: Any) -> str:
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


def kernels(given: Given) -> None:
    """Say which kernels are in use, or why none; a `UserError` says what is wrong."""
    from tsattn.ops.native.library import VARIABLE, build_library, find_library

    word = os.environ.get(VARIABLE, "auto")
    if given.options.build:
        print(f"{'built':20}{build_library(word).path}")
    if given.options.tune:
        from tsattn.ops.native.library import why_no_kernels
        from tsattn.ops.native.size_tuning import tune_sizes

        if why_no_kernels() is not None:
            raise UserError(f"there are no kernels to measure: {why_no_kernels()}")
        tune_sizes(print)
    print("\n".join(f"{name:20}{what}" for name, what in _facts(find_library(word))))


def _facts(found: KernelLibrary) -> list[tuple[str, str]]:
    from tsattn.ops.native.chunking import chunk_sizes, tuned_file
    from tsattn.ops.native.kernel_compiler import sets_of_this_cpu

    facts = [("instruction sets", one_of(one.name for one in sets_of_this_cpu()))]
    if found.library is None or found.instruction_set is None:
        facts.append(("in use", f"none: {found.why_none}"))
    else:
        facts.append(("in use", f"{found.instruction_set.name}, {found.library.tsattn_lanes()} numbers at once"))
        facts.append(("from", f"this package: {found.path}" if found.came_along else f"compiled here: {found.path}"))
    if found.compiler:
        facts.append(("compiler", f"{' '.join(found.compiler.command)}: {found.compiler.version}"))
    if found.library is not None:
        sizes, path = chunk_sizes(), tuned_file()
        origin = f"measured: {path}" if path is not None and path.is_file() else "by the sizes of the caches"
        long = f"{sizes.shared_blocks_long} where keys pass the second cache"
        cut = f"{sizes.chunk_keys} keys by {sizes.shared_blocks} blocks of queries ({long})"
        facts.append(("sizes", f"{cut}, {origin}"))
    return facts + [("went wrong", str(one)) for one in found.complaints if str(one) != found.why_none]


def export(given: Given) -> None:
    """Export a run; a `UserError` says what is wrong."""
    options = given.options
    if options.run is None:
        raise UserError("export needs a trained model: --run DIR, the folder that `fit` has written")
    folder = RunFolder(options.run)
    folder.check_trained()
    from tsattn.experiments.recording import fitted_in
    from tsattn.forecaster.forecast_files import check_output
    from tsattn.predictors.exporting import FORMATS, exported, format_of
    from tsattn.saved_folders import write_whole

    ending = next((end for end, one in FORMATS.items() if one == options.format), next(iter(FORMATS)))
    output = Path(options.output or folder.path / f"model{ending}")
    form = format_of(output.suffix, options.format)
    check_output(output, options.overwrite, endings=FORMATS)
    with session():
        content, facts = exported(fitted_in(folder, options.ckpt_path), form)
        write_whole(output, lambda file: file.write(content), overwrite=options.overwrite)
    print(f"{output}: {facts['model']}, {len(content) / 1e6:.1f} MB")
    for name, one in {**facts["inputs"], **facts["outputs"]}.items():
        shape = ", ".join(map(str, one["shape"]))
        print(f"  {'gives' if name in facts['outputs'] else 'takes'} {name} ({shape}) {one['dtype']}")
    if written_out := [kind for kind, impl in facts["attention"].items() if impl == "reference"]:
        print(
            f"  attention {', '.join(written_out)} is written out, as the kernels of this package are not in the file"
        )
