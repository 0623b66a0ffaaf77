"""Language models write with caches: how fast, and how many bytes of keys they hold.

    python benchmarks/paper/generation.py [--lengths 256 1024] [--width 128] [--seconds 5] [--again] [--output DIR]

Causal transformers of six layers write whole pieces from their first character, one by one, with the attentions of the
language models. Before anything is timed each is seen to come to the same scores with caches as without, at every
character of a whole piece. The models take turns on one thread; their weights, on which no time depends, are those that
they begin with. What this machine has measured already is not measured again.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

import pandas as pd
import torch
from matplotlib.figure import Figure

from benchmarks.measuring import Timing, cpu_clock, take_turns
from benchmarks.paper.character_transformer import CharacterTransformer
from benchmarks.paper.claims import Claim, PaperReport, claim_of, new_axes
from benchmarks.paper.experiment import measure_and_report, timed_parser
from benchmarks.paper.language import NAMES
from benchmarks.paper.text_windows import SYMBOLS
from tsattn.attention.cost import closed_form, measured_key_bytes
from tsattn.descriptions import Description
from tsattn.leaderboard.suite import read_suite
from tsattn.task import Output, Task

SUITES = [read_suite(Path(__file__).parent / "suites" / f"language_{size}.yaml") for size in ("small", "h100")]
ROUNDS = 3  # in each of which the median of the turns is found, to know its spread
HEAD = 64  # components of a head
_LAYERS = 6
_TOLERANCE = 1e-4  # of scores whose standard deviation is about 0.6; float32 comes to 2e-6


def attentions_of(T: int) -> dict[str, Description]:
    """Return the attentions of the suite whose pieces have T characters, else the next longer, if any."""
    small, large = SUITES
    suite = small if max(small.horizons) >= T else large
    return {name: one.description for name, one in suite.attentions.items()}


def measured(T: int, width: int, timing: Timing, *, no_cache: bool = False) -> pd.DataFrame:
    """Time whole pieces of T characters, a row an attention; `no_cache` times standard attention without caches, too.

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
    runs |= {"standard, no cache": partial(_write, models["standard"], False)} if no_cache else {}
    rounds = [take_turns(runs, timing, cpu_clock)[0] for _ in range(ROUNDS)]
    rows = []
    for name in runs:
        times = sorted(one[name] for one in rounds)
        row = {"T": T, "model": name, "seconds": times[len(times) // 2], "fastest": times[0], "slowest": times[-1]}
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
    key = ["machine", "T"]
    standard = rows[rows["model"] == "standard"].set_index(key)
    own = pd.MultiIndex.from_frame(rows[key])
    table = rows.astype({"key_bytes": "Int64", "closed_form": "Int64"}).assign(
        speed=rows["T"] / rows["seconds"],
        over=rows["seconds"] / standard["seconds"].reindex(own).to_numpy(),
        bytes_over=rows["key_bytes"] / standard["key_bytes"].reindex(own).to_numpy(),
    )
    by_machine = [*table.groupby("machine", sort=False)]
    claims = [_keys_claim(by_machine[0][1]), *(_speed_claim(part, str(machine)) for machine, part in by_machine)]
    windows = "; ".join(f"of {max(one.horizons)}: {one.attentions['swa'].description['window_size']}" for one in SUITES)
    shown = {name: table[name] for name in ("machine", "T", "model")} | {"characters a second": table["speed"]}
    shown |= {name: table["T"] / table[name] for name in ("slowest", "fastest")}
    shown |= {"time": table["over"], "key bytes": table["key_bytes"], "keys": table["bytes_over"]}
    return PaperReport(
        title="Writing with caches",
        doc=__doc__,
        claims=claims,
        table=pd.DataFrame(shown),
        legend="`characters a second` is of the median time of a whole piece, with the slowest and the fastest of "
        f"{ROUNDS} rounds; `time` and `keys` are divided by those of standard attention with caches; `key bytes` is "
        "the storage that all layers hold at the peak, in float32. Without a cache, each character computes the whole "
        "text. "
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
    part = table[table["model"] == "mlr"]
    found = "; ".join(
        f"T {row.T}: {_size(row.key_bytes)}, {row.bytes_over:.3f} of standard attention's, in closed form "
        f"{_size(row.closed_form)}"
        for row in part.itertuples()
    )
    holds = bool(((part["bytes_over"] < 1) & (part["key_bytes"] == part["closed_form"])).all())
    rule = "fewer bytes at every length, as many as the closed form T sum(r_l / p_l) has"
    size = f"T {', '.join(map(str, part['T']))}"
    return Claim("MLR attention has a smaller cache of keys than standard attention.", found, holds, rule, size=size)


def _size(value: float) -> str:
    return f"{value / 1e3:.3g} kB" if value < 999_500 else f"{value / 1e6:.3g} MB"


def _speed_claim(table: pd.DataFrame, machine: str) -> Claim:
    standard = table[table["model"] == "standard"].set_index("T")
    parts = []
    for row in table[table["model"] == "mlr"].itertuples():
        other = standard.loc[row.T]
        words = (
            f"T {row.T}: {row.T / row.seconds:,.0f} characters a second ({row.T / row.slowest:,.0f} to "
            f"{row.T / row.fastest:,.0f}) against {other['speed']:,.0f} ({row.T / other['slowest']:,.0f} to "
            f"{row.T / other['fastest']:,.0f})"
        )
        is_slower = True if row.fastest > other["slowest"] else False if row.slowest < other["fastest"] else None
        parts.append((words, is_slower))
    rule = (
        "at most lengths every round is slower than each of standard attention, and at none faster; the reverse does "
        "not hold; else it is undecided"
    )
    text = "MLR attention, which holds fewer keys, writes more slowly than standard attention."
    return claim_of(text, parts, rule, is_of_paper=False, size=machine)


def _figure(table: pd.DataFrame) -> Figure:
    machines = list(dict.fromkeys(table["machine"]))
    figure, axes = new_axes((9, 3.8 * len(machines)), len(machines), 2)
    for machine, (speeds, keys) in zip(machines, axes, strict=True):
        for number, (model, part) in enumerate(table[table["machine"] == machine].groupby("model", sort=False)):
            style = {"color": f"C{number}", "marker": "osD^v"[number % 5], "label": NAMES.get(str(model), str(model))}
            speeds.plot(part["T"], part["speed"], **style)
            if part["key_bytes"].notna().all():
                keys.plot(part["T"], part["key_bytes"].astype(float) / 1024, **style)
        shared = {"xlabel": "characters of the piece", "ylim": (0, None), "xticks": sorted(table["T"].unique())}
        speeds.set(ylabel="characters a second", title=machine, **shared)
        keys.set(ylabel="keys held, KiB", **shared)
        speeds.legend(frameon=False, fontsize=8)
    return figure


def main(words: Sequence[str] | None = None) -> int:
    parser = timed_parser("generation", __doc__, 5, "a round")
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 1024], help="characters of the pieces")
    parser.add_argument("--width", type=int, default=128, help=f"of the models, a multiple of {HEAD}")
    options = parser.parse_args(words)
    lengths, width = sorted(set(options.lengths)), options.width
    if lengths[0] < 2 or options.seconds < 0:
        parser.error("--lengths must be of at least 2 characters, and --seconds at least 0")
    if width < HEAD or width % HEAD:
        parser.error(f"--width must be a multiple of {HEAD}, the components of a head, not {width}")
    torch.set_num_threads(1)
    return measure_and_report(
        options,
        {"width": width, "seconds": options.seconds, "layers": _LAYERS},
        ("T", lengths),
        lambda T: measured(T, width, Timing(options.seconds), no_cache=lengths[0] == T),
        lambda rows: report(rows, width),
        f"python benchmarks/paper/generation.py --lengths {' '.join(map(str, lengths))} --width {width}",
    )


if __name__ == "__main__":
    sys.exit(main())
