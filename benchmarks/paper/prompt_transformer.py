"""The transformer that reads a prompt token by token, and forecasts each value at the token of its point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn
from typing_extensions import override

from benchmarks.paper.character_transformer import causal_encoder
from benchmarks.paper.prompts import dimensions_of, pairs_of
from tsattn.backbones.base import Backbone
from tsattn.batch import Batch
from tsattn.descriptions import Description
from tsattn.layers import TokenEmbedding
from tsattn.task import Output, Task


class PromptTransformer(Backbone):
    """A causal transformer on the tokens `(x_1, 0), (0, y_1), (x_2, 0), ...` of a prompt; `d_ff` is 4 D by default."""

    mup_roles: ClassVar[dict[str, str]] = {"value": "output"}  # see tsattn.layers.optim

    def __init__(
        self,
        task: Task,
        output: Output,
        *,
        d_model: int = 64,
        num_layers: int = 6,
        num_heads: int = 8,
        d_ff: int | None = None,
        attention: Description | Sequence[Description] = "standard",
        positions: str = "learned",
    ) -> None:
        super().__init__()
        self.dimensions = dimensions_of(task)
        N = 2 * task.prediction_length - 1
        self.tokens = TokenEmbedding(self.dimensions + 1, d_model, N, positions, 0.0)
        sizes = {"d_model": d_model, "num_layers": num_layers, "num_heads": num_heads, "d_ff": d_ff}
        self.encoder = causal_encoder(attention, **sizes, tokens=N, rope=positions == "rotary")
        self.value = nn.Linear(d_model, 1)

    @override
    def forward(self, batch: Batch) -> Tensor:
        x, y = pairs_of(batch, self.dimensions)
        B, n, d = x.shape
        tokens = x.new_zeros(B, 2 * n - 1, d + 1)
        tokens[:, 0::2, :d] = x
        tokens[:, 1::2, d] = y
        out: Tensor = self.value(self.encoder(self.tokens(tokens))[:, 0::2])
        return out
