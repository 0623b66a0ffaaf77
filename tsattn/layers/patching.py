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
    Source: Nie et al., *A Time Series is Worth 64 Words* (ICLR 2023), section 3.1, who repeat the last step instead and
    so give the newest patch steps that nobody has seen.

    Args:
        context_length: L, steps of the series.
        patch_len: steps of a patch, at most L.
        stride: steps from one patch to the next: `patch_len` for plain patches, fewer for overlapping ones.

    Attributes:
        count: N, the number of patches.

    Raises:
        UserError: for sizes that do not fit, naming the valid ones.
    """

    def __init__(self, context_length: int, patch_len: int, stride: int) -> None:
        if not 1 <= patch_len <= context_length:
            raise UserError(f"patch_len must be from 1 to the context length {context_length}, not {patch_len}")
        if not 1 <= stride <= patch_len:
            raise UserError(
                f"stride must be from 1 to patch_len {patch_len}, so that no step is left out, not {stride}"
            )
        self.patch_len = patch_len
        self.stride = stride
        self.padding = -(context_length - patch_len) % stride
        self.count = (context_length + self.padding - patch_len) // stride + 1

    def __call__(self, series: Tensor) -> Tensor:
        """Map `(B, L)` to `(B, N, patch_len)`."""
        padded = F.pad(series[:, None], (self.padding, 0), mode="replicate")[:, 0] if self.padding else series
        return padded.unfold(1, self.patch_len, self.stride)

    def means(self, series: Tensor, observed: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The mean of the observed steps of each patch, 0 without any, and their number.

        Steps that repeat the first one at the front do not count.

        Args:
            series: `(B, L)`.
            observed: `(B, L)` bool; None if all is observed.

        Returns:
            `(B, N)`, and `(B, N)` int64.
        """
        observed = torch.ones_like(series, dtype=torch.bool) if observed is None else observed
        known = F.pad(torch.where(observed, series, 0.0), (self.padding, 0)).unfold(1, self.patch_len, self.stride)
        counts = F.pad(observed.long(), (self.padding, 0)).unfold(1, self.patch_len, self.stride).sum(-1)
        return known.sum(-1) / counts.clamp(min=1), counts

    def ends(self, steps: Tensor) -> Tensor:
        """From values of every step `(B, L)`, such as time stamps, those of the last step of each patch, `(B, N)`."""
        first = self.patch_len - 1 - self.padding
        # a front patch always reaches a real step, as the padding is shorter than a stride
        return steps[:, first :: self.stride]
