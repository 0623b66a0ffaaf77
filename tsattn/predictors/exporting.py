"""A fitted predictor as one file for PyTorch alone (`torch.export`), or for an ONNX runtime."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from tsattn.errors import UserError, one_of
from tsattn.predictors.fitted import FittedPredictor
from tsattn.predictors.raw_forecast import RawForecast

__all__ = ["FACTS", "FORMATS", "exported", "format_of"]

FORMATS = {".pt2": "torch", ".onnx": "onnx"}
"""By the ending of the file."""

FACTS = "tsattn.json"
"""The name under which a file has what is known of it."""

_ONNX_PACKAGES = ("onnx", "onnxscript")
_LOUD = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir", "torch.fx")  # loggers


def format_of(ending: str, format: str | None = None) -> str:
    """The format of a file, which must be that of its ending where one is given.

    Args:
        ending: of the file, ``.pt2`` or ``.onnx``.
        format: ``torch`` or ``onnx``; by default that of the ending.

    Raises:
        UserError: for another format or ending, or ONNX without its packages.
    """
    if format is not None and format not in FORMATS.values():
        raise UserError(f"format must be one of {one_of(FORMATS.values())}, not {format!r}")
    if ending not in FORMATS or format not in (None, FORMATS[ending]):
        wanted = [end for end, one in FORMATS.items() if format in (None, one)]
        raise UserError(f"the file must end in {' or '.join(wanted)}, not {ending or 'nothing'}")
    if FORMATS[ending] == "onnx":
        missing = [name for name in _ONNX_PACKAGES if importlib.util.find_spec(name) is None]
        if missing:
            raise UserError(f"format onnx needs {one_of(missing)}: pip install 'tsattn[onnx]'")
    return FORMATS[ending]


def exported(fitted: FittedPredictor, format: str) -> tuple[bytes, dict[str, Any]]:
    """A file of a fitted predictor, from series in original units to forecasts in original units; see `RawForecast`.

    The number of windows is free. Attention over every pair is PyTorch's own, that of windows and blocks is written out
    (``reference``), since the kernels of this package are in neither format.

    Args:
        fitted: a predictor and its scaler.
        format: of `FORMATS`.

    Returns:
        the file, and what it says of itself: plain data with ``inputs``, ``outputs``, the sizes and names of the task,
        quantiles, the order of the series, and how attention is computed.

    Raises:
        UserError: for a predictor that the format cannot hold, saying why.
    """
    model = RawForecast(fitted).eval()
    facts = _facts(model, fitted)
    name = fitted.predictor.name
    program = _program(model, name)
    out = io.BytesIO()
    if format == "torch":
        torch.export.save(program, out, extra_files={FACTS: json.dumps(facts)})
        return out.getvalue(), facts
    return _onnx(program, model, facts, name), facts


def _program(model: RawForecast, name: str) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1)
    example = model.example()
    try:
        with torch.no_grad(), _quiet():
            return torch.export.export(model, (), example, dynamic_shapes={name: {0: batch} for name in example})
    except UserError:
        raise
    except Exception as error:  # of many types, each for one way in which a model cannot be traced
        raise UserError(f"{name} cannot be exported: {_reason(error)}") from error


def _onnx(program: torch.export.ExportedProgram, model: RawForecast, facts: dict[str, Any], name: str) -> bytes:
    """The file of the runtime."""
    try:
        with torch.no_grad(), _quiet():
            made = torch.onnx.export(
                # runtimes do not broadcast the ellipses of an einsum; of plain operators they do
                program.run_decompositions(),
                input_names=[*model.inputs],
                output_names=["forecast"],
                dynamo=True,
                optimize=True,
                verbose=False,
            )
    except Exception as error:  # see above
        raise UserError(f"{name} cannot be exported to ONNX: {_reason(error)}; format torch may hold it") from error
    assert made is not None
    proto = made.model_proto
    entry = proto.metadata_props.add()
    entry.key, entry.value = FACTS, json.dumps(facts)
    content: bytes = proto.SerializeToString()
    _check_runs(content, name)
    return content


def _check_runs(content: bytes, name: str) -> None:
    """Refuse a file that the ONNX runtime, where it is installed, cannot open."""
    if importlib.util.find_spec("onnxruntime") is None:
        return
    runtime = importlib.import_module("onnxruntime")
    try:
        runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except Exception as error:  # of types of its own
        raise UserError(f"{name} cannot be exported to ONNX: {_reason(error)}; format torch may hold it") from error


def _facts(model: RawForecast, fitted: FittedPredictor) -> dict[str, Any]:
    task, output = model.task, fitted.predictor.output
    assert output is not None
    own_scales = len(model.units.mean) > 1
    steps = [task.prediction_length, task.num_channels]
    return {
        "model": fitted.predictor.name,
        "inputs": {
            name: {"shape": ["batch", *shape], "dtype": str(dtype).removeprefix("torch.")}
            for name, (shape, dtype) in model.inputs.items()
        },
        "outputs": {
            "forecast": {
                "shape": ["batch", *steps, *([len(output.quantiles)] if output.quantiles else [])],
                "dtype": "float64",
            }
        },
        "context_length": model.length,
        "prediction_length": task.prediction_length,
        "frequency": task.frequency,
        "time_zone": task.time_zone,
        "channels": list(task.channels),
        "quantiles": list(output.quantiles),
        "series": [str(one) for one in fitted.scaler.ids] if own_scales else [],
        "past_covariates": list(task.past_covariates) if "past_covariates" in model.inputs else [],
        "future_covariates": list(task.future_covariates) if "future_covariates" in model.inputs else [],
        "static": {name: list(categories) for name, categories in zip(task.static, task.categories, strict=True)}
        if "static" in model.inputs
        else {},
        "attention": model.impls,
    }


def _reason(error: BaseException) -> str:
    """The first sentence of what PyTorch says."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """In which PyTorch does not say what it is about to do."""
    loud = [logging.getLogger(name) for name in _LOUD]
    levels = [one.level for one in loud]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for one in loud:
                one.setLevel(logging.ERROR)
            yield
    finally:
        for one, level in zip(loud, levels, strict=True):
            one.setLevel(level)
