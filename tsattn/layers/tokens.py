"""From a window to tokens, and from tokens to its forecast: normalisation, patches, embedding and heads.

Shape letters: B windows, L context length, T prediction length, C channels, N tokens, D their width, Q quantiles.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from tsattn.errors import UserError
from tsattn.ops.dropout import dropout


class InstanceNorm:
    """The level and scale of each window and channel, from the observed steps of its context.

    Source: Kim et al., *Reversible Instance Normalization* (ICLR 2022), without the affine part.

    Args:
        past: `(B, L, C)`, with missing values imputed.
        observed: `(B, L, C)` bool; None if all values are observed.
        subtract_last: use the last observed step as level instead of the mean; this suits a series that wanders.

    Attributes:
        past: `(B, L, C)`; steps before the first observed step, whose values are unknown, get the mean.
        level: `(B, 1, C)`, subtracted from the window: the mean of the observed steps, or the last observed step. In a
            window without observed steps the imputed steps are used.
        scale: `(B, 1, C)`, the standard deviation about the mean; 1 in a window without observed steps.
    """

    def __init__(self, past: Tensor, observed: Tensor | None = None, *, subtract_last: bool = False) -> None:
        variance, mean = torch.var_mean(past, dim=1, correction=0, keepdim=True)
        level = past[:, -1:] if subtract_last else mean
        if observed is not None:
            count = observed.sum(1, keepdim=True)
            known = count > 0
            mean = torch.where(known, (past * observed).sum(1, keepdim=True) / count.clamp(min=1), mean)
            counted = observed.cumsum(1)
            if subtract_last:  # the last observed step is the first at which the count is complete
                level = torch.where(known, past.gather(1, counted.argmax(1, keepdim=True)), level)
            else:
                level = mean
            variance = ((past - mean) * observed).square().sum(1, keepdim=True) / count.clamp(min=1)
            variance = torch.where(known, variance, 1.0)
            past = torch.where((counted > 0) | ~known, past, mean)
        self.past = past
        self.level = level
        self.scale = (variance + 1e-5).sqrt()

    def normalised(self) -> Tensor:
        """The context on the scale of the window, `(B, L, C)`."""
        return (self.past - self.level) / self.scale

    def restore(self, forecast: Tensor) -> Tensor:
        """Convert a forecast `(B, T, C)` or `(B, T, C, Q)` from the scale of the window to the scale of `past`."""
        if forecast.dim() > self.level.dim():
            return forecast * self.scale[..., None] + self.level[..., None]
        return forecast * self.scale + self.level


class Patches:
    """Cuts the time axis into patches of `patch_len` steps; a new patch begins every `stride` steps.

    The last patch always ends at the last step; missing steps at the front repeat the first step. Source: Nie et al.,
    *A Time Series is Worth 64 Words* (ICLR 2023). In its section 3.1, patches begin at the first step and repeat
    the last step for a stride. With `pad_end` the patches are equal to theirs if `stride` divides `L - patch_len`.

    Args:
        context_length: L, steps of the series.
        patch_len: steps of a patch, at most L.
        stride: steps from one patch to the next: `patch_len` for plain patches, fewer for overlapping patches.
        pad_end: add a patch, a stride after the last; its steps beyond the series repeat the last step, also for
            covariates and calendar features.

    Attributes:
        count: N, the number of patches.

    Raises:
        UserError: for sizes that do not fit; the message names the valid sizes.
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
        """The mean of the observed steps of each patch (0 without observed steps), and their number.

        Padding, which repeats the first or last step, does not count.

        Args:
            series: `(B, L)`.
            observed: `(B, L)` bool; None if all steps are observed.

        Returns:
            `(B, N)`, and `(B, N)` int64.
        """
        observed = torch.ones_like(series, dtype=torch.bool) if observed is None else observed
        paddings = (self.padding, self.end_padding)
        known = F.pad(torch.where(observed, series, 0.0), paddings).unfold(1, self.patch_len, self.stride)
        counts = F.pad(observed.long(), paddings).unfold(1, self.patch_len, self.stride).sum(-1)
        return known.sum(-1) / counts.clamp(min=1), counts

    def ends(self, steps: Tensor) -> Tensor:
        """Take the value at the last step of each patch, `(B, N)`, from a series `(B, L)`.

        A patch that reaches beyond the series gets the value of the last step.
        """
        first = self.patch_len - 1 - self.padding
        # the first patch always ends at a real step, as the padding is shorter than a stride
        ends = steps[:, first :: self.stride]
        return torch.cat([ends, steps[:, -1:]], 1) if self.end_padding else ends


class Dropout(nn.Dropout):
    """`torch.nn.Dropout`, computed by `tsattn.ops.dropout`, which is much faster on a CPU.

    Args:
        p: the probability of dropping a number in training, in [0, 1).

    Raises:
        UserError: for `p` outside [0, 1).
    """

    def __init__(self, p: float) -> None:
        if not 0 <= p < 1:
            raise UserError(f"dropout must lie in [0, 1), not {p}")
        super().__init__(p)

    @override
    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        """Drop numbers of `input`, of any shape, and add `residual` to the result in the same pass."""
        return dropout(input, self.p, self.training, residual=residual)

    @override
    def extra_repr(self) -> str:
        return f"p={self.p}"


class TokenEmbedding(nn.Module):
    """A token for each time step or patch: a linear map of its values, plus a learned position.

    Args:
        num_inputs: values of a step or patch.
        d_model: D, the width of the tokens.
        max_length: the largest number of tokens.
        positions: ``learned`` adds a vector for each position; ``rotary`` (done by the attention) and ``none`` do not.
        dropout: probability of dropping a number of a token in training.
        mask: probability of hiding the values of a whole step or patch in training. Its values become zeros; its
            position and `term` stay. Unlike dropout, this does not scale the other tokens up.

    Raises:
        UserError: for unknown `positions`, or a `mask` outside [0, 1).
    """

    POSITIONS = ("learned", "rotary", "none")
    mup_roles: ClassVar[dict[str, str]] = {"value": "input", "position": "input"}  # see tsattn.layers.optim

    def __init__(
        self, num_inputs: int, d_model: int, max_length: int, positions: str, dropout: float, mask: float = 0.0
    ) -> None:
        super().__init__()
        if not 0 <= mask < 1:
            raise UserError(f"patch_mask, the share of masked patches, must lie in [0, 1), not {mask}")
        if positions not in self.POSITIONS:
            raise UserError(f"positions must be one of {', '.join(self.POSITIONS)}, not {positions!r}")
        self.value = nn.Linear(num_inputs, d_model)
        # in place: a new tensor on the device meta, as of a model that is loaded, would import the compiler
        self.position = nn.Parameter(torch.randn(max_length, d_model).mul_(0.02)) if positions == "learned" else None
        self.dropout = Dropout(dropout)
        self.mask = mask

    def forward(self, x: Tensor, term: Tensor | None = None) -> Tensor:
        """Tokens `(B G, N, D)`.

        Args:
            x: `(B G, N, num_inputs)` steps or patches; each of B windows has G series, which are adjacent.
            term: `(B, N, D)` or `(B, 1, D)`, added to the tokens of all series of a window, see `Covariates`.
        """
        tokens = self.value(x)
        if self.training and self.mask > 0:
            # drawn for each series, by the global generator, whose state a checkpoint keeps
            hidden = torch.rand(tokens.shape[:2], device=tokens.device) < self.mask
            tokens = torch.where(hidden[..., None], self.value.bias, tokens)
        if self.position is not None:
            tokens = tokens + self.position[-x.shape[1] :]
        if term is not None:
            tokens = (tokens.unflatten(0, (term.shape[0], -1)) + term[:, None]).flatten(0, 1)
        out: Tensor = self.dropout(tokens)
        return out


class DirectHead(nn.Module):
    """Forecasts all steps of the horizon at once: a linear map over time, then one over the width of the tokens.

    Args:
        context_length: L, the number of tokens.
        prediction_length: T.
        d_model: D, the width of the tokens.
        num_outputs: numbers to forecast for each step.
    """

    mup_roles: ClassVar[dict[str, str]] = {"time": "input", "value": "output"}  # see tsattn.layers.optim

    def __init__(self, context_length: int, prediction_length: int, d_model: int, num_outputs: int) -> None:
        super().__init__()
        self.time = nn.Linear(context_length, prediction_length)
        self.value = nn.Linear(d_model, num_outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map `(B, L, D)` to `(B, T, num_outputs)`."""
        out: Tensor = self.value(self.time(tokens.transpose(1, 2)).transpose(1, 2))
        return out


class FlattenHead(nn.Module):
    """Forecasts all steps of the horizon at once: a linear map of all tokens, concatenated.

    Args:
        num_tokens: N.
        prediction_length: T.
        d_model: D, the width of the tokens.
        num_outputs: numbers to forecast for each step.
    """

    mup_roles: ClassVar[dict[str, str]] = {"flat": "output"}  # see tsattn.layers.optim

    def __init__(self, num_tokens: int, prediction_length: int, d_model: int, num_outputs: int = 1) -> None:
        super().__init__()
        self.num_outputs = num_outputs
        self.flat = nn.Linear(num_tokens * d_model, prediction_length * num_outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map `(B, N, D)` to `(B, T, num_outputs)`."""
        out: Tensor = self.flat(tokens.flatten(1)).unflatten(-1, (-1, self.num_outputs))
        return out
