"""What swapped attention costs beside the original, at the longest context of the model."""

from __future__ import annotations

import pandas as pd

from tsattn.attention.cost import closed_form
from tsattn.chronos.adapted_chronos import AdaptedChronos

__all__ = ["swap_cost"]


def swap_cost(adapted: AdaptedChronos) -> pd.DataFrame:
    """The closed-form cost of each swapped attention over the most tokens that it sees.

    Pairs with a special token, which share every window and level, are counted with all components.

    Returns:
        A row a layer: `layer`; `tokens`; `components` of a query or key, those of the original as `original_components`
        (a form of `btt` has many more); `score_parameters` of all heads; `score_flops` to score every pair, those of
        the original as `original_flops`, and their ratio `share`.
    """
    rows = []
    longest = adapted.family.layout(adapted.model)
    for site in adapted.sites:
        attention = adapted.swapped[site.name].attention
        heads, width = attention.num_heads, attention.projection.width
        special, tokens = longest.special_tokens, longest.context_tokens
        if site.stack == "decoder":
            special, tokens = 0, adapted.family.decoder_tokens(adapted.model)
        cost = closed_form(attention, tokens)
        every = tokens + special
        flops = cost.score_flops + 2 * heads * width * (every**2 - tokens**2)
        original = 2 * heads * attention.head_dim * every**2
        rows.append(
            {
                "layer": site.name,
                "tokens": every,
                "components": width,
                "original_components": attention.head_dim,
                "score_parameters": cost.score_params,
                "score_flops": flops,
                "original_flops": original,
                "share": flops / original,
            }
        )
    return pd.DataFrame(rows)
