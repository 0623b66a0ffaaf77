"""Fit and forecast with neuralforecast and statsforecast, one request after the other: a script.

The Python of the peers' environment runs it; it imports nothing of tsattn. A request is a line of JSON on the standard
input, its answer a line of JSON on what was the standard output: ``{"facts": {...}}``, or ``{"error": "a sentence"}``.
Requests name files of Parquet, NumPy and safetensors: nothing is unpickled. The end of its input ends the process.
"""

from __future__ import annotations

import copy
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
from collections.abc import Mapping
from queue import Queue
from typing import Any

import numpy as np
import pandas as pd

# arguments of a model that the task and the exchange of tables decide
_DECIDED = (
    *("h", "input_size", "n_series", "inference_input_size", "random_seed", "alias", "callbacks", "max_epochs"),
    *("futr_exog_list", "hist_exog_list", "stat_exog_list", "cat_exog_list", "exclude_insample_y"),
)
_QUIET: dict[str, Any] = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
_QUIET |= {"num_sanity_val_steps": 0, "devices": 1}


class RequestError(Exception):
    """A mistake that the user can mend; its text is one sentence."""


def check(request: Mapping[str, Any]) -> dict[str, Any]:
    """Make the model of a request, and say how large it is."""
    library, model = request["library"], make_model(request)
    facts: dict[str, Any] = {"version": f"{library} {importlib.metadata.version(library)}"}
    if library == "neuralforecast":
        facts |= {"parameters": _num_parameters(model), "is_multivariate": bool(model.MULTIVARIATE)}
    return facts


def _num_parameters(model: Any) -> int:
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


def fit(request: Mapping[str, Any]) -> dict[str, Any]:
    """Train a model of neuralforecast on the table of a request; its weights go into the file ``state``."""
    from neuralforecast.tsdataset import TimeSeriesDataset
    from pytorch_lightning.callbacks import Callback
    from safetensors.torch import save_file

    class BestValidation(Callback):
        """Keeps the weights of the lowest validation loss, and ends training after a step."""

        least, weights, step, steps = float("inf"), None, 0, 0

        def on_train_batch_end(self, trainer: Any, *others: Any) -> None:
            trainer.should_stop = trainer.should_stop or trainer.global_step == request["stop_at"]

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            found = trainer.callback_metrics.get("ptl/val_loss")
            if found is not None and float(found) < self.least:
                self.least, self.step = float(found), trainer.global_step
                self.weights = copy.deepcopy(pl_module.state_dict())

        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            self.steps = trainer.global_step

    table = pd.read_parquet(request["table"]).rename(columns={"observed": "available_mask"})
    table["available_mask"] = table["available_mask"].astype(np.float32)
    model, best = make_model(request), BestValidation()
    model.trainer_kwargs["callbacks"] = [*(model.trainer_kwargs.get("callbacks") or []), best]
    started = time.perf_counter()
    model.fit(TimeSeriesDataset.from_df(table)[0], val_size=request["val_rows"])
    seconds = time.perf_counter() - started
    state = best.weights or model.state_dict()
    weights = {name: weight.detach().cpu().contiguous() for name, weight in state.items()}
    save_file(weights, request["state"], {"parameters": str(_num_parameters(model))})
    return {"best_step": best.step if best.weights else best.steps, "steps": best.steps, "seconds": round(seconds, 1)}


def forecast(request: Mapping[str, Any]) -> dict[str, Any]:
    """Forecast the file ``windows``, arrays `(B, C, L)`, into ``forecasts``, `(B, C, T, Q)`, Q = 1 of points."""
    with np.load(request["windows"]) as arrays:
        past, observed = arrays["past"], arrays["observed"]
    made = _of_network if request["library"] == "neuralforecast" else _of_local_model
    np.save(request["forecasts"], made(past, observed, request).reshape(*past.shape[:2], request["h"], -1))
    return {}


def make_model(request: Mapping[str, Any]) -> Any:
    """Make a model of either library, with new weights; refuse arguments that its class does not have."""
    library, model, is_neural = request["library"], request["model"], request["library"] == "neuralforecast"
    models = importlib.import_module(f"{library}.models")
    names = sorted({*models.__all__} - {"HINT", "TimeLLM"})  # which are made of other models
    if model not in names:
        raise RequestError(f"{library} has no model {model!r}; valid: {', '.join(names)}")
    kind = getattr(models, model)
    parameters = inspect.signature(kind.__init__).parameters
    valid = [name for name in parameters if name not in ("self", "trainer_kwargs", *_DECIDED)]
    others = inspect.signature(importlib.import_module("pytorch_lightning").Trainer).parameters if is_neural else {}
    said = ", and those of Lightning's Trainer" if is_neural else ""
    for name in request["arguments"]:
        if name in _DECIDED:
            raise RequestError(f"{model} takes its {name} from the task: leave it out of arguments")
        if name not in valid and name not in others:
            raise RequestError(f"{model} of {library} has no argument {name!r}; valid: {', '.join(valid)}{said}")
    season = {name: request[name] for name in ("season_length",) if name in valid}
    chosen = _neural_arguments(kind, request) if is_neural else {**season, **request["arguments"]}
    try:
        return kind(**chosen)
    except Exception as error:
        raise RequestError(f"{model} cannot be made of these arguments: {error}") from error


def _neural_arguments(kind: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    losses = importlib.import_module("neuralforecast.losses.pytorch")
    own, options, levels = request["arguments"], request["options"], request["quantiles"]
    if kind.RECURRENT:
        raise RequestError(f"{request['model']} forecasts step by step, which is not supported: choose another model")
    chosen = {**_QUIET, **options, **own}
    for name in ("loss", "valid_loss"):
        if levels and name in own:
            raise RequestError(f"quantiles are trained by MQLoss: leave {name} out of arguments")
        if levels:
            chosen[name] = losses.MQLoss(quantiles=levels)
        elif isinstance(chosen.get(name), str):
            if not inspect.isclass(getattr(losses, chosen[name], None)):
                raise RequestError(f"neuralforecast has no loss {chosen[name]!r}")
            chosen[name] = getattr(losses, chosen[name])()
            if chosen[name].outputsize_multiplier != 1:
                raise RequestError(f"{name} must be a loss of point forecasts, such as MAE; leave it out for quantiles")
    chosen |= {"h": request["h"], "input_size": request["input_size"], "random_seed": request["seed"]}
    if kind.MULTIVARIATE:
        chosen["n_series"] = request["channels"]
    elif "windows_batch_size" in options and "windows_batch_size" not in own:
        chosen["windows_batch_size"] *= request["channels"]  # windows of single channels, not of all together
    return chosen


def _of_network(past: Any, observed: Any, request: Mapping[str, Any]) -> Any:
    """Forecast all windows, laid end to end, so that one call takes several channels."""
    import torch
    from neuralforecast.tsdataset import TimeSeriesDataset
    from safetensors.torch import load_file

    (B, C, L), T = past.shape, request["h"]
    rows = np.zeros((C, B, L + T, 2), np.float32)
    rows[:, :, :L] = np.stack([past, observed], -1).swapaxes(0, 1)
    length = B * (L + T)
    names, ends = pd.Index(["y", "available_mask"]), np.arange(C + 1) * length
    dataset = TimeSeriesDataset(rows.reshape(C * length, 2), names, ends, y_idx=0)
    model = make_model(request)
    model.load_state_dict(load_file(request["state"]))
    model.eval()
    torch.manual_seed(request["seed"])
    model.set_test_size(length - L)  # `predict` takes no notice of its own argument
    return np.asarray(model.predict(dataset, step_size=L + T)).reshape(C, B, T, -1).swapaxes(0, 1)


def _of_local_model(past: Any, observed: Any, request: Mapping[str, Any]) -> Any:
    from statsforecast import StatsForecast

    model = make_model(request)
    name, (window, channel, step) = repr(model), np.indices(past.shape, np.int32)
    # padding before the first observed value would be taken for values; a context without any is left whole
    kept = (observed.cumsum(-1) > 0) | ~observed.any(-1, keepdims=True)
    columns = {"unique_id": window * past.shape[1] + channel, "ds": step, "y": past}
    each = pd.DataFrame({column: values[kept] for column, values in columns.items()})
    # one interval holds both levels at equal distances from the median
    names, levels = [] if request["quantiles"] else [name], set()
    for level in request["quantiles"]:
        percent = round(abs(100 - 200 * level), 6)
        names.append(name if level == 0.5 else f"{name}-{'lo' if level < 0.5 else 'hi'}-{percent}")
        levels |= {percent} - {0}
    try:
        forecaster = StatsForecast(models=[model], freq=1, n_jobs=request["threads"])
        made = forecaster.forecast(df=each, h=request["h"], level=sorted(levels) or None)
    except Exception as error:
        raise RequestError(f"{request['model']} of statsforecast failed on a window: {error}") from error
    return made.sort_values(["unique_id", "ds"], kind="stable")[names].to_numpy()


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    library = request["library"]
    try:
        if importlib.util.find_spec(library) is None:
            raise RequestError(f"{sys.executable} has no package {library}")
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(request["threads"])
        return {"facts": {"check": check, "fit": fit, "forecast": forecast}[request["do"]](request)}
    except RequestError as error:
        return {"error": " ".join(str(error).split())}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{library} failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def main() -> None:
    """Answer all requests; the end of the standard input ends this process, even in the middle of an answer."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print goes to the standard error
    warnings.filterwarnings("ignore")
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    requests: Queue[str] = Queue()

    def read() -> None:
        for line in sys.stdin:
            requests.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        answers.write(json.dumps(_answer(json.loads(requests.get()))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
