"""Windows with the context that a predictor looks at."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from tsattn.batch import Batch
from tsattn.errors import UserError

__all__ = ["last_context"]


def last_context(batch: Batch, context_length: int) -> Batch:
    """The windows with the last steps of their context alone; the horizon stays.

    Args:
        batch: windows of at least L steps of context; they are given back themselves where they have no more.
        context_length: L.

    Raises:
        UserError: for windows of fewer steps.
    """
    length = batch.past.shape[1]
    if length < context_length:
        raise UserError(
            f"the predictor looks at {context_length} past steps, and the windows of the batch have {length}"
        )
    if length == context_length:
        return batch

    def cut(part: Tensor | None) -> Tensor | None:
        return None if part is None else part[:, length - context_length :]

    return replace(
        batch,
        past=batch.past[:, length - context_length :],
        past_observed=cut(batch.past_observed),
        time=cut(batch.time),
        past_covariates=cut(batch.past_covariates),
        future_covariates=cut(batch.future_covariates),
        past_covariates_observed=cut(batch.past_covariates_observed),
        future_covariates_observed=cut(batch.future_covariates_observed),
    )
