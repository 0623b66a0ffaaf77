"""Whether data can be of the distribution of a model."""

from __future__ import annotations

from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.target_transforms import check_counts
from tsattn.errors import UserError
from tsattn.task import Output

__all__ = ["check_counts", "check_distribution"]


def check_distribution(output: Output, data: ForecastDataModule) -> None:
    """Refuse data that the distribution of an output cannot be of.

    Args:
        output: of the model.
        data: set up.

    Raises:
        UserError: for a distribution of counts and values that are none, or are transformed.
    """
    if output.distribution != "negative_binomial" or data.panel is None:
        return
    if data.transform is not None:
        raise UserError(
            f"distribution {output.distribution} is of counts as they are: leave out transform "
            f"{data.transform['kind']}, or take distribution student_t"
        )
    check_counts(data.panel, f"distribution {output.distribution}")
