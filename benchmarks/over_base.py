"""Time and memory of this checkout over those of another one: training step, prediction, attention, reading.

    git worktree add ../base COMMIT
    python benchmarks/over_base.py ../base

Both checkouts take turns, each time in a new process with one thread. Times are CPU seconds, the least of all rounds:
what else runs on the machine only adds to them. Memory is the peak of a process that fits and forecasts. Writes
`over_base.json` into the output folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from long_csv import write_long
from reporting import about, new_parser, parse, write_record

FIT = """
import json, resource, statistics, time
import numpy as np, pandas as pd
from lightning.pytorch import Callback
from tsattn import Forecaster

class Steps(Callback):
    def __init__(self): self.ends = []
    def on_train_batch_end(self, *given): self.ends.append(time.process_time())

rng = np.random.default_rng(0)
index = pd.date_range("2020-01-01", periods=4000, freq="h", name="ds")
frame = pd.DataFrame(rng.normal(size=(4000, 7)).cumsum(axis=0), index, [f"c{i}" for i in range(7)])
steps = Steps()
sizes = {"context_length": 336, "prediction_length": 96, "max_steps": 60, "accelerator": "cpu"}
try:
    model = Forecaster("patchtst", attention="ATTENTION", training={"callbacks": [steps]}, **sizes)
except TypeError:  # an older base
    model = Forecaster("patchtst", attention="ATTENTION", callbacks=[steps], **sizes)
model.fit(frame)
took = []
for _ in range(5):
    start = time.process_time()
    model.predict(frame)
    took.append(time.process_time() - start)
print(json.dumps({"training step, ATTENTION": min(np.diff(steps.ends)[5:]), "prediction, ATTENTION": min(took),
                  "peak memory, ATTENTION": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""
LAYERS = """
import json, time
import torch
from tsattn.attention import build_attention
torch.manual_seed(0)
x = torch.randn(2, 777, 128)
found = {}
for kind in ("standard", "swa", "global_swa", "btt", "bilinear_mlr", "mlbtc", "mlr"):
    layer, took = build_attention(kind, d_model=128, num_heads=4, max_length=777), []
    for _ in range(7):
        start = time.process_time()
        layer(x).square().mean().backward()
        took.append(time.process_time() - start)
    found[f"attention, {kind}"] = min(took)
print(json.dumps(found))
"""
READ = """
import json, time
from pathlib import Path
from tsattn.data import panel_from_frame
took = []
for _ in range(3):
    start = time.process_time()
    panel_from_frame(Path("long.csv"))
    took.append(time.process_time() - start)
print(json.dumps({"reading a long CSV": min(took)}))
"""
PARTS = [FIT.replace("ATTENTION", "standard"), FIT.replace("ATTENTION", "mlr"), LAYERS, READ]


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("base", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--at-most", type=float, default=1.03, help="the limit of each ratio")
    options = parse(parser)
    trees = {"base": options.base.resolve(), "here": Path(__file__).parents[1]}
    rows: dict[str, dict[str, float]] = defaultdict(dict)
    with tempfile.TemporaryDirectory() as folder:
        write_long(Path(folder) / "long.csv", 300, 1000)
        for number in range(options.rounds):
            for script in PARTS:
                for name in [*trees][:: 1 if number % 2 else -1]:
                    environment = {**os.environ, "PYTHONPATH": str(trees[name]), "OMP_NUM_THREADS": "1"}
                    how = {"cwd": folder, "env": environment, "text": True}
                    said = subprocess.check_output([sys.executable, "-c", script], **how)
                    for part, value in json.loads(said.splitlines()[-1]).items():
                        rows[part][name] = min(value, rows[part].get(name, value))
    for part, row in rows.items():
        row["ratio"] = row["here"] / row["base"]
        print(f"{part:32} {row['ratio']:.3f}{'' if row['ratio'] <= options.at_most else '  above the limit'}")
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=options.base, text=True).strip()
    record = {**about("lightning", "numpy", "pandas"), "base": commit, "rows": rows}
    write_record(options.output / "over_base.json", record)
    return int(any(row["ratio"] > options.at_most for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
