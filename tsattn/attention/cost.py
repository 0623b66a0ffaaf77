"""Cost of an attention: parameters, floating-point operations and key cache, computed and measured.

The methods `cost` of projections and patterns have the closed forms of sections 3 and 4 of Kuang et al. (ICML 2025).
One multiply-add is 2 flops here (the authors count it as 1).

Symbols: T tokens, D model width, H query heads, G key heads, W components of a query or key (r for low-rank ones).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tsattn.attention import Attention, build_attention
from tsattn.attention.patterns import PatternCall, Tokens
from tsattn.descriptions import Description
from tsattn.errors import UserError, whole_number
from tsattn.ops.flops import executed_flops
from tsattn.ops.masks import default_positions

_REFERENCE = """\
Flops to form scores are measured on the plain reference: it forms every pair
with every component, then masks. The next row counts what the chosen
implementation executes on a CPU, zero-padded components included."""


@dataclass(frozen=True)
class AttentionCost:
    """Closed-form cost of an attention over T tokens, for a batch of one.

    Value and output projections, the softmax and the mixing of values are left out: they cost the same in every kind.

    Attributes:
        score_params_per_head: numbers in the bilinear form of one head, or the table of its pattern; biases and norms
            are left out.
        score_params: these numbers for all heads together.
        projection_flops: flops that map T tokens to the queries and keys of all heads.
        score_flops_per_head: flops that form the scores of one query head.
        score_flops: flops that form the scores of all H heads.
        cached_keys_per_head: most key numbers that are cached at a time, for one key head.
        cached_keys: this number for all key heads: G, H, or 1 for BTT mapped on the query side.
    """

    score_params_per_head: int
    score_params: int
    projection_flops: int
    score_flops_per_head: int
    score_flops: int
    cached_keys_per_head: int
    cached_keys: int

    def cached_key_bytes(self, dtype: torch.dtype = torch.float32) -> int:
        """Bytes of all cached keys in a number type."""
        return self.cached_keys * dtype.itemsize


@dataclass(frozen=True)
class MeasuredCost:
    """Counted cost of a built attention; see `AttentionCost` for the names.

    Attributes:
        score_params: elements of the projection's matrices and of the pattern's table; biases are left out.
        projection_flops: flops that make queries and keys.
        score_flops: flops that the `reference` executes to form the scores, for all heads.
        executed_flops: flops that `auto` executes on a CPU to form the scores and mix the values, for all heads. They
            include components padded with zeros.
    """

    score_params: int
    projection_flops: int
    score_flops: int
    executed_flops: int


def attention_cost(
    description: Description,
    *,
    d_model: int,
    num_heads: int,
    tokens: int,
    causal: bool = False,
    max_length: int | None = None,
) -> AttentionCost:
    """Compute the closed-form cost of the attention that a description names.

    Args:
        description: a kind's name, or ``{kind: ..., argument: value, ...}``.
        d_model: D, the width of the tokens.
        num_heads: H, the number of query heads.
        tokens: T.
        causal: whether each token sees only itself and earlier tokens. This changes only the closed forms of windows.
            A kernel may skip half of a square of scores; as in the paper, all of them are counted.
        max_length: the length that blocks by number divide; T by default.

    Raises:
        UserError: for a wrong description or size, or a kind without a closed form.
    """
    longest = whole_number("tokens", tokens) if max_length is None else max_length
    attention = build_attention(description, d_model=d_model, num_heads=num_heads, max_length=longest, causal=causal)
    return closed_form(attention, tokens)


def closed_form(attention: Attention, tokens: int) -> AttentionCost:
    """Compute the closed-form cost of a built attention over T tokens; see `attention_cost`."""
    max_length = _checked_length(attention, tokens)
    made = attention.projection.cost(attention.d_model)
    width = attention.projection.width
    scored = attention.pattern.cost(width, tokens, causal=attention.causal, max_length=max_length)
    return AttentionCost(
        score_params_per_head=made.params_per_head + scored.params,
        score_params=made.params + scored.params * attention.num_heads,
        # each number of a (block-diagonal) factor is multiplied once for each token
        projection_flops=2 * tokens * made.params,
        score_flops_per_head=2 * scored.multiply_adds,
        score_flops=2 * scored.multiply_adds * attention.num_heads,
        cached_keys_per_head=scored.cached_keys,
        cached_keys=scored.cached_keys * made.key_heads,
    )


def measured(attention: Attention, tokens: int) -> MeasuredCost:
    """Count the parameters of a built attention, and the flops that it executes on T tokens, for a batch of one.

    The reference forms every pair with all W components, then masks forbidden pairs. So it takes `2 T^2 W` flops a head
    for windows and levels too, whereas the closed form counts only the pairs of the pattern. The tensors have no
    storage, so T may be large.

    Raises:
        UserError: if `tokens` is below 1 or above the attention's `max_length`.
    """
    from torch.utils.flop_counter import FlopCounterMode  # imported late: it imports Triton

    max_length = _checked_length(attention, tokens)
    with FlopCounterMode(display=False) as projecting:
        q, k = _queries_and_keys(attention, tokens)
    pattern = attention.pattern
    on_meta = copy.deepcopy(pattern).to("meta") if isinstance(pattern, nn.Module) else pattern

    def call(device: str, impl: str) -> PatternCall:
        """The call that `Attention` makes to its pattern for T tokens without padding or other arguments."""
        on = torch.device(device)
        positions = default_positions(tokens, align=pattern.align, max_length=max_length, device=on)
        known = Tokens(positions, positions, max_length=max_length, counted=True)
        return PatternCall(known, attention.projection.scale, attention.causal, impl=impl)

    v = q.new_empty(1, attention.num_kv_heads, tokens, 0)  # no components, so that only the scores are counted
    with torch.no_grad(), FlopCounterMode(display=False) as scoring:
        on_meta(q, k, v, call("meta", "reference"))
    heads_and_widths = (*((t.shape[1], t.shape[3]) for t in (q, k)), (attention.num_kv_heads, attention.head_dim))
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        q, k, v = (torch.empty(1, heads, tokens, width) for heads, width in heads_and_widths)
        executed = executed_flops(lambda: pattern(q, k, v, call("cpu", "auto")))
    return MeasuredCost(
        score_params=attention.projection.num_params() + pattern.num_params(),
        projection_flops=projecting.get_total_flops(),
        score_flops=scoring.get_total_flops(),
        executed_flops=executed,
    )


def measured_key_bytes(attention: Attention, tokens: int, dtype: torch.dtype = torch.float32) -> int:
    """Count the most bytes that the key cache takes while T tokens come one by one, for a batch of one.

    Storage grows by doubling, so an attention built for more than T tokens may take more than the closed form.

    Raises:
        UserError: if this attention cannot decode (see `Attention.new_cache`), or `tokens` is out of its range.
    """
    _checked_length(attention, tokens)
    cache = attention.new_cache(1)
    k = _queries_and_keys(attention, tokens)[1].to(dtype)
    v = k.new_empty(1, attention.num_kv_heads, tokens, 0)
    peak = 0
    with torch.no_grad():
        for step in range(tokens):
            cache.append(k[:, :, step : step + 1], v[:, :, step : step + 1])
            peak = max(peak, cache.key_nbytes)
    return peak


def cost_table(attention: Attention, tokens: int, dtype: torch.dtype = torch.float32) -> str:
    """A table of each cost, in closed form and measured, with notes where they differ."""
    form, found, held = closed_form(attention, tokens), measured(attention, tokens), ""
    notes = [_REFERENCE] if found.score_flops > form.score_flops else []
    try:
        held = f"{measured_key_bytes(attention, tokens, dtype):,}"
    except UserError as reason:
        notes.append(f"The cache is not measured: {reason}.")
    rows: dict[str, tuple[int | str, int | str]] = {
        "score parameters, a head": (form.score_params_per_head, ""),
        "score parameters, all heads": (form.score_params, found.score_params),
        "flops to make queries and keys": (form.projection_flops, found.projection_flops),
        "flops to form scores, a head": (form.score_flops_per_head, found.score_flops // attention.num_heads),
        "flops to form scores, all heads": (form.score_flops, found.score_flops),
        "flops executed on a CPU, with values": ("", found.executed_flops),
        "cached key numbers, a key head": (form.cached_keys_per_head, ""),
        "cached key numbers, all key heads": (form.cached_keys, ""),
        f"cached key bytes, {str(dtype).removeprefix('torch.')}": (form.cached_key_bytes(dtype), held),
    }
    lines = [f"{'one attention layer':36}{'closed form':>20}{'measured':>20}"]
    for name, both in rows.items():
        cells = (f"{number if isinstance(number, str) else f'{number:,}':>20}" for number in both)
        lines.append(f"{name:36}{''.join(cells)}".rstrip())
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _queries_and_keys(attention: Attention, tokens: int) -> tuple[Tensor, Tensor]:
    """Queries and keys of T tokens, on the meta device."""
    projection = copy.deepcopy(attention.projection).to(device="meta", dtype=torch.float32)
    x = torch.empty(1, tokens, attention.d_model, device="meta")
    with torch.no_grad():
        q, k = projection(x, x)
    return q, k


def _checked_length(attention: Attention, tokens: int) -> int:
    """The length that blocks refer to: `max_length`, or T for an attention without it."""
    whole_number("tokens", tokens)
    if attention.max_length is None:
        return tokens
    if attention.max_length < tokens:
        raise UserError(f"{tokens} tokens are more than max_length {attention.max_length}")
    return attention.max_length
