"""What swapped attention costs beside the original, at the longest context of the model."""

from __future__ import annotations

import math

import pandas as pd

from tsattn.attention.cost import closed_form
from tsattn.chronos.adapted_chronos import AdaptedChronos

__all__ = ["swap_cost"]


def swap_cost(adapted: AdaptedChronos) -> pd.DataFrame:
    """The closed-form cost of each swapped attention over the most tokens that it sees.

    Pairs with a special token, which share every window and level, are counted with all components.

    Returns:
        A row a layer: `layer`; `tokens`, the keys of a query (missing for attention among series, of which there may be
        any number, as are the flops there); `components` of a query or key, those of the original as
        `original_components` (a form of `btt` has many more); `score_parameters` of all heads; `score_flops` to score
        every pair, those of the original as `original_flops`, and their ratio `share`.
    """
    rows = []
    longest = adapted.family.layout(adapted.model)
    for site in adapted.sites:
        attention = adapted.swapped[site.name].attention
        heads, width = attention.num_heads, attention.projection.width
        queries = keys = longest.context_tokens + longest.special_tokens
        if site.stack in ("decoder", "cross"):
            queries = adapted.family.decoder_tokens(adapted.model)
            keys = keys if site.stack == "cross" else queries
        if site.is_over_time:
            tokens = longest.context_tokens if site.stack == "encoder" else keys
            cost = closed_form(attention, tokens)
            parameters, flops = cost.score_params, cost.score_flops + 2 * heads * width * (keys**2 - tokens**2)
        else:
            parameters, flops = attention.projection.num_params(), 2 * heads * width * queries * keys
        original = 2 * heads * attention.head_dim * queries * keys
        known = site.stack != "group"
        rows.append(
            {
                "layer": site.name,
                "tokens": keys if known else math.nan,
                "components": width,
                "original_components": attention.head_dim,
                "score_parameters": parameters,
                "score_flops": flops if known else math.nan,
                "original_flops": original if known else math.nan,
                "share": flops / original,
            }
        )
    return pd.DataFrame(rows)
