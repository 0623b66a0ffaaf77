"""Many series of different lengths, scales and categories, and what the tests of them share."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from tests.toy_windows import tensors_of
from tsattn.batch import Batch
from tsattn.data import FrameDataModule

L, T = 12, 4
SIZES: dict[str, Any] = {"context_length": L, "prediction_length": T, "eval_batch_size": 16}
LENGTHS = {"a": 60, "b": 45, "c": 9, "d": 100}
COLUMNS: dict[str, Any] = {"past_covariates": ["rain"], "future_covariates": ["price"], "static": ["kind", "town"]}


def long_frame(lengths: dict[Any, int], ahead: int = 0, frequency: str = "D") -> pd.DataFrame:
    """Series of these lengths and a scale of their own each, with covariates; the last rows `ahead` have no target."""
    rng, parts = np.random.default_rng(0), []
    for number, (name, rows) in enumerate(lengths.items()):
        stamps = pd.date_range("2020-01-01", periods=rows + ahead + number, freq=frequency)[number:]
        y = 100 * number + (number + 1) * rng.standard_normal(rows + ahead)
        y[rows:] = np.nan
        rain, price = rng.standard_normal((2, rows + ahead))
        columns = {"y": y, "rain": rain, "price": 5 + 2 * price, "kind": "xyz"[number % 3], "town": f"t{number}"}
        parts.append(
            pd.DataFrame({"unique_id": pd.Index([name] * len(y), tupleize_cols=False), "ds": stamps, **columns})
        )
    return pd.concat(parts, ignore_index=True)


def prepared(frame: pd.DataFrame, **options: Any) -> FrameDataModule:
    data = FrameDataModule(frame, **{**SIZES, **options})
    data.setup("fit")
    return data


def everything(batches: Sequence[Batch]) -> dict[str, torch.Tensor]:
    """Batches as one, by the names of their parts, with masks where one of them has a mask."""
    whole: dict[str, list[torch.Tensor]] = {}
    for batch in batches:
        tensors = tensors_of(batch)
        known = [n for n in ("past", "target", "past_covariates", "future_covariates") if n in tensors]
        masks = {f"{name}_observed": torch.ones_like(tensors[name], dtype=torch.bool) for name in known}
        for name, part in {**masks, **tensors}.items():
            whole.setdefault(name, []).append(part)
    return {name: torch.cat(parts) for name, parts in whole.items()}
