"""A training by neuralforecast that takes turns: a script for the python of the peers, given a description as JSON.

The model is made by the worker that makes it for `fit`, see `tsattn.peers.peer_worker`, which lies where the
description says.
"""

from __future__ import annotations

import gc
import json
import runpy
import sys

import neuralforecast
import neuralforecast.models  # before memory is counted
import numpy as np
import pandas as pd
import torch
from neuralforecast.tsdataset import TimeSeriesDataset
from pytorch_lightning.callbacks import Callback
from turns import answers, held_bytes, most_bytes, reset_most, say, turns


def main() -> None:
    """Train as the description says."""
    lines = answers()
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    worker = runpy.run_path(asked["worker"])
    gc.collect()
    reset_most()
    before = held_bytes()
    table = pd.read_parquet(asked["table"]).rename(columns={"observed": "available_mask"})
    table["available_mask"] = table["available_mask"].astype(np.float32)
    dataset = TimeSeriesDataset.from_df(table)[0]
    del table
    model = worker["neural_model"](asked["request"])
    model.trainer_kwargs["callbacks"] = [turns(Callback, lines, "ptl/val_loss")]
    model.fit(dataset, val_size=asked["val_rows"] if asked["interval"] else 0)
    encoder = getattr(getattr(getattr(model, "model", None), "backbone", None), "patch_num", None)
    say(
        lines,
        end=True,
        memory=most_bytes() - before,
        parameters=sum(weight.numel() for weight in model.parameters() if weight.requires_grad),
        tokens=encoder,
        versions={"torch": torch.__version__, "neuralforecast": neuralforecast.__version__},
    )


if __name__ == "__main__":
    main()
