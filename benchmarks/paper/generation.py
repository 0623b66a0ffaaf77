"""Language models write with caches: how fast, and how many bytes of keys they hold.

    python benchmarks/paper/generation.py [--lengths 256 1024] [--width 128] [--seconds 5] [--again] [--output DIR]

Causal transformers of six layers write whole pieces from their first character, one by one, with the attentions of the
language models. Before anything is timed each is seen to come to the same scores with caches as without, at every
character of a whole piece. The models take turns on one thread; their weights, on which no time depends, are those that
they begin with. What this machine has measured already is not measured again.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

import pandas as pd
import torch
from matplotlib.figure import Figure

from benchmarks.measuring import Timing, cpu_clock, take_turns
from benchmarks.paper.character_transformer import CharacterTransformer
from benchmarks.paper.claims import Claim, PaperReport, most, paragraph, size, write_outcome
from benchmarks.paper.language import NAMES
from benchmarks.paper.machine_files import MachineFiles, all_machines, how_measured
from benchmarks.paper.text_windows import SYMBOLS
from tsattn.attention.cost import closed_form, measured_key_bytes
from tsattn.descriptions import Description
from tsattn.leaderboard.suite import Suite, read_suite
from tsattn.task import Output, Task

ROUNDS = 3  # in each of which the median of the turns is found, to know its spread
HEAD = 64  # components of a head
_LAYERS = 6
_TOLERANCE = 1e-4  # of scores whose standard deviation is about 0.6; float32 comes to 2e-6
_SUITES = Path(__file__).parent / "suites"
_FOLDER = Path(__file__).parents[1] / "results" / "paper" / "generation"


@cache
def _suites() -> list[Suite]:
    """Return the suites of the language models, the shortest pieces first."""
    found = [read_suite(_SUITES / f"language_{size}.yaml") for size in ("small", "full")]
    return sorted(found, key=lambda suite: max(suite.horizons))


def attentions_of(T: int) -> dict[str, Description]:
    """Return the attentions of the suite whose pieces have T characters, else the next longer, if any."""
    *shorter, last = _suites()
    suite = next((one for one in shorter if max(one.horizons) >= T), last)
    return {name: arm.description for name, arm in suite.attentions.items()}


def measured(T: int, width: int, timing: Timing, *, anew: bool = False) -> pd.DataFrame:
    """Time whole pieces of T characters.

    Args:
        T: of the text.
        width: D, a multiple of 64.
        timing: of a round.
        anew: whether standard attention is timed without caches, too.

    Returns:
        A row an attention: ``T``, ``arm``, ``key_bytes`` and ``closed_form`` of all layers at the peak, and
        ``seconds``, ``fastest``, ``slowest`` of the medians of the rounds.

    Raises:
        RuntimeError: if a model comes to other scores with caches than without.
    """
    task, models = Task("text", T + 1, T, ("text",), "1", 1), {}
    for name, attention in attentions_of(T).items():
        torch.manual_seed(0)
        sizes = {"d_model": width, "num_layers": _LAYERS}
        models[name] = CharacterTransformer(task, Output(), **sizes, attention=attention).eval()
        check_caches(name, models[name])
    runs = {name: partial(_write, model, True) for name, model in models.items()}
    if anew:
        runs["standard, anew"] = partial(_write, models["standard"], False)
    rounds = [take_turns(runs, timing, cpu_clock)[0] for _ in range(ROUNDS)]
    rows = []
    for name in runs:
        times = sorted(one[name] for one in rounds)
        row = {"T": T, "arm": name, "seconds": times[len(times) // 2], "fastest": times[0], "slowest": times[-1]}
        if name in models:
            attentions = models[name].encoder.attentions
            row["key_bytes"] = sum(measured_key_bytes(one, T) for one in attentions)
            row["closed_form"] = sum(closed_form(one, T).cached_key_bytes() for one in attentions)
        rows.append(row)
        print(f"T {T:5}  {name:16} {T / row['seconds']:8.1f} characters a second", flush=True)
    return pd.DataFrame(rows)


def _write(model: CharacterTransformer, with_caches: bool) -> torch.Tensor:
    caches = model.encoder.new_caches(1) if with_caches else None
    return model.write(torch.full((1, 1), ord("T")), model.length - 1, caches=caches)


@torch.no_grad()
def check_caches(name: str, model: CharacterTransformer) -> None:
    """Check that the scores of a random text are those of its characters one by one, with caches.

    Raises:
        RuntimeError: if they are not.
    """
    model = copy.deepcopy(model)
    for attention in model.encoder.attentions:
        for weight in attention.projection.parameters():
            weight.mul_(2)  # so that it matters what is attended to
    text = torch.randint(SYMBOLS, (1, model.length), generator=torch.Generator().manual_seed(1))
    caches = model.encoder.new_caches(1)
    one_by_one = torch.cat([model.scores(character, caches) for character in text.split(1, dim=1)], dim=1)
    errors = (one_by_one - model.scores(text)).abs().amax((0, 2))
    if not errors.max() <= _TOLERANCE:
        first = int((~(errors <= _TOLERANCE)).nonzero()[0])
        raise RuntimeError(
            f"{name} comes to other scores with caches than without: from character {first + 1} of {model.length}, by "
            f"{float(errors.max()):.2g} at most"
        )


def report(rows: pd.DataFrame, width: int) -> PaperReport:
    """Report the rows of `measured` with ``machine``."""
    key = ["machine", "T"]
    standard = rows[rows["arm"] == "standard"].set_index(key)
    own = pd.MultiIndex.from_frame(rows[key])
    table = rows.astype({"key_bytes": "Int64", "closed_form": "Int64"}).assign(
        speed=rows["T"] / rows["seconds"],
        over=rows["seconds"] / standard["seconds"].reindex(own).to_numpy(),
        bytes_over=rows["key_bytes"] / standard["key_bytes"].reindex(own).to_numpy(),
    )
    claims = []
    for machine, part in table.groupby("machine", sort=False):
        claims += [*([] if claims else [_keys_claim(part)]), _speed_claim(part, str(machine))]
    windows = "; ".join(
        f"of {max(one.horizons)}: {one.attentions['swa'].description['window_size']}" for one in _suites()
    )
    shown = {"machine": table["machine"], "T": table["T"], "arm": table["arm"], "characters a second": table["speed"]}
    shown |= {name: table["T"] / table[name] for name in ("slowest", "fastest")}
    shown |= {"time": table["over"], "key bytes": table["key_bytes"], "keys beside": table["bytes_over"]}
    return PaperReport(
        title="Writing with caches",
        about=[paragraph(__doc__)],
        claims=claims,
        table=pd.DataFrame(shown),
        legend="`characters a second` is of the median time of a whole piece, with the slowest and the fastest of "
        f"{ROUNDS} rounds; `time` and `keys beside` are over those of standard attention with caches; `key bytes` is "
        "the storage that all layers hold at the peak, in float32. `anew` computes the whole text at each character. "
        f"Windows, in characters, by the length of the pieces that the language models are trained on: {windows}.",
        figure=_figure(table),
        caption="Characters a second (left) and bytes of keys at the peak (right) by the length of the piece.",
        differs=[
            f"Width {width} with {width // HEAD} heads of {HEAD} components, {_LAYERS} layers; characters, one text at "
            "a time, on one thread of a CPU.",
            "Of the paper's own code only the sizes of its caches are known, not their speed.",
        ],
    )


def _keys_claim(table: pd.DataFrame) -> Claim:
    """Decide whether MLR holds fewer bytes of keys on one machine: bytes are the same on all."""
    part = table[table["arm"] == "mlr"]
    found = "; ".join(
        f"T {row.T}: {size(float(row.key_bytes), 'B')}, {row.bytes_over:.3f} of standard attention's, in closed form "
        f"{size(float(row.closed_form), 'B')}"
        for row in part.itertuples()
    )
    holds = bool(((part["bytes_over"] < 1) & (part["key_bytes"] == part["closed_form"])).all())
    rule = "fewer bytes at every length, as many as the closed form T sum(r_l / p_l) has"
    return Claim("MLR attention has a smaller cache of keys than standard attention.", found, holds, rule)


def _speed_claim(table: pd.DataFrame, machine: str) -> Claim:
    standard = table[table["arm"] == "standard"].set_index("T")
    said, slower = [], []
    for row in table[table["arm"] == "mlr"].itertuples():
        other = standard.loc[row.T]
        said.append(
            f"T {row.T}: {row.T / row.seconds:,.0f} characters a second ({row.T / row.slowest:,.0f} to "
            f"{row.T / row.fastest:,.0f}) beside {other['speed']:,.0f} ({row.T / other['slowest']:,.0f} to "
            f"{row.T / other['fastest']:,.0f})"
        )
        slower.append(True if row.fastest > other["slowest"] else False if row.slowest < other["fastest"] else None)
    rule = (
        "at most lengths every round is slower than each of standard attention, and at none faster; the reverse does "
        "not hold; else it is not decided"
    )
    text = f"MLR attention, which holds fewer keys, writes more slowly than standard attention ({machine})."
    return Claim(text, "; ".join(said), most(slower), rule, is_of_paper=False)


def _figure(table: pd.DataFrame) -> Figure:
    machines = list(dict.fromkeys(table["machine"]))
    figure = Figure(figsize=(9, 3.8 * len(machines)), layout="constrained")
    axes = figure.subplots(len(machines), 2, squeeze=False)
    for machine, (speeds, keys) in zip(machines, axes, strict=True):
        for number, (arm, part) in enumerate(table[table["machine"] == machine].groupby("arm", sort=False)):
            style = {"color": f"C{number}", "marker": "osD^v"[number % 5], "label": NAMES.get(str(arm), str(arm))}
            speeds.plot(part["T"], part["speed"], **style)
            if part["key_bytes"].notna().all():
                keys.plot(part["T"], part["key_bytes"].astype(float) / 1024, **style)
        speeds.set(xlabel="characters of the piece", ylabel="characters a second", ylim=(0, None), title=machine)
        keys.set(xlabel="characters of the piece", ylabel="keys held, KiB", ylim=(0, None))
        speeds.legend(frameon=False, fontsize=8)
        for ax in (speeds, keys):
            ax.set_xticks(sorted(table["T"].unique()))
            ax.spines[["top", "right"]].set_visible(False)
    return figure


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 1024], help="characters of the pieces")
    parser.add_argument("--width", type=int, default=128, help=f"of the models, a multiple of {HEAD}")
    parser.add_argument("--seconds", type=float, default=5, help="for the turns of a round, if 5 are done")
    parser.add_argument("--again", action="store_true", help="measure again what was measured here already")
    parser.add_argument("--dry-run", action="store_true", help="list what would be measured, and end")
    parser.add_argument("--report-only", action="store_true", help="write the report of what was measured")
    parser.add_argument("--output", type=Path, default=_FOLDER, metavar="DIR")
    options = parser.parse_args(words)
    lengths = sorted(set(options.lengths))
    if lengths[0] < 2 or options.seconds < 0:
        parser.error("--lengths must be of at least 2 characters, and --seconds at least 0")
    if options.width < HEAD or options.width % HEAD:
        parser.error(f"--width must be a multiple of {HEAD}, the components of a head, not {options.width}")
    torch.set_num_threads(1)
    settings = {"width": options.width, "seconds": options.seconds, "layers": _LAYERS}
    if not options.report_only:
        files = MachineFiles.here(options.output, settings)
        rows = files.rows()
        done = set() if rows.empty or options.again else set(rows["T"])
        if options.again and not options.dry_run:
            files.remove()
        for T in lengths:
            print(f"T {T}: {'measured' if T in done else 'to be measured'}", flush=True)
            if T not in done and not options.dry_run:
                began = time.monotonic()
                found = measured(T, options.width, Timing(options.seconds), anew=lengths[0] == T)
                files.add(found, time.monotonic() - began)
        if options.dry_run:
            return 0
    rows, known = all_machines(options.output, settings)
    if rows.empty:
        print(f"error: nothing was measured in {options.output}: run it without --report-only", file=sys.stderr)
        return 2
    command = f"python benchmarks/paper/generation.py --lengths {' '.join(map(str, lengths))} --width {options.width}"
    found = report(rows[rows["T"].isin(lengths)], options.width)
    seconds = sum(about["seconds"] for about in known)
    write_outcome(options.output, found, how_measured(command, known), seconds=seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
