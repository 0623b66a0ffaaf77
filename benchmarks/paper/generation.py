"""Language models write with caches: how fast, and how many bytes of keys they hold.

    python benchmarks/paper/generation.py [--lengths 256 1024] [--width 128] [--seconds 5] [--output DIR]
    python benchmarks/paper/generation.py --run RUN --prompt "Return the" [--characters 200]

Causal transformers of six layers write whole pieces from their first character, one by one, with the attentions of the
language models. Before anything is timed each is seen to write with caches what it writes without. The models take
turns on one thread; their weights, on which no time depends, are those that they begin with. With `--run` a trained
language model, in a folder of its run, goes on with a prompt instead, and nothing is timed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

if not __package__:  # run as a file, which finds what lies beside it but not the folder above
    sys.path[0] = str(Path(__file__).parents[2])

import pandas as pd
import torch
from matplotlib.figure import Figure

from benchmarks.attention_speed.machine import describe
from benchmarks.attention_speed.timing import Timing, cpu_clock, take_turns
from benchmarks.paper.character_transformer import CharacterTransformer
from benchmarks.paper.claims import Claim, PaperReport, write_report
from benchmarks.paper.language import NAMES
from tsattn.attention.cost import closed_form, measured_key_bytes
from tsattn.descriptions import Description
from tsattn.errors import UserError
from tsattn.experiments import RunFolder
from tsattn.leaderboard.report.wording import size
from tsattn.predictors.fitted import load_predictor
from tsattn.task import Output, Task

__all__ = ["ATTENTIONS", "main", "measured", "report"]

ATTENTIONS: dict[str, Description] = {
    "standard": "standard",
    "mlr": {"kind": "mlr", "ranks": [32, 8, 6, 4, 4, 4, 4, 2], "align": "start"},
    "swa": {"kind": "swa", "window_size": 64},
    "global_swa": {"kind": "global_swa", "window_size": 64},
}
"""Those of the suite of language models."""

ROUNDS = 3
"""How often the median of the turns is found, to know its spread."""

_CHECKED = 48  # characters that are written with caches and without, to compare

_FOLDER = Path(__file__).parents[1] / "results" / "paper" / "generation"


def measured(lengths: Sequence[int], width: int, timing: Timing, *, layers: int = 6, anew: bool = True) -> pd.DataFrame:
    """A row a length and attention: ``T``, ``arm``, ``key_bytes`` and ``closed_form`` of all layers at the peak, and
    ``seconds`` and ``fastest``, ``slowest``, of the medians of several rounds, for T characters.

    Args:
        lengths: T, of the texts.
        width: D.
        timing: of a round.
        layers: of the models.
        anew: whether standard attention is timed without caches, too, at the least length.

    Raises:
        RuntimeError: if a model writes something else with caches than without.
    """
    rows = []
    for T in lengths:
        task = Task("text", T + 1, T, ("text",), "1", 1)
        models = {}
        for name, attention in ATTENTIONS.items():
            torch.manual_seed(0)
            sizes = {"d_model": width, "num_layers": layers}
            models[name] = CharacterTransformer(task, Output(), **sizes, attention=attention).eval()
            _check(name, models[name])
        runs = {name: partial(_write, model, True) for name, model in models.items()}
        if anew and min(lengths) == T:
            runs["standard, anew"] = partial(_write, models["standard"], False)
        rounds = [take_turns(runs, timing, cpu_clock)[0] for _ in range(ROUNDS)]
        for name in runs:
            times = sorted(one[name] for one in rounds)
            row = {"T": T, "arm": name, "seconds": times[len(times) // 2], "fastest": times[0], "slowest": times[-1]}
            if name in models:
                attentions = models[name].encoder.attentions
                row["key_bytes"] = sum(measured_key_bytes(one, T) for one in attentions)
                row["closed_form"] = sum(closed_form(one, T).cached_key_bytes() for one in attentions)
            rows.append(row)
            print(f"T {T:5}  {name:16} {T / row['seconds']:8.1f} characters a second", flush=True)
    return pd.DataFrame(rows).astype({"key_bytes": "Int64", "closed_form": "Int64"})


def _write(model: CharacterTransformer, with_caches: bool) -> torch.Tensor:
    """A whole piece."""
    caches = model.encoder.new_caches(1) if with_caches else None
    return model.write(torch.full((1, 1), ord("T")), model.length - 1, caches=caches)


def _check(name: str, model: CharacterTransformer) -> None:
    start = torch.full((1, 1), ord("T"))
    count = min(_CHECKED, model.length - 1)
    generators = (torch.Generator().manual_seed(1) for _ in range(2))
    one = model.write(start, count, caches=model.encoder.new_caches(1), generator=next(generators))
    other = model.write(start, count, caches=None, generator=next(generators))
    if not torch.equal(one, other):
        raise RuntimeError(f"{name} writes something else with caches than without")


def report(rows: pd.DataFrame, width: int, layers: int = 6) -> PaperReport:
    """The report of what was measured, see `measured`."""
    table = rows.assign(speed=rows["T"] / rows["seconds"], over=None, bytes_over=None)
    for T, part in rows.groupby("T"):
        standard = part[part["arm"] == "standard"].iloc[0]
        own = table["T"] == T
        table.loc[own, "over"] = rows.loc[own, "seconds"] / standard["seconds"]
        table.loc[own, "bytes_over"] = rows.loc[own, "key_bytes"].astype("Float64") / standard["key_bytes"]
    return PaperReport(
        title="Writing with caches",
        about=[" ".join((__doc__ or "").split("\n\n")[-1].split())],
        claims=[_keys_claim(table), _speed_claim(table)],
        table=_shown(table),
        legend="`characters a second` is of the median time of a whole piece, with the slowest and the fastest of "
        f"{ROUNDS} rounds; `time` and `keys beside` are over those of standard attention with caches; `key bytes` is "
        "the storage that all layers hold at the peak, in float32. `anew` computes the whole text at each character.",
        figure=_figure(table),
        caption="Characters a second (left) and bytes of keys at the peak (right) by the length of the piece.",
        differs=[
            f"Width {width} with {width // 64 or 1} heads of 64 components, {layers} layers; characters, one text at a "
            "time, on one thread of a CPU.",
            "Of the paper's own code only the sizes of its caches are known, not their speed.",
        ],
    )


def _keys_claim(table: pd.DataFrame) -> Claim:
    part = table[table["arm"] == "mlr"]
    found = "; ".join(
        f"T {row.T}: {size(float(row.key_bytes), 'B')}, {row.bytes_over:.3f} of standard attention's, in closed form "
        f"{size(float(row.closed_form), 'B')}"
        for row in part.itertuples()
    )
    holds = bool(((part["bytes_over"] < 1) & (part["key_bytes"] == part["closed_form"])).all())
    rule = "fewer bytes at every length, as many as the closed form T sum(r_l / p_l) has"
    return Claim("MLR attention has a smaller cache of keys than standard attention.", found, holds, rule)


def _speed_claim(table: pd.DataFrame) -> Claim:
    part = table[table["arm"] == "mlr"]
    standard = table[table["arm"] == "standard"].set_index("T")
    said, slower = [], []
    for row in part.itertuples():
        beside = standard.loc[row.T]
        said.append(
            f"T {row.T}: {row.T / row.seconds:,.0f} characters a second ({row.T / row.slowest:,.0f} to "
            f"{row.T / row.fastest:,.0f}) beside {beside['speed']:,.0f}"
        )
        slower.append(row.fastest > beside["slowest"])
    rule = "at every length the fastest round is slower than the slowest of standard attention"
    return Claim("For that it writes more slowly.", "; ".join(said), all(slower), rule)


def _shown(table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "T": table["T"],
            "arm": table["arm"],
            "characters a second": table["speed"],
            "slowest": table["T"] / table["slowest"],
            "fastest": table["T"] / table["fastest"],
            "time": table["over"].astype("float64"),
            "key bytes": table["key_bytes"],
            "keys beside": table["bytes_over"].astype("Float64").astype("float64"),
        }
    )


def _figure(table: pd.DataFrame) -> Figure:
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots(1, 2)
    for number, (arm, part) in enumerate(table.groupby("arm", sort=False)):
        style = {"color": f"C{number}", "marker": "osD^v"[number % 5], "label": NAMES.get(str(arm), str(arm))}
        axes[0].plot(part["T"], part["speed"], **style)
        if part["key_bytes"].notna().all():
            axes[1].plot(part["T"], part["key_bytes"].astype(float) / 1024, **style)
    axes[0].set(xlabel="characters of the piece", ylabel="characters a second", ylim=(0, None))
    axes[1].set(xlabel="characters of the piece", ylabel="keys held, KiB", xscale="log", yscale="log")
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def written(run: Path, prompt: str, characters: int, seed: int = 1) -> str:
    """A prompt, and what the language model in the folder of a run goes on with.

    Raises:
        UserError: if there is none, or the text is longer than its pieces.
    """
    checkpoint = RunFolder(run).best
    if not checkpoint.is_file():
        raise UserError(f"{run} holds no finished run: valid is a folder with {checkpoint.relative_to(run)}")
    model = getattr(load_predictor(checkpoint).predictor, "backbone", None)
    if not isinstance(model, CharacterTransformer):
        raise UserError(f"{run} is not the run of a language model")
    text = torch.tensor([list(prompt.encode())])
    generator = torch.Generator().manual_seed(seed)
    caches = model.encoder.new_caches(1)
    out = model.write(text, characters, caches=caches, generator=generator)
    return bytes(out[0].tolist()).decode(errors="replace")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/paper/generation.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 1024], help="characters of the pieces")
    parser.add_argument("--width", type=int, default=128, help="of the models")
    parser.add_argument("--seconds", type=float, default=5, help="for the turns of a round, if 5 are done")
    parser.add_argument("--output", type=Path, default=_FOLDER, metavar="DIR")
    parser.add_argument("--run", type=Path, metavar="RUN", help="the folder of a run of language.py")
    parser.add_argument("--prompt", default="Return ", help="what it goes on with")
    parser.add_argument("--characters", type=int, default=200, help="that it writes")
    options = parser.parse_args(words)
    if min(options.lengths) < 2 or options.width < 1 or options.characters < 1 or not options.prompt:
        parser.error("lengths are of at least 2 characters, a width and --characters at least 1, a prompt not empty")
    torch.set_num_threads(1)
    if options.run is not None:
        try:
            print(written(options.run, options.prompt, options.characters))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        return 0
    about = describe("cpu", torch.float32)
    rows = measured(sorted(options.lengths), options.width, Timing(options.seconds))
    lengths = " ".join(map(str, sorted(options.lengths)))
    made = (
        f"`python benchmarks/paper/generation.py --lengths {lengths} --width {options.width}` on one thread of "
        f"{about['cpu']}; torch {about['torch']}, Python {about['python']}."
    )
    write_report(options.output, report(rows, options.width), made)
    print(f"report: {options.output / 'report.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
