"""Fits and forecasts with neuralforecast and statsforecast, one request after the other: a script.

It is run by the python of the peers' environment and imports nothing but what is there. A request is a line of JSON on
the standard input, its answer a line of JSON on what was the standard output: ``{"facts": {...}}``, or ``{"error":
"a sentence"}``. Tables are Parquet files that requests name, weights are safetensors: nothing is unpickled. The process
ends with its standard input.
"""

from __future__ import annotations

import copy
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import logging
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from queue import Queue
from typing import Any, TextIO

import numpy as np
import pandas as pd

# of a model, what the task and the exchange of tables decide
_DECIDED = (
    *("h", "input_size", "n_series", "inference_input_size", "random_seed", "alias", "callbacks", "max_epochs"),
    *("futr_exog_list", "hist_exog_list", "stat_exog_list", "cat_exog_list", "exclude_insample_y"),
)
_QUIET = {
    **{"logger": False, "enable_progress_bar": False, "enable_model_summary": False},
    **{"num_sanity_val_steps": 0, "devices": 1},
}


class RequestError(Exception):
    """What whoever asks can mend; its text is one sentence."""


def check(request: Mapping[str, Any]) -> dict[str, Any]:
    """Make the model of a request, and say how large it is."""
    library = request["library"]
    if library == "statsforecast":
        local_model(request)
        return {"parameters": 0, "version": _version(library)}
    model = neural_model(request)
    parameters = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    return {"parameters": parameters, "version": _version(library), "is_multivariate": bool(model.MULTIVARIATE)}


def fit(request: Mapping[str, Any]) -> dict[str, Any]:
    """Train a model of neuralforecast on the table of a request; its weights go into the file ``state``."""
    from neuralforecast.tsdataset import TimeSeriesDataset
    from safetensors.torch import save_file

    table = pd.read_parquet(request["table"])
    table = table.rename(columns={"observed": "available_mask"})
    table["available_mask"] = table["available_mask"].astype(np.float32)
    model = neural_model(request)
    best = _best_weights(request["stop_at"])
    model.trainer_kwargs["callbacks"] = [*(model.trainer_kwargs.get("callbacks") or []), best]
    dataset = TimeSeriesDataset.from_df(table)[0]
    started = time.perf_counter()
    model.fit(dataset, val_size=request["val_rows"])
    seconds = time.perf_counter() - started
    weights = best.weights or model.state_dict()
    weights = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    parameters = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    save_file(weights, request["state"], {"parameters": str(parameters)})
    return {
        "best_step": best.step if best.weights else best.steps,
        "steps": best.steps,
        "seconds": round(seconds, 1),
        "version": _version("neuralforecast"),
    }


def forecast(request: Mapping[str, Any]) -> dict[str, Any]:
    """Forecast the windows in the table of a request; the forecasts go into the file ``forecasts``."""
    table = pd.read_parquet(request["table"])
    made = _of_network if request["library"] == "neuralforecast" else _of_local_model
    made(table, request).to_parquet(request["forecasts"], index=False)
    return {}


def neural_model(request: Mapping[str, Any]) -> Any:
    """A model of neuralforecast with new weights."""
    losses = importlib.import_module("neuralforecast.losses.pytorch")
    models = importlib.import_module("neuralforecast.models")
    names = [name for name in models.__all__ if name not in ("HINT", "TimeLLM")]  # which are made of other models
    if request["model"] not in names:
        raise RequestError(f"neuralforecast has no model {request['model']!r}; valid: {', '.join(sorted(names))}")
    kind = getattr(models, request["model"])
    if kind.RECURRENT:
        raise RequestError(f"{request['model']} forecasts step by step, which is not supported here; name another")
    chosen = {**request["options"], **request["arguments"]}
    names = [name for name in inspect.signature(kind.__init__).parameters if name not in ("self", "trainer_kwargs")]
    valid = [name for name in names if name not in _DECIDED]
    for name in request["arguments"]:
        if name in _DECIDED:
            raise RequestError(f"{request['model']} takes its {name} from the task: leave it out of arguments")
        if name not in valid and not _is_of_trainer(name):
            raise RequestError(
                f"{request['model']} of neuralforecast has no argument {name!r}; valid: {', '.join(valid)}, and those "
                "of Lightning's Trainer"
            )
    levels = request["quantiles"]
    for name in ("loss", "valid_loss"):
        if levels:
            if name in request["arguments"]:
                raise RequestError(f"quantiles are trained by MQLoss: leave {name} out of arguments")
            chosen[name] = losses.MQLoss(quantiles=levels)
        elif isinstance(chosen.get(name), str):
            if not inspect.isclass(getattr(losses, chosen[name], None)):
                raise RequestError(f"neuralforecast has no loss {chosen[name]!r}")
            chosen[name] = getattr(losses, chosen[name])()
            if chosen[name].outputsize_multiplier != 1:
                raise RequestError(f"{name} must be that of a point forecast, such as MAE: quantiles have their own")
    sizes = {"h": request["h"], "input_size": request["input_size"], "random_seed": request["seed"]}
    if kind.MULTIVARIATE:
        sizes["n_series"] = request["channels"]
    if "windows_batch_size" in request["options"] and "windows_batch_size" not in request["arguments"]:
        # windows of single channels, or of all together
        chosen["windows_batch_size"] = request["options"]["windows_batch_size"] * (
            1 if kind.MULTIVARIATE else request["channels"]
        )
    return _made(kind, {**_QUIET, **chosen, **sizes})


def _is_of_trainer(name: str) -> bool:
    """Whether Lightning's Trainer has an argument of that name; models hand it on."""
    trainer = importlib.import_module("pytorch_lightning").Trainer
    return name in inspect.signature(trainer.__init__).parameters


def local_model(request: Mapping[str, Any]) -> Any:
    """A model of statsforecast."""
    models = importlib.import_module("statsforecast.models")
    if request["model"] not in models.__all__:
        raise RequestError(
            f"statsforecast has no model {request['model']!r}; valid: {', '.join(sorted(models.__all__))}"
        )
    kind = getattr(models, request["model"])
    names = [name for name in inspect.signature(kind.__init__).parameters if name not in ("self", "alias")]
    for name in request["arguments"]:
        if name not in names:
            raise RequestError(
                f"{request['model']} of statsforecast has no argument {name!r}; valid: {', '.join(names)}"
            )
    season = {"season_length": request["season_length"]} if "season_length" in names else {}
    return _made(kind, {**season, **request["arguments"]})


def _made(kind: Any, arguments: Mapping[str, Any]) -> Any:
    """A model of these arguments."""
    try:
        return kind(**arguments)
    except Exception as error:
        raise RequestError(f"{kind.__name__} cannot be made of these arguments: {error}") from error


def _of_network(table: pd.DataFrame, request: Mapping[str, Any]) -> pd.DataFrame:
    """The forecasts of all windows, which are laid end to end, so that one call takes those of several channels."""
    import torch
    from neuralforecast.tsdataset import TimeSeriesDataset
    from safetensors.torch import load_file

    L, T, C = request["input_size"], request["h"], request["channels"]
    past = table["y"].to_numpy(np.float32).reshape(-1, C, L)
    seen = table["observed"].to_numpy(np.float32).reshape(-1, C, L)
    B = len(past)
    rows = np.zeros((C, B, L + T, 2), np.float32)
    rows[:, :, :L, 0], rows[:, :, :L, 1] = past.swapaxes(0, 1), seen.swapaxes(0, 1)
    length = B * (L + T)
    dataset = TimeSeriesDataset(
        rows.reshape(C * length, 2), pd.Index(["y", "available_mask"]), np.arange(C + 1) * length, y_idx=0
    )
    model = neural_model(request)
    model.load_state_dict(load_file(request["state"]))
    model.eval()
    torch.manual_seed(request["seed"])
    model.set_test_size(length - L)  # `predict` takes no notice of its own argument
    made = model.predict(dataset, step_size=L + T)
    names = [f"{level:g}" for level in request["quantiles"]] or ["predictions"]
    made = np.asarray(made).reshape(C, B, T, len(names)).swapaxes(0, 1).reshape(-1, len(names))
    return _keys(B, C, T).assign(**dict(zip(names, made.T, strict=True)))


def _of_local_model(table: pd.DataFrame, request: Mapping[str, Any]) -> pd.DataFrame:
    """The forecasts of a model that is fitted to each window and channel by itself."""
    from statsforecast import StatsForecast

    C, T = request["channels"], request["h"]
    B = int(table["window"].max()) + 1
    model = local_model(request)
    each = table.assign(unique_id=table["window"] * C + table["unique_id"])[["unique_id", "ds", "y"]]
    # of two levels alike around the median one interval holds both
    intervals = {level: round(abs(100 - 200 * level), 6) for level in request["quantiles"] if level != 0.5}
    levels = sorted(set(intervals.values()))
    asked = {"level": levels} if levels else {}
    try:
        made = StatsForecast(models=[model], freq=1, n_jobs=request["threads"]).forecast(df=each, h=T, **asked)
    except Exception as error:
        raise RequestError(f"{request['model']} of statsforecast failed on a window: {error}") from error
    made = made.sort_values(["unique_id", "ds"], kind="stable")
    name = repr(model)
    columns = {"predictions": made[name].to_numpy()}
    if request["quantiles"]:
        columns = {
            f"{level:g}": made[
                name if level == 0.5 else f"{name}-{'lo' if level < 0.5 else 'hi'}-{intervals[level]}"
            ].to_numpy()
            for level in request["quantiles"]
        }
    return _keys(B, C, T).assign(**columns)


def _keys(windows: int, channels: int, steps: int) -> pd.DataFrame:
    """The rows of forecasts: by window, then channel, then step."""
    keys = np.indices((windows, channels, steps)).reshape(3, -1).astype(np.int32)
    return pd.DataFrame({"window": keys[0], "unique_id": keys[1], "ds": keys[2]})


def _best_weights(stop_at: int | None) -> Any:
    """A callback that keeps the weights of the lowest validation loss, which neuralforecast itself does not.

    Args:
        stop_at: the step after which it ends the training; None for the last of all.
    """
    from pytorch_lightning.callbacks import Callback

    class BestValidation(Callback):
        def __init__(self) -> None:
            self.least, self.weights, self.step, self.steps = float("inf"), None, 0, 0

        def on_train_batch_end(self, trainer: Any, *others: Any) -> None:
            trainer.should_stop = trainer.should_stop or trainer.global_step == stop_at

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            found = trainer.callback_metrics.get("ptl/val_loss")
            if found is not None and float(found) < self.least:
                self.least, self.step = float(found), trainer.global_step
                self.weights = copy.deepcopy(pl_module.state_dict())

        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            self.steps = trainer.global_step

    return BestValidation()


def _version(library: str) -> str:
    return f"{library} {importlib.metadata.version(library)}"


_DONE: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"check": check, "fit": fit, "forecast": forecast}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """What a request comes to."""
    try:
        if importlib.util.find_spec(request["library"]) is None:
            raise RequestError(f"{sys.executable} has no package {request['library']}")
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(request["threads"])
        return {"facts": _DONE[request["do"]](request)}
    except RequestError as error:
        return {"error": " ".join(str(error).split())}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{request['library']} failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer all requests; the end of what asks ends this process, even in the middle of an answer."""
    lines: Queue[str] = Queue()

    def read() -> None:
        for line in requests:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        answers.write(json.dumps(answer(json.loads(lines.get()))) + "\n")
        answers.flush()


def main() -> None:
    """Serve on the standard input; what libraries print goes to the standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
