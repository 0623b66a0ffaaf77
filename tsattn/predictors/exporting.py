"""A fitted predictor as one file for PyTorch alone (`torch.export`), or for an ONNX runtime.

Shape letters: B windows, L context length, T horizon, C channels, Q quantiles, P past-only and F known-future
covariates, K static columns.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from tsattn.attention import Attention, attention_kind
from tsattn.attention.patterns import FullPattern
from tsattn.batch import EXACT, Batch, LastSeason, WindowUnits
from tsattn.errors import UserError, first_line, one_of
from tsattn.layers import running_maximum
from tsattn.predictors.fitted import FittedPredictor
from tsattn.scaler import Units

FORMATS = {".pt2": "torch", ".onnx": "onnx"}
FACTS = "tsattn.json"  # the plain data within a file
_LOUD = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir", "torch.fx")  # loggers


class RawForecast(nn.Module):
    """Copy of a fitted predictor from series to forecasts in original units, in float32 on the CPU, in eval mode."""

    def __init__(self, fitted: FittedPredictor) -> None:
        super().__init__()
        fitted.predictor.check_export()
        name, family = fitted.predictor.name, fitted.predictor.output.distribution
        if fitted.conformal is not None:
            says = f"the calibrated intervals of {name} are not part of its network and cannot be exported"
            raise UserError(f"{says}: fit it without calibrate")
        if family is not None:
            says = f"quantiles of its distribution {family} are computed outside of PyTorch"
            raise UserError(f"{name} cannot be exported: {says}; train with quantiles instead of a distribution")
        self.predictor = copy.deepcopy(fitted.predictor).cpu().float().eval().requires_grad_(False)
        self.units = fitted.scaler.units()
        task = self.task = self.predictor.task
        self.impls: dict[str, str] = {}
        for part in self.predictor.modules():
            if isinstance(part, Attention):  # without kernels of this package
                part.impl = "sdpa" if type(part.pattern) is FullPattern else "reference"
                self.impls[attention_kind(part)] = part.impl
        # a repeated missing step takes an earlier value, so the context must be longer
        self.length = max(self.predictor.context_length, task.context_length if self.predictor.seasons else 0)
        scaler, past = fitted.scaler, len(task.past_covariates)
        self.past_units = Units([scaler.covariate_mean[:past]], [scaler.covariate_scale[:past]])
        self.future_units = Units([scaler.covariate_mean[past:]], [scaler.covariate_scale[past:]])
        L, steps, reads = self.length, self.length + task.prediction_length, self.predictor.uses_covariates
        self.inputs = {"context": torch.zeros(2, L, task.num_channels, dtype=EXACT)}  # examples, of two windows
        if len(self.units.mean) > 1:
            self.inputs["series"] = torch.zeros(2, dtype=torch.int64)
        if reads and past:
            self.inputs["past_covariates"] = torch.zeros(2, L, past, dtype=EXACT)
        if reads and task.future_covariates:
            self.inputs["future_covariates"] = torch.zeros(2, steps, len(task.future_covariates), dtype=EXACT)
        if reads and task.static:
            self.inputs["static"] = torch.zeros(2, len(task.static), dtype=torch.int64)
        with torch.no_grad():
            try:
                self(**self.inputs)
            except UserError:  # raised again unless it was for want of time stamps
                self.inputs["time"] = 86_400 * torch.arange(steps).expand(2, -1).clone()
                self(**self.inputs)

    @override
    def forward(
        self,
        context: Tensor,
        series: Tensor | None = None,
        past_covariates: Tensor | None = None,
        future_covariates: Tensor | None = None,
        static: Tensor | None = None,
        time: Tensor | None = None,
    ) -> Tensor:
        """Forecast `(B, T, C)` or `(B, T, C, Q)` in original units, float64, from `inputs`, NaN where missing."""
        if series is not None:
            _check_numbers(series, 0, len(self.units.mean), "series")
            # a runtime that drops the check counts a negative number from the end
            series = torch.where(series < 0, len(self.units.mean), series)
        if static is not None:
            for names, numbers in zip(self.task.categories, static.unbind(-1), strict=True):
                _check_numbers(numbers, -1, len(names), "static")
        observed = ~context.isnan()
        past = _imputed(self.units.scaled(context, series), observed).float()
        tables = self.units.mean, self.units.scale
        mean, scale = (table.expand(context.shape[0], -1) if series is None else table[series] for table in tables)
        # values that were never observed are 0 on the scale
        original = _imputed(context, observed, self.units.restore(torch.zeros_like(past), series))
        seasons = {
            length: LastSeason(*(_last_season(part, observed, length) for part in (past, original)))
            for length in self.predictor.seasons
        }
        batch = Batch(
            past=past,
            past_observed=observed,
            time=time,
            past_covariates=_scaled(past_covariates, self.past_units),
            future_covariates=_scaled(future_covariates, self.future_units),
            static=static,
            series_id=series,
            units=WindowUnits(mean, scale, seasons=seasons),
        )
        return self.predictor.in_units(self.predictor(batch).to(context.dtype), batch, self.units).to(context.dtype)


def _check_numbers(numbers: Tensor, least: int, end: int, name: str) -> None:
    said = f"`{name}` must hold numbers from {least} to {end - 1}: the places in `{name}` of the file's tsattn.json"
    torch._assert_async(((numbers >= least) & (numbers < end)).all(), said)


def _scaled(covariates: Tensor | None, units: Units) -> Tensor | None:
    return None if covariates is None else _imputed(units.scaled(covariates), ~covariates.isnan()).float()


def _imputed(values: Tensor, observed: Tensor, other: Tensor | float = 0.0) -> Tensor:
    """Replace each missing number of `(B, n, C)` by the last known number before it, else by `other`."""
    known = running_maximum(torch.where(observed, torch.arange(values.shape[1], device=values.device)[:, None], -1))
    last = torch.where(observed, values, 0.0).gather(1, known.clamp(min=0))
    return torch.where(known >= 0, last, other)


def _last_season(past: Tensor, observed: Tensor, length: int) -> Tensor:
    """Return the last s steps of windows `(B, L, C)`; missing steps take values as in `SeasonalNaive`."""
    is_late = running_maximum(observed.long())[:, -length:] > 0
    last = torch.where(is_late, past[:, -length:], past[:, -1:])
    lacking = -past.shape[1] % length  # steps to a whole season at the front
    shape = (-1, (past.shape[1] + lacking) // length, length, past.shape[2])
    by_place, known = (F.pad(part, (0, 0, lacking, 0)).reshape(shape) for part in (past, observed.long()))
    order = torch.arange(1, known.shape[1] + 1, device=past.device)[:, None, None]
    newest = (known * order).amax(1, keepdim=True)  # 0 where none is known
    value = by_place.gather(1, (newest - 1).clamp(min=0))[:, 0]
    return torch.where(newest[:, 0] > 0, value, last)


def format_of(ending: str, format: str | None = None) -> str:
    """Return the format of a file, ``torch`` or ``onnx``, by its ending, ``.pt2`` or ``.onnx``, which must agree."""
    if format is not None and format not in FORMATS.values():
        raise UserError(f"format must be one of {one_of(FORMATS.values())}, not {format!r}")
    if ending not in FORMATS or format not in (None, FORMATS[ending]):
        wanted = [end for end, one in FORMATS.items() if format in (None, one)]
        raise UserError(f"the file must end in {' or '.join(wanted)}, not {ending or 'nothing'}")
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if FORMATS[ending] == "onnx" and missing:
        raise UserError(f"format onnx needs {one_of(missing)}: pip install 'tsattn[onnx]'")
    return FORMATS[ending]


def exported(fitted: FittedPredictor, format: str) -> tuple[bytes, dict[str, Any]]:
    """Export a fitted predictor for any number of windows: the file, and plain data about it; see `RawForecast`."""
    model = RawForecast(fitted).eval()
    facts, name = _facts(model, fitted), fitted.predictor.name
    batch = torch.export.Dim("batch", min=1)
    with _explained(f"{name} cannot be exported"):
        program = torch.export.export(model, (), model.inputs, dynamic_shapes={one: {0: batch} for one in model.inputs})
    if format == "torch":
        out = io.BytesIO()
        torch.export.save(program, out, extra_files={FACTS: json.dumps(facts)})
        return out.getvalue(), facts
    with _explained(f"{name} cannot be exported to ONNX", "; format torch may hold it"):
        if any(node.target == torch.ops.aten.einsum.default for node in program.graph.nodes):
            program = program.run_decompositions()  # runtimes do not broadcast its ellipses
        made: Any = torch.onnx.export(
            program, input_names=[*model.inputs], output_names=["forecast"], dynamo=True, optimize=False, verbose=False
        )
        # onnxscript's optimizations without its rules, which drop summands below 1e-8, such as a small ridge
        optimizer, passes = map(importlib.import_module, ("onnxscript.optimizer", "onnx_ir.passes.common"))
        optimizer.inline(made.model)
        optimizer.fold_constants(made.model, onnx_shape_inference=False)
        for name in ("RemoveUnusedNodes", "CommonSubexpressionElimination", "ClearMetadataAndDocString"):
            getattr(passes, f"{name}Pass")()(made.model)
        made.model.metadata_props[FACTS] = json.dumps(facts)
        content: bytes = made.model_proto.SerializeToString()
        if importlib.util.find_spec("onnxruntime") is not None:  # it may refuse what torch writes
            importlib.import_module("onnxruntime").InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, facts


def _facts(model: RawForecast, fitted: FittedPredictor) -> dict[str, Any]:
    task, levels = model.task, list(fitted.predictor.output.quantiles)
    shape = ["batch", task.prediction_length, task.num_channels, *([len(levels)] if levels else [])]
    static = dict(zip(task.static, map(list, task.categories), strict=True))
    covariates = {name: list(getattr(task, name)) for name in ("past_covariates", "future_covariates")}
    inputs = {
        name: {"shape": ["batch", *one.shape[1:]], "dtype": str(one.dtype).removeprefix("torch.")}
        for name, one in model.inputs.items()
    }
    return {
        **{"model": fitted.predictor.name, "inputs": inputs},
        **{"outputs": {"forecast": {"shape": shape, "dtype": "float64"}}, "context_length": model.length},
        **{name: getattr(task, name) for name in ("prediction_length", "frequency", "time_zone")},
        **{"channels": list(task.channels), "quantiles": levels},
        "series": [str(one) for one in fitted.scaler.ids] if len(model.units.mean) > 1 else [],
        **{name: names if name in model.inputs else [] for name, names in covariates.items()},
        **{"static": static if "static" in model.inputs else {}, "attention": model.impls},
    }


@contextlib.contextmanager
def _explained(sentence: str, end: str = "") -> Iterator[None]:
    """Mute PyTorch, and turn an error, of any type, into a sentence."""
    levels = {one: one.level for one in map(logging.getLogger, _LOUD)}
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for one in levels:
                one.setLevel(logging.ERROR)
            yield
    except UserError:
        raise
    except Exception as error:
        cause = error
        while isinstance(cause.__cause__, Exception):
            cause = cause.__cause__
        said = dict.fromkeys([type(cause).__name__, first_line(cause)])  # an error without text is its class alone
        raise UserError(f"{sentence}: {': '.join(said)}{end}") from error
    finally:
        for one, level in levels.items():
            one.setLevel(level)
