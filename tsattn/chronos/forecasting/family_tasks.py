"""How each family of Chronos models forecasts series, and the loss that it is trained by.

Shape letters as in `tsattn.chronos.forecasting.channel_rows`; Q quantile levels.
"""

from __future__ import annotations

import contextlib
import logging
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from tsattn.chronos.forecasting.channel_rows import ChannelRows, is_constant
from tsattn.chronos.forecasting.chronos_forecasts import ROWS_AT_ONCE
from tsattn.chronos.forecasting.path_sampling import Sampling

__all__ = ["TASKS", "FamilyTask"]

_MOST_NUMBERS = 2**24  # of which torch.quantile takes quantiles, as the pipelines do
_NOT_A_LABEL = -100  # which the cross-entropy of transformers leaves out


class FamilyTask(ABC):
    """What a family does with series.

    Attributes:
        takes_covariates: whether covariates are of use to it.
        token: what a token of its encoder is, in one word.
        draws_paths: whether it forecasts by paths.
        depends_on_level: whether the same changes at another level are another forecast.
        most_rows: series that are forecast at once.
    """

    takes_covariates: bool = False
    token: str = "patch"
    draws_paths: bool = False
    depends_on_level: bool = False
    most_rows: int = ROWS_AT_ONCE

    def steps_at_once(self, pipeline: Any) -> int:
        """The longest horizon that is forecast without going on from forecasts."""
        return int(pipeline.model_prediction_length)

    def token_steps(self, pipeline: Any) -> int:
        """Steps from one token of the context to the next."""
        return int(pipeline.inner_model.chronos_config.input_patch_stride)

    def special_ends(self, pipeline: Any, count: int) -> list[int | str]:
        """What the tokens after those of the context stand for, see `Backbone.token_ends`."""
        return ["window"] * count

    def levels(self, pipeline: Any) -> tuple[float, ...] | None:
        """The quantile levels that a model forecasts, None if it draws paths."""
        return tuple(map(float, pipeline.quantiles))

    @abstractmethod
    def quantiles(
        self, pipeline: Any, rows: ChannelRows, horizon: int, levels: Sequence[float], sampling: Sampling
    ) -> Tensor:
        """`(B, C, horizon, Q)`, as `predict_quantiles` of the pipeline gives them: those of a step may cross."""

    def paths(self, pipeline: Any, rows: ChannelRows, horizon: int, sampling: Sampling) -> Tensor:
        """The paths `(B, C, horizon, N)`, as `predict` of a pipeline that draws some gives them."""
        raise NotImplementedError(f"{type(self).__name__} draws no paths")

    @abstractmethod
    def loss(self, pipeline: Any, rows: ChannelRows) -> Tensor:
        """What the original was trained by, over the observed targets of as many steps as are forecast at once."""


class _ByChannel(FamilyTask):
    """Forecasts every channel by itself."""

    @override
    def quantiles(
        self, pipeline: Any, rows: ChannelRows, horizon: int, levels: Sequence[float], sampling: Sampling
    ) -> Tensor:
        at_once = max(1, min(self.most_rows, _MOST_NUMBERS // self.numbers(pipeline, horizon, sampling)))
        with _silent():
            parts = [
                self.of_contexts(pipeline, part, horizon, levels, sampling)
                for part in torch.split(rows.by_channel, at_once)
            ]
        return torch.cat(parts).reshape(*rows.past.shape[:2], horizon, len(levels))

    def of_contexts(
        self, pipeline: Any, contexts: Tensor, horizon: int, levels: Sequence[float], sampling: Sampling
    ) -> Tensor:
        """Quantiles `(R, horizon, Q)` of series `(R, L)`."""
        found: Tensor = pipeline.predict_quantiles(
            contexts.cpu(), prediction_length=horizon, quantile_levels=[*levels], **self.options(sampling)
        )[0]
        return found

    def options(self, sampling: Sampling) -> dict[str, Any]:
        """Further arguments of `predict_quantiles`."""
        return {}

    @abstractmethod
    def numbers(self, pipeline: Any, horizon: int, sampling: Sampling) -> int:
        """Numbers of a series of which the pipeline takes quantiles at once."""


class _T5Task(_ByChannel):
    """Tokens of values over the mean of their absolutes; paths that are drawn token by token; cross-entropy."""

    token = "step"
    most_rows = 64
    draws_paths = True
    depends_on_level = True

    @override
    def token_steps(self, pipeline: Any) -> int:
        return 1

    @override
    def special_ends(self, pipeline: Any, count: int) -> list[int | str]:
        return ["end"] * count

    @override
    def levels(self, pipeline: Any) -> None:
        return None

    @override
    def paths(self, pipeline: Any, rows: ChannelRows, horizon: int, sampling: Sampling) -> Tensor:
        _warn_of_level(pipeline, rows)
        parts = []
        with _silent():
            for part in torch.split(rows.by_channel, self.most_rows):
                with sampling.of_series(len(part), pipeline.inner_model.device):
                    parts.append(pipeline.predict(part.cpu(), prediction_length=horizon, num_samples=sampling.paths))
        drawn = torch.cat(parts).transpose(1, 2)  # (R, horizon, N)
        return drawn.reshape(*rows.past.shape[:2], *drawn.shape[1:])

    @override
    def quantiles(
        self, pipeline: Any, rows: ChannelRows, horizon: int, levels: Sequence[float], sampling: Sampling
    ) -> Tensor:
        _warn_of_level(pipeline, rows)
        return super().quantiles(pipeline, rows, horizon, levels, sampling)

    @override
    def of_contexts(
        self, pipeline: Any, contexts: Tensor, horizon: int, levels: Sequence[float], sampling: Sampling
    ) -> Tensor:
        with sampling.of_series(len(contexts), pipeline.inner_model.device):
            return super().of_contexts(pipeline, contexts, horizon, levels, sampling)

    @override
    def options(self, sampling: Sampling) -> dict[str, Any]:
        return {"num_samples": sampling.paths}

    @override
    def numbers(self, pipeline: Any, horizon: int, sampling: Sampling) -> int:
        return horizon * (sampling.paths or int(pipeline.tokenizer.config.num_samples))

    @override
    def loss(self, pipeline: Any, rows: ChannelRows) -> Tensor:
        assert rows.target is not None
        tokenizer, model = pipeline.tokenizer, pipeline.inner_model
        steps = self.steps_at_once(pipeline)
        target = rows.target.flatten(0, 1)[:, :steps].cpu()
        target = F.pad(target, (0, steps - target.shape[1]), value=torch.nan)
        ids, mask, scale = tokenizer.context_input_transform(rows.by_channel.cpu())
        labels, is_label = tokenizer.label_input_transform(target, scale)
        labels[~is_label] = _NOT_A_LABEL
        ids, mask, labels = (part.to(model.device) for part in (ids, mask, labels))
        out = model(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False)
        loss: Tensor = out.loss
        return loss if bool((labels != _NOT_A_LABEL).any()) else out.logits.sum() * 0


class _BoltTask(_ByChannel):
    """All quantiles of the horizon at once; their quantile loss on the scale of the context."""

    @override
    def numbers(self, pipeline: Any, horizon: int, sampling: Sampling) -> int:
        return self.steps_at_once(pipeline) * len(pipeline.quantiles) ** 2

    @override
    def loss(self, pipeline: Any, rows: ChannelRows) -> Tensor:
        assert rows.target is not None
        target = rows.target.flatten(0, 1)[:, : self.steps_at_once(pipeline)]
        # on the scale of a context without spread a change is some 100,000, beside which nothing else would count
        target = target.masked_fill(is_constant(rows.by_channel), torch.nan)
        loss: Tensor = pipeline.inner_model(context=rows.by_channel, target=target).loss
        return loss


class _Chronos2Task(FamilyTask):
    """Channels and covariates of a series form a group, whose members see each other; quantile loss of the channels."""

    takes_covariates = True

    @override
    def special_ends(self, pipeline: Any, count: int) -> list[int | str]:
        config = pipeline.inner_model.chronos_config
        special, length = int(config.use_reg_token), int(config.output_patch_size)
        return ["window"] * special + [length * number for number in range(1, count - special + 1)]

    @override
    def quantiles(
        self, pipeline: Any, rows: ChannelRows, horizon: int, levels: Sequence[float], sampling: Sampling
    ) -> Tensor:
        inputs: Any = rows.past.cpu()
        if rows.past_covariates is not None or rows.future_covariates is not None:
            inputs = [_with_covariates(rows, number, horizon) for number in range(len(rows.past))]
        with _silent():
            found, _ = pipeline.predict_quantiles(inputs, prediction_length=horizon, quantile_levels=[*levels])
        return torch.stack(list(found))

    @override
    def loss(self, pipeline: Any, rows: ChannelRows) -> Tensor:
        assert rows.target is not None
        model, (B, C, L) = pipeline.inner_model, rows.past.shape
        T = min(rows.target.shape[-1], self.steps_at_once(pipeline))
        contexts, ahead, targets = [rows.past], [torch.full_like(rows.past[..., :1], torch.nan).expand(-1, -1, T)], []
        targets.append(rows.target[..., :T])
        if rows.past_covariates is not None:
            contexts.append(rows.past_covariates)
            ahead.append(rows.past.new_full((*rows.past_covariates.shape[:2], T), torch.nan))
        if rows.future_covariates is not None:
            contexts.append(rows.future_covariates[..., :L])
            ahead.append(rows.future_covariates[..., L : L + T])
        members = sum(part.shape[1] for part in contexts)
        targets.append(rows.past.new_full((B, members - C, T), torch.nan))
        group = torch.arange(B, device=rows.past.device).repeat_interleave(members)
        loss: Tensor = model(
            context=torch.cat(contexts, 1).flatten(0, 1),
            group_ids=group,
            future_covariates=torch.cat(ahead, 1).flatten(0, 1),
            future_target=torch.cat(targets, 1).flatten(0, 1),
            num_output_patches=math.ceil(T / model.chronos_config.output_patch_size),
        ).loss
        return loss


TASKS: dict[str, FamilyTask] = {"t5": _T5Task(), "bolt": _BoltTask(), "chronos2": _Chronos2Task()}
"""By the name of the family."""


def _with_covariates(rows: ChannelRows, number: int, horizon: int) -> dict[str, Any]:
    """One window as `Chronos2Pipeline` takes it."""
    L = rows.past.shape[-1]
    past: dict[str, Tensor] = {}
    ahead: dict[str, Tensor] = {}
    if rows.past_covariates is not None:
        past |= {f"past {place}": row.cpu() for place, row in enumerate(rows.past_covariates[number])}
    if rows.future_covariates is not None:
        for place, row in enumerate(rows.future_covariates[number].cpu()):
            past[f"future {place}"], ahead[f"future {place}"] = row[:L], row[L : L + horizon]
    return {"target": rows.past[number].cpu(), "past_covariates": past, "future_covariates": ahead}


def _warn_of_level(pipeline: Any, rows: ChannelRows) -> None:
    """Warn of contexts that are not constant, but hardly more than that to Chronos-T5."""
    centers = pipeline.tokenizer.centers
    size = float(centers[1] - centers[0])  # of a token
    if bool(((rows.spread > 0) & (rows.spread < size * rows.past.abs().nanmean(-1))).any()):
        warnings.warn(
            f"Chronos-T5 tells steps of {100 * size:.2g} % of the level of a series apart, and some series change by "
            "less: take their level away before, or take Chronos-Bolt or Chronos-2, which do so themselves",
            stacklevel=2,
        )


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """What the pipelines say of long horizons is said by `beyond_training`."""
    from chronos import chronos

    level = chronos.logger.level
    chronos.logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="We recommend keeping prediction length")
            yield
    finally:
        chronos.logger.setLevel(level)
