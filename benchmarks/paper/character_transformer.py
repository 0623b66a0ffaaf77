"""A causal transformer that reads a text character by character, and writes one; and its flops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from benchmarks.paper.text_windows import SYMBOLS, check_text_task
from tsattn.attention import attention_per_layer, build_attention
from tsattn.attention.caches import Cache
from tsattn.attention.cost import closed_form
from tsattn.attention.patterns import GlobalSlidingWindowPattern, Pattern, SlidingWindowPattern
from tsattn.backbones.base import Backbone, check_sizes
from tsattn.batch import Batch
from tsattn.descriptions import Description
from tsattn.errors import UserError
from tsattn.layers import Encoder
from tsattn.task import Output, Task

_STD = 0.2  # of characters and places at first: with GPT-2's 0.02 it takes hundreds of steps to tell neighbours apart


def causal_encoder(
    attention: Description | Sequence[Description], *, num_layers: int, tokens: int, rope: bool, **sizes: Any
) -> Encoder:
    """Build a causal encoder of so many tokens; sizes are ``d_model``, ``num_heads`` and ``d_ff``, 4 D by default."""
    check_sizes(**sizes, num_layers=num_layers, dropout=0.0)
    hidden = sizes.pop("d_ff")
    how = {**sizes, "max_length": tokens, "causal": True, "rope": rope}
    attentions = [build_attention(layer, **how) for layer in attention_per_layer(attention, num_layers)]
    return Encoder(attentions, 4 * sizes["d_model"] if hidden is None else hidden, 0.0)


class CharacterTransformer(Backbone):
    """Answers a piece of a text with its surprise at each character, see `benchmarks.paper.text_windows`.

    Heads have 64 components, and the token-wise networks 4 D hidden units by default.
    """

    POSITIONS = ("rotary", "learned")
    mup_roles: ClassVar[dict[str, str]] = {"embedding": "input", "position": "input", "logits": "output"}

    def __init__(
        self,
        task: Task,
        output: Output,
        *,
        d_model: int = 128,
        num_layers: int = 6,
        num_heads: int | None = None,
        d_ff: int | None = None,
        attention: Description | Sequence[Description] = "standard",
        positions: str = "rotary",
    ) -> None:
        super().__init__()
        if positions not in self.POSITIONS:
            raise UserError(f"positions must be one of {', '.join(self.POSITIONS)}, not {positions!r}")
        self.length = T = check_text_task(task)
        self.embedding = nn.Embedding(SYMBOLS, d_model)
        nn.init.normal_(self.embedding.weight, std=_STD)
        self.position = nn.Parameter(_STD * torch.randn(T, d_model)) if positions == "learned" else None
        heads = _heads(d_model) if num_heads is None else num_heads
        sizes = {"d_model": d_model, "num_layers": num_layers, "num_heads": heads, "d_ff": d_ff}
        self.encoder = causal_encoder(attention, **sizes, tokens=T, rope=positions == "rotary")
        self.logits = nn.Linear(d_model, SYMBOLS)

    @override
    def forward(self, batch: Batch) -> Tensor:
        text = batch.past[..., 0].long()
        logits = self.scores(text[:, :-1])
        return F.cross_entropy(logits.mT.float(), text[:, 1:], reduction="none")[..., None]

    def scores(self, text: Tensor, caches: Sequence[Cache] | None = None) -> Tensor:
        """Return the logits `(B, n, SYMBOLS)` of the character after each of `(B, n)`, after those in the caches."""
        tokens = self.embedding(text)
        if self.position is not None:
            before = 0 if caches is None else caches[0].length
            tokens = tokens + self.position[before : before + text.shape[1]]
        scores: Tensor = self.logits(self.encoder(tokens, caches=caches))
        return scores

    @torch.no_grad()
    def write(
        self, text: Tensor, count: int, *, caches: Sequence[Cache] | None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Continue a text `(B, n)` of at least one character by `count`, to `(B, n + count)`, at most T.

        Without caches, which are empty, the whole text is computed anew for each character. `generator` draws each by
        its probability; None takes the most probable one.
        """
        T = self.length
        if text.shape[1] < 1 or text.shape[1] + count > T:
            raise UserError(f"a text of 1 to {T - count} characters can be followed by {count}, not {text.shape[1]}")
        new = text
        for _ in range(count):
            last = self.scores(text if caches is None else new, caches)[:, -1]
            drawn = generator and torch.multinomial(last.softmax(-1), 1, generator=generator)
            new = last.argmax(-1, keepdim=True) if drawn is None else drawn
            text = torch.cat([text, new], dim=1)
        return text


def _heads(d_model: int) -> int:
    return max(1, d_model // 64)


def forward_flops(backbone: Mapping[str, Any], T: int) -> int:
    """Return the flops of a forward pass over T characters, in closed form, without the embedding and the read-out.

    One multiply-add is 2 flops. Of every model only pairs that a token may see are counted, so that closed forms,
    which count a square whole, are halved.
    """
    D = backbone["d_model"]
    hidden = 4 * D if backbone.get("d_ff") is None else backbone["d_ff"]
    heads = _heads(D) if backbone.get("num_heads") is None else backbone["num_heads"]
    total = 0
    for description in attention_per_layer(backbone["attention"], backbone["num_layers"]):
        attention = build_attention(description, d_model=D, num_heads=heads, max_length=T, causal=True)
        projection = closed_form(attention, T).projection_flops
        scores = heads * _causal_multiply_adds(attention.pattern, attention.projection.width, T)
        mixed = D * _pairs(attention.pattern, T)
        total += projection + 2 * (scores + mixed) + 2 * T * (2 * D * D + 2 * D * hidden)
    return total


def _pairs(pattern: Pattern, T: int) -> int:
    seen = min(T, pattern.window_size) if isinstance(pattern, SlidingWindowPattern) else T
    return T * seen - seen * (seen - 1) // 2


def _causal_multiply_adds(pattern: Pattern, width: int, T: int) -> int:
    if isinstance(pattern, SlidingWindowPattern):
        return _pairs(pattern, T) * width
    if isinstance(pattern, GlobalSlidingWindowPattern):
        parts = (pattern.global_part, pattern.global_rank), (pattern.window_part, pattern.window_rank)
        return sum(_causal_multiply_adds(part, rank, T) for part, rank in parts)
    whole = pattern.cost(width, T, causal=True, max_length=T).multiply_adds
    return (whole + T * width) // 2  # of each square of n tokens n (n + 1) / 2 pairs
