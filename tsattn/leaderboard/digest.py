"""A digest of 20 training steps, which shows when equal experiments no longer have equal results.

An experiment's key says what was run, but not with which code and processor. So each record also holds a validation
error: 20 steps of its kind of model on embedded data. On one model of CPU this error is reproducible up to rounding. If
it changes, the code or a library trains differently, and older records are not comparable with newer ones.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml

from tsattn.attention import complete_attention
from tsattn.experiments import Experiment, run
from tsattn.predictors import build_predictor
from tsattn.predictors.network import NetworkPredictor
from tsattn.saved_folders import write_text

logger = logging.getLogger("tsattn")
_TOLERANCE = 1e-6
_CONTENT = {
    "seed_everything": 1,
    "data": {"class_path": "CO2DataModule", "init_args": {"context_length": 104, "prediction_length": 26}},
    "trainer": {"max_steps": 20, "val_check_interval": 20, "accelerator": "cpu"},
}


def digest_of(experiment: Experiment, cpu: str, file: Path) -> float | None:
    """The digest of an experiment's kind of model; None for an ensemble or an untrained predictor.

    Each is computed once for the code, the libraries and the CPU, and kept in a JSON file, unless it fails.
    """
    predictor = build_predictor(experiment.model["backbone"])
    if not isinstance(predictor, NetworkPredictor) or not predictor.is_trained:
        return None
    kind = kind_of(experiment.model["backbone"])
    libraries = [torch.__version__, version("lightning"), version("numpy")]
    key = json.dumps([kind, cpu, torch.get_num_threads(), *libraries, _code()])

    def known() -> dict[str, float]:
        found: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
        return found

    kept = known()
    if key not in kept and (found := _digest(json.loads(kind))) is not None:
        kept = {**known(), key: found}  # another process may have written since
        write_text(file, json.dumps(kept))
    return kept.get(key)


@cache
def _code() -> str:
    """A hash of the package's own source."""
    root = Path(__file__).parents[1]
    files = sorted(path for path in root.rglob("*") if path.suffix in (".py", ".cpp", ".h"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def kind_of(backbone: Mapping[str, Any]) -> str:
    """A predictor's kind and the kinds of its attention, as JSON, without their arguments."""
    content: dict[str, Any] = {"kind": backbone["kind"]}
    if (given := backbone.get("attention")) is not None:
        layers = given if isinstance(given, list) else [given]
        kinds = list(dict.fromkeys(complete_attention(layer)["kind"] for layer in layers))
        content["attention"] = kinds[0] if len(kinds) == 1 else kinds
    return json.dumps(content, sort_keys=True)


def conflicts(records: pd.DataFrame) -> list[str]:
    """A sentence for each kind of model whose records on one model of CPU have different digests."""
    known = records[records["digest"].notna()].copy()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # seven times as fast, where libyaml is there
    known["kind"] = [kind_of(yaml.load(text, loader)["model"]["backbone"]) for text in known["experiment"]]
    found = []
    for (kind, cpu), rows in known.groupby(["kind", "cpu"]):
        low, high = rows["digest"].min(), rows["digest"].max()
        if not math.isclose(low, high, rel_tol=_TOLERANCE):
            commits = ", ".join(sorted({commit[:7] for commit in rows["git"]}))
            found.append(
                f"records of {kind} on {cpu} were trained by code that differs (digests {low:.6g} and {high:.6g}, "
                f"commits {commits}); remove them, and run the suite again"
            )
    return found


def _digest(backbone: dict[str, Any]) -> float | None:
    """The validation error after 20 steps; None for a model that cannot be trained on these data."""
    try:
        result = run(Experiment.of({**_CONTENT, "model": {"backbone": backbone}}), test=False)
    except Exception as error:  # a failed digest must not fail the recorded run
        logger.info("the record has no digest of 20 training steps: %s", error)
        return None
    return float(result.fit["validation_error"])
