"""From a series to patches: short stretches of steps that become one token each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.errors import UserError

__all__ = ["Patches"]


class Patches:
    """Cuts the time axis into stretches of `patch_len` steps, a new one every `stride` steps.

    The last patch ends at the last step, whatever the length: missing steps at the front repeat the first step.
    Source: Nie et al., *A Time Series is Worth 64 Words* (ICLR 2023), section 3.1, who begin with the first step and
    repeat the last one for a stride. With `pad_end` the patches are theirs where a stride divides L less `patch_len`.

    Args:
        context_length: L, steps of the series.
        patch_len: steps of a patch, at most L.
        stride: steps from one patch to the next: `patch_len` for plain patches, fewer for overlapping ones.
        pad_end: one more patch, a stride after the last, whose steps beyond the series repeat its last step, also where
            covariates and calendar features are cut.

    Attributes:
        count: N, the number of patches.

    Raises:
        UserError: for sizes that do not fit, naming the valid ones.
    """

    def __init__(self, context_length: int, patch_len: int, stride: int, *, pad_end: bool = False) -> None:
        if not 1 <= patch_len <= context_length:
            raise UserError(f"patch_len must be from 1 to the context length {context_length}, not {patch_len}")
        if not 1 <= stride <= patch_len:
            raise UserError(
                f"stride must be from 1 to patch_len {patch_len}, so that no step is left out, not {stride}"
            )
        self.patch_len = patch_len
        self.stride = stride
        self.padding = -(context_length - patch_len) % stride
        self.end_padding = stride if pad_end else 0
        self.count = (self.padding + context_length + self.end_padding - patch_len) // stride + 1

    def __call__(self, series: Tensor) -> Tensor:
        """Map `(B, L)` to `(B, N, patch_len)`."""
        paddings = (self.padding, self.end_padding)
        padded = F.pad(series[:, None], paddings, mode="replicate")[:, 0] if any(paddings) else series
        return padded.unfold(1, self.patch_len, self.stride)

    def means(self, series: Tensor, observed: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The mean of the observed steps of each patch, 0 without any, and their number.

        Steps that repeat the first or the last one do not count.

        Args:
            series: `(B, L)`.
            observed: `(B, L)` bool; None if all is observed.

        Returns:
            `(B, N)`, and `(B, N)` int64.
        """
        observed = torch.ones_like(series, dtype=torch.bool) if observed is None else observed
        paddings = (self.padding, self.end_padding)
        known = F.pad(torch.where(observed, series, 0.0), paddings).unfold(1, self.patch_len, self.stride)
        counts = F.pad(observed.long(), paddings).unfold(1, self.patch_len, self.stride).sum(-1)
        return known.sum(-1) / counts.clamp(min=1), counts

    def ends(self, steps: Tensor) -> Tensor:
        """From values of every step `(B, L)`, such as time stamps, those of the last step of each patch, `(B, N)`.

        Of a patch that reaches beyond the series they are those of its last step.
        """
        first = self.patch_len - 1 - self.padding
        # a front patch always reaches a real step, as the padding is shorter than a stride
        ends = steps[:, first :: self.stride]
        return torch.cat([ends, steps[:, -1:]], 1) if self.end_padding else ends
