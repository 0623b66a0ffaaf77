"""Write the configurations that are named after data sets, from the records of the suite `classic`.

    python benchmarks/presets.py

Each holds the model with a trained attention that validation chose over all horizons, as it was run with the first seed
at the shortest horizon, without its defaults.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from measuring import RESULTS, new_parser

from tsattn.experiments import Experiment
from tsattn.leaderboard.analysis import Analysis
from tsattn.leaderboard.records import Records

# defaults that readers look for
KEPT = ("class_path", "name", "prediction_length", "kind", "backbone", "data", "model", "trainer")


def presets(folder: Path) -> dict[str, str]:
    analysis, made = Analysis(Records.read(folder)), {}
    for dataset in analysis.datasets:
        if not (model := analysis.chosen(dataset, attention=True)):
            continue
        horizons, runs = analysis.horizons[dataset], analysis.runs
        own = runs[(runs["dataset"] == dataset) & (runs["model"] == model) & (runs["horizon"] == horizons[0])]
        run = own.sort_values("seed").iloc[0]
        listed = ", ".join(map(str, horizons))
        head = f"# {dataset}: {model}. Of models with attention it has the lowest validation MSE at {listed} steps\n"
        head += f"# in the suite {run['suite']}. Values are for {horizons[0]}; --data.prediction_length takes others.\n"
        content = yaml.safe_dump(shortest(yaml.safe_load(run["experiment"])), sort_keys=False, width=110)
        made[f"{dataset.lower()}.yaml"] = head + content
    return made


def shortest(content: dict[str, Any]) -> dict[str, Any]:
    """Drop the defaults of an experiment, and its accelerator, which the machine chooses."""
    content["trainer"].pop("accelerator", None)
    content["data"]["class_path"] = content["data"]["class_path"].rpartition(".")[2]
    meant = Experiment.of(content).to_dict()
    files, least = content["data"]["init_args"], copy.deepcopy(content)
    least["data"]["init_args"] = {name: files[name] for name in files if name in KEPT}
    least = Experiment.of({**least, "model": {"backbone": content["model"]["backbone"]}, "trainer": {}}).to_dict()
    for part, default in (
        (files, least["data"]["init_args"]),
        *((content[name], least[name]) for name in ("model", "trainer")),
    ):  # most are dropped at once, as each test below parses all of it
        for name in [name for name in part if name not in KEPT and part[name] == default.get(name, meant)]:
            del part[name]
    for path in [*paths(content)]:
        part = without = copy.deepcopy(content)
        for name in path[:-1]:
            part = part[name]
        del part[path[-1]]
        if path[-1] not in KEPT and same(without, meant):
            content = without
    assert same(content, meant)
    return content


def same(content: dict[str, Any], meant: dict[str, Any]) -> bool:
    try:
        return Experiment.of(content).to_dict() == meant
    except Exception:  # whatever is wrong with it, it is not the same
        return False


def paths(part: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the path of everything inside, the innermost first."""
    for name, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        yield from paths(value, (*above, name))
        if isinstance(part, dict):
            yield (*above, name)


def main() -> int:
    parser = new_parser(__doc__, Path(__file__).parents[1] / "configs")
    options = parser.parse_args()
    for name, content in presets(RESULTS / "classic").items():
        (options.output / name).write_text(content)
        print(options.output / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
