"""Forecast with models of other libraries: predictors whose work another process does, on files.

The series of a fit are a Parquet table: ``unique_id`` (number of a series or channel), ``ds`` (steps from 0), ``y``
(scaled values, missing ones imputed) and ``observed``. Windows and forecasts are arrays of NumPy.

Shape letters: B windows, L context length, T prediction length, C channels, Q quantiles.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.errors import UserError, number_of, one_of, whole_number
from tsattn.evaluation import selection_metric
from tsattn.predictors.base import Predictor, last_context
from tsattn.task import Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training

VARIABLE = "TSATTN_PEERS"
_FOLDER = Path(__file__).parents[2] / ".venv-peers"  # next to the package, where `make peers` makes it
_SCRIPT = Path(__file__).with_name("peer_worker.py")
_LOSSES = {"mse": "MSE", "mae": "MAE", "huber": "HuberLoss", "pinball": "MQLoss"}
_SELECTION = {"mse_scaled": "MSE", "mae_scaled": "MAE", "crps_scaled": "MQLoss"}


def peers_python(what: str) -> Path:
    """Find the Python that runs the peers, for `what`: named by ``TSATTN_PEERS``, or made by ``make peers``."""
    named = os.environ.get(VARIABLE)
    if named and (not os.access(named, os.X_OK) or Path(named).is_dir()):
        raise UserError(f"{VARIABLE} must be the python of an environment with the peers, not {named}")
    python = Path(named).absolute() if named else _FOLDER / "bin" / "python"
    if not python.exists():
        lacking = "a separate environment, which is missing: create it with `make peers`"
        raise UserError(f"{what} runs in {lacking}, or set {VARIABLE} to its python")
    return python


class PeerProcess:
    """Worker process, see `tsattn.peers.peer_worker`, and a folder of its files."""

    def __init__(self, python: Path) -> None:
        self.python, self._lock = python, threading.Lock()
        self._folder = TemporaryDirectory(prefix="tsattn-peers-")
        self.folder = Path(self._folder.name)
        self._errors = self.folder / "stderr.txt"
        # -I: neither this environment's paths nor the folder of the script
        command = [str(python), "-I", "-W", "ignore", str(_SCRIPT)]
        # in a new session: Ctrl-C reaches only this process, which then ends the worker
        how: dict[str, Any] = {"stdin": PIPE, "stdout": PIPE, "text": True, "start_new_session": True}
        with self._errors.open("wb") as errors:
            self._process: Any = Popen(command, stderr=errors, **how)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the worker's facts; a UserError has its refusal, or its last words."""
        line, process = json.dumps({**request, "threads": torch.get_num_threads()}), self._process
        with self._lock:
            try:
                process.stdin.write(line + "\n")
                process.stdin.flush()
                words = process.stdout.readline()
            except BrokenPipeError:
                words = ""
            except BaseException:  # the answer to come would be taken for the answer to the next request
                self.stop()
                raise
        if not words:
            said = [line.strip() for line in self._errors.read_text(errors="replace").splitlines() if line.strip()]
            last = said[-1][:300] if said else "it said nothing"
            raise UserError(f"the process of the peers ({self.python}) ended with exit code {process.wait()}: {last}")
        answer: dict[str, dict[str, Any]] = json.loads(words)
        if "error" in answer:
            raise UserError(str(answer["error"]))
        return answer["facts"]

    def stop(self) -> None:
        """Kill the worker and remove its files."""
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


_PROCESSES: dict[tuple[int, Path], PeerProcess] = {}  # a fork must not ask the worker of its parent
_STARTING = threading.Lock()


def peer_process(what: str) -> PeerProcess:
    """Return the worker of this process, started if there is none; see `peers_python`."""
    key = os.getpid(), peers_python(what)
    with _STARTING:
        if key not in _PROCESSES or _PROCESSES[key]._process.poll() is not None:
            try:
                _PROCESSES[key] = PeerProcess(key[1])
            except OSError as error:
                raise UserError(f"{key[1]} cannot be run: {error.strerror or error}") from error
            atexit.register(_PROCESSES[key].stop)
        return _PROCESSES[key]


class PeerPredictor(Predictor):
    """Model of another library, which sees scaled channels and steps: no covariates, no time stamps."""

    library: ClassVar[str]
    emits_quantiles = True

    def __init__(self, model: str, arguments: Mapping[str, Any] | None, **more: Any) -> None:
        super().__init__(model=model, arguments=None if arguments is None else dict(arguments), **more)
        if not model.isidentifier():
            raise UserError(f"model must be the name of a class of {self.library}, not {model!r}")
        self.model = model

    @property
    @override
    def name(self) -> str:
        return f"{self.description['kind']}_{self.model}"

    @property
    def process(self) -> PeerProcess:
        """The worker that runs the library."""
        return peer_process(f"predictor {self.name}")

    def _ask(self, what: str, **more: Any) -> dict[str, Any]:
        request = {
            **{"do": what, "library": self.library, "model": self.model, "seed": 1, "options": {}},
            **{"arguments": self.arguments["arguments"] or {}, "quantiles": list(self.output.quantiles)},
            **{"h": self.task.prediction_length, "input_size": self.context_length},
            **{"channels": self.task.num_channels, "season_length": self.task.season_length},
        }
        return self.process.ask({**request, **more})

    def _forecast(self, batch: Batch, **more: Any) -> Tensor:
        windows, levels = last_context(batch, self.context_length), self.output.quantiles
        past = windows.past.detach().cpu().float().transpose(1, 2)  # (B, C, L)
        seen = torch.ones_like(past) if windows.past_observed is None else windows.past_observed.cpu().transpose(1, 2)
        with TemporaryDirectory(dir=self.process.folder) as folder:
            given, made = Path(folder, "windows.npz"), Path(folder, "forecasts.npy")
            np.savez(given, past=past.numpy(), observed=seen.bool().numpy())
            self._ask("forecast", windows=str(given), forecasts=str(made), **more)
            forecast = read_forecasts(made, (*past.shape[:2], self.task.prediction_length, max(1, len(levels))))
        return (forecast if levels else forecast[..., 0]).to(batch.past)


class StatsForecast(PeerPredictor):
    """A local model of statsforecast: AutoETS, AutoARIMA, Theta and so on.

    It is fitted to each channel of each window that it forecasts; training rows do not matter. An AutoETS takes a
    quarter of a second for 512 hours, a test of ETTh1 an hour; `context_length` bounds that. Missing values are
    imputed. Values are scaled, so multiplicative models do not apply. Quantiles are ends of prediction intervals.

    Args:
        model: the name of a class of ``statsforecast.models``.
        arguments: of that class; ``season_length`` is the task's by default.
        context_length: L, the steps that it is fitted to; by default the task's.
    """

    library = "statsforecast"
    needs_fit = False

    def __init__(
        self, *, model: str = "AutoETS", arguments: Mapping[str, Any] | None = None, context_length: int | None = None
    ) -> None:
        length = None if context_length is None else whole_number("context_length", context_length)
        super().__init__(model, arguments, context_length=length)

    @property
    @override
    def context_length(self) -> int:
        return self.arguments["context_length"] or super().context_length

    @property
    @override
    def summary(self) -> str:
        return f"{self.name}: fitted to each channel of each window, {self.context_length} steps, as it forecasts"

    @override
    def check_fit(self, data: ForecastDataModule, training: Training) -> None:
        super().check_fit(data, training)
        self._ask("check")
        if "val" in data.parts:
            self(data.windows("val", **self.cut)[0])  # this finds forecasts that the model cannot make

    @override
    def forward(self, batch: Batch) -> Tensor:
        return self._forecast(batch)


class NeuralForecast(PeerPredictor):
    """A network of neuralforecast: PatchTST, iTransformer, DLinear, NHITS and so on.

    It is trained on the scaled training rows, and keeps the weights of the lowest validation loss. Unless `arguments`
    do, tsattn sets length, `learning_rate`, `loss`, `selection`, seed, precision, accelerator and batch. Everything
    else is neuralforecast's default: Adam without weight decay, a constant rate, no clipping. Missing values are
    imputed, and masked in its loss. Models of several series at once (iTransformer, TSMixer) take all channels of one
    series together. Models that forecast step by step are refused.

    Args:
        model: the name of a class of ``neuralforecast.models``.
        arguments: of that class; ``loss`` and ``valid_loss`` by the names of their classes.
    """

    library = "neuralforecast"
    is_trained = True
    fitted: Tensor

    def __init__(self, *, model: str = "PatchTST", arguments: Mapping[str, Any] | None = None) -> None:
        super().__init__(model, arguments)

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        super().build(task, output, empty=empty)
        # the weights as a file of safetensors, whose length is known once there are some
        self.register_buffer("fitted", torch.empty(0, dtype=torch.uint8, device="meta" if empty else None))

    @property
    @override
    def num_parameters(self) -> int:
        """Number of trained weights; 0 before a fit, as only neuralforecast knows it."""
        if not self.fitted.numel() or self.fitted.is_meta:
            return 0
        content = self.fitted.cpu().numpy().tobytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return int(header["__metadata__"]["parameters"])

    @override
    def check_fit(self, data: ForecastDataModule, training: Training) -> None:
        super().check_fit(data, training)
        self._planned(data, training)

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        asked, facts, plan = self._planned(data, training)
        part = f"{training.member}: " if training.member else ""
        training.say(f"{part}{self.name}: {facts['parameters']:,} parameters, by {facts['version']}")
        training.say(f"training: {plan}{', from scratch' if training.resumes else ''}")  # it cannot resume
        with TemporaryDirectory(dir=self.process.folder) as folder:
            table, weights = Path(folder, "series.parquet"), Path(folder, "fitted.safetensors")
            rows = write_series(table, data)
            if not rows:
                asked["options"]["early_stop_patience_steps"] = -1
                if "val" in data.parts:
                    lacking = "no series is long enough for validation rows"
                    logging.getLogger("tsattn").warning(f"{lacking}; the weights of the last step are kept")
            trained = self._ask("fit", **asked, table=str(table), state=str(weights), val_rows=rows)
            self.fitted = torch.from_numpy(np.fromfile(weights, np.uint8))
        course = {name: trained.get(name) for name in ("steps", "seconds", "windows_per_second", "peak_memory_bytes")}
        made = {"best_step": trained["best_step"], "library": facts["version"], "parameters": facts["parameters"]}
        return {**({"member": training.member} if training.member else {}), **made, "training": course}

    @override
    def forward(self, batch: Batch) -> Tensor:
        if not self.fitted.numel():
            raise UserError(f"{self.name} is not fitted yet")
        content = self.fitted.cpu().numpy().tobytes()
        file = self.process.folder / f"{hashlib.sha256(content).hexdigest()}.safetensors"
        if not file.exists():
            file.write_bytes(content)
        return self._forecast(batch, state=str(file))

    def _planned(self, data: ForecastDataModule, training: Training) -> tuple[dict[str, Any], dict[str, Any], str]:
        """Return the fields of a fit's request, the worker's facts and the plan in words."""
        from tsattn.training.losses import choose_loss  # a loaded predictor needs no Lightning
        from tsattn.training.train import plan_training
        from tsattn.training.trainer_options import check_one_device

        given, levels = training.options, self.output.quantiles
        for name in ("mup", "compile_mode", "activation_checkpointing"):
            if given.get(name):
                raise UserError(f"{name} has no effect on {self.name}: leave it out")
        trainer = training.trainer.arguments
        check_one_device(trainer, f"{self.name} is trained on one device")
        steps = (self.arguments["arguments"] or {}).get("max_steps")
        if steps is not None:
            training = replace(training, trainer=training.trainer.fresh().with_max_steps(steps))
        plan = plan_training(data.with_context(data.context_length), training)
        if plan.steps is None:
            length = "give max_steps or max_epochs, not max_time alone"
            raise UserError(f"{self.name} needs a number of steps: {length}")
        loss = choose_loss(given.get("loss"), levels)
        if loss not in _LOSSES:
            raise UserError(f"{self.name} is trained by one of {one_of(_LOSSES)}, not {loss}")
        options = {
            **{"max_steps": plan.steps, "val_check_steps": plan.interval, "loss": _LOSSES[loss]},
            "early_stop_patience_steps": plan.patience or -1,
            "valid_loss": _SELECTION[selection_metric(loss, levels, given.get("selection"))],
            "windows_batch_size": data.batch_size * trainer["accumulate_grad_batches"],
            "accelerator": trainer["accelerator"],
            **({"learning_rate": given["learning_rate"]} if "learning_rate" in given else {}),
            **({"precision": trainer["precision"]} if trainer["precision"] is not None else {}),
        }
        if levels and options["valid_loss"] != "MQLoss":
            raise UserError(f"{self.name} with quantiles is selected by crps only: leave selection out")
        seed = int(torch.randint(2**31, ())) if training.seed is None else training.seed
        stop_at = None if training.lengths is None else training.lengths[training.member]
        asked = {"options": options, "seed": seed, "stop_at": stop_at}
        facts = self._ask("check", **asked)
        if facts["is_multivariate"] and len(data.series) > 1:
            several = f"one series with all its channels, but the data has {len(data.series)} series"
            raise UserError(f"{self.model} of neuralforecast needs {several}: choose another model")
        ending = f", ending after {plan.patience} without improvement" if plan.patience else ""
        planned, often = number_of(plan.steps, "step"), number_of(plan.interval, "step")
        return asked, facts, f"{'up to ' if plan.patience else ''}{planned}, validation every {often}{ending}"

    @override
    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        found = state_dict.get(f"{prefix}fitted")
        if isinstance(found, Tensor):  # of another length than the empty one
            self.fitted = torch.empty_like(found)
        super()._load_from_state_dict(state_dict, prefix, *others)


def write_series(path: Path, data: ForecastDataModule) -> int:
    """Write training and validation rows, each channel a series; return how many rows of each to hold out.

    These are the fewest validation rows of a series with a validation window. Later rows of longer series are left out.
    A series without a validation window holds out its last training rows.
    """
    series, parts = data.series, []
    lengths = [split.val_end - split.train_end for split in data.splits]
    whole = [rows for rows in lengths if rows >= data.prediction_length and "val" in data.parts]
    held, C = min(whole, default=0), series.mean.shape[1]
    for number, split in enumerate(data.splits):
        rows = split.train_end + min(held, lengths[number])
        scaled, known = series.rows_of(number)
        columns = {
            "unique_id": np.arange(number * C, (number + 1) * C, dtype=np.int32).repeat(rows),
            "ds": np.tile(np.arange(rows, dtype=np.int32), C),
            "y": scaled[:rows].T.reshape(-1).numpy(),
            "observed": np.ones(C * rows, bool) if known is None else known[:rows].T.reshape(-1).numpy(),
        }
        parts.append(pa.table(columns))
    pq.write_table(pa.concat_tables(parts), path)
    return held


def read_forecasts(path: Path, shape: tuple[int, ...]) -> Tensor:
    """Read the worker's forecasts `(B, C, T, Q)` as `(B, T, C, Q)`, rising, all there and finite."""
    forecast = torch.from_numpy(np.load(path))
    if forecast.shape != shape:
        raise UserError(f"the other library did not forecast all {shape[0]} windows of {shape[1]} channels")
    if not bool(forecast.isfinite().all()):
        raise UserError("the other library forecast values that are not finite")
    return forecast.transpose(1, 2).sort(-1).values  # a peer may forecast each level by itself
