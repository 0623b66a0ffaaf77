"""Time and memory of every attention beside `scaled_dot_product_attention`, as ratios measured in one run.

    python benchmarks/attention.py
    python benchmarks/attention.py --device cuda --dtype bfloat16

First every contender is compared with its reference, in value and gradient; nothing is timed if one differs. Then the
contenders take turns, so that a drift of the machine meets all of them alike; medians are reported. Writes
`attention.csv`, `attention.json` (hardware, versions, shapes) and `attention.png` (`attention_cuda` on a GPU) into the
output folder, and prints the targets with what was measured.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import sys
from pathlib import Path
from typing import Any

import torch
from attention_speed.contenders import HEADS, LENGTHS, RANKS, WIDTH, WINDOW, check, contenders_on
from attention_speed.modules import decoding, module_overhead
from attention_speed.targets import draw, targets, targets_on_gpu
from attention_speed.timing import measure


def hardware(device: str, dtype: torch.dtype) -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    models = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    return {
        **({"gpu": torch.cuda.get_device_name()} if device == "cuda" else {}),
        "cpu": models[0].split(":")[1].strip() if models else platform.processor(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
        "heads": HEADS,
        "width": WIDTH,
        "ranks": RANKS,
        "window_size": WINDOW,
        "command": " ".join(["python", *sys.argv]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--repeats", type=int, default=15, help="most turns of a contender")
    parser.add_argument("--seconds", type=float, default=40, help="time for the turns of one length and pass")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device, dtype = arguments.device, getattr(torch, arguments.dtype)
    tolerance = 1e-9 if device == "cpu" else 1e-3 if dtype == torch.float32 else 3e-2
    wrong = {c.name: error for c in contenders_on(device) if not (error := check(c, device, dtype)) <= tolerance}
    if wrong:
        print(f"not timed, for these differ from their reference: {wrong}", file=sys.stderr)
        return 1
    rows = measure(arguments.lengths, arguments.repeats, arguments.seconds, device, dtype)
    decoded = decoding() if device == "cpu" else {}
    reached = targets(rows, module_overhead(), decoded) if device == "cpu" else targets_on_gpu(rows)
    arguments.output.mkdir(parents=True, exist_ok=True)
    name = "attention" if device == "cpu" else f"attention_{device}"
    with (arguments.output / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    figures = [{"target": name, "measured": round(figure, 3), "at_most": most} for name, figure, most in reached]
    (arguments.output / f"{name}.json").write_text(
        json.dumps({**hardware(device, dtype), "targets": figures, "decoding": decoded}, indent=2) + "\n"
    )
    draw(rows, arguments.output / f"{name}.png")
    print()
    for name, figure, most in reached:
        print(f"{name:70} {figure:7.3f}  at most {most:<5}  {'met' if figure <= most else 'NOT MET'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
