"""From series in original units to forecasts in original units: what is exported.

Shape letters: B windows, L context length, T horizon, C channels, Q quantiles, P past-only and F known-future
covariates, K static columns.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from tsattn.attention import Attention, attention_kind
from tsattn.attention.patterns import FullPattern
from tsattn.batch import EXACT, Batch, LastSeason, WindowUnits
from tsattn.errors import UserError
from tsattn.predictors.fitted import FittedPredictor
from tsattn.predictors.ridge import Ridge
from tsattn.scaler import Units

__all__ = ["RawForecast"]


class RawForecast(nn.Module):
    """A fitted predictor with all that is done to the data around it: scaling, imputation, and the way back to units.

    It is a copy in float32 on the CPU, in eval mode, whose attention is computed in ways that any graph can hold.

    Args:
        fitted: a predictor and its scaler.

    Attributes:
        impls: how each kind of attention in it is computed: ``sdpa``, by PyTorch's own operator, or ``reference``,
            written out.
        inputs: the arguments of `forward` by name, with their shapes (the first axis is B) and types.

    Raises:
        UserError: for a predictor that computes by other means than operators of PyTorch.
    """

    def __init__(self, fitted: FittedPredictor) -> None:
        super().__init__()
        if not fitted.predictor.is_exportable:
            raise UserError(
                f"{fitted.predictor.name} cannot be exported: it forecasts by another library, or by weights that are "
                "not of the run; valid are networks of this package, ridge, naive forecasts, and ensembles of them"
            )
        if fitted.conformal is not None:
            raise UserError(
                f"the calibrated intervals of {fitted.predictor.name} are no part of its network, and cannot be "
                "exported: fit it without calibrate"
            )
        output = fitted.predictor.output
        if output is not None and output.distribution is not None:
            raise UserError(
                f"{fitted.predictor.name} cannot be exported: the quantiles of its distribution {output.distribution} "
                "are found outside of PyTorch; valid is a model of quantiles of its own"
            )
        self.predictor = copy.deepcopy(fitted.predictor).cpu().float().eval().requires_grad_(False)
        self.units = copy.deepcopy(fitted.scaler.units()).cpu()
        self.impls = _in_plain_operators(self.predictor)
        task = self.predictor.task
        assert task is not None
        self.task = task
        for part in self.predictor.modules():
            if isinstance(part, Ridge):
                part.fix_length()
        # a missing step that is repeated has an earlier value, which lies before all that is looked at
        self.length = max(self.predictor.context_length, task.context_length if self.predictor.seasons else 0)
        scaler, past = fitted.scaler, len(task.past_covariates)
        self.past_units = Units([scaler.covariate_mean[:past]], [scaler.covariate_scale[:past]])
        self.future_units = Units([scaler.covariate_mean[past:]], [scaler.covariate_scale[past:]])
        self.inputs = self._inputs()
        if not self._works_without_time():
            self.inputs["time"] = ((self.length + task.prediction_length,), torch.int64)

    def _inputs(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        task, L = self.task, self.length
        inputs: dict[str, tuple[tuple[int, ...], torch.dtype]] = {"context": ((L, task.num_channels), EXACT)}
        if len(self.units.mean) > 1:
            inputs["series"] = ((), torch.int64)
        uses = self.predictor.uses_covariates
        if uses and task.past_covariates:
            inputs["past_covariates"] = ((L, len(task.past_covariates)), EXACT)
        if uses and task.future_covariates:
            inputs["future_covariates"] = ((L + task.prediction_length, len(task.future_covariates)), EXACT)
        if uses and task.static:
            inputs["static"] = ((len(task.static),), torch.int64)
        return inputs

    def example(self, windows: int = 2) -> dict[str, Tensor]:
        """Arguments of `forward` for so many windows, of no meaning."""
        made: dict[str, Tensor] = {}
        for name, (shape, dtype) in self.inputs.items():
            if name == "time":
                made[name] = 86_400 * torch.arange(shape[0]).expand(windows, -1).clone()
            elif dtype == torch.int64:
                made[name] = torch.zeros(windows, *shape, dtype=dtype)
            else:
                made[name] = torch.linspace(0, 1, windows * shape[0] * shape[1], dtype=dtype).reshape(windows, *shape)
        return made

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
        """The forecast in original units; which arguments there must be `inputs` says.

        Args:
            context: `(B, L, C)` in original units, NaN where missing.
            series: `(B,)` the place of each series among those trained on, from 0, where each has its own scale.
            past_covariates: `(B, L, P)` in original units, NaN where missing.
            future_covariates: `(B, L + T, F)` in original units, NaN where missing.
            static: `(B, K)` numbers of categories, by their places in `Task.categories`; -1 for one not there.
            time: `(B, L + T)` seconds since 1970-01-01 by the clock of the data, or steps.

        Returns:
            `(B, T, C)`, with quantiles `(B, T, C, Q)`, float64.
        """
        if series is not None:
            _check_numbers(series, 0, len(self.units.mean), "series")
            # a runtime that drops the check counts a negative number from the end
            series = torch.where(series < 0, len(self.units.mean), series)
        if static is not None:
            for names, numbers in zip(self.task.categories, static.unbind(-1), strict=True):
                _check_numbers(numbers, -1, len(names), "static")
        observed = ~context.isnan()
        past = _imputed(self.units.scaled(context, series), observed).float()
        batch = Batch(
            past=past,
            past_observed=observed,
            time=time,
            past_covariates=_scaled(past_covariates, self.past_units),
            future_covariates=_scaled(future_covariates, self.future_units),
            static=static,
            series_id=series,
            units=self._units(context, observed, past, series),
        )
        return self.predictor.in_units(self.predictor(batch).to(context.dtype), batch, self.units).to(context.dtype)

    def _units(self, context: Tensor, observed: Tensor, past: Tensor, series: Tensor | None) -> WindowUnits | None:
        """What a predictor that repeats values must know of windows; None for another."""
        if not self.predictor.seasons:
            return None
        mean, scale = (
            part.expand(context.shape[0], -1) if series is None else part[series]
            for part in (self.units.mean, self.units.scale)
        )
        # what was never observed is 0 on the scale
        original = _imputed(context, observed, self.units.restore(torch.zeros_like(past), series))
        seasons = {
            length: LastSeason(*(_last_season(part, observed, length) for part in (past, original)))
            for length in self.predictor.seasons
        }
        return WindowUnits(mean, scale, seasons=seasons)

    @torch.no_grad()
    def _works_without_time(self) -> bool:
        try:
            self(**self.example())
        except UserError as error:
            if "time stamps" not in str(error):
                raise
            return False
        return True


def _check_numbers(numbers: Tensor, least: int, end: int, name: str) -> None:
    """Refuse numbers of no series or category, in the exported program too."""
    valid = (numbers >= least) & (numbers < end)
    said = f"`{name}` must hold numbers from {least} to {end - 1}: the places in `{name}` of the file's tsattn.json"
    torch._assert_async(valid.all(), said)


def _scaled(covariates: Tensor | None, units: Units) -> Tensor | None:
    """Covariates `(B, n, P)` on their scale, imputed."""
    if covariates is None:
        return None
    return _imputed(units.scaled(covariates), ~covariates.isnan()).float()


def _imputed(values: Tensor, observed: Tensor, other: Tensor | float = 0.0) -> Tensor:
    """Values `(B, n, C)`, each missing number replaced by the last known one before it, else by the other.

    The steps of those are found by doubling, in operators that every format has.
    """
    length = values.shape[1]
    known = torch.where(observed, torch.arange(length, device=values.device)[:, None], -1)
    step = 1
    while step < length:
        known = torch.maximum(known, F.pad(known, (0, 0, step, 0), value=-1)[:, :length])
        step *= 2
    last = torch.where(observed, values, 0.0).gather(1, known.clamp(min=0))
    return torch.where(known >= 0, last, other)


def _last_season(past: Tensor, observed: Tensor, length: int) -> Tensor:
    """The last steps of windows `(B, s, C)`, a missing one with the last known value of its place in the season.

    Args:
        past: `(B, L, C)` with L of at least s, gaps imputed, which they are where no value of the place is known.
        observed: `(B, L, C)` bool.
        length: s, steps in a season.
    """
    last = past[:, -length:]
    lacking = -past.shape[1] % length  # steps to a whole season at the front
    shape = (-1, (past.shape[1] + lacking) // length, length, past.shape[2])
    by_place, known = (F.pad(part, (0, 0, lacking, 0)).reshape(shape) for part in (past, observed.long()))
    order = torch.arange(1, known.shape[1] + 1, device=past.device)[:, None, None]
    newest = (known * order).amax(1, keepdim=True)  # 0 where none is known
    value = by_place.gather(1, (newest - 1).clamp(min=0))[:, 0]
    return torch.where(newest[:, 0] > 0, value, last)


def _in_plain_operators(model: nn.Module) -> dict[str, str]:
    """Let the attentions of a model be computed without kernels of this package; in which way, by kind."""
    impls: dict[str, str] = {}
    for part in model.modules():
        if isinstance(part, Attention):
            part.impl = "sdpa" if type(part.pattern) is FullPattern else "reference"
            impls[attention_kind(part)] = part.impl
    return impls
